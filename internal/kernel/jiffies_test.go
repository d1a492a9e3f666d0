package kernel

import (
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

func TestClockFollowsTheKernel(t *testing.T) {
	read := reader(t)
	c, err := newClock(read, Monotonic)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		before := c.Now()
		s, err := read()
		if err != nil {
			t.Fatal(err)
		}
		after := c.Now()
		if s.ticks+1 < before || s.ticks > after+1 {
			t.Errorf("the kernel says %d between %d and %d", s.ticks, before, after)
		}
		await.Pass(3*time.Millisecond, "the next question falls elsewhere in a tick")
	}
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
