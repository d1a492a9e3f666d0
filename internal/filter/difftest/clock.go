package difftest

import (
	"math/rand/v2"
	"time"

	"levee/internal/filter/limit"
)

// clock is the time of a comparison. It stands still unless all engines are Timed.
type clock struct {
	at      time.Time // of the oracle
	engines []Timed
	jiffies uint64 // of the engines
	tick    time.Duration
	rand    *rand.Rand
}

func newClock(seed uint64, engines []Engine) *clock {
	c := &clock{at: now, rand: rand.New(rand.NewPCG(seed, streamClock))}
	for _, e := range engines {
		timed, ok := e.(Timed)
		if !ok {
			return &clock{at: now}
		}
		c.engines = append(c.engines, timed)
		jiffies, hz := timed.Time()
		c.jiffies, c.tick = max(c.jiffies, jiffies), time.Duration(limit.Tick(hz))
	}
	if len(c.engines) == 0 {
		return c
	}
	// Programs count from the boot of the machine, the oracle from 1970: both in the same units of
	// time, which are up to 1 << coarsest ns, only if these begin together.
	const coarsest = 24
	for last := c.jiffies + 1<<coarsest; c.jiffies < last &&
		(uint64(now.UnixNano())-c.jiffies*uint64(c.tick))%(1<<coarsest) != 0; {
		c.jiffies++
	}
	c.set()
	return c
}

func (c *clock) now() time.Time { return c.at }
func (c *clock) runs() bool     { return len(c.engines) > 0 }

// step lets time pass before a frame: mostly none, else some jiffies, now and then a long time.
func (c *clock) step() {
	n := uint64(0)
	switch k := c.rand.IntN(100); {
	case k < 70:
		return
	case k < 90:
		n = 1 + c.rand.Uint64N(3)
	case k < 99:
		n = 1 + c.rand.Uint64N(500)
	default:
		n = c.rand.Uint64N(1 << (10 + c.rand.Uint64N(12)))
	}
	c.pass(n)
}

// Between sequences: longer than the longest lease, that of an open connection.
const (
	shortPause = 3 * time.Hour
	longPause  = 4 * time.Hour
)

// pause lets the time between two sequences pass.
func (c *clock) pause() {
	more := time.Duration(c.rand.Int64N(int64(longPause - shortPause)))
	c.pass(uint64((shortPause + more) / c.tick))
}

func (c *clock) pass(jiffies uint64) {
	c.jiffies += jiffies
	c.at = c.at.Add(time.Duration(jiffies) * c.tick)
	c.set()
}

func (c *clock) set() {
	for _, e := range c.engines {
		e.SetTime(c.jiffies)
	}
}
