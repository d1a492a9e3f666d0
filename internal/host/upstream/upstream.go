// Package upstream says on whom this machine depends: its gateways, resolvers and time servers.
//
// Nothing goes in but the routes of the kernel and files of the machine. Out come addresses, and
// names that somebody has to look up, each with what it is in words. It must never change anything,
// ask a server, or read a table of routes as long as the Internet's.
package upstream

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"levee/internal/kernel"
)

// Bounds of what is read.
const (
	mostRoutes = 1024     // the default ones come first, as the kernel walks its tables
	mostBytes  = 64 << 10 // of a file
	most       = 256      // addresses and names
)

// Servers are those on whom the machine depends, with what they are in words.
type Servers struct {
	Addresses map[netip.Addr]string
	Names     map[string]string // that have to be looked up
}

// Add adds an address, or a name; what is neither, and loopback, is left out.
func (s *Servers) Add(host, what string) {
	a, err := netip.ParseAddr(strings.Trim(host, "[]"))
	switch {
	case len(s.Addresses)+len(s.Names) >= most:
	case err == nil:
		if a = a.WithZone("").Unmap(); !a.IsLoopback() && !a.IsUnspecified() {
			s.Addresses[a] = what
		}
	case strings.Trim(host, ".") != "" && host != "localhost" &&
		!strings.ContainsAny(host, "/%:* "):
		s.Names[strings.ToLower(host)] = what
	}
}

// AddURL adds the host of a URL.
func (s *Servers) AddURL(of, what string) {
	if u, err := url.Parse(of); err == nil {
		s.Add(u.Hostname(), what)
	}
}

// New returns an empty list of servers.
func New() *Servers {
	return &Servers{Addresses: map[netip.Addr]string{}, Names: map[string]string{}}
}

// Read reads who they are, as far as it can be read.
func Read() (*Servers, error) {
	s := New()
	return s, errors.Join(s.gateways(), s.files("/"))
}

// gateways adds the next hops of routes.
func (s *Servers) gateways() error {
	const what = "a gateway of this machine"
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		n := 0
		err := netlink.RouteListFilteredIter(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC},
			netlink.RT_FILTER_TABLE, func(r netlink.Route) bool {
				hops := []netlink.NexthopInfo{{Gw: r.Gw, Via: r.Via}}
				for _, hop := range r.MultiPath {
					hops = append(hops, *hop)
				}
				for _, hop := range hops {
					s.Add(hop.Gw.String(), what)
					if via, ok := hop.Via.(*netlink.Via); ok {
						s.Add(via.Addr.String(), what)
					}
				}
				n++
				return n < mostRoutes
			})
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) &&
			!errors.Is(err, unix.EAFNOSUPPORT) {
			return kernel.Refuse(err, "list the gateways of this machine")
		}
	}
	return nil
}

// A form is how a file names servers: by a first word, as in "server NAME", or by a key, as in
// "NTP=NAME NAME".
type form struct {
	paths []string // patterns
	words string   // that come first
	keys  bool
	what  string
	needs string // a path that is there while it is in use
}

var forms = []form{
	{[]string{"etc/resolv.conf", "run/systemd/resolve/resolv.conf",
		"run/NetworkManager/no-stub-resolv.conf"}, "nameserver", false,
		"a resolver of this machine", ""},
	{[]string{"etc/chrony.conf", "etc/chrony/chrony.conf", "etc/chrony/conf.d/*.conf",
		"etc/chrony/sources.d/*.sources", "run/chrony-dhcp/*.sources", "etc/ntp.conf",
		"etc/ntpsec/ntp.conf", "etc/openntpd/ntpd.conf"}, "server servers pool peer",
		false, "a time server of this machine", ""},
	// a comment has the default of this file (systemd-system.conf(5))
	{[]string{"etc/systemd/timesyncd.conf", "etc/systemd/timesyncd.conf.d/*.conf",
		"run/systemd/timesyncd.conf.d/*.conf", "usr/lib/systemd/timesyncd.conf.d/*.conf"},
		"NTP FallbackNTP #NTP #FallbackNTP", true, "a time server of this machine",
		"run/systemd/timesync"},
}

// files adds what files below a root name.
func (s *Servers) files(root string) error {
	var errs []error
	for _, f := range forms {
		if _, err := os.Stat(filepath.Join(root, f.needs)); err != nil {
			continue
		}
		for _, pattern := range f.paths {
			paths, _ := filepath.Glob(filepath.Join(root, pattern))
			for _, path := range paths {
				if err := s.file(path, &f); err != nil && !errors.Is(err, fs.ErrNotExist) {
					errs = append(errs, err)
				}
			}
		}
	}
	return errors.Join(errs...)
}

func (s *Servers) file(path string, f *form) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	lines := bufio.NewScanner(io.LimitReader(in, mostBytes))
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if key, value, is := strings.Cut(lines.Text(), "="); is && f.keys {
			words = append([]string{strings.TrimSpace(key)}, strings.Fields(value)...)
		} else if len(words) > 2 {
			words = words[:2] // options follow
		}
		if len(words) == 0 || !slices.Contains(strings.Fields(f.words), words[0]) {
			continue
		}
		for _, host := range words[1:] {
			s.Add(host, f.what)
		}
	}
	return lines.Err()
}
