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
