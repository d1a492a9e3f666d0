package ledger

import (
	"path/filepath"
	"testing"
	"time"
)

// reading is a ledger whose clocks are a test's.
type reading struct {
	t    *testing.T
	path string
	l    *Ledger
	wall time.Time
	last time.Duration // since Clock was called last
}

func (r *reading) open() {
	r.t.Helper()
	if r.l != nil {
		if err := r.l.Close(); err != nil {
			r.t.Fatal(err)
		}
	}
	l, err := Open(r.path, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	r.l = l
}

// pass lets time pass while somebody sets the clock.
func (r *reading) pass(d, set time.Duration) { r.wall, r.last = r.wall.Add(d+set), r.last+d }

// tell tells the ledger the time, which has to find that the clock has jumped.
func (r *reading) tell(jumped time.Duration) {
	r.t.Helper()
	if got, err := r.l.told(r.wall, r.last); err != nil || got != jumped {
		r.t.Errorf("the clock has jumped by %v, %v, want %v", got, err, jumped)
	}
	r.last = 0
}

// rests fails unless a lease has so much left.
func (r *reading) rests(left time.Duration) {
	r.t.Helper()
	n := 0
	err := r.l.Each(func(l Lease) bool {
		if n++; l.Origin == "ids" && l.Until.Sub(r.wall) != left {
			r.t.Errorf("a lease since %v has %v left, want %v", l.Since, l.Until.Sub(r.wall), left)
		}
		if l.Origin == "forever" && !l.Until.IsZero() {
			r.t.Errorf("a lease without an end ends at %v", l.Until)
		}
		return true
	})
	if err != nil || n != 2 {
		r.t.Errorf("%d leases, %v", n, err)
	}
}

// TestALeaseLastedForAsLongAsTheClockWasSetBack: a machine without a clock of its own begins with
// one that is behind, and time servers then set it. A lease of half a minute lasted until the clock
// had come to its end again, and where that was set forward meanwhile, the kernel kept its entry.
func TestALeaseLastedForAsLongAsTheClockWasSetBack(t *testing.T) {
	r := &reading{t: t, path: filepath.Join(t.TempDir(), "agent.db"),
		wall: time.Date(2026, 11, 30, 1, 0, 0, 0, time.UTC)}
	r.open()
	r.tell(0)
	const lasts = time.Hour
	put := func() {
		t.Helper()
		one, other := lease(1, "ids", r.wall.Add(lasts)), lease(2, "forever", time.Time{})
		one.Since, other.Since = r.wall, r.wall
		if err := r.l.Record([]Lease{one, other}, nil); err != nil {
			t.Fatal(err)
		}
	}
	put()
	r.rests(lasts)
	r.pass(10*time.Minute, time.Second) // which many clocks lose
	r.tell(0)
	r.rests(lasts - 10*time.Minute - time.Second)
	r.pass(9*time.Minute, -time.Second-5*time.Hour)
	r.tell(-5*time.Hour - time.Second)
	r.rests(lasts - 19*time.Minute - time.Second)
	r.pass(time.Minute, 5*time.Hour)
	r.tell(5 * time.Hour)
	r.rests(lasts - 20*time.Minute - time.Second)

	put() // of which nobody can know how long ago it was, once the machine has begun anew
	r.wall = time.Unix(0, 0)
	r.open()
	const years = 56*365*24*time.Hour + 14*24*time.Hour
	was, err := r.l.told(r.wall, 0)
	if err != nil || was > -years {
		t.Errorf("the clock has jumped by %v, %v, want more than %v", was, err, -years)
	}
	r.rests(lasts)
	r.open() // it is killed, and begins anew
	r.tell(0)
	r.pass(time.Minute, -was)
	r.tell(-was)
	r.rests(lasts - time.Minute)
	if err := r.l.Change("abusers", "ids", []Lease{lease(1, "ids", r.wall.Add(time.Second))}, nil,
		nil); err != nil {
		t.Fatal(err)
	}
	r.rests(time.Second)
	r.pass(time.Second, 0)
	r.open() // a second without power counts
	r.tell(0)
	r.rests(0)
}

// TestEachBootTookALeaseBackToWhenItWasGiven: of a machine that begins in 1970 each day, and has no
// new leases, a lease of a day did not end.
func TestEachBootTookALeaseBackToWhenItWasGiven(t *testing.T) {
	r := &reading{t: t, path: filepath.Join(t.TempDir(), "agent.db"),
		wall: time.Date(2026, 11, 30, 1, 0, 0, 0, time.UTC)}
	r.open()
	r.tell(0)
	one, other := lease(1, "ids", r.wall.Add(24*time.Hour)), lease(2, "forever", time.Time{})
	one.Since, other.Since = r.wall, r.wall
	if err := r.l.Record([]Lease{one, other}, nil); err != nil {
		t.Fatal(err)
	}
	left := 24 * time.Hour
	for range 3 {
		for range 7 {
			r.pass(time.Hour, 0)
			r.tell(0)
		}
		left -= 7 * time.Hour
		r.pass(time.Minute, 0) // which is not noted
		r.tell(0)
		r.wall = time.Unix(0, 0)
		r.open()
		if jumped, err := r.l.told(r.wall, 0); err != nil || jumped > -20*365*24*time.Hour {
			t.Errorf("the clock has jumped by %v, %v", jumped, err)
		}
		r.rests(left)
		r.pass(0, 56*365*24*time.Hour)
		r.tell(56 * 365 * 24 * time.Hour)
		r.rests(left)
	}
}

// TestALedgerThatIsNotOpenKnowsNoTime.
func TestALedgerThatIsNotOpenKnowsNoTime(t *testing.T) {
	l := &Ledger{}
	if _, err := l.Clock(time.Now()); err != ErrClosed || !l.clock.told.IsZero() {
		t.Errorf("%v, %v", err, l.clock)
	}
}
