package dataplane

import (
	"errors"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

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
// of another shape. Finish has it take what is charged until the program judges.
func (u *up) carryBudgets(k *keptMaps, p *codegen.Program, l *loaded) error {
	if err := u.dropBudgets(); err != nil {
		return err
	}
	for _, to := range describeLimits(p) {
		if k.maps[to.Map] != nil {
			continue // it stays the map that it is
		}
		for _, g := range u.continued() {
			from, ok := g.limitLike(&to)
			if !ok {
				continue
			}
			old, err := u.openOld(k, g, from.Map)
			if err != nil {
				return err
			}
			if old == nil || !limit.CanCarry(int(old.ValueSize()),
				int(l.maps[to.Map].ValueSize())) {
				continue
			}
			b, err := u.carryBudget(old, from, l.maps[to.Map], &to)
			if err != nil {
				return err
			}
			u.budgets = append(u.budgets, b)
			break
		}
	}
	return nil
}

// limitLike finds the limit of a generation whose budgets are those of another.
func (d *description) limitLike(l *limitInfo) (*limitInfo, bool) {
	for i := range d.Limits {
		if old := &d.Limits[i]; old.ID == l.ID && old.By != nil && *old.By == *l.By {
			return old, true
		}
	}
	return nil, false
}

func (u *up) carryBudget(old *ebpf.Map, from *limitInfo, next *ebpf.Map, to *limitInfo) (*moving,
	error) {
	clock, err := u.jiffies()
	if err != nil {
		return nil, err
	}
	b := &moving{}
	if b.from, err = mapMemory(old, int(old.ValueSize())); err != nil {
		return nil, err
	}
	if b.to, err = mapMemory(next, int(next.ValueSize())); err != nil {
		return nil, errors.Join(err, unix.Munmap(b.from))
	}
	b.Carrier = limit.NewCarrier(b.from[:old.ValueSize()], from.Shape, b.to[:next.ValueSize()],
		to.Shape, clock.Now(), clock.HZ())
	return b, nil
}

// finishBudgets takes what was charged while the program was made and put into force.
func (u *up) finishBudgets() error {
	clock, err := u.jiffies()
	if err != nil {
		return err
	}
	for _, b := range u.budgets {
		b.Finish(clock.Now(), clock.HZ())
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
