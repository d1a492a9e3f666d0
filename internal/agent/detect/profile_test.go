package detect

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestTheMedianFollowsItsMinutes: it is kept, and is that of the minutes that there are now, over
// minutes, hours, alarms and another agent.
func TestTheMedianFollowsItsMinutes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 175))
	now := time.Date(2026, 11, 29, 0, 0, 30, 0, time.UTC)
	var p profile
	told := 0
	for range 600 {
		now = now.Add(time.Minute)
		var one rates
		for k := range one {
			one[k] = r.Float32() * 1e4
			p.bound[k] = 1e5
		}
		p.minute = append(p.minute, one)
		switch r.IntN(20) {
		case 0:
			p.forget()
		case 1:
			l := p.learned()
			p.restore(&l, now)
		}
		p.turn(now)
		all := slices.Concat(p.last, p.hour)
		if len(all) < minutes {
			continue
		}
		told++
		got := p.lately()
		for k := range got {
			if want := highest(all, k, (len(all)+1)/2); got[k] != want {
				t.Fatalf("at %s %d minutes have the median %g, told is %g", now, len(all), want,
					got[k])
			}
		}
	}
	if told < 300 {
		t.Errorf("only %d minutes had a median", told)
	}
}
