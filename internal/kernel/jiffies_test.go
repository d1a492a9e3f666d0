package kernel

import (
	"math"
	"os"
	"testing"
	"time"
)

func TestClockFollowsTheKernel(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads an eBPF program")
	}
	read, err := jiffiesReader()
	if err != nil {
		t.Fatal(err)
	}
	c, err := newClock(read, Monotonic)
	if err != nil {
		t.Fatal(err)
	}
	measured, err := rateMeasured(read)
	if err != nil {
		t.Fatal(err)
	}
	if c.HZ() != measured {
		t.Errorf("HZ is %d since boot and %d by the clock", c.HZ(), measured)
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
		time.Sleep(3 * time.Millisecond)
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

func TestRateSinceBoot(t *testing.T) {
	at := func(hz uint64, up time.Duration) sample {
		return sample{uint64(int64(1)<<32 + int64((up-300*time.Second).Seconds()*float64(hz))), up}
	}
	for _, c := range []struct {
		name string
		s    sample
		want uint64
	}{
		{"250 Hz after a day", at(250, 24*time.Hour), 250},
		{"1000 Hz after a minute", at(1000, time.Minute), 1000},
		{"100 Hz after ten years", at(100, 87600*time.Hour), 100},
		{"in doubt when jiffies pass 1<<32", at(250, 300*time.Second), 0},
		{"not since boot", sample{12345, time.Hour}, 0},
	} {
		if got := rateSinceBoot(c.s); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// TestRateOfAProcessThatHasToWait: a reading that comes late is no time of a tick.
func TestRateOfAProcessThatHasToWait(t *testing.T) {
	const hz = 250
	var mono time.Duration
	waited := false
	got, err := rateMeasured(func() (sample, error) {
		mono += 5 * time.Microsecond
		if !waited && mono > 3990*time.Microsecond {
			mono, waited = mono+3900*time.Microsecond, true
		}
		return sample{uint64(mono * hz / time.Second), mono}, nil
	})
	if err != nil || got != hz {
		t.Errorf("%d, %v, want %d", got, err, hz)
	}
}
