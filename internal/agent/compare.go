package agent

import (
	"context"
	"errors"
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
	begun := time.Now()
	keep := a.keeper(ctx)
	sets := map[string]*SetStatus{}
	some := map[string][]dataplane.SetEntry{}
	ended, refused, live := 0, 0, 0
	flush := func(set string) {
		st := sets[set]
		untilNow(some[set], begun)
		raised, left, err := a.opts.Kernel.Raise(ctx, set, some[set])
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

// untilNow makes leases that were counted from a time on those that are left now. An entry whose
// lease lasts longer in the kernel than the ledger says counts as leased by somebody else.
func untilNow(entries []dataplane.SetEntry, from time.Time) {
	passed := time.Since(from)
	for i := range entries {
		if e := &entries[i]; e.Lease != dataplane.Forever {
			e.Lease = max(e.Lease-passed, time.Millisecond)
		}
	}
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
		failed = errors.Join(failed, k.Lower(ctx, set, some))
	}
	if failed != nil {
		return 0, failed
	}
	removed, err := l.Remove(which)
	return len(removed), err
}
