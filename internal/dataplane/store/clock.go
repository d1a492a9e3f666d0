package store

import (
	"time"

	"levee/internal/kernel"
)

// Jiffies returns the clock of programs.
func (s *Store) Jiffies() (*kernel.Clock, error) {
	if s.Clock != nil {
		return s.Clock, nil
	}
	return kernel.JiffiesClock()
}

// DeadlineAfter returns the value of jiffies d from now.
func DeadlineAfter(d time.Duration) (uint64, error) {
	c, err := kernel.JiffiesClock()
	if err != nil {
		return 0, kernel.Refuse(err, "read the clock that trials end by")
	}
	return c.Expiry(d), nil
}

// TimeLeft returns the time until a deadline in jiffies, 0 after it.
func TimeLeft(deadline uint64) (time.Duration, error) {
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
func (s *Store) noteClock() error {
	c, err := kernel.JiffiesClock()
	if err != nil {
		return kernel.Refuse(err, "read the clock that leases end by")
	}
	return WriteJSON(s.State(clockFile), clockReading{c.Now(), c.HZ(), kernel.Monotonic()})
}

// TimeLeft returns the time until a deadline in jiffies, 0 after it.
func (s *Store) TimeLeft(deadline uint64) (time.Duration, error) {
	if s.Clock != nil {
		return s.Clock.Remaining(deadline), nil
	}
	return TimeLeft(deadline)
}
