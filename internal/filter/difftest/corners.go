package difftest

import (
	"math/rand/v2"
	"net/netip"

	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/packet"
	"levee/internal/packet/craft"
)

// corners chooses values at the ends of what a term names, and their neighbours outside.
type corners struct {
	r       *rand.Rand
	entries func(*policy.Set) []policy.Element // of dynamic sets
}

func (c *corners) Index(n int) int { return c.r.IntN(n) }

func (c *corners) Number(ranges []field.Range) uint64 {
	return edge(c.r, ranges[c.Index(len(ranges))])
}

func (c *corners) Prefix(all []netip.Prefix, _ packet.Family) (netip.Prefix, bool) {
	return all[c.Index(len(all))], true
}

func (c *corners) Address(p netip.Prefix) netip.Addr { return nearPrefix(c.r, p) }

// Flags returns the flags that a term asks for and any others, in a quarter of packets with one
// wrong.
func (c *corners) Flags(value, mask uint8) uint8 {
	flags := value | uint8(c.r.Uint32())&^mask
	if c.r.IntN(4) == 0 {
		flags ^= 1 << c.r.IntN(8)
	}
	return flags
}

func (c *corners) Entries(s *policy.Set) []policy.Element { return c.entries(s) }

// aim changes a shape so that a term, as far as one value can, holds for it, or only just does not.
func (s *shape) aim(c *corners, t *policy.Term) {
	craft.Term(&s.Spec, t, c)
	r := c.r
	switch t.Field {
	case field.SrcService, field.DstService:
		if r.IntN(8) == 0 {
			s.Proto = new(portProtocol(r))
		}
	case field.SrcEndpoint, field.DstEndpoint:
		s.missEndpoint(r)
	case field.Fragment:
		if s.Frag != nil {
			s.fragment(r, firstFragment+fragment(r.IntN(2)))
		}
	case field.Tags:
		s.third = r.IntN(4) == 0
	case field.Inner:
		s.Inner = nil
		s.in = newShape(r)
		for i := range t.Inner.Match {
			if in := &t.Inner.Match[i]; !in.Not || r.IntN(3) == 0 {
				s.in.aim(c, in)
			}
		}
	case field.Contents:
		s.missPayload(r, len(s.Payload))
	case field.DNSName, field.DNSType, field.DNSOpcode, field.DNSQuery, field.DNSResponse,
		field.DNSMalformed, field.DNSSize:
		s.aimMessage(c, t)
	case field.Payload:
		s.missPayload(r, t.Bytes.At+len(t.Bytes.Value))
	}
}

// missPayload often changes a bit of the payload, or cuts it to where a term ends, or shorter.
func (s *shape) missPayload(r *rand.Rand, end int) {
	s.payload = max(s.payload, end)
	switch r.IntN(8) {
	case 0:
		s.Payload[r.IntN(len(s.Payload))] ^= 1 << r.IntN(8)
	case 1:
		s.payload, s.Len = end-1, nil
	case 2:
		s.payload, s.Len = end, nil
	}
}

// missEndpoint often changes the protocol or takes the ports away.
func (s *shape) missEndpoint(r *rand.Rand) {
	switch r.IntN(16) {
	case 0:
		s.Proto = new(portProtocol(r))
	case 1:
		s.Proto = new([]uint8{1, 2, 47, 50, 58, 89, uint8(r.Uint32())}[r.IntN(7)])
	case 2:
		s.fragment(r, firstFragment+fragment(r.IntN(2)))
	}
}

// portProtocol is one of the protocols with ports.
func portProtocol(r *rand.Rand) uint8 {
	return craft.PortProtocols[r.IntN(len(craft.PortProtocols))]
}

// edge returns an end of a range, its neighbour outside, or something inside.
func edge(r *rand.Rand, in field.Range) uint64 {
	switch r.IntN(6) {
	case 0:
		return in.Lo - 1 // wraps at 0: the field cuts it off
	case 1:
		return in.Hi + 1
	case 2, 3:
		return in.Lo
	case 4:
		return in.Hi
	}
	if n := in.Hi - in.Lo; n < 1<<62 {
		return in.Lo + r.Uint64N(n+1)
	}
	return in.Hi
}

// ends returns the first and the last address of a prefix.
func ends(p netip.Prefix) (first, last netip.Addr) {
	first = p.Masked().Addr()
	b := first.AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	last, _ = netip.AddrFromSlice(b)
	return first, last
}

// nearPrefix returns the first or the last address of p, one beside them, or one inside.
func nearPrefix(r *rand.Rand, p netip.Prefix) netip.Addr {
	first, last := ends(p)
	a := first
	switch r.IntN(6) {
	case 0:
		a = first.Prev()
	case 1:
		a = last.Next()
	case 2:
		a = last
	case 3, 4:
		c := first.AsSlice()
		for i := p.Bits(); i < len(c)*8; i++ {
			c[i/8] |= uint8(r.IntN(2)) * (0x80 >> (i % 8))
		}
		a, _ = netip.AddrFromSlice(c)
	}
	if !a.IsValid() { // beside the first or last address there is
		return first
	}
	return a
}
