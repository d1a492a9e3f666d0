package cost

import "testing"

// TestLargePoliciesAreSampled: what a policy of very many rules takes is bounded.
func TestLargePoliciesAreSampled(t *testing.T) {
	for _, c := range []struct{ rules, most, want int }{
		{0, 50, 1}, {1000, 50, 1}, {1001, 50, 21}, {100_000, 50, 2000}, {100_000, 100_000, 1},
		{100_000, 99_999, 2}, {1001, 1, 1001},
	} {
		if got := sampleEvery(c.rules, c.most); got != c.want {
			t.Errorf("%d rules, at most %d: one in %d, want %d", c.rules, c.most, got, c.want)
		}
	}
}

func TestOverallIsTheMedianRoundOfTheMeanPacket(t *testing.T) {
	median, spread := overall([][]float64{{1, 2, 9, 2}, {3, 4, 11, 4}})
	if median != 3 || spread != 3.5 {
		t.Errorf("overall = %v ± %v, want 3 ± 3.5", median, spread)
	}
	if median, spread = overall(nil); median != 0 || spread != 0 {
		t.Errorf("overall of nothing = %v ± %v", median, spread)
	}
}
