package match

import (
	"net/netip"
	"testing"
)

// A match that no packet can have beside another one was taken for a part of it, where their flags
// had the same bits.
func TestNothingIsWithinWhatExcludesIt(t *testing.T) {
	syn := TcpSyn.Settle()
	none := TcpOnly.WithFlags(Flags{Mask: FlagsFSRA}).Settle()
	if syn.Within(none) {
		t.Error("a SYN is within segments without flags")
	}
	if !syn.Within(TcpOnly.Settle()) || TcpOnly.Within(syn) {
		t.Error("a SYN is not within TCP")
	}
}

// Each rule is compared with those before it: a list of what two large sets share took minutes.
func TestWithinMakesNoListOfTwoLargeSets(t *testing.T) {
	set := func(name string, first byte) Match {
		s := &Set{Name: name}
		for i := range 20_000 {
			s.Addresses = append(s.Addresses, PrefixSpan(netip.PrefixFrom(netip.AddrFrom4(
				[4]byte{10, byte(i >> 7), byte(i << 1), first}), 32)))
		}
		return Match{From: Address{In: s}}.Settle()
	}
	a, b := set("a", 1), set("b", 1)
	if n := testing.AllocsPerRun(1, func() { a.Within(b) }); n > 5 {
		t.Errorf("%.0f allocations", n)
	}
}

// Or joins what one field tells apart, and nothing else.
func TestOr(t *testing.T) {
	port := func(m Match, n uint64) Match { return m.With(Port, Just(n)).Settle() }
	a, b, c := port(UdpOnly, 53), port(UdpOnly, 80), port(TcpOnly, 80)
	if m, ok := a.Or(&b); !ok || m.Text() != " udp port { 53, 80 }" {
		t.Errorf("%v %q", ok, m.Text())
	}
	if m, ok := a.Or(&c); ok {
		t.Errorf("two fields: %q", m.Text())
	}
	udp := UdpOnly.Settle()
	if m, ok := a.Or(&udp); !ok || !m.Equal(&udp) {
		t.Errorf("%v %q", ok, m.Text())
	}
}
