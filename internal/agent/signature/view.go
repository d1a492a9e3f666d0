package signature

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"

	"levee/internal/filter/oracle"
	"levee/internal/lang/field"
	"levee/internal/lang/resolve"
	"levee/internal/packet"
)

// view is the packets of a sample that are searched, field by field.
type view struct {
	s       *Sample
	places  []int
	packets []packet.Packet
	numbers [field.NumFields][]number
	bodies  [][]byte // behind the UDP header, as far as it is kept
}

// number is the value of a field, where the packet has it.
type number struct {
	v   uint64
	has bool
}

// numeric are the fields that rules ask for as numbers, flags and types, and that tell of the
// sender. What an Ethernet header says, the last router has written. A sample does not tell what
// earlier packets have told.
var numeric = func() (out []field.Field) {
	for f := field.None + 1; f < field.NumFields; f++ {
		info := f.Info()
		byValue := info.Compare == field.ByRange || info.Compare == field.ByMask
		if byValue && !info.Ethernet && !info.Remembered && info.Header != field.InIPv6 {
			out = append(out, f)
		}
	}
	return out
}()

// newView reads the packets at some places. Malformed ones have no fields.
func newView(s *Sample, places []int) *view {
	v := &view{s: s, places: places, packets: make([]packet.Packet, len(places)),
		bodies: make([][]byte, len(places))}
	for _, f := range numeric {
		v.numbers[f] = make([]number, len(places))
	}
	var fields oracle.Fields
	s.each(places, func(n int, b []byte) {
		p := &v.packets[n]
		s.link.Decode(b, p)
		if p.Malformed != packet.WellFormed {
			return
		}
		fields.Read(p)
		for _, f := range numeric {
			num := &v.numbers[f][n]
			num.v, num.has = fields.Number(f)
		}
		head := s.frames[places[n]].head
		if at := p.TransportOffset + 8; p.UDPPayload > 0 && at < len(head) {
			v.bodies[n] = head[at:min(len(head), at+p.UDPPayload)]
		}
	})
	return v
}

func (v *view) len() int { return len(v.places) }

// ask lets the oracle say which packets meet each term.
func (v *view) ask(terms []*term) ([]set, error) {
	var text strings.Builder
	for _, t := range terms {
		fmt.Fprintf(&text, "count %s\n", t.text)
	}
	text.WriteString("default pass\n")
	p, ds := resolve.Parse("terms", []byte(text.String()), nil)
	if p == nil {
		var b bytes.Buffer
		_ = ds.Render(&b, false)
		return nil, fmt.Errorf("terms that were made up are no terms: %s", &b)
	}
	judge := oracle.NewOn(p, v.s.link)
	out := make([]set, len(terms))
	for i := range out {
		out[i] = newSet(v.len())
	}
	first := p.RuleSlot(0)
	v.s.each(v.places, func(n int, b []byte) {
		for _, slot := range judge.Eval(b).Counted {
			out[slot-first].add(n)
		}
	})
	return out, nil
}

// source and destination of a packet.
func addressOf(p *packet.Packet, f field.Field) netip.Addr {
	if f == field.SrcAddr {
		return p.Src
	}
	return p.Dst
}
