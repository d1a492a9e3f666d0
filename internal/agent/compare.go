package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"time"

	"levee/internal/agent/ledger"
	"levee/internal/dataplane"
)

// atOnce is how many entries the kernel is asked about together: as many as are changed in place.
const atOnce = 4096

// What counts as a mass expiry: so many leases that end together, and such a part of all.
const (
	massLeases = 1000
	massPart   = 5
)

// compare makes the kernel hold what the ledger says, and measures what it did not hold.
func (a *Agent) compare(ctx context.Context) {
	a.withdrawOwed(ctx)
	begun := time.Now()
	keep := a.keeper(ctx)
	sets := map[string]*SetStatus{}
	some := map[string][]dataplane.SetEntry{}
	ended, refused, live := 0, 0, 0
	flush := func(set string) {
		st := sets[set]
		raised, left, err := a.opts.Kernel.Raise(ctx, set, some[set], begun)
		switch {
		case err != nil:
			st.Missing += len(some[set])
			st.Error = err.Error()
		default:
			st.Repaired += raised
			st.Missing += left
		}
		some[set] = some[set][:0]
	}
	var last ledger.Lease // the longest of the entry, zero before the first
	put := func() {
		if !last.Prefix.IsValid() {
			return
		}
		e := dataplane.SetEntry{Prefix: last.Prefix, Lease: dataplane.Forever}
		if !last.Until.IsZero() {
			e.Lease = last.Until.Sub(begun)
		}
		if sets[last.Set] == nil {
			sets[last.Set] = &SetStatus{Name: last.Set}
		}
		sets[last.Set].Entries++
		if some[last.Set] = append(some[last.Set], e); len(some[last.Set]) == atOnce {
			flush(last.Set)
		}
	}
	err := a.ledger.Each(func(l ledger.Lease) bool {
		switch {
		case l.Ended(begun):
			ended++
			return true
		case a.refuses(keep, &l) != "":
			refused++
			return true
		}
		live++
		if l.Set != last.Set || l.Prefix != last.Prefix {
			put()
			last = l
		} else if l.Until.IsZero() || !last.Until.IsZero() && l.Until.After(last.Until) {
			last.Until = l.Until
		}
		return true
	})
	put()
	for set := range some {
		flush(set)
	}
	if err != nil {
		a.alarm("read the ledger: %v", err)
	}
	a.compared(sets, live, begun)
	a.sweep(ctx, begun, ended, refused)
	took := time.Since(begun)
	a.status.Compare.Seconds = took.Seconds()
	pause := a.opts.Interval
	if a.status.Compare.Entries >= manyEntries {
		pause = max(pause, min(compareShare*took, comparePause))
	}
	a.nextCompare = time.Now().Add(pause)
}

// compared notes what a comparison has found.
func (a *Agent) compared(sets map[string]*SetStatus, live int, at time.Time) {
	c := &a.status.Compare
	first := c.At.IsZero()
	c.At, c.Entries, c.Held, c.Leases = at, 0, 0, live
	a.status.Sets = nil
	for _, st := range sets {
		c.Entries += st.Entries
		c.Held += st.Entries - st.Missing
		c.Repaired += uint64(st.Repaired)
		if st.Missing > 0 {
			a.say("set %s: %d of %d entries are not in the kernel: %s", st.Name, st.Missing,
				st.Entries, st.reason())
		}
		if !first && st.Repaired > 0 {
			a.say("set %s: entries that the kernel lacked, or that would have left too soon, are "+
				"there again: %d", st.Name, st.Repaired)
			a.tellRepaired(st)
		}
		a.status.Sets = append(a.status.Sets, *st)
	}
}

func (s *SetStatus) reason() string {
	if s.Error == "" {
		return "the set is full; raise max in the policy"
	}
	return s.Error
}

// sweep takes leases out of the ledger that have ended, and those of whom nothing may hold.
func (a *Agent) sweep(ctx context.Context, now time.Time, ended, refused int) {
	if refused > 0 {
		keep := a.keeper(ctx)
		n, err := a.withdraw(ctx, func(l ledger.Lease) bool { return a.refuses(keep, &l) != "" })
		a.say("withdrew %s on addresses that a policy, this machine or a session keeps now",
			count(n))
		if err != nil {
			a.say("%v", err)
		}
	}
	if ended == 0 {
		return
	}
	if all := a.ledger.Leases(); ended >= massLeases && ended >= all/massPart {
		a.alarm("%d of %d leases have ended together: is a source silent, or was the clock set?",
			ended, all)
	}
	gone := func(l ledger.Lease) bool { return l.Ended(now) }
	if _, err := a.ledger.Remove(gone); err != nil {
		a.say("%v", err)
	}
}

func (a *Agent) withdraw(ctx context.Context, which func(ledger.Lease) bool) (int, error) {
	return Withdraw(ctx, a.ledger, a.opts.Kernel, which)
}

// maxOwed is how many withdrawals that the kernel did not take are remembered.
const maxOwed = 10_000

// withdrawOrOwe withdraws for somebody who asks once. What the kernel does not take, each
// comparison tries again, but for leases that were given anew since.
func (a *Agent) withdrawOrOwe(ctx context.Context, which func(ledger.Lease) bool) (int, error) {
	n, err := a.withdraw(ctx, which)
	if err == nil || ctx.Err() != nil {
		return n, err
	}
	owed := map[batchKey]time.Time{}
	lerr := a.ledger.Each(func(l ledger.Lease) bool {
		if which(l) {
			owed[batchKey{l.Set, l.Origin, l.Prefix}] = l.Until
		}
		return len(owed)+len(a.owed) <= maxOwed
	})
	if lerr != nil || len(owed)+len(a.owed) > maxOwed {
		return n, errors.Join(err, lerr)
	}
	if a.owed == nil {
		a.owed = owed
	}
	maps.Copy(a.owed, owed)
	a.nextCompare = time.Now().Add(time.Second)
	return n, fmt.Errorf("%w; the agent tries again", err)
}

func (a *Agent) withdrawOwed(ctx context.Context) {
	if len(a.owed) == 0 {
		return
	}
	n, err := a.withdraw(ctx, func(l ledger.Lease) bool {
		until, owed := a.owed[batchKey{l.Set, l.Origin, l.Prefix}]
		return owed && until.Equal(l.Until)
	})
	if err != nil {
		a.say("withdraw again what the kernel did not take: %v", err)
		return
	}
	a.owed = nil
	a.say("withdrew %s that the kernel had not taken back before", count(n))
}

// Withdraw takes leases out of the kernel and the ledger, and says how many. An entry stays while
// another lease of it lives, and for as long. The kernel comes first: whoever is killed in between
// has withdrawn nothing, and the next comparison says so.
func Withdraw(ctx context.Context, l *ledger.Ledger, k Kernel,
	which func(ledger.Lease) bool) (int, error) {
	type ends struct {
		was, stays    time.Time
		forever, kept bool // was until withdrawn; stays until withdrawn
		gone, others  bool
	}
	now := time.Now()
	chosen := map[string][]netip.Prefix{} // by set; entries of a set come in their order
	err := l.Each(func(of ledger.Lease) bool {
		some := chosen[of.Set]
		if which(of) && (len(some) == 0 || some[len(some)-1] != of.Prefix) {
			chosen[of.Set] = append(some, of.Prefix)
		}
		return true
	})
	if err != nil {
		return 0, err
	}
	lowered := map[string][]dataplane.Lowered{}
	for set, entries := range chosen {
		all := make([]ends, len(entries))
		err := l.Entries(set, entries, func(i int, of ledger.Lease) {
			if of.Ended(now) {
				return
			}
			e, gone := &all[i], which(of)
			e.gone = e.gone || gone
			e.forever = e.forever || of.Until.IsZero()
			if of.Until.After(e.was) {
				e.was = of.Until
			}
			if !gone {
				e.others = true
				e.kept = e.kept || of.Until.IsZero()
				if of.Until.After(e.stays) {
					e.stays = of.Until
				}
			}
		})
		if err != nil {
			return 0, err
		}
		for i, p := range entries {
			e := &all[i]
			out := dataplane.Lowered{SetEntry: dataplane.SetEntry{Prefix: p}, Was: e.was.Sub(now)}
			if e.forever {
				out.Was = dataplane.Forever
			}
			switch {
			case e.kept:
				out.Lease = dataplane.Forever
			case e.others:
				out.Lease = e.stays.Sub(now)
			}
			if e.gone {
				lowered[set] = append(lowered[set], out)
			}
		}
	}
	var failed error
	for set, some := range lowered {
		failed = errors.Join(failed, k.Lower(ctx, set, some, now))
	}
	if failed != nil {
		return 0, failed
	}
	removed, err := l.Remove(which)
	return len(removed), err
}
