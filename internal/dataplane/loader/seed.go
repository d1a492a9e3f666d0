package loader

import (
	"errors"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/filter/limit"
	"levee/internal/filter/state"
	"levee/internal/kernel"
)

// seedState writes the heads of the memories that are new.
func seedState(l *Loaded, replaced map[string]*ebpf.Map) error {
	l.Began = map[string]*ebpf.Map{}
	for _, use := range l.Ledger {
		row := state.Of(use.Holds.What)
		if row == nil || row.Seed == nil || replaced[use.Name] != nil {
			continue
		}
		memory, err := store.MapMemory(l.Maps[use.Name], row.Head)
		if err != nil {
			return err
		}
		now, hz, err := kernel.Jiffies()
		if err != nil {
			return errors.Join(err, unix.Munmap(memory))
		}
		row.Seed(memory, hz)
		if row.Older != nil {
			// Until then the policy is in force, and has said so (up.begun).
			row.Older.Settle(memory, now+hz*uint64(3*AdoptFor/time.Second))
			l.Began[use.Name] = l.Maps[use.Name]
		}
		if err := unix.Munmap(memory); err != nil {
			return err
		}
	}
	return nil
}

func DescribeLimits(p *codegen.Program) (out []store.LimitInfo) {
	for i := range p.Limits {
		l := &p.Limits[i]
		out = append(out, store.LimitInfo{ID: l.Rule.ID, Map: l.Map, Shape: limit.ShapeOf(l.Limit),
			Keys: l.ByKeys(), Alike: l.Alike})
	}
	return out
}

// AdoptFor is for how long connections of conntrack are read, at most, and those of sockets as
// long again. A million takes a third of it.
const AdoptFor = 20 * time.Second
