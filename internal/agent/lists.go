package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"levee/internal/agent/api"
	"levee/internal/agent/crowdsec"
	"levee/internal/agent/enforce"
	"levee/internal/agent/feed"
	"levee/internal/agent/ledger"
	"levee/internal/agent/part"
	"levee/internal/host/access"
	"levee/internal/lang/policy"
)

// lister reads one list in a goroutine of its own, and takes turns in the loop for what follows
// from it.
type lister struct {
	*policy.List
	ctx    context.Context // ends, in the loop, when the list is no longer in the policy
	cancel context.CancelFunc
	turn   sync.Mutex // held, outside the loop, by whoever makes leases what the list says
	part   *part.Part
	status ListStatus // of the loop
	err    error      // that status tells of
	held   *held      // of the loop
}

// ListStatus is one list since the agent began.
type ListStatus struct {
	Name      string    `json:"name"`
	Kind      string    `json:"kind"`  // feed, crowdsec or names
	Place     string    `json:"place"` // URL, path or name
	Set       string    `json:"set"`
	Entries   int       `json:"entries"` // at the last reading
	Read      time.Time `json:"read,omitzero"`
	Next      time.Time `json:"next,omitzero"`
	Refused   int       `json:"refused"`             // about addresses or names that no list may have
	Skipped   int       `json:"skipped"`             // that cannot be read, or are too large
	Example   string    `json:"example,omitempty"`   // of these
	Decisions int       `json:"decisions,omitempty"` // of CrowdSec
	Unmeant   int       `json:"unmeant,omitempty"`   // decisions for which conditions do not hold
	Held      *HeldSize `json:"held,omitempty"`
	Error     string    `json:"error,omitempty"`
}

// readLists begins to read the lists of a policy, and ends those that are not in it any more.
func (a *Agent) readLists(ctx context.Context, want []*policy.List) {
	var next []*lister
	for _, w := range want {
		at := slices.IndexFunc(a.lists, func(l *lister) bool {
			return l.Text == w.Text && l.Set.Max == w.Set.Max && l.Lease == w.Lease
		})
		if at >= 0 {
			next = append(next, a.lists[at])
			continue
		}
		l := &lister{List: w, status: ListStatus{Name: w.Name, Set: w.Set.Name},
			part: a.parts.Begin(part.List, w.Name, "")}
		l.part.Waits("it was not read yet", "")
		next = append(next, l)
		run := a.readFeed
		switch {
		case w.DNS != "":
			l.status.Kind, l.status.Place, run = "names", w.DNS, a.readName
		case w.CrowdSec != nil:
			l.status.Kind, l.status.Place, run = "crowdsec", w.CrowdSec.URL, a.readCrowdSec
		case w.Feed.Path != "":
			l.status.Kind, l.status.Place = "feed", w.Feed.Path
		default:
			l.status.Kind, l.status.Place = "feed", w.Feed.URL
		}
		l.ctx, l.cancel = context.WithCancel(ctx)
		a.reading.Go(func() {
			l.part.Run(l.ctx, func(ctx context.Context) error { run(ctx, l); return nil })
			l.part.End()
		})
	}
	for _, l := range a.lists {
		if !slices.Contains(next, l) {
			l.cancel()
		}
	}
	a.lists = next
}

// pause waits until it is time to read again, and says whether it is.
func (a *Agent) pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Times between two readings.
const (
	firstRetry = 10 * time.Second
	jitter     = 0.1 // so that not all machines of somebody ask at once
)

// userAgent begins the User-Agent header of requests for lists; the version follows it.
const userAgent = "levee/"

// wait returns how long until a list is read again, after so many failures.
func wait(every time.Duration, failures int, asked time.Duration) time.Duration {
	if failures > 0 {
		every = min(every, firstRetry<<min(failures-1, 20))
	}
	every += time.Duration(jitter * rand.Float64() * float64(every))
	return max(every, asked)
}

// readFeed reads a feed until ctx ends.
func (a *Agent) readFeed(ctx context.Context, l *lister) {
	f := feed.New(l.Feed, l.Set.Max, userAgent+a.opts.Version)
	defer f.Close()
	for state, failures := a.feedState(ctx, l), 0; ; {
		r, err := f.Fetch(ctx, state)
		var refused *feed.Refused
		asked := time.Duration(0)
		if errors.As(err, &refused) {
			asked = refused.Retry
		}
		state, err = a.fed(ctx, l, r, err)
		if failures++; err == nil {
			failures = 0
		}
		pause := wait(l.Every, failures, asked)
		a.in(ctx, func() { l.next(pause) })
		if !a.pause(ctx, pause) {
			return
		}
	}
}

// noted is the ledger's note on a feed: the tags by which the next reading knows that the feed has
// not changed, and its number of entries.
type noted struct {
	feed.State
	Entries int `json:"entries"`
}

// listPosition returns what the ledger calls what it notes of a list: another place or form begins
// anew.
func listPosition(l *policy.List) string { return "list " + l.Text }

// feedState is by what a server knows that the list has not changed. Where the ledger holds less
// than was taken, the list is read whole.
func (a *Agent) feedState(ctx context.Context, l *lister) feed.State {
	leases, err := a.leased(ctx, l)
	if err != nil {
		return feed.State{}
	}
	return a.stateOf(ctx, l, len(leases))
}

// stateOf is feedState where so many leases live.
func (a *Agent) stateOf(ctx context.Context, l *lister, leases int) feed.State {
	var b []byte
	a.in(ctx, func() { b = a.ledger.Position(listPosition(l.List)) })
	var n noted
	if json.Unmarshal(b, &n) != nil || n.Entries != leases {
		return feed.State{}
	}
	return n.State
}

// leased returns the leases of a list that have not ended.
func (a *Agent) leased(ctx context.Context, l *lister) (map[ledger.Entry]time.Time, error) {
	var now time.Time
	a.in(ctx, func() { now = a.now() })
	all, err := a.leasesOf(ctx, l.Set.Name, l.Name)
	for p, until := range all {
		if !until.IsZero() && !until.After(now) {
			delete(all, p)
		}
	}
	return all, err
}

// fed takes what a reading has brought, and says with what the next one goes on.
func (a *Agent) fed(ctx context.Context, l *lister, r *feed.Result, err error) (feed.State, error) {
	l.turn.Lock()
	defer l.turn.Unlock()
	defer a.in(ctx, l.tell)
	if err != nil {
		a.in(ctx, func() { l.failed(err) })
		return a.feedState(ctx, l), err
	}
	leases, err := a.leased(ctx, l)
	if err != nil {
		a.in(ctx, func() { l.failed(err) })
		return feed.State{}, err
	}
	if r.Unchanged {
		a.in(ctx, func() { l.read(time.Now()); l.release() })
		state := a.stateOf(ctx, l, len(leases))
		return state, a.renew(ctx, l, leases)
	}
	var protected *enforce.Protected
	a.in(ctx, func() {
		l.read(time.Now())
		l.status.Skipped, l.status.Example = r.List.Bad+r.List.Short, ""
		if len(r.List.Skipped) > 0 {
			l.status.Example = r.List.Skipped[0]
		}
		protected = a.protected(ctx)
	})
	if protected == nil { // the list is no longer in the policy
		return feed.State{}, nil
	}
	h := difference(protected, r, leases, l.Feed.Change)
	if h.why == "" {
		a.in(ctx, l.release)
		_, state, err := a.take(ctx, l, r.List, r.State)
		if err != nil {
			a.in(ctx, func() { l.failed(err) })
		}
		return state, err
	}
	a.in(ctx, func() { l.hold(h) })
	// What was taken last holds until somebody has looked.
	return feed.State{}, a.renew(ctx, l, leases)
}

// hold lets a change wait.
func (l *lister) hold(h *held) {
	if old := l.held; old != nil && slices.Equal(old.added, h.added) &&
		slices.Equal(old.removed, h.removed) {
		h.since = old.since
	}
	l.held = h
	l.status.Held = &HeldSize{h.since, len(h.added), len(h.removed), h.why}
}

// next notes when the list is read again, and tells how it is.
func (l *lister) next(pause time.Duration) {
	l.status.Next = time.Now().Add(pause)
	l.tell()
}

// tell tells how the list is.
func (l *lister) tell() {
	s := &l.status
	switch {
	case s.Error != "":
		l.part.FailsUntil(part.Do(errors.New(s.Error+"; what it has leased stays"), l.advise()),
			s.Next)
	case s.Held != nil:
		l.part.FailsUntil(part.Do(fmt.Errorf("%s, and waits: %s more, %d fewer", s.Held.Why,
			entryCount(s.Held.Added), s.Held.Removed),
			fmt.Sprintf("levee agent diff %s; then levee agent accept %[1]s", l.Name)), s.Next)
	case !s.Read.IsZero():
		l.part.Saw(s.Read, entryCount(s.Entries))
	}
}

// advise returns what to do about a list that cannot be read.
func (l *lister) advise() string {
	var file *fs.PathError
	var refused *feed.Refused
	switch {
	case errors.As(l.err, &file):
		return access.Read(file.Path, l.err)
	case errors.As(l.err, &refused) && refused.Key != "":
		return "put a key that it takes into " + refused.Key
	case errors.As(l.err, &refused) && refused.Later():
		return "wait: it is asked again; where that lasts, a longer `every` asks less often"
	case errors.As(l.err, &refused):
		return "look whether the list is still there: curl -I '" + l.status.Place + "'"
	case l.err == nil: // a name without addresses
		return "look it up: getent ahosts " + l.DNS
	}
	return access.Reach(l.status.Place, l.err)
}

// in runs fn in its turn in the loop, unless ctx ends before.
func (a *Agent) in(ctx context.Context, fn func()) {
	_ = a.do(ctx, func() error { fn(); return nil })
}

// read notes when the list was read.
func (l *lister) read(at time.Time) { l.status.Read, l.status.Error, l.err = at, "", nil }

// failed notes why the list could not be read or taken.
func (l *lister) failed(err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	l.status.Error, l.err = err.Error(), err
}

// release forgets a change that waits.
func (l *lister) release() { l.held, l.status.Held = nil, nil }

// take makes the leases of a feed those of a list, and says with what the next reading goes on.
func (a *Agent) take(ctx context.Context, l *lister, list *feed.List, state feed.State) (given,
	feed.State, error) {
	c := claim{set: l.Set.Name, origin: l.Name, complete: true, position: listPosition(l.List),
		until: make([]ending, 0, list.Len())}
	var protected *enforce.Protected
	if err := a.do(ctx, func() error { protected = a.protected(ctx); return nil }); err != nil {
		return given{}, feed.State{}, err
	}
	until, entries := l.end(), 0
	for p := range list.Entries() {
		c.until = append(c.until, ending{p, until})
		if refuses(protected, p) == "" {
			entries++
		}
	}
	if entries < list.Len() { // the next reading asks for all: they may be let in then
		state = feed.State{}
	}
	var err error
	if c.note, err = json.Marshal(noted{state, entries}); err != nil {
		return given{}, feed.State{}, err
	}
	out, err := a.give(ctx, &c)
	a.in(ctx, func() { l.status.Refused, l.status.Entries = out.refused, entries })
	if err != nil {
		return out, feed.State{}, err
	}
	if out.added+out.removed > 0 {
		a.opts.Log("source %q: %s, %d more and %d less than before", l.Name, entryCount(entries),
			out.added, out.removed)
	}
	return out, state, nil
}

// end returns the time at which leases end that are given now.
func (l *lister) end() time.Time {
	if l.Lease == 0 {
		return time.Time{}
	}
	return time.Now().Add(l.Lease)
}

// renew gives all leases of a list another term.
func (a *Agent) renew(ctx context.Context, l *lister, leases map[ledger.Entry]time.Time) error {
	a.in(ctx, func() { l.status.Entries = len(leases) })
	if l.Lease == 0 || len(leases) == 0 {
		return nil
	}
	until := l.end()
	for p := range leases {
		leases[p] = until
	}
	_, err := a.give(ctx, &claim{set: l.Set.Name, origin: l.Name, until: endings(leases)})
	if err != nil {
		a.in(ctx, func() { l.failed(err) })
	}
	return err
}

// resync is the interval at which all decisions are asked for, and not only what has changed.
const resync = time.Hour

// readCrowdSec follows a local API until ctx ends.
func (a *Agent) readCrowdSec(ctx context.Context, l *lister) {
	client := feed.Client(l.CrowdSec.Cleartext, listTime)
	defer client.CloseIdleConnections()
	c := crowdsec.New(l.CrowdSec, client, userAgent+a.opts.Version)
	bans := crowdsec.NewBans(l.CrowdSec)
	var complete time.Time // when all was asked for; zero: never, or something is missing since
	for failures := 0; ; {
		all := time.Since(complete) > resync
		begun := time.Now()
		s, err := c.Stream(ctx, all)
		var changed map[netip.Prefix]time.Time
		if failures++; err != nil {
			complete = time.Time{} // the API takes what it has sent for read
		} else {
			if failures = 0; all {
				complete = begun
				bans = crowdsec.NewBans(l.CrowdSec)
			}
			changed = bans.Apply(s, begun)
			if n := bans.Decisions(); n > crowdsec.MaxDecisions {
				err = fmt.Errorf("the local API has sent %d decisions, of at most %d", n,
					crowdsec.MaxDecisions)
				bans, complete = crowdsec.NewBans(l.CrowdSec), time.Time{}
			}
		}
		if !a.decided(ctx, l, bans, changed, all, err) {
			complete = time.Time{}
		}
		pause := wait(l.Every, failures, 0)
		a.in(ctx, func() { l.next(pause) })
		if !a.pause(ctx, pause) {
			return
		}
	}
}

// listTime is the longest time that an answer of a local API may take.
const listTime = 2 * time.Minute

// decided makes the leases of a source what decisions say, and tells whether it has.
func (a *Agent) decided(ctx context.Context, l *lister, bans *crowdsec.Bans,
	changed map[netip.Prefix]time.Time, all bool, err error) bool {
	if err != nil {
		a.in(ctx, func() { l.failed(fmt.Errorf("%w; all is asked for again", err)) })
		return false
	}
	read := time.Now()
	c := claim{set: l.Set.Name, origin: l.Name, complete: all}
	ends := make(map[ledger.Entry]time.Time, len(changed))
	most := l.end()
	for p, until := range changed {
		switch {
		case until.IsZero():
			c.gone = append(c.gone, ledger.Of(p))
		case !most.IsZero() && until.After(most):
			ends[ledger.Of(p)] = most
		default:
			ends[ledger.Of(p)] = until
		}
	}
	c.until = endings(ends)
	out, err := a.give(ctx, &c)
	a.in(ctx, func() {
		l.read(read)
		l.status.Entries, l.status.Decisions = bans.Addresses(), bans.Decisions()
		l.status.Skipped, l.status.Unmeant = bans.Other, bans.Unmeant
		if l.status.Refused += out.refused; all {
			l.status.Refused = out.refused
		}
		if err != nil {
			l.failed(err)
		}
	})
	if err != nil {
		return false
	}
	if out.added+out.removed > 0 {
		a.opts.Log("source %q: %s more, %d fewer", l.Name, entryCount(out.added), out.removed)
	}
	return true
}

// HeldQuery chooses changes that wait.
type HeldQuery struct {
	Source string `query:"source" maxLength:"32" doc:"Only of this source."`
}

// HeldReport are changes that wait.
type HeldReport struct {
	Held []Held `json:"held"`
}

// AcceptInput is the source whose change is accepted.
type AcceptInput struct {
	Body struct {
		Source string `json:"source" minLength:"1" maxLength:"32" doc:"The source."`
	}
}

// Accepted counts the entries of a change to a list that somebody has accepted.
type Accepted struct {
	Source  string `json:"source"`
	Added   int    `json:"added"`
	Removed int    `json:"removed"`
	Refused int    `json:"refused" doc:"Entries about addresses or names that no list may have."`
}

// named returns the list of a source.
func (a *Agent) named(name string) (*lister, error) {
	for _, l := range a.lists {
		if l.Name == name {
			return l, nil
		}
	}
	return nil, api.Refuse(http.StatusNotFound,
		"no list is named %q: `levee agent status` names them", name)
}

func (a *Agent) heldQuery(ctx context.Context, q *HeldQuery) (*HeldReport, error) {
	out := &HeldReport{Held: []Held{}}
	err := a.do(ctx, func() error {
		lists := a.lists
		if q.Source != "" {
			l, err := a.named(q.Source)
			if err != nil {
				return err
			}
			lists = []*lister{l}
		}
		for _, l := range lists {
			if h := l.held; h != nil {
				out.Held = append(out.Held, Held{l.Name, l.Set.Name, h.since,
					h.list.Len(), texts(h.added), texts(h.removed)})
			}
		}
		return nil
	})
	return out, err
}

func texts(all []ledger.Entry) []string {
	out := make([]string, len(all))
	for i, p := range all {
		out[i] = p.String()
	}
	return out
}

// acceptQuery takes the change of a source that waits. It goes on where the caller does not wait.
func (a *Agent) acceptQuery(ctx context.Context, in *AcceptInput) (*Accepted, error) {
	name := in.Body.Source
	var l *lister
	if err := a.do(ctx, func() (err error) { l, err = a.named(name); return err }); err != nil {
		return nil, err
	}
	l.turn.Lock()
	defer l.turn.Unlock()
	var h *held
	if err := a.do(l.ctx, func() error { h = l.held; return nil }); err != nil {
		return nil, err
	}
	if h == nil {
		return nil, api.Refuse(http.StatusConflict, "no change of source %q waits", name)
	}
	done, _, err := a.take(l.ctx, l, h.list, h.state)
	if err != nil { // the change goes on waiting
		return nil, err
	}
	a.in(l.ctx, func() { l.release(); l.tell() })
	a.opts.Log("%s accepted the change of source %q", api.CallerOf(ctx).Name, name)
	return &Accepted{Source: name, Added: done.added, Removed: done.removed,
		Refused: done.refused}, nil
}
