package dataplane

import (
	"errors"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"levee/internal/dataplane/loader"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/filter/state"
)

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

// moving is the contents of a memory on their way into another one.
type moving struct {
	state.Moving
	mappedPair
}

// carry begins to move contents of memories into a program's memories: of those of another shape,
// and of those that stay with other interfaces, as their rows say. finishMoves moves what has come
// until the program judges.
func (u *up) carry(k *inherited, p *codegen.Program, l *loader.Loaded) error {
	if err := u.dropMoves(); err != nil {
		return err
	}
	limits := loader.DescribeLimits(p)
	for _, use := range p.Maps {
		row := state.Of(use.Holds.What)
		if row == nil || row.Carry == nil || k.maps[use.Name] != nil {
			continue // it begins empty or as a copy, or stays the map that it is
		}
		for _, g := range u.continued() {
			name, c := carried(g, use, limits)
			if name == "" {
				continue
			}
			old, err := u.openOld(k, g, name)
			if err != nil {
				return err
			}
			if old == nil {
				continue
			}
			if err := u.move(row, old, l.Maps[use.Name], c); err != nil {
				return err
			}
			delete(k.copies, use.Name)
			break
		}
	}
	return nil
}

// carried returns the name of the map of a generation whose contents go on in a map of the next
// program, "" if there is none. For limits it also returns how both count.
func carried(g *store.Description, use codegen.MapUse, limits []store.LimitInfo) (string,
	state.Carrying) {
	to := slices.IndexFunc(limits, func(l store.LimitInfo) bool { return l.Map == use.Name })
	if to < 0 {
		name, _ := codegen.MapOf(g.Maps, use.Holds.What)
		return name, state.Carrying{}
	}
	from := limitLike(g, &limits[to], limits)
	if from == nil {
		return "", state.Carrying{}
	}
	return from.Map, state.Carrying{Was: from.Shape, Is: limits[to].Shape}
}

// move begins to carry what is known in one map into another.
func (u *up) move(row *state.Row, old, next *ebpf.Map, c state.Carrying) error {
	clock, err := u.Jiffies()
	if err != nil {
		return err
	}
	both, err := mapPair(old, next)
	if err != nil {
		return err
	}
	c.From, c.To = both.from[:old.ValueSize()], both.to[:next.ValueSize()]
	c.Now, c.HZ = clock.Now(), clock.HZ()
	c.Trial = uint64(u.Confirm) * c.HZ / uint64(time.Second)
	if u.leaves { // others go on with the memory, which sees what leaves until the end of the swap
		c.Trial = max(c.Trial, 1)
	}
	u.moves = append(u.moves, moving{row.Carry(&c), both})
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

// followMoves moves what has come while the program was made. What comes between it and finishMoves
// counts late: budgets are charged twice for it.
func (u *up) followMoves() error {
	if len(u.moves) == 0 {
		return nil
	}
	clock, err := u.Jiffies()
	if err != nil {
		return err
	}
	for _, b := range u.moves {
		b.Follow(clock.Now(), clock.HZ())
	}
	return nil
}

// finishMoves moves what came before the program judged. It is called once the program is in force.
func (u *up) finishMoves() error {
	if len(u.moves) == 0 {
		return nil
	}
	if err := u.WaitForPrograms(); err != nil { // those of before note no more
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

// dropMoves ends moves that have begun, without effect.
func (u *up) dropMoves() (err error) {
	for _, b := range u.moves {
		err = errors.Join(err, b.Close())
	}
	u.moves = nil
	return err
}
