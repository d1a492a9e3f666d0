package defend

import (
	"net/netip"
	"testing"
	"time"
)

// crowd is 100 regulars of 10 packets a second, after ten seconds.
func crowd() (g *regulars, now time.Time) {
	g, now = newRegulars(), time.Unix(1e9, 0)
	for range 10 {
		now = now.Add(time.Second)
		for i := range byte(100) {
			g.pass(now, client(i), 10, true)
		}
		g.second(now, true)
	}
	return g, now
}

func client(i byte) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, i}) }

// TestARuleCostsWhatRegularsMiss: what a rule drops of them, and what comes of them in spite of it,
// say how much of the good packets it takes.
func TestARuleCostsWhatRegularsMiss(t *testing.T) {
	for _, c := range []struct {
		what     string
		loses    byte    // regulars that the rule drops
		forged   float64 // packets in the name of each regular, which it drops too
		least    float64
		atMost   float64
		stranger bool
		once     bool // one sample, for many packets
	}{
		{what: "it drops nobody", atMost: 0},
		{what: "it drops a fifth of them", loses: 20, least: 0.1, atMost: 0.2},
		{what: "it drops packets that are forged in their names", forged: 1000, atMost: 0},
		{what: "it drops who was never seen", stranger: true, atMost: 0},
		{what: "of one that rests it drops a packet, whose sample stands for 20", once: true,
			atMost: 0},
	} {
		g, now := crowd()
		var costs map[string]float64
		for n := range 3 {
			now = now.Add(time.Second)
			for i := range byte(100) {
				if c.once && i == 0 {
					if n == 1 {
						g.drop("flood-1-1", client(i), 20, &frame{})
					}
					continue
				}
				if i < c.loses {
					g.drop("flood-1-1", client(i), 10, &frame{})
				} else {
					g.pass(now, client(i), 10, false)
				}
				if c.forged > 0 {
					g.drop("flood-1-1", client(i), c.forged, &frame{})
				}
				if c.stranger {
					g.drop("flood-1-1", netip.AddrFrom4([4]byte{198, 51, 100, i}), 10, &frame{})
				}
			}
			costs = g.second(now, false)
		}
		if got := costs["flood-1-1"]; got < c.least || got > c.atMost {
			t.Errorf("%s: %v of the good packets, want %v to %v", c.what, got, c.least, c.atMost)
		}
		known := c.loses > 0 || c.forged > 0 || c.once
		if n := len(g.spare()); n > 0 != known || n > mostDropped {
			t.Errorf("%s: %d packets are kept", c.what, n)
		}
	}
}

// TestRegularsAreBounded, and strangers of a flood never become some.
func TestRegularsAreBounded(t *testing.T) {
	g, now := newRegulars(), time.Unix(1e9, 0)
	for i := range 2 * mostRegulars {
		g.pass(now, netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 1, true)
	}
	g.pass(now, client(1), 1, false)
	if len(g.of) != mostRegulars {
		t.Errorf("%d regulars", len(g.of))
	}
	if g.second(now.Add(2*goodAge), true); len(g.of) > 0 {
		t.Errorf("%d regulars after an hour", len(g.of))
	}
}

// TestWhoHasDoneAHandshakeIsGoodTrafficToo: of clients that nobody had heard of before a flood no
// cost was known. Who sends more than clients do is none, though it has done one, too.
func TestWhoHasDoneAHandshakeIsGoodTrafficToo(t *testing.T) {
	for _, c := range []struct {
		what   string
		rate   float64 // packets a second that the rule drops of each
		passes float64
		peer   bool
		costs  bool
	}{
		{"a client", 10, 0, true, true},
		{"who has done no handshake", 10, 0, false, false},
		{"a bot that has done one", 1000, 0, true, false},
		{"in whose name others send", 10, 10, true, false},
	} {
		g, now := crowd()
		g.peer = func(netip.Addr) bool { return c.peer }
		var costs map[string]float64
		for range 4 {
			now = now.Add(time.Second)
			for i := range byte(100) {
				g.pass(now, client(i), 10, false)
			}
			for i := range byte(20) {
				from := netip.AddrFrom4([4]byte{198, 51, 100, i})
				for range int(c.rate) {
					g.drop("flood-1-1", from, 1, &frame{at: now})
				}
				g.pass(now, from, c.passes, false)
			}
			costs = g.second(now, false)
		}
		if got := costs["flood-1-1"]; got > 0.05 != c.costs {
			t.Errorf("%s: %v of the good packets", c.what, got)
		}
	}
}

// TestARuleThatCostsLittleMoreThanItMayIsFound, by more samples: of two seconds they prove nothing.
func TestARuleThatCostsLittleMoreThanItMayIsFound(t *testing.T) {
	g, now := crowd()
	var costs map[string]float64
	for n := range 20 {
		now = now.Add(time.Second)
		for i := range byte(100) {
			if i == 0 {
				if n%2 == 0 { // a sample of two seconds
					g.drop("flood-1-1", client(i), 20, &frame{at: now})
				}
				continue
			}
			g.pass(now, client(i), 10, false)
		}
		costs = g.second(now, false)
	}
	if got := costs["flood-1-1"]; got < 1e-3 || got > 1e-2 {
		t.Errorf("a rule that drops 1 of 100 regulars drops %v of the good packets", got)
	}
}

// TestWhoJoinsAFloodCostsNoRule: 64 hosts that came before a flood, and stopped then to send a part
// of it, had each rule taken back. What they sent before says what a rule takes of it. Of who has
// sent such packets before, or too few to tell, it is what is missing.
func TestWhoJoinsAFloodCostsNoRule(t *testing.T) {
	for _, c := range []struct {
		what             string
		packets, dropped int // of each in the sample
		costs            bool
	}{
		{"none of their packets were like those that the rule drops", 100, 0, false},
		{"half of them were", 100, 50, true},
		{"two in a hundred were", 100, 2, true},
		{"they were too few to tell", 5, 0, true},
	} {
		g, now := crowd()
		of := sampled{}
		for i := range byte(100) {
			s := of[client(i)]
			s.packets, s.dropped = c.packets, c.dropped
			of[client(i)] = s
		}
		g.sampled(map[string]sampled{"flood-1-1": of})
		var costs map[string]float64
		for range 3 {
			now = now.Add(time.Second)
			for i := range byte(100) {
				if i < 20 {
					g.drop("flood-1-1", client(i), 100, &frame{})
				} else {
					g.pass(now, client(i), 10, false)
				}
			}
			costs = g.second(now, false)
		}
		if got := costs["flood-1-1"]; got > 1e-3 != c.costs {
			t.Errorf("%s: %v of the good packets", c.what, got)
		}
	}
	g, _ := crowd()
	g.sampled(map[string]sampled{"flood-1-1": {}})
	g.rules(map[int]string{1: "flood-1-2"})
	g.sampled(map[string]sampled{"flood-1-2": {}})
	if len(g.samples) != 1 {
		t.Errorf("of rules that are gone: %v", g.samples)
	}
}
