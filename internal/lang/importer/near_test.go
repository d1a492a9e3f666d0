package importer_test

import (
	"math/rand/v2"
	"net/netip"
	"regexp"
	"strconv"

	"levee/internal/packet"
)

// named holds the values that a rule set names: packets that have them come near its rules.
type named struct {
	from4, from6 []netip.Addr
	numbers      []uint16 // ports, and types of ICMP
}

var (
	inText = regexp.MustCompile(`[0-9]+(\.[0-9]+){3}|[0-9a-f]*:[0-9a-f:]*:[0-9a-f]*|[0-9]+`)
	// of IPv4, sources that the kernel drops before INPUT
	martians = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/8"),
		netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("224.0.0.0/3")}
)

// namedIn finds addresses and numbers in a rule set, of whichever format.
func namedIn(text string) (n named) {
	seen := map[string]bool{}
	for _, w := range inText.FindAllString(text, -1) {
		if seen[w] {
			continue
		}
		seen[w] = true
		if v, err := strconv.ParseUint(w, 10, 16); err == nil {
			n.numbers = append(n.numbers, uint16(v))
			continue
		}
		a, err := netip.ParseAddr(w)
		switch {
		case err != nil || a.Is4In6() || a.IsMulticast() || a.IsUnspecified() || a.IsLoopback():
		case a.Is6():
			n.from6 = append(n.from6, a)
		case !isMartian(a):
			n.from4 = append(n.from4, a)
		}
	}
	return n
}

func isMartian(a netip.Addr) bool {
	for _, p := range martians {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// into gives every other packet fields of what is named.
func (n named) into(rnd *rand.Rand, s *packet.Spec) {
	from := n.from4
	if s.Family == packet.IPv6 {
		from = n.from6
	}
	if len(from) > 0 && rnd.IntN(2) == 0 {
		s.From = from[rnd.IntN(len(from))]
		if rnd.IntN(2) == 0 { // an address within, where it is that of a network
			b := s.From.AsSlice()
			b[len(b)-1] ^= uint8(rnd.IntN(256))
			s.From, _ = netip.AddrFromSlice(b)
		}
	}
	if len(n.numbers) == 0 || rnd.IntN(2) == 0 {
		return
	}
	one := n.numbers[rnd.IntN(len(n.numbers))]
	switch {
	case s.Type != nil:
		s.Type = new(uint8(one))
	case s.ToPort != nil && rnd.IntN(3) > 0:
		s.ToPort = &one
	case s.FromPort != nil:
		s.FromPort = &one
	}
}
