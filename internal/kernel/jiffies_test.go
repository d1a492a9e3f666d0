package kernel

import (
	"fmt"
	"math"
	"os"
	"testing"
	"time"

	"levee/internal/await"
)

// reader reads jiffies of this machine.
func reader(t *testing.T) func() (sample, error) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads an eBPF program")
	}
	read, err := jiffiesReader()
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// TestClockFollowsTheKernel: some clock of several does. A tick comes late where the processor that
// counts them has to wait, as under an emulator: a clock that was read then is behind by that once
// the tick has come, and one that was read before is ahead until then. A clock that is wrong is
// wrong each time.
func TestClockFollowsTheKernel(t *testing.T) {
	read := reader(t)
	if err := anyFollows(func() (*Clock, error) { return newClock(read, Monotonic) },
		func() { await.Pass(3*time.Millisecond, "the next question falls elsewhere in a tick") },
	); err != nil {
		t.Error(err)
	}
}

// anyFollows tells how the last of some clocks departs from the kernel's jiffies, nil as soon as
// one does not.
func anyFollows(clock func() (*Clock, error), pass func()) (err error) {
	for range 10 {
		var c *Clock
		if c, err = clock(); err != nil {
			return err
		}
		if err = c.follows(pass); err == nil {
			return nil
		}
	}
	return err
}

func (c *Clock) follows(pass func()) error {
	for range 20 {
		before := c.Now()
		s, err := c.sample()
		if err != nil {
			return err
		}
		if after := c.Now(); s.ticks+1 < before || s.ticks > after+1 {
			return fmt.Errorf("the kernel says %d between %d and %d", s.ticks, before, after)
		}
		pass()
	}
	return nil
}

// TestLateTicksAreNoFaultOfAClock, and a clock that is wrong is not taken for one whose ticks were
// late.
func TestLateTicksAreNoFaultOfAClock(t *testing.T) {
	const start = 1000 * time.Second
	for name, c := range map[string]struct {
		late         func(at time.Duration) uint64 // by how many ticks those of the kernel are
		ahead, times uint64                        // what is wrong with the clock
		follow       bool
	}{
		"in time": {follow: true},
		"late at once": {late: func(at time.Duration) uint64 {
			return lateUntil(at, 7)
		}, follow: true},
		"late later": {late: func(at time.Duration) uint64 {
			return lateUntil(at, 50) - lateUntil(at, 20)
		}, follow: true},
		"a clock that is ahead": {ahead: 3},
		"a clock that is fast":  {times: 2},
	} {
		at := start
		kernel := func() (sample, error) {
			ticks := uint64(at.Seconds() * 250)
			if c.late != nil {
				ticks -= c.late(at - start)
			}
			return sample{ticks, at}, nil
		}
		err := anyFollows(func() (*Clock, error) {
			s, err := kernel()
			return &Clock{hz: 250 * max(c.times, 1), at: s.mono, ticks: s.ticks + c.ahead,
				sample: kernel, mono: func() time.Duration { return at }}, err
		}, func() { at += 3 * time.Millisecond })
		if (err == nil) != c.follow {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// lateUntil is 4 ticks until some milliseconds have passed.
func lateUntil(at time.Duration, ms int) uint64 {
	if at < time.Duration(ms)*time.Millisecond {
		return 4
	}
	return 0
}

// still is a clock at rest, which the test moves.
func still(hz uint64) (*Clock, *time.Duration) {
	at := 1000 * time.Second
	c := &Clock{hz: hz, at: at, ticks: 1 << 32, mono: func() time.Duration { return at }}
	c.sample = func() (sample, error) {
		return sample{c.ticks +
			uint64((at-c.at).Seconds()*float64(hz)), at}, nil
	}
	return c, &at
}

func TestLeaseEndsNotBeforeItsTimeAndSoonAfter(t *testing.T) {
	for _, hz := range []uint64{100, 250, 300, 1000} {
		for _, d := range []time.Duration{0, 1, time.Millisecond, 500 * time.Millisecond,
			10 * time.Minute, 14 * 24 * time.Hour} {
			c, at := still(hz)
			*at += 700 * time.Microsecond
			end := c.Expiry(d)
			left := c.Remaining(end)
			tick := time.Second / time.Duration(hz)
			if left < d || left > d+2*tick+time.Microsecond {
				t.Errorf("%d Hz: a lease of %v lasts %v", hz, d, left)
			}
			*at += d + 3*tick
			if left := c.Remaining(end); left != 0 {
				t.Errorf("%d Hz: a lease of %v has %v left after its end", hz, d, left)
			}
		}
	}
}

// TestAClockIsReadAgainWhereTheProcessHadToWait: between ticks and time. It was behind by that, for
// a second, and an entry half a second longer than its lease counts as leased by somebody else.
func TestAClockIsReadAgainWhereTheProcessHadToWait(t *testing.T) {
	c, at := still(250)
	ticks := func() uint64 { return 1<<32 + uint64((*at-1000*time.Second).Seconds()*250) }
	reads := 0
	c.sample = func() (sample, error) {
		s := sample{ticks: ticks()}
		if reads++; reads < 3 {
			*at += 600 * time.Millisecond
		}
		s.mono = *at
		return s, nil
	}
	*at += 2 * time.Second
	if now := c.Now(); now < ticks()-1 || now > ticks() || reads != 3 {
		t.Errorf("%d after %d readings, and the kernel has %d", now, reads, ticks())
	}
}

func TestClockNeverGoesBack(t *testing.T) {
	c, at := still(250)
	*at += 900 * time.Millisecond
	before := c.Now()
	// the kernel's tick was late
	c.sample = func() (sample, error) { return sample{before - 3, *at}, nil }
	*at += 200 * time.Millisecond
	if now := c.Now(); now < before {
		t.Errorf("%d after %d", now, before)
	}
}

func TestLeaseWithoutEnd(t *testing.T) {
	c, _ := still(250)
	if got := c.Remaining(0); got != math.MaxInt64 {
		t.Errorf("a lease without end lasts %v", got)
	}
	if got := c.Remaining(math.MaxUint64); got != math.MaxInt64 {
		t.Errorf("the longest lease lasts %v", got)
	}
}

// TestTheRateIsThatOfTheTicks: as many jiffies pass in a time as the rate says, whatever this
// process has to wait. Measured by a busy machine, 250 a second passed for 256.
func TestTheRateIsThatOfTheTicks(t *testing.T) {
	read := reader(t)
	hz, err := rate()
	if err != nil {
		t.Fatal(err)
	}
	first, err := tight(read, Monotonic)
	if err != nil {
		t.Fatal(err)
	}
	await.Pass(time.Second, "the kernel's ticks are counted meanwhile")
	last, err := tight(read, Monotonic)
	if err != nil {
		t.Fatal(err)
	}
	ticks := float64(last.ticks - first.ticks)
	if expect := (last.mono - first.mono).Seconds() * float64(hz); math.Abs(ticks-expect) > 3 {
		t.Errorf("%v ticks in %v, want %.1f", ticks, last.mono-first.mono, expect)
	}
}
