package defend

import (
	"fmt"
	"sync"
	"time"
)

// Sight counts the packets that the policies have passed, by their own counters. A detector that
// sees nothing of them is blind, whatever it believes. The zero value is ready; it may be used by
// several goroutines.
type Sight struct {
	mu     sync.Mutex
	passed map[string]uint64
}

// Passed notes packets that the policy on an interface has passed.
func (s *Sight) Passed(dev string, packets uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.passed == nil {
		s.passed = map[string]uint64{}
	}
	s.passed[dev] += packets
}

func (s *Sight) of(dev string) uint64 {
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

// seen compares samples with what was passed, each second.
type seen struct {
	at     time.Time // the last sample, or the beginning
	passed uint64    // by then
}

// look returns an error if packets pass that nobody sees.
func (s *seen) look(now time.Time, sampled bool, passed uint64) error {
	if sampled || s.at.IsZero() {
		s.at, s.passed = now, passed
	}
	if n := passed - s.passed; n >= blindPackets && now.Sub(s.at) >= blindAfter {
		return fmt.Errorf("the policy has passed %d packets in %s, and no sample of them has come",
			n, now.Sub(s.at).Round(time.Second))
	}
	return nil
}
