package dataplane

import (
	"fmt"
	"strings"
	"testing"

	"levee/internal/filter/codegen"
)

// Five hundred customers, each with a rate of its own, took 500 limits, of which a policy has 32.
func TestEachOfManyCustomersHasItsRate(t *testing.T) {
	const customers = 500
	burst := func(i uint32) int { return 1 + int(i%7) }
	var rates strings.Builder
	for i := range uint32(customers) {
		fmt.Fprintf(&rates, "10.%d.%d.0/24 %d/h burst %d, ", i>>8, i&255, 1+i%5, burst(i))
	}
	rates.WriteString("10.0.7.7 1/h burst 9, 2001:db8::/32 1/h burst 3")
	for _, hook := range []codegen.Hook{codegen.XDP, codegen.TCX} {
		for by, each := range map[string]bool{"": false, " by source": true} {
			l := newLimitedAt(t, "limit udp rate from { "+rates.String()+" }"+by, 2, hook)
			send := l.send
			if hook == codegen.TCX {
				send = l.repeat
			}
			for i := range uint32(customers) {
				want := burst(i)
				if got := send(from(10<<24|i<<8|1), 12); got != want {
					t.Fatalf("customer %d%s: %d packets passed, want %d", i, by, got, want)
				}
				if !each {
					want = 0
				}
				if got := send(from(10<<24|i<<8|2), 12); got != want {
					t.Fatalf("customer %d%s: %d of another address passed, want %d", i, by, got,
						want)
				}
			}
			for _, c := range []struct {
				source uint32
				want   int
			}{{10<<24 | 7<<8 | 7, 9}, {11 << 24, 12}, {10<<24 | customers<<8, 12},
				{1<<32 - 1, 12}} {
				if got := send(from(c.source), 12); got != c.want {
					t.Errorf("%x%s: %d passed, want %d", c.source, by, got, c.want)
				}
			}
			if got := send(from6(t, 0), 12); got != 3 {
				t.Errorf("IPv6%s: %d passed, want 3", by, got)
			}
			l.pass(3600 * testHZ)
			if got := send(from(10<<24|3<<8|1), 12); got != 4 {
				t.Errorf("after an hour%s: %d passed, want 4", by, got)
			}
		}
	}
}

// The verifier walked both ways behind each step of a search: of more than 32,768 addresses it had
// enough.
func TestRatesOfManyPrefixesLoad(t *testing.T) {
	var rates strings.Builder
	for i := range 40_000 {
		fmt.Fprintf(&rates, "10.%d.%d.0/24 1/h burst %d,\n", i>>8, i&255, 1+i%7)
	}
	for i := range 25_000 {
		fmt.Fprintf(&rates, "2001:%x::/48 1/h burst 1,\n", 0xdb9+i)
	}
	l := newLimited(t, "limit udp rate from { "+rates.String()+"2001:db8::/32 1/h burst 3 }", 2)
	for _, i := range []uint32{0, 1, 39_999} {
		if got, want := l.send(from(10<<24|i<<8|1), 12), 1+int(i%7); got != want {
			t.Errorf("customer %d: %d packets passed, want %d", i, got, want)
		}
	}
	if got := l.send(from6(t, 0), 12); got != 3 {
		t.Errorf("IPv6: %d passed, want 3", got)
	}
}
