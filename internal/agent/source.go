package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/agent/enforce"
	"levee/internal/agent/event"
	"levee/internal/agent/ledger"
	"levee/internal/agent/part"
	"levee/internal/agent/pubsub"
	places "levee/internal/agent/source"
	"levee/internal/agent/source/inlet"
	"levee/internal/dataplane/sets"
	"levee/internal/host/access"
	"levee/internal/lang/policy"
)

// source is one that is followed.
type source struct {
	*policy.Source
	match  *event.Matcher
	inlet  inlet.Inlet
	first  *source // that polls what this one reads, too; nil: this one does
	status SourceStatus
	moved  bool // the position is not in the ledger

	part     *part.Part
	failures int       // to open it, in a row
	next     time.Time // it is not tried again before
	seen     uint64    // events that part was told of
}

type batchKey struct {
	set, origin string
	entry       ledger.Entry
}

type batchLease struct {
	lease time.Duration // 0: until withdrawn
}

const (
	readAtOnce  = 1 << 20 // bytes of a file between two looks at what else there is to do
	batchAtOnce = 50_000  // leases: each write of many goes all over the file
	flushWithin = 500 * time.Millisecond
)

func (a *Agent) closeSources() { closeUnless(a.sources, nil) }

// closeUnless closes what sources read, but for what others read too.
func closeUnless(sources, others []*source) {
	done := map[inlet.Inlet]bool{}
	for _, s := range others {
		done[s.inlet] = true
	}
	for _, s := range sources {
		if s.inlet != nil && !done[s.inlet] {
			done[s.inlet] = true
			s.inlet.Close()
		}
	}
}

// follow goes on with the sources of policies.
func (a *Agent) follow(ctx context.Context, want []*policy.Source) {
	old := a.sources
	a.sources = nil
	for _, w := range want {
		s := &source{Source: w, part: a.parts.Begin(part.Source, w.Name, "")}
		var match *event.Matcher
		if at := slices.IndexFunc(old, func(o *source) bool {
			return o.Name == w.Name && places.Same(&o.Place, &w.Place)
		}); at >= 0 {
			o := old[at]
			s.inlet, s.status, match, s.failures, s.next = o.inlet, o.status, o.match, o.failures,
				o.next
		} else {
			s.status = SourceStatus{Name: w.Name, Path: w.Place.At, current: time.Now()}
		}
		if at := slices.IndexFunc(old, func(o *source) bool {
			return s.inlet == nil && !places.Input(w.Place.Input).Alone &&
				places.Same(&o.Place, &w.Place)
		}); at >= 0 {
			s.inlet = old[at].inlet // under another name
		}
		s.match = event.New(w, match, func(p netip.Prefix) bool {
			return a.protected(ctx).Refuses(p) != ""
		})
		a.sources = append(a.sources, s)
	}
	closeUnless(old, a.sources)
	for _, s := range old {
		s.part.End()
	}
	a.openSources()
}

// openSources opens what sources read, unless it is open. A file is read anew by each source; of a
// socket, a list or the journal, all sources that name it share what comes. The first of them
// polls. What cannot be opened is tried again. Without a ledger nobody knows where to go on, and
// nothing is opened.
func (a *Agent) openSources() {
	for i, s := range a.sources {
		s.first = nil
		if places.Input(s.Place.Input).Alone {
			a.open(s)
			continue
		}
		at := slices.IndexFunc(a.sources[:i], func(o *source) bool {
			return places.Same(&o.Place, &s.Place)
		})
		if at >= 0 {
			s.first = a.sources[at]
			if s.inlet = s.first.inlet; s.inlet == nil && s.first.status.Error != "" {
				s.status.Error = s.first.status.Error
				s.part.Fails(errors.New(s.status.Error))
			}
			continue
		}
		a.open(s)
	}
}

func (a *Agent) open(s *source) {
	if s.inlet != nil || time.Now().Before(s.next) {
		return
	}
	if !a.ledger.IsOpen() {
		s.part.Waits("the ledger, which knows up to where it was read, is not open", "")
		return
	}
	err := part.Try(func() (err error) {
		s.inlet, err = places.Open(&s.Place, inlet.Opening{
			FromStart: a.opts.FromStart, Streams: a.opts.Streams,
			Position: a.ledger.Position(positionName(s.Source))})
		return err
	})
	if err != nil {
		s.inlet = nil
		s.failures++
		s.next = time.Now().Add(part.Pause(s.failures))
		s.status.Error = err.Error()
		s.part.FailsUntil(adviseSource(s.Source, err), s.next)
		return
	}
	s.failures, s.moved = 0, true
	var newest time.Time
	if newest.UnmarshalText(a.ledger.Position(newestName(s.Source))) == nil {
		s.match.Resume(newest)
	}
}

// adviseSource adds what to do about a source that cannot be read.
func adviseSource(s *policy.Source, err error) error {
	return part.Do(err, places.Input(s.Place.Input).Advise(&s.Place, err))
}

// adviseList adds what to do about a list of a condition that cannot be read.
func adviseList(err error) error {
	if unfetched := (*event.Unfetched)(nil); errors.As(err, &unfetched) {
		return part.Do(err, "look whether it can be read from this machine; it is tried again")
	}
	if file := (*fs.PathError)(nil); errors.As(err, &file) {
		if do := access.Read(file.Path, err); do != "" {
			return part.Do(err, do)
		}
	}
	return part.Do(err, "mend that file; it is read again within a second")
}

// positionName returns what the ledger calls the position of a source: another path begins anew.
func positionName(s *policy.Source) string { return s.Name + " " + s.Place.At }

// newestName returns what the ledger calls the time of the newest event of a source, after which
// what is read again is new.
func newestName(s *policy.Source) string { return "newest " + positionName(s) }

// poll reads what has come, and leases what it means; more says that there are other events.
func (a *Agent) poll(ctx context.Context) (more bool) {
	defer func() { a.polled = time.Now() }()
	a.openSources()
	for _, s := range a.sources {
		if len(a.batch) >= batchAtOnce { // the ledger cannot be written
			break
		}
		if s.first != nil || s.inlet == nil {
			continue
		}
		readers := []*source{s}
		for _, o := range a.sources {
			if o.first == s {
				readers = append(readers, o)
			}
		}
		before, now := s.status.Events, time.Now()
		rest, err := s.inlet.Poll(readAtOnce, func(line []byte) {
			for _, o := range readers {
				a.event(o, line, now)
			}
		})
		state := s.inlet.State()
		for _, note := range state.Notes {
			a.say("source %q: %s", s.Name, note)
		}
		more = more || rest
		for _, o := range readers {
			o.moved = o.moved || s.status.Events != before
			a.sourceState(o, &state, err)
			if !rest && state.LagLines == 0 && err == nil {
				o.status.current = now
			}
		}
		if len(a.batch) >= batchAtOnce {
			a.flush(ctx)
		}
	}
	if !more || time.Since(a.flushed) >= flushWithin {
		a.flush(ctx)
	}
	return more
}

// sourceState notes what there is to tell of a source.
func (a *Agent) sourceState(s *source, st *inlet.State, err error) {
	s.status.Error = ""
	seen := s.status.Events
	switch {
	case err != nil:
		s.status.Error = err.Error()
		s.part.Fails(adviseSource(s.Source, err))
	case s.match.Trouble() != nil:
		s.part.Fails(adviseList(s.match.Trouble()))
	case st.Waits != nil:
		s.part.Waits(st.Waits.Error(), access.Read(s.Place.At, st.Waits))
	case seen != s.seen:
		s.seen = seen
		s.part.Saw(time.Now(), eventCount(seen))
	default:
		s.part.Works()
	}
	s.status.TooLong, s.status.Rotations = st.TooLong, st.Rotations
	s.status.LagBytes, s.status.LagLines, s.status.Peers = st.LagBytes, st.LagLines, st.Peers
	s.status.Flows, s.status.Unknown = st.Flows, st.Unknown
	if st.Lost != s.status.Lost {
		a.alarm("source %q: there was no room for %d packets of flows; what those say is not known",
			s.Name, st.Lost-s.status.Lost)
		s.status.Lost = st.Lost
	}
	if lines, is := s.match.Misfit(); is {
		a.alarm("source %q has read %d lines of its program, and its patterns have matched none: "+
			"look whether what it should find is written otherwise", s.Name, lines)
	}
	if n := s.match.Uncounted(); n != s.status.Uncounted {
		a.alarm("source %q: there is no room to count more addresses; %d events were not counted",
			s.Name, n-s.status.Uncounted)
		s.status.Uncounted = n
	}
}

func eventCount(n uint64) string {
	if n == 1 {
		return "1 event"
	}
	return fmt.Sprintf("%d events", n)
}

// event judges one line.
func (a *Agent) event(s *source, line []byte, now time.Time) {
	s.status.Events++
	s.match.Begin(s.inlet.Renewal())
	entry, result, err := s.match.Match(line, now)
	switch {
	case err != nil:
		s.status.Malformed++
	case result == event.NoAddress:
		s.status.NoAddress++
	case result == event.Ambiguous:
		s.status.Ambiguous++
	case result == event.Again:
		s.status.Again++
	case result == event.Counted:
		s.status.Counted++
	case result == event.Matched:
		s.status.Matched++
		a.batch[batchKey{s.Set.Name, s.Name, entry}] = batchLease{s.Lease}
	}
}

// flush writes the batch to the ledger, together with positions, and then to the kernel.
func (a *Agent) flush(ctx context.Context) {
	positions := map[string][]byte{}
	for _, s := range a.sources {
		if s.inlet == nil {
			continue
		}
		if p := s.inlet.Position(); s.moved && p != nil {
			positions[positionName(s.Source)] = p
			if b, err := s.match.Newest().MarshalText(); err == nil && !s.match.Newest().IsZero() {
				positions[newestName(s.Source)] = b
			}
		}
	}
	if len(a.batch) == 0 && len(positions) == 0 {
		a.settled()
		return
	}
	now := a.now()
	defer func() { a.flushed = time.Now() }()
	var leases []ledger.Lease
	entries := map[string][]sets.Entry{}
	for k, b := range a.batch {
		if why := refuses(a.protected(ctx), k.entry); why != "" {
			a.refuse(k, why)
			continue
		}
		l := ledger.Lease{Set: k.set, Entry: k.entry, Origin: k.origin, Since: now}
		e := entryOf(k.entry, sets.Forever)
		if b.lease > 0 {
			l.Until, e.Lease = now.Add(b.lease), b.lease
		}
		leases = append(leases, l)
		entries[k.set] = append(entries[k.set], e)
	}
	leases = append(leases, a.found(ctx, entries, now)...)
	err := a.ledger.Record(leases, positions)
	if errors.Is(err, ledger.ErrFull) && a.makeRoom(now) {
		err = a.ledger.Record(leases, positions)
	}
	if full := a.wrote(err); errors.Is(full, ledger.ErrFull) {
		a.status.Full += uint64(len(leases))
		clear(entries)
		if err = a.ledger.Record(nil, positions); err != nil {
			_ = a.wrote(err)
		}
	}
	if err != nil { // positions and batch stay, and are tried again
		a.status.Compare.Waiting = len(a.batch)
		return
	}
	a.status.Compare.Waiting = 0
	a.tellLeased(leases)
	clear(a.batch)
	a.settled()
	for set, some := range entries {
		if _, left, err := a.opts.Kernel.Raise(ctx, set, some, now); err != nil || left > 0 {
			a.nextCompare = time.Now().Add(time.Second) // which says what is wrong
		}
	}
}

// makeRoom takes out of a full ledger what has ended, and says whether it did. That reads all of
// the ledger, and batches come ten times a second. So it has a hundredth of the time, or comes once
// a minute, as a comparison, which takes out what has ended too.
func (a *Agent) makeRoom(now time.Time) bool {
	if now.Before(a.nextRoom) {
		return false
	}
	begun := time.Now()
	_, err := a.ledger.Remove(func(l ledger.Lease) bool { return l.Ended(now) })
	a.nextRoom = time.Now().Add(min(compareShare*time.Since(begun), comparePause))
	return err == nil
}

// tellLeased tells what was leased, once for each set and origin.
func (a *Agent) tellLeased(leases []ledger.Lease) {
	all := map[[2]string]*pubsub.Event{}
	for i := range leases {
		l := &leases[i]
		k := [2]string{l.Set, l.Origin}
		if all[k] == nil {
			all[k] = &pubsub.Event{Kind: pubsub.Leased, Set: l.Set, Origin: l.Origin,
				Entry: l.Entry.String()}
		}
		all[k].Count++
	}
	for _, e := range all {
		e.Text = fmt.Sprintf("%s leased to %s by %s", entryCount(e.Count), e.Set, e.Origin)
		if e.Count > 1 {
			e.Entry = ""
		}
		a.events.Publish(*e)
	}
}

// settled tells sources that what they have handed on need not be had again.
func (a *Agent) settled() {
	for _, s := range a.sources {
		if s.inlet != nil {
			s.moved = false
			s.inlet.Kept()
		}
	}
}

// found are leases of entries that are in the kernel and in no ledger: a command has put them
// there.
func (a *Agent) found(ctx context.Context, entries map[string][]sets.Entry,
	now time.Time) (out []ledger.Lease) {
	for set, some := range entries {
		there := make([]ledger.Entry, len(some))
		for i, e := range some {
			there[i] = leasedAs(e)
		}
		known := make([]bool, len(some))
		err := a.ledger.Entries(set, there, func(i int, _ ledger.Lease) { known[i] = true })
		if err != nil {
			continue // whoever writes to the ledger says why
		}
		var fresh []sets.Entry
		for i, e := range some {
			if !known[i] {
				fresh = append(fresh, e)
			}
		}
		out = append(out, a.held(ctx, set, fresh, now)...)
	}
	return out
}

// held is found for entries of a set that are in no ledger.
func (a *Agent) held(ctx context.Context, set string, fresh []sets.Entry,
	now time.Time) (out []ledger.Lease) {
	if len(fresh) == 0 {
		return nil
	}
	held, err := a.opts.Kernel.Leases(ctx, set, fresh)
	if err != nil {
		return nil // the comparison says why
	}
	// The kernel may have let the agent wait. An end before that of the kernel would be somebody
	// else's: it could not be withdrawn.
	answered := time.Now()
	for _, e := range held {
		l := ledger.Lease{Set: set, Entry: leasedAs(e), Origin: policy.CommandOrigin, Since: now}
		if e.Lease != sets.Forever {
			l.Until = answered.Add(e.Lease)
		}
		out = append(out, l)
	}
	return out
}

// maxRefusals is the number of refusals that the status keeps.
const maxRefusals = 64

// refuse reports an entry with an address that no entry may have: protected ones, this machine's,
// and those of sessions and servers that it uses.
func (a *Agent) refuse(k batchKey, why string) {
	a.status.Refused++
	a.say("refused %s of source %q: %s", k.entry.String(), k.origin, why)
	for i := range a.status.Refusals {
		if r := &a.status.Refusals[i]; r.Entry == k.entry.String() && r.Origin == k.origin {
			r.Count++
			r.At = time.Now()
			return
		}
	}
	a.status.Refusals = append(a.status.Refusals, Refusal{At: time.Now(), Entry: k.entry.String(),
		Set: k.set, Origin: k.origin, Why: why, Count: 1})
	a.events.Publish(pubsub.Event{Kind: pubsub.Refused, Set: k.set, Origin: k.origin,
		Entry: k.entry.String(), Text: fmt.Sprintf("refused %s of %s: %s", k.entry, k.origin,
			why)})
	a.status.Refusals = a.status.Refusals[max(0, len(a.status.Refusals)-maxRefusals):]
}

// entryOf returns what is leased as an entry of a set.
func entryOf(e ledger.Entry, lease time.Duration) sets.Entry {
	return sets.Entry{Prefix: e.Prefix, Name: e.Name, Lease: lease}
}

// leasedAs returns an entry of a set as it is leased.
func leasedAs(e sets.Entry) ledger.Entry { return ledger.Entry{Prefix: e.Prefix, Name: e.Name} }

// refuses says why an entry may not be one, "" if it may.
func refuses(protected *enforce.Protected, e ledger.Entry) string {
	if e.Name != "" {
		return protected.RefusesName(e.Name)
	}
	return protected.Refuses(e.Prefix)
}

func monotonicMicroseconds() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0
	}
	return t.Nano() / 1000
}
