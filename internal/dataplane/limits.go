package dataplane

import (
	"errors"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"levee/internal/filter/codegen"
	"levee/internal/filter/flow"
	"levee/internal/filter/limit"
	"levee/internal/filter/state"
	"levee/internal/kernel"
)

// seedState writes the heads of the memories that are new.
func seedState(l *loaded, replaced map[string]*ebpf.Map) error {
	for _, use := range l.ledger {
		row := state.Of(use.Holds.What)
		if row == nil || row.Seed == nil || replaced[use.Name] != nil {
			continue
		}
		memory, err := mapMemory(l.maps[use.Name], row.Head)
		if err != nil {
			return err
		}
		now, hz, err := kernel.Jiffies()
		if err != nil {
			return errors.Join(err, unix.Munmap(memory))
		}
		row.Seed(memory, hz)
		if use.Holds.What == codegen.Flows {
			// Until then the policy is in force, and has said so (up.begun).
			flow.Settle(memory, now+hz*uint64(2*adoptFor/time.Second))
			l.began = l.maps[use.Name]
		}
		if err := unix.Munmap(memory); err != nil {
			return err
		}
	}
	return nil
}

// limitInfo describes a limit.
type limitInfo struct {
	ID    string      `json:"id"` // of its slot
	Map   string      `json:"map"`
	Shape limit.Shape `json:"shape"`
	Keys  string      `json:"keys"`  // policy.Limit.ByKeys
	Alike string      `json:"alike"` // policy.Limit.Alike; "": an older levee has described it
}

func describeLimits(p *codegen.Program) (out []limitInfo) {
	for i := range p.Limits {
		l := &p.Limits[i]
		out = append(out, limitInfo{l.Rule.ID, l.Map, limit.ShapeOf(l.Limit), l.ByKeys(), l.Alike})
	}
	return out
}

// jiffies is the clock that programs go by.
func (s *store) jiffies() (*kernel.Clock, error) {
	if s.clock != nil {
		return s.clock, nil
	}
	return kernel.JiffiesClock()
}
