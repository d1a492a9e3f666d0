package agent

import (
	"context"
	"errors"
	"slices"
	"time"

	"levee/internal/agent/ledger"
	"levee/internal/agent/pubsub"
	"levee/internal/dataplane/sets"
)

// claim lists the entries that an origin wants in a set, with their ends. The origin knows all its
// entries.
type claim struct {
	set, origin string
	until       []ending // of each entry once, in their order
	gone        []ledger.Entry
	complete    bool // what until lacks is gone
	exempt      bool // entries may be whom the policy protects: it names them
	position    string
	note        []byte // for the ledger under position, when all is done; nil: none
}

// piece is a part of a claim that the loop takes at once.
type piece struct {
	*claim
	until     []ending
	gone      []ledger.Entry
	told      int // refusals before
	positions map[string][]byte
}

type ending struct {
	entry ledger.Entry
	until time.Time // zero: until the origin does not have it
}

func (e ending) compare(o ending) int { return e.entry.Compare(o.entry) }

// endings returns the endings of entries, in their order.
func endings(of map[ledger.Entry]time.Time) []ending {
	out := make([]ending, 0, len(of))
	for p, end := range of {
		out = append(out, ending{p, end})
	}
	slices.SortFunc(out, ending.compare)
	return out
}

// given counts the entries of a claim by what happened to them.
type given struct{ added, removed, kept, refused int }

// endSlack is by how much the end of a lease may differ without being written anew.
const endSlack = 2 * time.Second

// give makes the leases of an origin what it claims, from outside the loop: it takes a turn for
// each piece, and what else there is to do goes between. What goes comes first, and makes room. The
// note of the claim is taken away with the first piece, and written with the last: whoever is
// killed in between asks for the whole list. When ctx ends, so does this.
func (a *Agent) give(ctx context.Context, c *claim) (out given, err error) {
	gone := c.gone
	if c.complete {
		old, err := a.leasesOf(ctx, c.set, c.origin)
		if err != nil {
			return out, err
		}
		for p := range old {
			if _, stays := slices.BinarySearchFunc(c.until, ending{entry: p},
				ending.compare); !stays {
				gone = append(gone, p)
			}
		}
	}
	slices.SortFunc(gone, ledger.Entry.Compare) // the ledger is fastest in the order of its keys
	var pieces []*piece
	for some := range slices.Chunk(gone, atOnce) {
		pieces = append(pieces, &piece{claim: c, gone: some})
	}
	for some := range slices.Chunk(c.until, atOnce) {
		pieces = append(pieces, &piece{claim: c, until: some})
	}
	if c.note != nil {
		if len(pieces) == 0 {
			pieces = append(pieces, &piece{claim: c})
		}
		pieces[0].positions = map[string][]byte{c.position: {}}
		pieces[len(pieces)-1].positions = map[string][]byte{c.position: c.note}
	}
	for _, p := range pieces {
		p.told = out.refused
		if err = a.do(ctx, func() error {
			one, err := a.givePiece(ctx, p)
			out.added, out.removed = out.added+one.added, out.removed+one.removed
			out.kept, out.refused = out.kept+one.kept, out.refused+one.refused
			return err
		}); err != nil {
			break
		}
	}
	if out.added > 0 {
		a.events.Publish(pubsub.Event{Kind: pubsub.Leased, Set: c.set, Origin: c.origin,
			Count: out.added, Text: entryCount(out.added) + " more of a list"})
	}
	if out.removed > 0 {
		a.events.Publish(pubsub.Event{Kind: pubsub.Withdrawn, Set: c.set, Origin: c.origin,
			Count: out.removed, Text: entryCount(out.removed) + " less of a list"})
	}
	return out, err
}

// leasesOf returns the ends of an origin's leases in a set, asked for from outside the loop.
func (a *Agent) leasesOf(ctx context.Context, set, origin string) (
	map[ledger.Entry]time.Time, error) {
	out := map[ledger.Entry]time.Time{}
	for after := []byte(nil); ; {
		err := a.do(ctx, func() (err error) {
			after, err = a.ledger.Of(set, origin, after, func(l ledger.Lease) {
				out[l.Entry] = l.Until
			})
			return err
		})
		if err != nil || after == nil {
			return out, err
		}
	}
}

// givePiece applies one piece. Leases that end sooner leave the kernel first and the disk second;
// leases that end later reach the disk first. So an agent that is killed in between has withdrawn
// nothing unsaid, and leased nothing that it does not remember.
func (a *Agent) givePiece(ctx context.Context, c *piece) (out given, err error) {
	to, err := a.changesOf(ctx, c, &out)
	if err != nil {
		return out, err
	}
	if err := a.lower(ctx, c.claim, to.ends, to.now); err != nil {
		return out, err
	}
	if found := a.held(ctx, c.set, to.fresh, to.now); len(found) > 0 {
		if err := a.ledger.Record(found, nil); err != nil {
			return out, err
		}
	}
	err = a.ledger.Change(c.set, c.origin, to.leases, to.gone(), c.positions)
	if a.wrote(err) != nil {
		if errors.Is(err, ledger.ErrFull) {
			a.status.Full += uint64(len(to.leases))
		}
		return out, err
	}
	if len(to.raise) > 0 {
		_, left, err := a.opts.Kernel.Raise(ctx, c.set, to.raise, to.now)
		if err != nil || left > 0 {
			a.nextCompare = time.Now().Add(time.Second) // which says what is wrong
		}
	}
	return out, nil
}

// changes lists the leases and entries that a piece of a claim changes.
type changes struct {
	now    time.Time
	ends   map[ledger.Entry]time.Time // of leases that end sooner; now: at once
	leases []ledger.Lease             // new ones, and those with another end
	raise  []sets.Entry               // entries that the kernel is to hold longer
	fresh  []sets.Entry               // of raise, that nobody has leased
}

// gone lists the entries that end at once.
func (to *changes) gone() (all []ledger.Entry) {
	for p, at := range to.ends {
		if at.Equal(to.now) {
			all = append(all, p)
		}
	}
	return all
}

// changesOf compares a piece with the ledger, and counts in out what becomes of its entries.
func (a *Agent) changesOf(ctx context.Context, c *piece, out *given) (*changes, error) {
	now := a.now()
	left, err := a.leasedOf(c.claim, c.gone)
	if err != nil {
		return nil, err
	}
	entries := make([]ledger.Entry, len(c.until))
	for i, of := range c.until {
		entries[i] = of.entry
	}
	old, err := a.leasedOf(c.claim, entries)
	if err != nil {
		return nil, err
	}
	to := &changes{now: now, ends: map[ledger.Entry]time.Time{},
		leases: make([]ledger.Lease, 0, len(entries)), raise: make([]sets.Entry, 0, len(entries))}
	for i, p := range c.gone {
		if left[i].had {
			to.ends[p] = to.now
			out.removed++
		}
	}
	protected := a.protected(ctx)
	if c.exempt {
		protected = nobody
	}
	for i, of := range c.until {
		if !of.until.IsZero() { // told before the clock jumped, it lasts as long as it was to
			of.until = now.Add(of.until.Sub(now))
		}
		if why := refuses(protected, of.entry); why != "" {
			if out.refused++; c.told+out.refused <= maxToldRefusals {
				a.refuse(batchKey{c.set, c.origin, of.entry}, why)
			} else {
				a.status.Refused++
			}
			if old[i].had {
				to.ends[of.entry] = to.now
			}
			continue
		}
		if to.add(c, of.entry, of.until, old[i]) {
			if old[i].had {
				out.kept++
			} else {
				out.added++
			}
		}
	}
	return to, nil
}

// add takes over that an entry is leased until a time (zero: for ever), where the ledger has old of
// it. It returns false if that time is over already.
func (to *changes) add(c *piece, p ledger.Entry, until time.Time, old leased) bool {
	switch {
	case !until.IsZero() && !until.After(to.now): // it has ended by itself
		if old.had {
			to.ends[p] = to.now
		}
		return false
	case old.had && same(old.until, until):
		return true
	case old.had && !until.IsZero() && (old.until.IsZero() || old.until.After(until)):
		to.ends[p] = until
	default:
		e := entryOf(p, sets.Forever)
		if !until.IsZero() {
			e.Lease = until.Sub(to.now)
		}
		if to.raise = append(to.raise, e); !old.known {
			to.fresh = append(to.fresh, e)
		}
	}
	to.leases = append(to.leases, ledger.Lease{Set: c.set, Entry: p, Origin: c.origin,
		Since: to.now, Until: until})
	return true
}

// leased says who leases an entry, and until when.
type leased struct {
	known bool      // somebody leases it
	had   bool      // the origin does
	until time.Time // then
}

// leasedOf returns what the ledger has of entries, for the origin of a claim.
func (a *Agent) leasedOf(c *claim, entries []ledger.Entry) ([]leased, error) {
	out := make([]leased, len(entries))
	return out, a.ledger.Entries(c.set, entries, func(i int, l ledger.Lease) {
		if out[i].known = true; l.Origin == c.origin {
			out[i].had, out[i].until = true, l.Until
		}
	})
}

// maxToldRefusals is the number of refused entries of one claim that are told one by one.
const maxToldRefusals = 8

// same tells whether two ends mean the same.
func same(a, b time.Time) bool {
	if a.IsZero() || b.IsZero() {
		return a.IsZero() && b.IsZero()
	}
	return a.Sub(b).Abs() < endSlack
}

// lower lets entries of an origin end sooner in the kernel, as far as no other origin leases them.
func (a *Agent) lower(ctx context.Context, c *claim, ends map[ledger.Entry]time.Time,
	now time.Time) error {
	if len(ends) == 0 {
		return nil
	}
	entries := make([]ledger.Entry, 0, len(ends))
	for p := range ends {
		entries = append(entries, p)
	}
	lowered := make([]sets.Lowered, len(entries))
	for i, p := range entries {
		lowered[i].Entry = entryOf(p, 0)
		if at := ends[p]; at.After(now) {
			lowered[i].Lease = at.Sub(now)
		}
	}
	longer := func(d *time.Duration, of ledger.Lease) {
		switch {
		case of.Until.IsZero():
			*d = sets.Forever
		case *d != sets.Forever:
			*d = max(*d, of.Until.Sub(now))
		}
	}
	err := a.ledger.Entries(c.set, entries, func(i int, of ledger.Lease) {
		if of.Ended(now) {
			return
		}
		longer(&lowered[i].Was, of)
		if of.Origin != c.origin {
			longer(&lowered[i].Lease, of)
		}
	})
	if err != nil {
		return err
	}
	return a.opts.Kernel.Lower(ctx, c.set, lowered, now)
}
