package calibration

import (
	"errors"
	"time"
)

// Reading is the speed of the machine at the moment.
type Reading struct {
	// Load is the ns of a load that waits for the one before, over a chain of chainBytes that has
	// just been visited once: what the last level of cache gives, or memory behind it where
	// neighbours have taken the cache.
	Load float64 `json:"load_ns"`
	// Step is the ns of an operation among many that do not wait for each other (Work).
	Step float64 `json:"step_ns"`
	// Wait is the ns of a load that waits for the one before, over a chain of nearBytes: what a
	// core makes wait for itself. A thread beside it on the core hardly changes that.
	Wait float64 `json:"wait_ns"`
}

// chainBytes are those of a meter's chain: beyond the second level of cache of processors of these
// years (1 to 2 MB), well within the last (16 MB and more).
const chainBytes = 6 << 20

// nearBytes lie in the first level of cache.
const nearBytes = 16 << 10

// A reading visits the chain once and times some of it again; the work between them is spread over
// the same ms.
const (
	timedLoads = 20_000
	nearLoads  = 500_000
	timedWork  = 2 * time.Millisecond // twice
)

// Meter reads. It is not for several goroutines at once.
type Meter struct{ chain, near *Chain }

// New makes a meter. Close gives its memory back.
func New() (*Meter, error) {
	c, err := newChain(chainBytes)
	if err != nil {
		return nil, err
	}
	near, err := newChain(nearBytes)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &Meter{c, near}, nil
}

// Close ends the use of the meter.
func (m *Meter) Close() error { return errors.Join(m.chain.Close(), m.near.Close()) }

// Read takes 6 ms where memory is fast, 20 where it is not. The caller's thread must be locked to
// its goroutine.
func (m *Meter) Read() Reading {
	step := Work(timedWork)
	m.chain.Warm()
	load := m.chain.Time(timedLoads)
	m.near.Warm()
	return Reading{load, (step + Work(timedWork)) / 2, m.near.Time(nearLoads)}
}
