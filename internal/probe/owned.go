package probe

import (
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"

	"levee/internal/lang/diag"
)

// Owned lists the networks that its owner allows levee to probe, as read from a file.
type Owned struct {
	File     string
	Prefixes []Prefix
	Excluded []netip.Prefix
}

// Prefix is a network that somebody has, and how to get to the levee in front of it.
type Prefix struct {
	netip.Prefix
	Owner   string
	Witness []string // the command that runs another there
	Dev     string   // the interface there; "" for the one that has a policy
	Line    int
}

// mostAddresses bounds the addresses of a run.
const mostAddresses = 1 << 16

// maxOwned is the largest size of such a file, in bytes.
const maxOwned = 1 << 20

const ownedHint = "write: 198.51.100.0/24 of \"Example Ltd\" by \"ssh root@edge\" on eth0, " +
	"or: exclude 198.51.100.13"

// ReadOwned reads such a file. It names commands, so that others than its owner must not write it.
func ReadOwned(path string) (*Owned, diag.Diagnostics, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if err := trusted(path, st); err != nil {
		return nil, nil, err
	}
	if st.Size() > maxOwned {
		return nil, nil, fmt.Errorf("%s has %d bytes, of at most %d", path, st.Size(), maxOwned)
	}
	text := make([]byte, st.Size())
	n, err := f.ReadAt(text, 0)
	if n < len(text) {
		return nil, nil, fmt.Errorf("read %s: %w", path, err)
	}
	o, ds := parseOwned(path, string(text))
	return o, ds, nil
}

// trusted refuses a file that names commands and that others could change.
func trusted(path string, st fs.FileInfo) error {
	s, known := st.Sys().(*syscall.Stat_t)
	switch {
	case !st.Mode().IsRegular():
		return fmt.Errorf("%s is no regular file", path)
	case st.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("others may change %s, which names commands: chmod go-w %s", path, path)
	case known && s.Uid != 0 && int(s.Uid) != os.Geteuid():
		return fmt.Errorf("%s, which names commands, belongs to another user: chown it to "+
			"whoever runs levee probe", path)
	}
	return nil
}

// parseOwned reads the text of such a file; without prefixes, the diagnostics say why.
func parseOwned(name, text string) (*Owned, diag.Diagnostics) {
	c := &diag.Collector{File: name}
	o := &Owned{File: name}
	line := 0
	for l := range strings.Lines(text) {
		line++
		words, err := fieldsOf(l)
		pos := diag.Pos{Line: int32(line), Col: 1}
		switch {
		case err != nil:
			c.Errorf(pos, ownedHint, "%v", err)
		case len(words) == 0:
		case words[0] == "exclude" && len(words) == 2:
			if p, err := parsePrefix(words[1]); err != nil {
				c.Errorf(pos, ownedHint, "%v", err)
			} else {
				o.Excluded = append(o.Excluded, p)
			}
		default:
			p, err := parseOwnedLine(words)
			if err == nil {
				err = o.meets(&p)
			}
			if err != nil {
				c.Errorf(pos, ownedHint, "%v", err)
				continue
			}
			p.Line = line
			o.Prefixes = append(o.Prefixes, p)
		}
	}
	if c.Errors() == 0 {
		switch n := o.count(); {
		case len(o.Prefixes) == 0:
			c.Errorf(diag.Pos{}, ownedHint, "%s names nothing that may be probed", name)
		case n > mostAddresses:
			c.Errorf(diag.Pos{}, "probe parts of them, each by a file of its own",
				"these are %d addresses, of at most %d", n, mostAddresses)
		case len(o.Addresses()) == 0:
			c.Errorf(diag.Pos{}, ownedHint, "all of %s is excluded", name)
		}
	}
	ds := c.Diagnostics(text)
	if ds.HasErrors() {
		return nil, ds
	}
	return o, ds
}

// fieldsOf returns the words of a line, those in quotes without them. A # begins a comment.
func fieldsOf(line string) (out []string, err error) {
	for {
		line = strings.TrimLeft(line, " \t\r\n")
		switch {
		case line == "" || line[0] == '#':
			return out, nil
		case line[0] == '"':
			word, rest, closed := strings.Cut(line[1:], `"`)
			if !closed {
				return nil, fmt.Errorf("a quote is not closed")
			}
			out, line = append(out, word), rest
		default:
			end := strings.IndexAny(line, " \t\r\n\"#")
			if end < 0 {
				end = len(line)
			}
			out, line = append(out, line[:end]), line[end:]
		}
	}
}

func parsePrefix(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" {
			return netip.Prefix{}, fmt.Errorf("%s is no prefix and no address", diag.Quoted(text))
		}
		p = netip.PrefixFrom(a, a.BitLen())
	}
	switch {
	case p.Addr().Is4In6():
		return p, fmt.Errorf("%s is an IPv4 address in the clothes of IPv6: write it as IPv4", p)
	case p != p.Masked():
		return p, fmt.Errorf("%s has bits behind its length: write %s", p, p.Masked())
	}
	return p, nil
}

// parseOwnedLine reads PREFIX of "OWNER" by "COMMAND" [on IF].
func parseOwnedLine(w []string) (p Prefix, err error) {
	if p.Prefix, err = parsePrefix(w[0]); err != nil {
		return p, err
	}
	switch {
	case len(w) != 5 && len(w) != 7 || w[1] != "of" || w[3] != "by":
		return p, fmt.Errorf("it does not say whose %s is, and how to get to the levee in front "+
			"of it", p.Prefix)
	case len(w) == 7 && (w[5] != "on" || w[6] == ""):
		return p, fmt.Errorf("%s does not follow: on IF", diag.Quoted(w[5]))
	case strings.TrimSpace(w[2]) == "":
		return p, fmt.Errorf("it does not say whose %s is", p.Prefix)
	}
	p.Owner, p.Witness = w[2], strings.Fields(w[4])
	if len(w) == 7 {
		p.Dev = w[6]
	}
	if len(p.Witness) == 0 {
		return p, fmt.Errorf("the command that gets to the levee in front of %s is empty",
			p.Prefix)
	}
	a := p.Addr()
	switch {
	case p.Bits() == 0:
		return p, fmt.Errorf("%s is everybody's", p.Prefix)
	case a.IsMulticast(), a.IsUnspecified(), a.IsLoopback(), a.IsLinkLocalUnicast(),
		a.Is4() && a.As4()[0] >= 240, a.Is4() && a.As4()[0] == 0:
		return p, fmt.Errorf("%s is of no single machine that can be reached by a route", p.Prefix)
	}
	return p, nil
}

// meets refuses a prefix that stands there already.
func (o *Owned) meets(p *Prefix) error {
	for i := range o.Prefixes {
		if q := &o.Prefixes[i]; q.Overlaps(p.Prefix) {
			return fmt.Errorf("%s and %s of line %d overlap", p.Prefix, q.Prefix, q.Line)
		}
	}
	return nil
}

// count returns how many addresses the prefixes have, or more than may be.
func (o *Owned) count() (n int) {
	for i := range o.Prefixes {
		p := &o.Prefixes[i]
		if host := p.Addr().BitLen() - p.Bits(); host > 16 {
			return mostAddresses + 1
		} else {
			n += 1 << host
		}
	}
	return n
}

// Address is one that may be probed if its witness sees the challenge.
type Address struct {
	netip.Addr
	Of *Prefix
}

// Addresses returns the addresses of the prefixes without the excluded ones, nor networks and
// broadcasts of IPv4 (RFC 919), in order.
func (o *Owned) Addresses() (out []Address) {
	for i := range o.Prefixes {
		p := &o.Prefixes[i]
		for a := p.Addr(); p.Contains(a); a = a.Next() {
			if o.excludes(a) || p.edge(a) {
				continue
			}
			out = append(out, Address{a, p})
		}
	}
	slices.SortFunc(out, func(a, b Address) int { return a.Compare(b.Addr) })
	return out
}

// edge says whether an address is the first or last of an IPv4 network of more than two.
func (p *Prefix) edge(a netip.Addr) bool {
	return a.Is4() && p.Bits() < 31 && (a == p.Addr() || !p.Contains(a.Next()))
}

func (o *Owned) excludes(a netip.Addr) bool {
	return slices.ContainsFunc(o.Excluded, func(p netip.Prefix) bool { return p.Contains(a) })
}
