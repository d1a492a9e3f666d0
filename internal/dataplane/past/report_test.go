package past

import "testing"

// TestOnePolicyIsInForce though an older one is the same.
func TestOnePolicyIsInForce(t *testing.T) {
	one, two := numbered(1), numbered(2)
	one.Number, two.Number = 1, 2
	again := one
	again.Number = 3
	rep := NewReport("eth0", []Policy{again, two, one},
		func(p *Policy) bool { return p.Same(&one) }, func(err error) { t.Error(err) })
	for i, in := range []bool{true, false, false} {
		if r := rep.Policies[i]; r.InForce != in {
			t.Errorf("number %d: in force %v", r.Number, r.InForce)
		}
	}
}
