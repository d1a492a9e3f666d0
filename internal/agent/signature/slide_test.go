package signature

import (
	"fmt"
	"testing"
)

// TestACounterOfTheSenderIsNoTerm: of source ports that count a rule named those of the moment, and
// dropped nothing of the next: five rules such as "from port 1024-7412", each of which "covers
// 100 %".
func TestACounterOfTheSenderIsNoTerm(t *testing.T) {
	for _, flood := range []string{
		`ipv4 tcp from 16.0.0.0/4 random from port 1024-65535 counting to ` + victim +
			` port 80 syn window 64240 mss 1460 window-scale 8 sack-permitted seq random ttl 50`,
		`ipv4 udp from 16.0.0.0/4 random from port 1024-65535 counting to ` + victim +
			` port 53 ttl 50 len 70`,
		`ipv4 udp from 24.0.0.0/9 counting from port 1024-65535 random to ` + victim +
			` port 53 ttl 44-60 random payload hex "12340100000100000000000003777777" ` +
			`len 60-80 random`,
	} {
		p := propose(t, sampleOf(nil, frames(t, flood, 0, 1500)),
			sampleOf(nil, frames(t, good, 0, 4000)), Limits{Collateral: 1e-3})
		with := mustParse(t, textOf(p))
		covered := p.Flood.Coverage()
		if next := dropped(with, frames(t, flood, 3000, 1500)); next < 0.9*covered {
			t.Errorf("%v\n cover %v of the sample, and %v of what comes next", textOf(p), covered,
				next)
		}
	}
}

func textOf(p *Proposal) (out string) {
	for _, r := range p.Rules {
		out += r.Text + "\n"
	}
	return out + "default pass\n"
}

// TestOnlyCountersSlide.
func TestOnlyCountersSlide(t *testing.T) {
	make := func(n int, value func(i uint64) uint64) (out []uint64) {
		for i := range n {
			out = append(out, value(uint64(i)))
		}
		return out
	}
	random := func(i uint64) uint64 { return i * 2654435761 % 65521 }
	for _, c := range []struct {
		what   string
		want   bool
		values []uint64
	}{
		{"a counter", true, make(400, func(i uint64) uint64 { return 1024 + i*37 })},
		{"one that counts down", true, make(400, func(i uint64) uint64 { return 60000 - i*37 })},
		{"one that begins again", true, make(400, func(i uint64) uint64 {
			return (50000 + i*100) % 65536
		})},
		{"counters of 16 senders", true, make(400, func(i uint64) uint64 {
			return i%16*1000 + i/16*3000
		})},
		{"random", false, make(400, random)},
		{"lengths in an order", false, make(400, func(i uint64) uint64 { return 100 + i%7*60 })},
		{"one", false, make(400, func(uint64) uint64 { return 64 })},
		{"few", false, make(40, func(i uint64) uint64 { return i })},
	} {
		if got := slides(c.values); got != c.want {
			t.Error(fmt.Sprint(c.what, ": ", got))
		}
	}
}
