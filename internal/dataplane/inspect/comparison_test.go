package inspect

import (
	"testing"
	"time"
)

// at is a look: seconds since the policy came, what was received and judged up to then, and the
// state that this shows.
type at struct {
	s                float64
	received, judged uint64
	state            JudgingState
}

// What is received and judged nowhere is told, and nothing else: drivers count late, count anew,
// packets come one by one, or merged.
func TestComparingFindsWhatComesPastAPolicy(t *testing.T) {
	for _, c := range []struct {
		name  string
		parts int // whole packets can be compared, 2; only that there are any, 1; nothing, 0
		looks []at
	}{
		{"a driver that never asks", 2, []at{{0.1, 120, 0, NotYet}, {1, 200, 0, NotYet},
			{2.6, 300, 0, NotYet}, {2.7, 302, 0, NotYet}, {2.8, 303, 0, Still}, {9, 303, 0,
				Still}}},
		{"a driver that asks no more", 2, []at{{1, 150, 50, Seen}, {2, 160, 50, Seen},
			{5, 200, 50, Seen}, {6, 210, 50, Still}, {7, 220, 51, Seen}}},
		{"a driver that counts two seconds late", 2, []at{{1, 100, 1000, Seen}, {2, 600, 1000,
			Seen},
			{3, 1100, 1000, Seen}, {4, 1100, 1000, Seen}, {9, 1100, 1000, Seen}}},
		{"a packet a minute", 2, []at{{60, 101, 1, Seen}, {120, 102, 2, Seen}, {180, 103, 3,
			Seen}}},
		{"a packet a minute, judged nowhere", 2, []at{{60, 101, 0, NotYet}, {120, 102, 0, NotYet},
			{180, 103, 0, NotYet}, {240, 104, 0, Still}}},
		{"a packet on its way", 2, []at{{9, 100, 0, NotYet}, {10, 101, 0, NotYet},
			{10.1, 101, 1, Seen}}},
		{"silence", 2, []at{{9, 100, 0, NotYet}, {99, 100, 0, NotYet}}},
		{"a driver that begins to count anew", 2, []at{{1, 150, 50, Seen}, {5, 3, 50, Seen},
			{6, 5, 50, Seen}, {8, 9, 50, Seen}, {9, 12, 50, Still}}},
		{"merged packets", 1, []at{{1, 4100, 100, Seen}, {2, 8100, 200, Seen}, {12, 58100, 900,
			Seen},
			{24, 98100, 1900, Seen}, {36, 198100, 2900, Seen}}},
		{"packets that the stack does not get", 0, []at{{9, 200, 0, NotYet}, {19, 300, 0, NotYet}}},
		{"one queue of four", 2, []at{{1, 1100, 250, Seen}, {12, 9100, 2250, Seen},
			{24, 17100, 4250, Partly}, {36, 25100, 6250, Partly}, {48, 33100, 14250, Seen}}},
		{"a burst that is counted late", 2, []at{{1, 100, 100000, Seen}, {3, 100100, 100001, Seen},
			{14, 105100, 105001, Seen}, {26, 110100, 110001, Seen}}},
		{"more judged than received", 2, []at{{1, 101, 5000, Seen}, {12, 102, 90000, Seen},
			{24, 103, 190000, Seen}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			from := time.Hour
			w := Begin(1, 7, from, 100, 0)
			for _, l := range c.looks {
				now := from + time.Duration(l.s*float64(time.Second))
				w.Look(now, l.received, l.judged, c.parts > 0, c.parts > 1)
				if w.State != l.state {
					t.Fatalf("after %v s: %q, want %q; %+v", l.s, w.State, l.state, w)
				}
			}
		})
	}
}

// A command that looks once an hour has to ask again where most packets came past the policy: that
// some were judged may be an hour ago.
func TestALookThatDoubtsAsksForAnother(t *testing.T) {
	w := Begin(1, 7, time.Hour, 100, 0)
	for _, c := range []struct {
		received, judged uint64
		whole, doubt     bool
	}{
		{100, 0, true, false}, {102, 0, true, false}, {103, 0, true, true}, {200, 100, true, false},
		{200, 12, true, false}, {200, 11, true, true}, {200, 11, false, false}, {200, 0, false,
			true},
		{50, 0, true, false}, {100, 5000, true, false},
	} {
		if got := w.doubt(c.received, c.judged, c.whole); got != c.doubt {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
