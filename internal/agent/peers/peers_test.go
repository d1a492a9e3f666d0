package peers

import (
	"errors"
	"net/netip"
	"testing"
	"time"
)

// TestPeersAreOfTheLastHourAndBounded: who comes last finds no place, and an error forgets nobody.
func TestPeersAreOfTheLastHourAndBounded(t *testing.T) {
	var some []netip.Addr
	var failed error
	p := New(func() ([]netip.Addr, error) { return some, failed })
	for i := range most + 10 {
		some = append(some, netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}))
	}
	if known := p.All(); len(known) != most || !known[some[0]] {
		t.Errorf("%d are known", len(known))
	}
	some, failed = nil, errors.New("no sock_diag")
	if known := p.All(); len(known) != most {
		t.Errorf("%d are known after an error", len(known))
	}
	for a := range p.seen {
		p.seen[a] = time.Now().Add(-2 * age)
	}
	if known := p.All(); len(known) != 0 {
		t.Errorf("%d are known of those that were", len(known))
	}
}
