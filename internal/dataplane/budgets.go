package dataplane

import (
	"errors"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"levee/internal/dataplane/loader"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/filter/limit"
)

// moving are the budgets of one limit on their way into a memory of another shape.
type moving struct {
	*limit.Carrier
	from, to []byte // mapped
}

func (b *moving) Close() error { return errors.Join(unix.Munmap(b.from), unix.Munmap(b.to)) }

// carryBudgets gives each limit of a program what was spent of the budgets that it had in a memory
// of another shape. finishBudgets has it take what is charged until the program judges.
func (u *up) carryBudgets(k *keptMaps, p *codegen.Program, l *loader.Loaded) error {
	if err := u.dropBudgets(); err != nil {
		return err
	}
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
			u.budgets = append(u.budgets, b)
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
	to *store.LimitInfo) (*moving,
	error) {
	clock, err := u.Jiffies()
	if err != nil {
		return nil, err
	}
	b := &moving{}
	if b.from, err = store.MapMemory(old, int(old.ValueSize())); err != nil {
		return nil, err
	}
	if b.to, err = store.MapMemory(next, int(next.ValueSize())); err != nil {
		return nil, errors.Join(err, unix.Munmap(b.from))
	}
	b.Carrier = limit.NewCarrier(b.from[:old.ValueSize()], from.Shape, b.to[:next.ValueSize()],
		to.Shape, clock.Now(), clock.HZ())
	return b, nil
}

// finishBudgets takes what was charged while the program was made and put into force.
func (u *up) finishBudgets() error {
	if len(u.budgets) == 0 {
		return nil
	}
	if err := store.WaitForPrograms(); err != nil { // those of before charge no more
		return errors.Join(err, u.dropBudgets())
	}
	clock, err := u.Jiffies()
	if err != nil {
		return errors.Join(err, u.dropBudgets())
	}
	if u.swapped == 0 { // a shadow
		u.swapped = clock.Now()
	}
	for _, b := range u.budgets {
		b.Finish(u.swapped, clock.Now(), clock.HZ())
	}
	return u.dropBudgets()
}

// dropBudgets lets go of what has begun.
func (u *up) dropBudgets() (err error) {
	for _, b := range u.budgets {
		err = errors.Join(err, b.Close())
	}
	u.budgets = nil
	return err
}
