package dataplane

import (
	"time"

	"levee/internal/kernel"
)

// jiffies is the clock that programs go by.
func (s *store) jiffies() (*kernel.Clock, error) {
	if s.clock != nil {
		return s.clock, nil
	}
	return kernel.JiffiesClock()
}

// deadlineAfter is the value of jiffies d from now.
func deadlineAfter(d time.Duration) (uint64, error) {
	c, err := kernel.JiffiesClock()
	if err != nil {
		return 0, kernel.Refuse(err, "read the clock that trials end by")
	}
	return c.Expiry(d), nil
}

// timeLeft is the time until a deadline in jiffies, 0 after it.
func timeLeft(deadline uint64) (time.Duration, error) {
	c, err := kernel.JiffiesClock()
	if err != nil {
		return 0, kernel.Refuse(err, "read the clock that trials end by")
	}
	return c.Remaining(deadline), nil
}

// clockFile is a reading of the kernel's clock, which takes the right to load programs.
const clockFile = "clock.json"

type clockReading struct {
	Ticks uint64        `json:"ticks"`
	HZ    uint64        `json:"hz"`
	Mono  time.Duration `json:"mono"` // CLOCK_MONOTONIC then
}

// noteClock writes a reading for those who cannot take one.
func (s *store) noteClock() error {
	c, err := kernel.JiffiesClock()
	if err != nil {
		return kernel.Refuse(err, "read the clock that leases end by")
	}
	return writeJSON(s.state(clockFile), clockReading{c.Now(), c.HZ(), kernel.Monotonic()})
}

// timeLeft is the time until a deadline in jiffies, 0 after it.
func (s *store) timeLeft(deadline uint64) (time.Duration, error) {
	if s.clock != nil {
		return s.clock.Remaining(deadline), nil
	}
	return timeLeft(deadline)
}
