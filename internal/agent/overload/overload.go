// Package overload has an alarm go on while packets do not come to the policies: lost before them,
// an overload that no rule sees, and no counter of a policy, or past them, since a driver has
// forgotten the program.
//
// In go the counters of cards and backlogs, and what policies were found to judge, second by
// second; out comes the state of a part for each interface that has a policy. It must never change
// anything in the kernel, except to move a policy that packets bypass.
package overload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"

	"levee/internal/agent/part"
	"levee/internal/dataplane/inspect"
	"levee/internal/host/lost"
)

// every is the time between two looks.
const every = time.Second

// Watch looks at the interfaces that have a policy.
type Watch struct {
	Parts *part.Register
	Devs  func(context.Context) ([]string, error) // that have a policy
	Read  func(dev string) (*lost.Counts, error)
	// Judged compares what interfaces receive with what their policies judge.
	Judged func(context.Context) ([]inspect.Judged, error)
	// Move puts a policy that packets come past into force where they do not, and says where.
	Move func(context.Context, *inspect.Judged) (hook string, err error)

	past  map[string]*past // by interface; of the goroutine that runs
	mu    sync.Mutex
	known map[string]*watched
}

type watched struct {
	part *part.Part
	lost lost.Watch
	last *lost.Counts
	all  uint64 // packets lost since the first look, at least
}

// Lost returns how many packets an interface has lost at least before its policy since it is
// watched.
func (w *Watch) Lost(dev string) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if k := w.known[dev]; k != nil {
		return k.all
	}
	return 0
}

// Run looks until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		w.look(ctx, time.Now())
		select {
		case <-ctx.Done():
			for _, k := range w.known {
				k.part.End()
			}
			return
		case <-tick.C:
		}
	}
}

func (w *Watch) look(ctx context.Context, now time.Time) {
	devs, err := w.Devs(ctx)
	if err != nil {
		return // the part that looks at policies says so
	}
	past := w.comesPast(ctx, now) // which may take a while, where a policy moves
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.known == nil {
		w.known = map[string]*watched{}
	}
	for dev, k := range w.known {
		if !slices.Contains(devs, dev) {
			k.part.End()
			delete(w.known, dev)
		}
	}
	for _, dev := range devs {
		counts, err := w.Read(dev)
		if errors.As(err, new(netlink.LinkNotFoundError)) {
			continue // it has gone, or is called otherwise: the next look at policies has that
		}
		k := w.known[dev]
		if k == nil {
			k = &watched{part: w.Parts.Begin(part.Arrival, "", dev)}
			w.known[dev] = k
		}
		if err != nil {
			k.part.Fails(cmp.Or(past[dev], err))
			continue
		}
		if k.last != nil && counts.AtLeast > k.last.AtLeast {
			k.all += counts.AtLeast - k.last.AtLeast
		}
		k.last = counts
		l, over := k.lost.Look(now, counts)
		switch {
		case past[dev] != nil:
			k.part.Fails(past[dev])
		case over:
			k.part.Fails(part.Do(fmt.Errorf("%.1f %% of what arrives is lost before the policy, "+
				"%.0f packets a second at %s", 100*l.Share, l.PerSecond, l.Counter),
				"levee doctor --dev "+dev))
		case l.PerSecond > 0:
			k.part.Saw(now, fmt.Sprintf("%.0f packets a second lost at %s", l.PerSecond, l.Counter))
		default:
			k.part.Works()
		}
	}
}
