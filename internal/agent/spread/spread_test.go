package spread

import (
	"math/rand/v2"
	"net/netip"
	"testing"
)

// TestDrawnIsAPartOfWhatComes: forged sources are found among clients, and clients are no forged
// sources, wherever they are.
func TestDrawnIsAPartOfWhatComes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 174))
	address := func(n uint32) netip.Addr {
		return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
	}
	forged := func() netip.Addr {
		for {
			if n := r.Uint32(); n>>24 != 0 && n>>24 != 10 && n>>24 != 127 && n>>24 < 224 {
				return address(n)
			}
		}
	}
	country := func() netip.Addr { return address(0x50000000 + r.Uint32N(1<<26)) }
	// Of all the world's: most of the blocks have some, a third has nearly all.
	var worldly []byte
	for b := range 190 {
		worldly = append(worldly, byte(1+b))
		for range 8 * (b % 3 / 2) {
			worldly = append(worldly, byte(1+b))
		}
	}
	world := func() netip.Addr {
		return address(uint32(worldly[r.IntN(len(worldly))])<<24 | r.Uint32N(1<<24))
	}
	for _, c := range []struct {
		what        string
		of          func() netip.Addr
		forged      int // of 2,000
		least, most float64
	}{
		{"forged ones alone", country, 2000, 0.75, 1},
		{"beside clients of a country", country, 1400, 0.45, 0.75},
		{"beside clients of all the world", world, 1400, 0.45, 0.8},
		{"clients of a country", country, 0, 0, 0},
		{"clients of all the world", world, 0, 0, 0.35},
	} {
		var all []netip.Addr
		for i := range 2000 {
			if i < c.forged {
				all = append(all, forged())
			} else {
				all = append(all, c.of())
			}
		}
		if got := Drawn(all); got < c.least || got > c.most {
			t.Errorf("%s: %.2f, want %g to %g", c.what, got, c.least, c.most)
		}
	}
	var six, clients []netip.Addr
	for range 2000 {
		b := [16]byte{0x20 | byte(r.IntN(32)), byte(r.IntN(256)), byte(r.IntN(256))}
		six = append(six, netip.AddrFrom16(b))
		b[0], b[1] = 0x20+2*byte(r.IntN(7)), byte(r.IntN(16))
		clients = append(clients, netip.AddrFrom16(b))
	}
	if all, some := Drawn(six), Drawn(clients); all < 0.7 || some != 0 {
		t.Errorf("over IPv6: forged %.2f, clients %.2f", all, some)
	}
	if got := Drawn([]netip.Addr{forged(), netip.IPv6Loopback()}); got != 0 {
		t.Errorf("of two: %g", got)
	}
}
