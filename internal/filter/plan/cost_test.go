package plan_test

import (
	"math"
	"path/filepath"
	"testing"

	"levee/internal/filter/plan"
	"levee/internal/filter/price"
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
