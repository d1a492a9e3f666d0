package defend

import (
	"testing"
	"time"

	"levee/internal/agent/part"
	"levee/internal/agent/sight"
	"levee/internal/lang/policy"
)

// TestADetectorThatSeesNothingIsBlind, though it runs: packets pass, and no sample comes. Where
// nothing passes there is nothing to see.
func TestADetectorThatSeesNothingIsBlind(t *testing.T) {
	var counts sight.Counts
	var s sight.Samples
	begun := time.Unix(1e9, 0)
	for second, c := range []struct {
		passed  uint64
		sampled bool
		blind   bool
	}{
		12: {}, 13: {passed: 500, sampled: true}, 14: {passed: 999}, 30: {},
		31: {passed: 1, blind: true}, 32: {passed: 100, sampled: true}, 33: {passed: 5000},
		43: {blind: true}, 44: {sampled: true}, 59: {},
	} {
		counts.Passed("eth0", c.passed)
		err := s.Look(begun.Add(time.Duration(second)*time.Second), c.sampled, counts.Of("eth0"))
		if second > 33 && second < 44 || second > 13 && second < 31 {
			continue // between
		}
		if (err != nil) != c.blind {
			t.Errorf("second %d: %v, want blind %v", second, err, c.blind)
		}
	}
	r := part.NewRegister(nil)
	p := newWatchParts(r, "eth0")
	p.set([]*policy.Detect{{Name: "floods"}}, false)
	p.looked(time.Time{}, 0, s.Look(begun.Add(time.Hour), false, counts.Of("eth0")+2000))
	if all := part.Failing(r.List()); len(all) != 1 || all[0].Kind != part.Detector {
		t.Errorf("%+v", r.List())
	}
}
