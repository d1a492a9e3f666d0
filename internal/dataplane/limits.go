package dataplane

import (
	"errors"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"levee/internal/filter/codegen"
	"levee/internal/filter/flow"
	"levee/internal/filter/fragment"
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

// LimitState is how full the memory of a limit is.
type LimitState struct {
	ID    string `json:"id"` // of its counter
	Bytes int    `json:"bytes"`
	limit.Stats
}

// tellLimits reads the memories of limits.
func (s *store) tellLimits(a *attachment, t *Attachment) (out []LimitState, err error) {
	g := a.current()
	if len(g.Limits) == 0 {
		return nil, nil
	}
	clock, err := s.jiffies()
	if err != nil {
		return nil, err
	}
	for _, info := range g.Limits {
		m, err := s.openPinned(a.key, g.Generation, info.Map)
		if err != nil || m == nil {
			return nil, err
		}
		first, err := s.teller(a, m)
		if err != nil || first != "" {
			t.SharedWith = max(t.SharedWith, first)
			if err := errors.Join(err, m.Close()); err != nil {
				return nil, err
			}
			continue
		}
		err = s.withMemory(m, func(memory []byte) {
			out = append(out, LimitState{info.ID, len(memory),
				limit.Read(memory, info.Shape, clock.Now(), clock.HZ())})
		})
		m.Close()
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// jiffies is the clock that programs go by.
func (s *store) jiffies() (*kernel.Clock, error) {
	if s.clock != nil {
		return s.clock, nil
	}
	return kernel.JiffiesClock()
}

// tellFlows reads the memory of connections, nil if the policy asks for none.
func (s *store) tellFlows(a *attachment, t *Attachment) (stats *flow.Stats, err error) {
	return tellOne(s, a, t, codegen.Flows, flow.Read)
}

// tellFragments reads the memory of fragments, nil if the policy does not follow them.
func (s *store) tellFragments(a *attachment, t *Attachment) (stats *fragment.Stats, err error) {
	return tellOne(s, a, t, codegen.Fragments, fragment.Read)
}

// tellOne reads a memory of which a policy has one, nil if it has none, or another interface tells
// of it.
func tellOne[Stats any](s *store, a *attachment, t *Attachment, what codegen.Contents,
	read func(memory []byte, jiffies uint64) Stats) (*Stats, error) {
	g := a.current()
	name, ok := codegen.MapOf(g.Maps, what)
	if !ok {
		return nil, nil
	}
	clock, err := s.jiffies()
	if err != nil {
		return nil, err
	}
	m, err := s.openPinned(a.key, g.Generation, name)
	if err != nil || m == nil {
		return nil, err
	}
	defer m.Close()
	first, err := s.teller(a, m)
	if err != nil || first != "" {
		t.SharedWith = max(t.SharedWith, first)
		return nil, err
	}
	var stats Stats
	err = s.withMemory(m, func(memory []byte) { stats = read(memory, clock.Now()) })
	return &stats, err
}
