package plan_test

import (
	"math"
	"path/filepath"
	"testing"

	"levee/internal/filter/ir"
	"levee/internal/filter/plan"
	"levee/internal/filter/price"
	"levee/internal/filter/state"
	"levee/internal/lang/action"
	"levee/internal/lang/resolve"
	"levee/internal/packet"
)

// TestEstimatesFollowTheTraffic: the whole of a plan costs what traffic does that is spread evenly,
// and a packet that a later rule decides costs more.
func TestEstimatesFollowTheTraffic(t *testing.T) {
	files, err := filepath.Glob("../../../test/policy/valid/*.levee")
	if err != nil || len(files) == 0 {
		t.Fatalf("no policies: %v", err)
	}
	for _, file := range files {
		p := planOf(t, file, plan.Target{})
		least, ns := p.Estimate(price.Default, p.Evenly())
		if least != p.Cost.Least || ns != p.Cost.Ns || least <= 0 || ns < least {
			t.Errorf("%s: %g and %g ns, the plan says %g and %g", file, least, ns, p.Cost.Least,
				p.Cost.Ns)
		}
		half := price.Machine{Step: price.Default.Step / 2, Wait: price.Default.Wait / 2,
			Load: price.Default.Load / 2}
		l, n := p.Estimate(half, p.Evenly())
		if math.Abs(2*l-least) > 1e-9*least || math.Abs(2*n-ns) > 1e-9*ns {
			t.Errorf("%s: %g and %g ns where everything takes half as long as in %g and %g", file,
				l, n, least, ns)
		}
		before := 0.0
		class := p.Chains[0].Classes[0]
		for i := range p.Chains[0].Rules {
			r := &p.Chains[0].Rules[i]
			if !r.Action.Decides() {
				continue
			}
			traffic := []plan.Traffic{{Class: class, Slot: r.Slot, Packets: 3}}
			l, n := p.Estimate(price.Default, traffic)
			if l < before || n < l {
				t.Errorf("%s: slot %d takes %g ns, least %g, the one before least %g", file, r.Slot,
					n, l, before)
			}
			before = l
		}
	}
}

// TestFragmentsMalformedBesideOthersCostTheLookUp: the decoder does not refuse them, a rule does
// that follows fragments, behind what stands before it.
func TestFragmentsMalformedBesideOthersCostTheLookUp(t *testing.T) {
	p := planOf(t, "../../../test/policy/valid/21-fragments.levee", plan.Target{})
	m := price.Machine{Step: price.Default.Step, Wait: price.Default.Wait}
	estimate := func(c ir.Class, slot int) float64 {
		least, _ := p.Estimate(m, []plan.Traffic{{Class: c, Slot: slot, Packets: 7}})
		return least
	}
	found := 0
	for _, c := range p.Chains {
		for _, class := range c.Classes {
			orphan := estimate(class, packet.FragmentOrphan.Slot())
			if orphan == 0 { // no rule of the chain follows fragments
				continue
			}
			found++
			if least := price.Careful + waitOf(action.Track); class.Fragment && orphan < least ||
				orphan > 3*least {
				t.Errorf("%s: an orphan takes %.1f ns, decoding and following it %.1f", class,
					orphan, least)
			}
			if tiny := estimate(class, packet.FragmentTiny.Slot()); tiny != orphan {
				t.Errorf("%s: a tiny fragment takes %.1f ns, an orphan %.1f", class, tiny, orphan)
			}
		}
	}
	if found == 0 {
		t.Error("no packets are followed")
	}
	class := p.Chains[0].Classes[0]
	if got := estimate(class, packet.TruncatedIP.Slot()); got != price.Malformed {
		t.Errorf("a packet that the decoder refuses takes %.1f ns, want %.1f", got, price.Malformed)
	}
}

// TestICMPThatIsNoConnectionsIsNotLookedUp: neighbour discovery is cheaper than an error of the
// same chain, by a look-up.
func TestICMPThatIsNoConnectionsIsNotLookedUp(t *testing.T) {
	p := planOf(t, "../../../test/policy/valid/18-established.levee", plan.Target{})
	class := ir.Class{Family: ir.IPv6, Transport: ir.ICMP}
	estimate := func(name string) float64 {
		for slot, s := range p.Slots {
			if p.Program.Policy.Where(s) == name {
				least, _ := p.Estimate(price.Default,
					[]plan.Traffic{{Class: class, Slot: slot, Packets: 1}})
				return least
			}
		}
		t.Fatalf("no slot %q", name)
		return 0
	}
	found, failed := estimate("essential:nd"), estimate("essential:pmtu")
	if found <= 0 || failed-found < price.Flow/2 {
		t.Errorf("neighbour discovery takes %.1f ns, an error %.1f, a look-up %.1f", found, failed,
			price.Flow)
	}
}

// TestPacketsWithinTunnelsCostTheirDecoding: a tunnel is decoded again, and the packet within it.
func TestPacketsWithinTunnelsCostTheirDecoding(t *testing.T) {
	pol, ds := resolve.Parse("tunnels.levee", []byte("drop inner( tcp port 22 )\n"+
		"pass udp port { 4789, 6081 }\npass udp port 4788-4790\npass gre\npass tcp port 4789\n"+
		"default drop\n"), nil)
	if ds.HasErrors() {
		t.Fatal(ds.Err())
	}
	p, err := plan.New(ir.Build(pol), plan.Target{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		rule      int
		transport ir.Transport
		want      float64
	}{
		{0, ir.UDP, price.Look + price.Within}, {0, ir.Other, price.Look + price.Within},
		{1, ir.UDP, price.Look}, {2, ir.UDP, 0}, {3, ir.Other, price.Look}, {4, ir.TCP, 0},
	} {
		class := ir.Class{Family: ir.IPv4, Transport: c.transport}
		least, _ := p.Estimate(price.Default,
			[]plan.Traffic{{Class: class, Slot: pol.RuleSlot(c.rule), Packets: 1}})
		if rest := least - c.want; rest <= 0 || rest > 10 {
			t.Errorf("%s, rule %d: %.1f ns, of which the tunnel is to take %.1f", class, c.rule,
				least, c.want)
		}
	}
	for _, c := range p.Within {
		if c.Cost.Least < price.Look+price.Within || c.Do[0].About().Cost.Least < price.Call {
			t.Errorf("%s: %+v, and %+v of the function", c.What, c.Cost, c.Do[0].About().Cost)
		}
	}
	if len(p.Within) == 0 {
		t.Error("nothing is asked of packets within tunnels")
	}
}

// TestTaggedFramesCostTheCarefulDecoder: the fast path hands them on.
func TestTaggedFramesCostTheCarefulDecoder(t *testing.T) {
	untagged, tagged := estimateOfRule(t, "drop tcp port 80\n"), estimateOfRule(t,
		"drop vlan 7 tcp port 80\n")
	if more := tagged - untagged; more < price.Careful || more > price.Careful+2 {
		t.Errorf("a tagged frame takes %.1f ns, another %.1f: the careful decoder takes %.1f",
			tagged, untagged, price.Careful)
	}
}

// TestLimitsAndCookiesThatDecideCost: what they drop or answer has been asked and charged.
func TestLimitsAndCookiesThatDecideCost(t *testing.T) {
	for rule, least := range map[string]float64{
		"limit tcp port 80 rate 10/s by source\n": waitOf(action.Limit),
		"cookie tcp port 80\n":                    waitOf(action.Cookie),
	} {
		if got := estimateOfRule(t, rule); got < least || got > least+10 {
			t.Errorf("%q: what it decides takes %.1f ns, it by itself %.1f", rule, got, least)
		}
	}
}

// estimateOfRule returns the estimated time, in ns, of a TCP packet that the first rule decides.
func estimateOfRule(t *testing.T, rule string) float64 {
	t.Helper()
	pol, ds := resolve.Parse("rule.levee", []byte(rule+"default drop\n"), nil)
	if ds.HasErrors() {
		t.Fatal(ds.Err())
	}
	p, err := plan.New(ir.Build(pol), plan.Target{})
	if err != nil {
		t.Fatal(err)
	}
	least, _ := p.Estimate(price.Default, []plan.Traffic{{
		Class: ir.Class{Family: ir.IPv4, Transport: ir.TCP}, Slot: pol.RuleSlot(0), Packets: 1}})
	return least
}

// waitOf returns for how many ns packets wait for the memory of an effect.
func waitOf(a action.Action) float64 {
	for i := range state.Table {
		for _, c := range state.Table[i].Calls {
			if c.Action == a {
				return c.Time.Wait
			}
		}
	}
	return 0
}
