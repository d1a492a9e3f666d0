// Package inuse finds what a machine uses its network for, and writes a policy that keeps it.
//
// In go /proc, /sys and a few files of /etc, /run and /var, below a root that tests replace. Out
// come listeners, protocols, sessions, resolvers, leases, tunnels and routes, and a draft for a
// person to read. It must never put anything in force, change anything, or fail for a file that is
// not there.
package inuse

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"levee/internal/host/nat"
	"levee/internal/host/procnet"
)

// Machine describes a machine: its addresses, listeners, sessions and interfaces.
type Machine struct {
	Dev       string // with the default route, or asked for
	Addresses []netip.Addr
	Listeners []Listener
	SSH       []netip.Addr // that have a session now
	SSHPorts  []uint16
	Resolvers []netip.Addr
	DHCP      []string // files of leases
	WireGuard []string // interfaces
	Raw       []Protocol
	Groups    []netip.Addr // of IPv4, joined on Dev or above it, that a switch may ask about
	Forwards  bool
	Uplinks   int // interfaces with a default route
	// RoutesMulticast is said of one that forwards, and whose interfaces forward multicast.
	RoutesMulticast bool
	Above           []string // Dev, and interfaces that are built on it
	Behind          []string // the others by which it may forward what comes by Dev
	// NAT holds the rules that translate and filter. Read does not fill it: these are in no file.
	NAT       nat.Rules
	Ephemeral [2]uint16  // source ports of questions
	Transient []Listener // UDP sockets at such ports: most wait for an answer
	// Asks are other UDP sockets that ask: those of a resolver of this machine, and those that are
	// connected to others than its Resolvers and clocks.
	Asks       []Listener
	Unreadable bool // some sockets' owners are not told to this process
}

// Listener is a socket that takes what comes from outside.
type Listener struct {
	Proto   string     // tcp or udp
	Address netip.Addr // unspecified: any
	Port    uint16
	Owner   string // name of the process, "kernel", or "" if it is not told
}

// Protocol is one of IP without ports, which a process or a tunnel of the kernel takes.
type Protocol struct {
	Number uint8
	Owner  string // name of the process or the interface, "" if it is not told
}

// Read looks at the machine below root, "/" but in tests. dev is the interface that is asked for,
// "" for that of the default route.
func Read(root, dev string) (*Machine, error) {
	r := reader{root}
	m := &Machine{Dev: dev, Ephemeral: [2]uint16{32768, 60999}}
	uplinks := r.uplinks()
	if m.Uplinks = len(uplinks); m.Dev == "" && len(uplinks) > 0 {
		m.Dev = uplinks[0]
	}
	if m.Dev == "" {
		return nil, fmt.Errorf("there is no default route; name the interface: --dev")
	}
	r.ephemeral(m)
	m.Addresses = r.addresses()
	m.Forwards = r.word("proc/sys/net/ipv4/ip_forward") == "1" ||
		r.word("proc/sys/net/ipv6/conf/all/forwarding") == "1"
	for _, file := range []string{"proc/net/ip_mr_vif", "proc/net/ip6_mr_vif"} {
		m.RoutesMulticast = m.RoutesMulticast || len(r.lines(file)) > 1 // behind its head
	}
	m.Resolvers = r.resolvers()
	r.sockets(m)
	for _, glob := range []string{"run/systemd/netif/leases/*", "var/lib/dhcp/*.leases",
		"var/lib/dhcpcd/*.lease*", "var/lib/NetworkManager/*.lease"} {
		m.DHCP = append(m.DHCP, r.glob(glob)...)
	}
	r.interfaces(m)
	r.groups(m)
	for _, l := range m.Listeners {
		if l.Proto == "udp" && (l.Port == 500 || l.Port == 4500) { // IKE
			m.takes(protoESP, l.Owner)
			m.takes(protoAH, l.Owner)
		}
	}
	slices.SortFunc(m.Raw, func(a, b Protocol) int { return cmp.Compare(a.Number, b.Number) })
	return m, nil
}

type reader struct{ root string }

func (r reader) lines(path string) []string {
	b, _ := os.ReadFile(filepath.Join(r.root, path))
	return strings.Split(strings.TrimRight(string(b), "\n"), "\n")
}

func (r reader) word(path string) string { return strings.TrimSpace(r.lines(path)[0]) }

// glob lists files that are not empty, as paths from the root.
func (r reader) glob(pattern string) (out []string) {
	files, _ := filepath.Glob(filepath.Join(r.root, pattern))
	for _, f := range files {
		if i, err := os.Stat(f); err == nil && i.Size() > 0 {
			out = append(out, "/"+strings.TrimPrefix(strings.TrimPrefix(f, r.root), "/"))
		}
	}
	return out
}

// unreachable stands for the interface of a route by which nothing goes.
const unreachable = "*"

// uplinks returns the interfaces of default routes, each once: those of IPv4 first (proc_net_route:
// destination and mask 0).
func (r reader) uplinks() (all []string) {
	add := func(dev string) {
		if !slices.Contains(all, dev) {
			all = append(all, dev)
		}
	}
	for _, l := range r.lines("proc/net/route") {
		f := strings.Fields(l)
		if len(f) > 7 && f[0] != unreachable && f[1] == "00000000" && f[7] == "00000000" {
			add(f[0])
		}
	}
	for _, l := range r.lines("proc/net/ipv6_route") {
		f := strings.Fields(l)
		if len(f) == 10 && f[0] == strings.Repeat("0", 32) && f[1] == "00" && f[9] != "lo" {
			add(f[9])
		}
	}
	return all
}

func (r reader) ephemeral(m *Machine) {
	f := strings.Fields(r.word("proc/sys/net/ipv4/ip_local_port_range"))
	if len(f) != 2 {
		return
	}
	lo, err1 := strconv.ParseUint(f[0], 10, 16)
	hi, err2 := strconv.ParseUint(f[1], 10, 16)
	if err1 == nil && err2 == nil && lo <= hi {
		m.Ephemeral = [2]uint16{uint16(lo), uint16(hi)}
	}
}

// addresses returns the addresses of the machine, but for loopback and link-local ones.
func (r reader) addresses() (out []netip.Addr) {
	add := func(a netip.Addr) {
		if a.IsGlobalUnicast() && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	last := ""
	for _, l := range r.lines("proc/net/fib_trie") {
		l = strings.TrimSpace(l)
		if a, ok := strings.CutPrefix(l, "|-- "); ok {
			last = a
		}
		if a, err := netip.ParseAddr(last); err == nil && l == "/32 host LOCAL" {
			add(a)
		}
	}
	for _, l := range r.lines("proc/net/if_inet6") {
		if f := strings.Fields(l); len(f) == 6 {
			if b, err := hex.DecodeString(f[0]); err == nil && len(b) == 16 {
				add(netip.AddrFrom16([16]byte(b)))
			}
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// States of sockets (include/net/tcp_states.h). A UDP socket that is not connected has that of a
// closed one.
const (
	established = 1
	closed      = 7
	listening   = 10
)

// sock is a socket of a protocol.
type sock struct {
	proto string
	procnet.Socket
}

func (r reader) listed() (socks []sock) {
	for _, proto := range []string{"tcp", "tcp6", "udp", "udp6"} {
		for _, l := range r.lines("proc/net/" + proto) {
			if s, ok := procnet.Parse(l); ok {
				socks = append(socks, sock{strings.TrimSuffix(proto, "6"), s})
			}
		}
	}
	return socks
}

func (r reader) sockets(m *Machine) {
	socks := r.listed()
	owners, all := r.owners()
	m.Unreadable = !all
	stays := map[uint32]bool{} // it was there all the time in which owners were read
	for _, s := range r.listed() {
		stays[s.Inode] = true
	}
	for _, s := range socks {
		l := Listener{s.proto, s.Local.Addr(), s.Local.Port(), owners[s.Inode]}
		// No process has a socket of the kernel's, such as those of WireGuard and VXLAN, which root
		// made. Where some processes cannot be read it may be one of theirs, and is kept.
		kernels := s.proto == "udp" && l.Owner == "" && s.UID == 0 && stays[s.Inode]
		if kernels && all {
			l.Owner = "kernel"
		}
		dhcp := s.proto == "udp" && (l.Port == 68 || l.Port == 546) // which is essential
		if !dhcp && m.asks(s, l.Owner) {
			m.listens(&m.Asks, l)
		}
		high := l.Port >= m.Ephemeral[0] && l.Port <= m.Ephemeral[1]
		switch {
		case l.Address.IsLoopback() || l.Port == 0:
		case s.proto == "tcp" && s.State == listening:
			m.listens(&m.Listeners, l)
			if sshServers[l.Owner] || l.Port == 22 {
				m.ssh(l.Port)
			}
		case s.proto == "udp" && s.State == closed && !dhcp:
			if high && !kernels {
				m.listens(&m.Transient, l)
			} else {
				m.listens(&m.Listeners, l)
			}
		}
	}
	for _, s := range socks {
		a, port := s.Remote.Addr(), s.Local.Port()
		if s.proto != "tcp" || s.State != established || a.IsLoopback() {
			continue
		}
		if sshServers[owners[s.Inode]] && m.listensAt(port) { // systemd may listen for it
			m.ssh(port)
		}
		if slices.Contains(m.SSHPorts, port) && !slices.Contains(m.SSH, a) {
			m.SSH = append(m.SSH, a)
		}
	}
	slices.SortFunc(m.SSH, netip.Addr.Compare)
	for _, file := range []string{"proc/net/raw", "proc/net/raw6"} {
		for _, l := range r.lines(file) {
			if s, ok := procnet.Parse(l); ok {
				m.takes(s.Local.Port(), owners[s.Inode])
			}
		}
	}
}

var sshServers = map[string]bool{"sshd": true, "sshd-session": true, "sshd-auth": true,
	"dropbear": true}

func (m *Machine) listensAt(port uint16) bool {
	return slices.ContainsFunc(m.Listeners, func(l Listener) bool {
		return l.Proto == "tcp" && l.Port == port
	})
}

// Numbers of protocols (IANA).
const (
	protoICMP, protoIPv4, protoTCP, protoUDP, protoIPv6 = 1, 4, 6, 17, 41
	protoGRE, protoESP, protoAH, protoICMP6, protoVRRP  = 47, 50, 51, 58, 112
)

// takes adds a protocol once. It leaves out protocols with rules of their own, and 255 (raw), which
// is only sent.
func (m *Machine) takes(number uint16, owner string) {
	own := []uint16{protoICMP, protoTCP, protoUDP, protoICMP6}
	if number > 254 || slices.Contains(own, number) {
		return
	}
	n := uint8(number)
	if !slices.ContainsFunc(m.Raw, func(p Protocol) bool { return p.Number == n }) {
		m.Raw = append(m.Raw, Protocol{n, owner})
	}
}

func (m *Machine) ssh(port uint16) {
	if !slices.Contains(m.SSHPorts, port) {
		m.SSHPorts = append(m.SSHPorts, port)
	}
}

// groups reads those that programs have joined. Switches hand those of 224.0.0.0/24 to everybody,
// unasked (RFC 4541, section 2.1.2).
func (r reader) groups(m *Machine) {
	link, here := netip.MustParsePrefix("224.0.0.0/24"), false
	for _, l := range r.lines("proc/net/igmp") {
		f := strings.Fields(l)
		if len(f) > 2 && !strings.HasPrefix(l, "\t") { // an interface; its groups follow
			dev := strings.TrimSuffix(f[1], ":")
			here = slices.Contains(m.Above, dev)
			continue
		}
		if len(f) == 0 || !here {
			continue
		}
		word, err := strconv.ParseUint(f[0], 16, 32)
		if err != nil {
			continue
		}
		var b [4]byte
		binary.NativeEndian.PutUint32(b[:], uint32(word))
		if a := netip.AddrFrom4(b); !link.Contains(a) && !slices.Contains(m.Groups, a) {
			m.Groups = append(m.Groups, a)
		}
	}
	slices.SortFunc(m.Groups, netip.Addr.Compare)
}

// Ports of those whose answers have rules of their own.
const (
	dns = 53
	ntp = 123
)

// asks says whether a socket is one of Asks. Whoever takes questions of the DNS may have to ask
// name servers; systemd-resolved asks the Resolvers.
func (m *Machine) asks(s sock, owner string) bool {
	if s.proto != "udp" || s.State == closed {
		return s.proto == "udp" && s.Local.Port() == dns && owner != "systemd-resolve"
	}
	a := s.Remote.Addr()
	return !a.IsLoopback() && s.Remote.Port() != ntp &&
		(s.Remote.Port() != dns || !slices.Contains(m.Resolvers, a))
}

// listens adds a listener once: of both families, and of several sockets, it is the same rule.
func (m *Machine) listens(to *[]Listener, l Listener) {
	if l.Address.IsUnspecified() {
		l.Address = netip.IPv4Unspecified()
	}
	for i, k := range *to {
		if k.Proto == l.Proto && k.Port == l.Port && k.Address == l.Address {
			if k.Owner == "" {
				(*to)[i].Owner = l.Owner
			}
			return
		}
	}
	*to = append(*to, l)
}

// owners maps inodes of sockets to the names of processes. all is false if some are not told.
func (r reader) owners() (_ map[uint32]string, all bool) {
	owners, all := map[uint32]string{}, true
	procs, _ := filepath.Glob(filepath.Join(r.root, "proc/[0-9]*"))
	for _, dir := range procs {
		fds, err := os.ReadDir(dir + "/fd")
		all = all && !os.IsPermission(err)
		for _, fd := range fds {
			target, err := os.Readlink(filepath.Join(dir, "fd", fd.Name()))
			all = all && !os.IsPermission(err)
			number, _ := strings.CutPrefix(target, "socket:[")
			inode, err := strconv.ParseUint(strings.TrimSuffix(number, "]"), 10, 32)
			if err == nil {
				comm, _ := os.ReadFile(dir + "/comm")
				owners[uint32(inode)] = string(bytes.TrimSpace(comm))
			}
		}
	}
	return owners, all
}

// resolvers returns the name servers that this machine asks itself: a stub on loopback is not one.
func (r reader) resolvers() (out []netip.Addr) {
	for _, path := range []string{"etc/resolv.conf", "run/systemd/resolve/resolv.conf"} {
		b, _ := os.ReadFile(filepath.Join(r.root, path))
		for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
			f := strings.Fields(s.Text())
			if len(f) < 2 || f[0] != "nameserver" {
				continue
			}
			a, err := netip.ParseAddr(f[1])
			if a = a.WithZone("").Unmap(); err == nil && !a.IsLoopback() &&
				!slices.Contains(out, a) {
				out = append(out, a)
			}
		}
	}
	return out
}

// tunnels are the types of interfaces (include/uapi/linux/if_arp.h) whose packets come in others.
var tunnels = map[string][]uint16{"768": {protoIPv4}, "769": {protoIPv4, protoIPv6},
	"776": {protoIPv6}, "778": {protoGRE}, "823": {protoGRE}}

// interfaces finds tunnels among the interfaces, what is above Dev, and what is beside it.
func (r reader) interfaces(m *Machine) {
	dirs, _ := filepath.Glob(filepath.Join(r.root, "sys/class/net/*"))
	for _, dir := range dirs {
		name := filepath.Base(dir)
		b, _ := os.ReadFile(dir + "/uevent")
		at := "sys/class/net/" + name
		if flags, _ := strconv.ParseUint(r.word(at+"/flags"), 0, 32); flags&1 != 0 { // up
			for _, n := range tunnels[r.word(at+"/type")] {
				m.takes(n, name)
			}
		}
		if strings.Contains(string(b), "DEVTYPE=wireguard") {
			m.WireGuard = append(m.WireGuard, name)
		}
	}
	m.Above = []string{m.Dev}
	for i := 0; i < len(m.Above); i++ { // an interface has a link lower_NAME to each that it is on
		on, _ := filepath.Glob(filepath.Join(r.root, "sys/class/net/*/lower_"+m.Above[i]))
		for _, path := range on {
			if name := filepath.Base(filepath.Dir(path)); !slices.Contains(m.Above, name) {
				m.Above = append(m.Above, name)
			}
		}
	}
	for _, dir := range dirs {
		name := filepath.Base(dir)
		_, port := os.Lstat(dir + "/master") // of a bridge or a bond, which is what forwards
		_, below := os.Lstat(filepath.Join(r.root, "sys/class/net", m.Dev, "lower_"+name))
		up, _ := strconv.ParseUint(r.word("sys/class/net/"+name+"/flags"), 0, 32)
		if up&1 != 0 && up&loopbackFlag == 0 && port != nil && below != nil &&
			!slices.Contains(m.Above, name) {
			m.Behind = append(m.Behind, name)
		}
	}
}

// loopbackFlag is IFF_LOOPBACK of include/uapi/linux/if.h.
const loopbackFlag = 8
