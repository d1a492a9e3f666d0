package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"levee/internal/agent/enforce"
	"levee/internal/agent/ledger"
	"levee/internal/agent/part"
	"levee/internal/dataplane/sets"
	"levee/internal/lang/policy"
)

// atOnce is the number of entries that the kernel is asked about together: as many as are changed
// in place.
const atOnce = 4096

// What counts as a mass expiry: so many leases that end together, and such a part of all.
const (
	massLeases = 1000
	massPart   = 5
)

// compare makes the kernel hold what the ledger says, and measures what it did not hold.
func (a *Agent) compare(ctx context.Context) {
	protected := a.protected(ctx)
	if !a.ledger.IsOpen() { // its part says why
		a.nextCompare = time.Now().Add(a.opts.Interval)
		return
	}
	a.withdrawOwed(ctx)
	c := &comparison{agent: a, protected: protected,
		all: map[string]*SetStatus{}, some: map[string][]sets.Entry{}}
	begun := time.Now()
	err := a.pages(ctx, func(after string) (string, error) {
		seen := 0
		c.begin(a.now())
		next, err := a.ledger.Page(after, func(l ledger.Lease) bool {
			seen++
			c.take(&l)
			return seen < atOnce
		})
		c.flush(ctx)
		return next, err
	})
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		a.ledgerPart.Fails(fmt.Errorf("read it: %w", err))
	}
	a.compared(c.all, c.leases, begun)
	a.sweep(ctx, c.ended, c.refused)
	took := time.Since(begun)
	a.status.Compare.Seconds = took.Seconds()
	pause := a.opts.Interval
	if a.status.Compare.Entries >= manyEntries {
		pause = max(pause, min(compareShare*took, comparePause))
	}
	a.nextCompare = time.Now().Add(pause)
}

// comparison raises the entries of leases in the kernel, page by page. Leases come in the order of
// their sets and entries.
type comparison struct {
	agent     *Agent
	protected *enforce.Protected
	now       time.Time // when the page was begun

	leases, ended, refused int // of the leases taken, by what became of them

	all     map[string]*SetStatus   // by set
	some    map[string][]sets.Entry // of this page, to be raised, by set
	last    ledger.Lease            // the longest of the entry, zero before the first
	pending bool                    // last is to be raised
	counted bool                    // a page before has counted last
}

// begin begins a page. Since the last one the clock may have jumped, and all leases with it: an end
// of before is no longer one.
func (c *comparison) begin(now time.Time) {
	if c.now = now; !c.last.Until.IsZero() {
		c.last.Until = now
	}
}

// take takes the next lease of a page.
func (c *comparison) take(l *ledger.Lease) {
	switch {
	case l.Ended(c.now):
		c.ended++
	case c.agent.refuses(c.protected, l) != "":
		c.refused++
	case l.Set != c.last.Set || l.Entry != c.last.Entry:
		c.leases++
		c.put()
		c.last, c.pending, c.counted = *l, true, false
	default:
		c.leases++
		c.pending = true
		if l.Until.IsZero() || !c.last.Until.IsZero() && l.Until.After(c.last.Until) {
			c.last.Until = l.Until
		}
	}
}

// put adds the last entry to those of the page that are to be raised.
func (c *comparison) put() {
	if !c.pending {
		return
	}
	c.pending = false
	e := entryOf(c.last.Entry, sets.Forever)
	if !c.last.Until.IsZero() {
		e.Lease = c.last.Until.Sub(c.now)
	}
	set := c.last.Set
	if c.all[set] == nil {
		c.all[set] = &SetStatus{Name: set}
	}
	if !c.counted {
		c.all[set].Entries++
	}
	c.some[set] = append(c.some[set], e)
}

// flush raises the entries of a page.
func (c *comparison) flush(ctx context.Context) {
	c.put()
	c.counted = true
	for set, entries := range c.some {
		if len(entries) == 0 {
			continue
		}
		st := c.all[set]
		raised, left, err := c.agent.opts.Kernel.Raise(ctx, set, entries, c.now)
		if err != nil {
			st.Missing += len(entries)
			st.Error, st.err = err.Error(), err
		} else {
			st.Repaired += raised
			st.Missing += left
		}
		c.some[set] = entries[:0]
	}
}

// compared notes what a comparison has found.
func (a *Agent) compared(all map[string]*SetStatus, leases int, at time.Time) {
	c := &a.status.Compare
	first := c.At.IsZero()
	c.At, c.Entries, c.Held, c.Leases = at, 0, 0, leases
	a.status.Sets = nil
	for _, st := range all {
		c.Entries += st.Entries
		c.Held += st.Entries - st.Missing
		c.Repaired += uint64(st.Repaired)
		a.tellSet(st, at)
		if !first && st.Repaired > 0 {
			a.say("set %s: entries that the kernel lacked, or that would have left too soon, are "+
				"there again: %d", st.Name, st.Repaired)
			a.tellRepaired(st)
		}
		a.status.Sets = append(a.status.Sets, *st)
	}
	for name, p := range a.setParts {
		if all[name] == nil { // nothing is leased to it any more
			p.End()
			delete(a.setParts, name)
		}
	}
}

// tellSet tells whether the kernel holds all that is leased to a set.
func (a *Agent) tellSet(st *SetStatus, at time.Time) {
	p := a.setParts[st.Name]
	if p == nil {
		p = a.parts.Begin(part.Set, st.Name, "")
		a.setParts[st.Name] = p
	}
	if st.Missing == 0 {
		p.Saw(at, entryCount(st.Entries))
		return
	}
	err := fmt.Errorf("%d of %s are not in the kernel", st.Missing, entryCount(st.Entries))
	if st.err != nil {
		do := ""
		if errors.Is(st.err, sets.ErrNoSet) {
			do = "levee agent withdraw --set " + st.Name + ", if no policy is to have it again"
		}
		p.Fails(part.Do(fmt.Errorf("%w: %w", err, st.err), do))
		return
	}
	of := policy.Addresses
	if s, err := a.leaseSet(st.Name); err == nil {
		of = s.Type
	}
	why, do := full(of)
	p.Fails(part.Do(fmt.Errorf("%w: %s", err, why), do))
}

// sweep takes leases out of the ledger that have ended, and those with an address that no entry may
// have.
func (a *Agent) sweep(ctx context.Context, ended, refused int) {
	if refused > 0 {
		protected := a.protected(ctx)
		n, err := a.withdraw(ctx, func(l ledger.Lease) bool {
			return a.refuses(protected, &l) != ""
		})
		a.say("withdrew %s of what a policy, this machine or a session keeps now",
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
	err := a.pages(ctx, func(after string) (string, error) {
		var some []ledger.Lease
		now := a.now()
		next, err := a.ledger.Page(after, chosen(&some, func(l ledger.Lease) bool {
			return l.Ended(now)
		}))
		if err == nil && len(some) > 0 {
			_, err = a.ledger.Drop(some)
		}
		return next, err
	})
	if err != nil {
		_ = a.wrote(err)
	}
}

// chosen collects leases of a page until it has enough, or has read enough.
func chosen(some *[]ledger.Lease, which func(ledger.Lease) bool) func(ledger.Lease) bool {
	seen := 0
	return func(l ledger.Lease) bool {
		seen++
		if which(l) {
			*some = append(*some, l)
		}
		return len(*some) < atOnce && seen < 16*atOnce
	}
}

// pages runs fn for one page of the ledger after another. What else there is to do goes between.
func (a *Agent) pages(ctx context.Context, fn func(after string) (next string, err error)) error {
	for after := ""; ; {
		next, err := fn(after)
		if err != nil || next == "" {
			return err
		}
		after = next
		a.between(ctx)
	}
}

// between does what waits: what callers of the API ask, and events. Nothing of it lets others go
// between once more.
func (a *Agent) between(ctx context.Context) {
	if a.inBetween || ctx.Err() != nil {
		return
	}
	a.inBetween = true
	defer func() { a.inBetween = false }()
	if time.Since(a.polled) >= pollEvery {
		a.poll(ctx)
	}
	for {
		select {
		case op := <-a.ops:
			op()
		default:
			return
		}
		if time.Since(a.polled) >= pollEvery {
			return
		}
	}
}

func (a *Agent) withdraw(ctx context.Context, which func(ledger.Lease) bool) (n int, err error) {
	var failed error
	err = a.pages(ctx, func(after string) (string, error) {
		some, next, err := withdrawPage(ctx, a.ledger, a.opts.Kernel, which, after, a.now())
		n, failed = n+some, cmp.Or(failed, err)
		return next, nil
	})
	return n, errors.Join(failed, err)
}

// maxOwed is the number of withdrawals refused by the kernel that are remembered.
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
			owed[batchKey{l.Set, l.Origin, l.Entry}] = l.Until
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
		until, owed := a.owed[batchKey{l.Set, l.Origin, l.Entry}]
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
// another lease of it lives, and for as long.
func Withdraw(ctx context.Context, l *ledger.Ledger, k Kernel,
	which func(ledger.Lease) bool) (n int, err error) {
	now := time.Now()
	if _, err := l.Clock(now); err != nil {
		return 0, err
	}
	for after := ""; ; {
		some, next, failed := withdrawPage(ctx, l, k, which, after, now)
		n, err = n+some, cmp.Or(err, failed)
		if next == "" {
			return n, err
		}
		after = next
	}
}

// withdrawPage withdraws the leases of one page of the ledger that which chooses, except those that
// the kernel refuses to delete. The kernel comes before the ledger: after a kill in between the
// ledger still has the leases, and the next comparison finds them. n is how many it withdrew; next
// is where the next page begins, "" at the end of the ledger or with an error.
func withdrawPage(ctx context.Context, l *ledger.Ledger, k Kernel, which func(ledger.Lease) bool,
	after string, now time.Time) (n int, next string, err error) {
	type ends struct {
		was, stays    time.Time
		forever, kept bool // was until withdrawn; stays until withdrawn
		others        bool
	}
	var some []ledger.Lease
	if next, err = l.Page(after, chosen(&some, which)); err != nil || len(some) == 0 {
		return 0, next, err
	}
	bySet := map[string][]ledger.Entry{} // entries of a set come in their order
	for i := range some {
		of := &some[i]
		e := bySet[of.Set]
		if len(e) == 0 || e[len(e)-1] != of.Entry {
			bySet[of.Set] = append(e, of.Entry)
		}
	}
	var gone []ledger.Lease // with those of the last entry that the next page would have
	var failed error
	for set, entries := range bySet {
		all, before := make([]ends, len(entries)), len(gone)
		err := l.Entries(set, entries, func(i int, of ledger.Lease) {
			mine := which(of)
			if mine {
				gone = append(gone, of)
			}
			if of.Ended(now) {
				return
			}
			e := &all[i]
			e.forever = e.forever || of.Until.IsZero()
			if of.Until.After(e.was) {
				e.was = of.Until
			}
			if !mine {
				e.others = true
				e.kept = e.kept || of.Until.IsZero()
				if of.Until.After(e.stays) {
					e.stays = of.Until
				}
			}
		})
		if err != nil {
			return 0, "", err
		}
		lowered := make([]sets.Lowered, len(entries))
		for i, p := range entries {
			e, out := &all[i], &lowered[i]
			out.Entry, out.Was = entryOf(p, 0), max(0, e.was.Sub(now))
			if e.forever {
				out.Was = sets.Forever
			}
			switch {
			case e.kept:
				out.Lease = sets.Forever
			case e.others:
				out.Lease = e.stays.Sub(now)
			}
		}
		if err := k.Lower(ctx, set, lowered, now); err != nil {
			failed, gone = cmp.Or(failed, err), gone[:before]
		}
	}
	if n, err = l.Drop(gone); err != nil {
		return 0, "", err
	}
	return n, next, failed
}
