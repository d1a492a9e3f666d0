package dataplane

import (
	"errors"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"levee/internal/dataplane/loader"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/filter/flow"
	"levee/internal/filter/limit"
)

// moving is what is known on its way into a memory of another shape.
type moving interface {
	// Finish takes what has come since, once other programs judge since swapped.
	Finish(swapped, now, hz uint64)
	Close() error
}

// mappedPair are two memories, mapped.
type mappedPair struct{ from, to []byte }

func (p mappedPair) Close() error { return errors.Join(unix.Munmap(p.from), unix.Munmap(p.to)) }

func mapPair(old, next *ebpf.Map) (p mappedPair, err error) {
	if p.from, err = store.MapMemory(old, int(old.ValueSize())); err != nil {
		return p, err
	}
	if p.to, err = store.MapMemory(next, int(next.ValueSize())); err != nil {
		return p, errors.Join(err, unix.Munmap(p.from))
	}
	return p, nil
}

// movingBudgets are those of one limit.
type movingBudgets struct {
	*limit.Carrier
	mappedPair
}

// movingFlows are connections.
type movingFlows struct {
	*flow.Mover
	mappedPair
}

func (m movingFlows) Finish(_, now, _ uint64) { m.Mover.Finish(now) }

// carry gives a program what was known in memories of another shape. finishMoves has it take what
// comes until the program judges.
func (u *up) carry(k *keptMaps, p *codegen.Program, l *loader.Loaded) error {
	if err := u.dropMoves(); err != nil {
		return err
	}
	if err := u.carryFlows(k, p, l); err != nil {
		return err
	}
	return u.carryBudgets(k, p, l)
}

// carryFlows moves connections, of which a program has another room.
func (u *up) carryFlows(k *keptMaps, p *codegen.Program, l *loader.Loaded) error {
	name, ok := p.MapOf(codegen.Flows)
	if !ok || k.maps[name] != nil || k.copies[name] != nil {
		return nil
	}
	for _, g := range u.continued() {
		of, ok := codegen.MapOf(g.Maps, codegen.Flows)
		if !ok {
			continue
		}
		old, err := u.openOld(k, g, of)
		if err != nil {
			return err
		}
		if old == nil {
			continue
		}
		clock, err := u.Jiffies()
		if err != nil {
			return err
		}
		both, err := mapPair(old, l.Maps[name])
		if err != nil {
			return err
		}
		u.moves = append(u.moves, movingFlows{flow.Move(both.from[:old.ValueSize()],
			both.to[:l.Maps[name].ValueSize()], clock.Now()), both})
		return nil
	}
	return nil
}

// carryBudgets gives each limit of a program what was spent of the budgets that it had in a memory
// of another shape.
func (u *up) carryBudgets(k *keptMaps, p *codegen.Program, l *loader.Loaded) error {
	limits := loader.DescribeLimits(p)
	for i := range limits {
		to := &limits[i]
		if k.maps[to.Map] != nil || k.copies[to.Map] != nil {
			continue // it stays the map that it is, or begins as a copy of that
		}
		for _, g := range u.continued() {
			from := limitLike(g, to, limits)
			if from == nil {
				continue
			}
			old, err := u.openOld(k, g, from.Map)
			if err != nil {
				return err
			}
			if old == nil {
				continue
			}
			b, err := u.carryBudget(old, from, l.Maps[to.Map], to)
			if err != nil {
				return err
			}
			u.moves = append(u.moves, b)
			break
		}
	}
	return nil
}

// limitLike finds the limit of a generation whose budgets are those of one of the next: the one of
// its identity, else one about the same that has no other among the next; nil if there is none.
func limitLike(d *store.Description, l *store.LimitInfo, next []store.LimitInfo) *store.LimitInfo {
	find := func(is func(old *store.LimitInfo) bool) *store.LimitInfo {
		for i := range d.Limits {
			if old := &d.Limits[i]; old.Alike != "" && old.Keys == l.Keys && is(old) {
				return old
			}
		}
		return nil
	}
	if old := find(func(old *store.LimitInfo) bool { return old.ID == l.ID }); old != nil {
		return old
	}
	return find(func(old *store.LimitInfo) bool {
		return old.Alike == l.Alike &&
			!slices.ContainsFunc(next, func(n store.LimitInfo) bool { return n.ID == old.ID })
	})
}

func (u *up) carryBudget(old *ebpf.Map, from *store.LimitInfo, next *ebpf.Map,
	to *store.LimitInfo) (moving, error) {
	clock, err := u.Jiffies()
	if err != nil {
		return nil, err
	}
	both, err := mapPair(old, next)
	if err != nil {
		return nil, err
	}
	return movingBudgets{limit.NewCarrier(both.from[:old.ValueSize()], from.Shape,
		both.to[:next.ValueSize()], to.Shape, clock.Now(), clock.HZ()), both}, nil
}

// finishMoves takes what has come while the program was made and put into force.
func (u *up) finishMoves() error {
	if len(u.moves) == 0 {
		return nil
	}
	if err := store.WaitForPrograms(); err != nil { // those of before note no more
		return errors.Join(err, u.dropMoves())
	}
	clock, err := u.Jiffies()
	if err != nil {
		return errors.Join(err, u.dropMoves())
	}
	if u.swapped == 0 { // a shadow
		u.swapped = clock.Now()
	}
	for _, b := range u.moves {
		b.Finish(u.swapped, clock.Now(), clock.HZ())
	}
	return u.dropMoves()
}

// dropMoves lets go of what has begun.
func (u *up) dropMoves() (err error) {
	for _, b := range u.moves {
		err = errors.Join(err, b.Close())
	}
	u.moves = nil
	return err
}
