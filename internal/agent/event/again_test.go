package event

import (
	"fmt"
	"testing"
	"time"
)

// TestALogOfAClockAheadIsNotJudgedTwice: what writes the log is an hour ahead. When the log was
// written anew, each line of the last hour was still to come, counted as one of now, and banned
// again whom an operator had let go. What comes behind those lines is judged, and a clock that is
// mended hides nothing.
func TestALogOfAClockAheadIsNotJudgedTwice(t *testing.T) {
	m := New(source(t, `where alert.signature = "q"`), nil, nil)
	real := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	line := func(host int, at time.Time) []byte {
		return fmt.Appendf(nil, `{"timestamp":%q,"src_ip":"192.0.2.%d","alert":{"signature":"q"}}`,
			at.Format(time.RFC3339Nano), host)
	}
	judge := func(what string, want Result, host int, at, now time.Time) {
		t.Helper()
		if _, r, err := m.Match(line(host, at), now); r != want || err != nil {
			t.Errorf("%s: %v, want %v; %v", what, r, want, err)
		}
	}
	ahead := func(min int) time.Time { return real.Add(time.Hour + time.Duration(min)*time.Minute) }
	now := func(min int) time.Time { return real.Add(time.Duration(min) * time.Minute) }
	for min := range 3 {
		judge("at first", Matched, min, ahead(min), now(min))
	}
	m.Begin(1)
	for min := range 3 {
		judge("written anew", Again, min, ahead(min), now(10))
	}
	judge("behind them", Matched, 7, ahead(10), now(10))
	judge("of a clock that was mended", Matched, 8, now(11), now(11))
	m.Begin(2)
	judge("written anew, and older", Again, 8, now(11), now(12))
	judge("behind that", Matched, 9, now(12), now(12))
	m.Begin(3)
	judge("before one of far ahead", Again, 9, now(12), now(13))
	judge("far ahead", Matched, 10, now(13).AddDate(100, 0, 0), now(13))
	m.Begin(4)
	judge("behind one of far ahead", Matched, 11, now(15), now(15))

	judge("ahead again", Matched, 12, ahead(16), now(16))
	m.Begin(5)
	judge("of a clock that was mended, in a new log", Matched, 13, now(17), now(17))
	judge("behind that", Matched, 14, now(18), now(18))
}
