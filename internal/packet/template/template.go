// Package template turns packets that are written down, with values that vary, into frames by
// number.
//
// In goes the text of a template (docs/reference/templates.md): packets in the words that `test`
// statements of policies have, and how their values vary; or the same as policy.Packet. Out comes a
// Template. Its Frame makes the frame of any number in user space; its Program is the same as an
// eBPF function. Both give the same bytes, which tests compare.
//
// A frame depends on its number, the seed and the template alone: nothing is remembered from one to
// the next. The package compiles without privileges, and must never send or load anything.
package template

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net/netip"

	"levee/internal/lang/diag"
	"levee/internal/lang/spec"
	"levee/internal/lang/syntax"
	"levee/internal/packet"
)

// MaxSource limits the bytes of a template's text.
const MaxSource = 1 << 20

// Parse reads a template; without packets, the diagnostics say why.
func Parse(name string, src []byte) ([]spec.Packet, diag.Diagnostics) {
	packets, ds := read(name, src)
	for i := range packets {
		if packets[i].Spec.Inner != nil {
			c := &diag.Collector{File: name}
			c.Errorf(diag.Pos{}, "give the whole frame: hex \"...\".",
				"line %d: a template has no packets within tunnels", packets[i].Line)
			return nil, c.Diagnostics("")
		}
		if packets[i].Tells != nil {
			c := &diag.Collector{File: name}
			c.Errorf(diag.Pos{}, "leave it out.", "line %d: routes are the receiver's, and no "+
				"packet that is sent has them", packets[i].Line)
			return nil, c.Diagnostics("")
		}
	}
	return packets, ds
}

func read(name string, src []byte) ([]spec.Packet, diag.Diagnostics) {
	if len(src) > MaxSource {
		c := &diag.Collector{File: name}
		c.Errorf(diag.Pos{}, "ranges and lists make many packets of one line.",
			"a template has at most %d KiB", MaxSource>>10)
		return nil, c.Diagnostics("")
	}
	t, ds := syntax.ParsePackets(name, src)
	packets, more := spec.Packets(t)
	if ds.HasErrors() {
		packets = nil
	}
	return packets, diag.Merge(ds, more)
}

// One returns the one packet of a template in which nothing varies; without it, the diagnostics say
// why.
func One(name, words string) (*spec.Packet, diag.Diagnostics) {
	packets, ds := read(name, []byte("packet "+words))
	if packets == nil {
		return nil, ds
	}
	c := &diag.Collector{File: name}
	switch p := &packets[0]; {
	case len(packets) > 1:
		c.Errorf(diag.Pos{}, "", "these are %d packets; one is asked for", len(packets))
	case len(p.Vary) > 0 || p.Random:
		c.Errorf(diag.Pos{}, "", "values that vary make many packets; one is asked for")
	default:
		return p, ds
	}
	return nil, c.Diagnostics("")
}

// Read is Parse of what a reader gives.
func Read(name string, r io.Reader) ([]spec.Packet, diag.Diagnostics, error) {
	// one more: Parse says that it is too long
	src, err := io.ReadAll(io.LimitReader(r, MaxSource+1))
	if err != nil {
		return nil, nil, fmt.Errorf("reading the template: %w", err)
	}
	packets, ds := Parse(name, src)
	return packets, ds, nil
}

// Defaults are the values that a template leaves out: those of the network that gets the packets,
// or of its interface. What is zero is left to packet.Build.
type Defaults struct {
	EtherFrom, EtherTo [6]byte
	To4, To6           netip.Addr
}

// Fill completes a packet.
func (d *Defaults) Fill(p *spec.Packet) {
	vary := map[string]bool{}
	for _, v := range p.Vary {
		vary[v.Word] = true
	}
	s := &p.Spec
	if s.EtherFrom == nil && !vary["ether from"] && d.EtherFrom != ([6]byte{}) {
		s.EtherFrom = &d.EtherFrom
	}
	if s.EtherTo == nil && !vary["ether to"] && d.EtherTo != ([6]byte{}) {
		s.EtherTo = &d.EtherTo
	}
	if s.To.IsValid() || s.Family == packet.OtherFamily {
		return
	}
	to := d.To4
	if s.Resolved() == packet.IPv6 {
		to = d.To6
	}
	s.To = to
}

// Template is compiled packets, sent in turn.
type Template struct {
	plans []*plan
}

// Compile lays the packets out. The same seed gives the same frames.
func Compile(packets []spec.Packet, d Defaults, seed uint64) (*Template, error) {
	if len(packets) == 0 {
		return nil, errors.New("the template has no packet")
	}
	t := new(Template)
	for i := range packets {
		p := packets[i]
		if p.Frame == nil {
			d.Fill(&p)
		}
		plan, err := newPlan(&p, seed+uint64(i)*golden)
		if err != nil {
			if len(packets) > 1 && p.Line > 0 {
				err = fmt.Errorf("line %d of the template: %w", p.Line, err)
			}
			return nil, err
		}
		t.plans = append(t.plans, plan)
	}
	return t, nil
}

// fieldSeed returns the seed of one field: fields vary independently of each other.
func fieldSeed(seed uint64, word string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(word))
	return draw(seed, h.Sum64())
}

// Longest returns the length of the longest frame, in bytes.
func (t *Template) Longest() int {
	n := 0
	for _, p := range t.plans {
		n = max(n, len(p.frame))
	}
	return n
}

// Frame writes frame n over buf, which has Longest bytes at least, and returns it. It allocates
// nothing.
func (t *Template) Frame(buf []byte, n uint64) []byte {
	if k := uint64(len(t.plans)); k > 1 {
		return t.plans[n%k].write(buf, n/k)
	}
	return t.plans[0].write(buf, n)
}
