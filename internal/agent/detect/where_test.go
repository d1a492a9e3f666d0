package detect

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"levee/internal/packet"
)

// TestAPlaceIsItsPrefix of either family and any length, and another one for sources.
func TestAPlaceIsItsPrefix(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 176))
	for range 2000 {
		var b [16]byte
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		a := netip.AddrFrom16(b)
		if r.IntN(2) == 0 {
			a = netip.AddrFrom4([4]byte(b[:4]))
		}
		bits := r.IntN(a.BitLen() + 1)
		want, err := a.Prefix(bits)
		if err != nil {
			t.Fatal(err)
		}
		to, from := placeOf(a, bits, false), placeOf(a, bits, true)
		if to.prefix() != want || from.prefix() != want || to.source() || !from.source() ||
			to != placeOf(want.Addr(), bits, false) {
			t.Fatalf("%v of %d bits is %v and %v", a, bits, to.prefix(), from.prefix())
		}
	}
	var everything where
	if everything.prefix().IsValid() || everything == placeOf(netip.IPv6Unspecified(), 0, false) {
		t.Error("everything is a network")
	}
	if mapped := netip.MustParseAddr("::ffff:192.0.2.1"); placeOf(mapped, 128, false) ==
		placeOf(mapped.Unmap(), 32, false) {
		t.Error("an address of IPv4 is one of IPv6")
	}
}

// BenchmarkSamples measures the detector's time for a sample, of a service's clients and of a flood
// of forged sources beside them, with a tick for each 400.
func BenchmarkSamples(b *testing.B) {
	w := newWorld(Options{})
	var all []packet.Packet
	for range 1 << 14 {
		all = append(all, udp(w.client(20_000), server, uint16(w.r.IntN(65536)), 443),
			udp(v4(w.r.Uint32()), server, uint16(w.r.IntN(65536)), 27015))
	}
	w.d.Tick(w.now)
	at := 0
	for b.Loop() {
		w.d.Add(w.now, &all[at%len(all)], 50, 200)
		if at++; at%400 == 0 {
			w.now = w.now.Add(time.Second / 10)
			w.d.Tick(w.now)
		}
	}
}
