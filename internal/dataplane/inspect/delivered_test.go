package inspect

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestWhatAKeeperIsAboutToFollowIsNoAlarm: between a new address and the keeper's update `status`
// ended with 1.
func TestWhatAKeeperIsAboutToFollowIsNoAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at, apart := place{index: -1}, []string{"lacks 198.51.100.1"}
		defer settles(at, false)
		for _, c := range []struct {
			name    string
			follows time.Duration // after this a keeper has followed
			want    []string
			takes   time.Duration
		}{
			{"followed", 0, nil, 0},
			{"followed soon", 70 * time.Millisecond, nil, 2 * settleLook},
			{"not followed", time.Hour, apart, SettleTime},
			{"not followed, as is known", time.Hour, apart, 0},
			{"followed at last", 0, nil, 0},
			{"anew", time.Hour, apart, SettleTime},
		} {
			began := time.Now()
			look := func() ([]string, time.Duration, error) {
				if time.Since(began) < c.follows {
					return apart, settles(at, true), nil
				}
				return nil, settles(at, false), nil
			}
			var j Judging
			all, left, _ := look()
			j.differs(all, left)
			if left > 0 && j.Failed() {
				t.Errorf("%s: an alarm at once: %q", c.name, j.Amiss)
			}
			if err := j.settle(t.Context(), look); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); !slices.Equal(j.Amiss, c.want) || took != c.takes {
				t.Errorf("%s: %q after %v, want %q after %v", c.name, j.Amiss, took, c.want,
					c.takes)
			}
		}
	})
}
