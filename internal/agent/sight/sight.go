// Package sight tells whether who looks at samples sees what passes.
package sight

import (
	"fmt"
	"sync"
	"time"
)

// Counts are the packets that the policies have passed, by their own counters. A detector that
// sees nothing of them is blind, whatever it believes. The zero value is ready; it may be used by
// several goroutines.
type Counts struct {
	mu     sync.Mutex
	passed map[string]uint64
}

// Passed notes packets that the policy on an interface has passed.
func (s *Counts) Passed(dev string, packets uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.passed == nil {
		s.passed = map[string]uint64{}
	}
	s.passed[dev] += packets
}

// Of returns the packets that the policy on an interface has passed.
func (s *Counts) Of(dev string) uint64 {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.passed[dev]
}

// So many packets without a sample, and so long after the last one, are too many: of 1,000 passing
// packets some are sampled, however many come.
const (
	blindPackets = 1000
	blindAfter   = 10 * time.Second
)

// Samples compares samples with what was passed, each second.
type Samples struct {
	at     time.Time // the last sample, or the beginning
	passed uint64    // by then
}

// Look returns an error if packets pass that nobody sees.
func (s *Samples) Look(now time.Time, sampled bool, passed uint64) error {
	if sampled || s.at.IsZero() {
		s.at, s.passed = now, passed
	}
	if n := passed - s.passed; n >= blindPackets && now.Sub(s.at) >= blindAfter {
		return fmt.Errorf("the policy has passed %d packets in %s, and no sample of them has come",
			n, now.Sub(s.at).Round(time.Second))
	}
	return nil
}
