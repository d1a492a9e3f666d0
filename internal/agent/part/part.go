// Package part is the register of the agent's parts: detectors, sources, lists, targets of
// notifications, files that are written, policies in force.
//
// In goes what each part tells of itself: that it works, what it saw last, why it fails and what to
// do about it. Out come the states of all parts, and each change to or from a failure once, as an
// alarm. A part that says nothing is one that fails: after a time that has not begun, or that has
// not looked, is told as one. The package must never judge what parts do, or wait for anybody.
package part

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Kind says what sort of work a part of the agent does.
type Kind string

// Kinds of parts, in the order in which they are listed.
const (
	Detector     Kind = "detector"     // looks for floods on an interface
	LiveRules    Kind = "live rules"   // puts rules against floods into force on an interface
	Source       Kind = "source"       // reads events
	List         Kind = "list"         // reads a feed, decisions of CrowdSec, or a name
	Notification Kind = "notification" // tells a target
	API          Kind = "api"          // answers at an address
	Policy       Kind = "policy"       // what is in force is known, and judges
	Arrival      Kind = "arrival"      // packets come to a policy, and are not lost before it
	Set          Kind = "set"          // holds in the kernel what is leased
	Keep         Kind = "keep"         // knows the addresses that no entry may have
	File         Kind = "file"         // writes what the agent remembers
	Help         Kind = "help"         // what makes another part better, and is not needed by it

	// TransportStream: one has signal, and nothing of it is missing; or those of an interface can
	// be followed.
	TransportStream Kind = "transport stream"
)

// Kinds are all of them, in the order in which they are listed.
var Kinds = []Kind{Detector, LiveRules, Source, List, Notification, API, Policy, TransportStream,
	Arrival, Set, Keep, File, Help}

// State is the state of a part.
type State string

// States of a part.
const (
	Waits State = "waits" // has not begun, or waits for what may come; after Patience it fails
	Works State = "works"
	Fails State = "fails"
)

// Times of the register.
const (
	// Patience limits the wait of a part that is no failure.
	Patience = time.Minute
	// settled is the time that a part has to work again before that is told, and a failure after it
	// is another one: what comes and goes is one alarm.
	settled = 10 * time.Second
	// differsEvery is the interval at which another reason of a failure is told.
	differsEvery = time.Minute
)

// Status describes one part: its kind, its name, and whether it works.
type Status struct {
	Kind  Kind      `json:"kind" enum:"detector,live rules,source,list,notification,api,policy,transport stream,arrival,set,keep,file,help" doc:"What it is."`
	Name  string    `json:"name" doc:"Its name in the policy, or the file or address that it is about."`
	Dev   string    `json:"dev,omitempty" doc:"The interface that it is about."`
	State State     `json:"state" enum:"waits,works,fails" doc:"How it is; one that has waited for a minute fails."`
	Since time.Time `json:"since" doc:"When this state began."`
	Last  time.Time `json:"last,omitzero" doc:"When it saw, sent or wrote something last."`
	Saw   string    `json:"saw,omitempty" doc:"What that was."`
	Error string    `json:"error,omitempty" doc:"Why it fails or waits."`
	Do    string    `json:"do,omitempty" doc:"What to do about it, with what to type."`
	Next  time.Time `json:"next,omitzero" doc:"When it is tried again."`
	// of those that are over, too
	Failures   uint64    `json:"failures" doc:"How often it has begun to fail."`
	LastError  string    `json:"last_error,omitempty" doc:"Why it failed last."`
	LastFailed time.Time `json:"last_failed,omitzero" doc:"When that was seen last."`
}

// Title names a part in a sentence.
func (s *Status) Title() string {
	out := string(s.Kind)
	if s.Name != "" {
		out += " " + s.Name
	}
	if s.Dev != "" {
		out += " on " + s.Dev
	}
	return out
}

// Sentence says that a part fails, why, and what to do; or that it works.
func (s *Status) Sentence() string {
	switch {
	case s.State == Works:
		return s.Title() + " works"
	case s.Do == "":
		return s.Title() + " does not work: " + s.Error
	}
	return s.Title() + " does not work: " + s.Error + "; to do: " + s.Do
}

// Change says how the state of a part has changed.
type Change int

// Changes that are told.
const (
	Failed    Change = iota // an alarm begins
	Differs                 // it fails for another reason
	Recovered               // the alarm ends
	Gone                    // the part is no longer there, and its alarm with it
)

// Register knows the parts of an agent. A nil register knows none, and its parts take what they are
// told. It may be used by several goroutines.
type Register struct {
	mu    sync.Mutex
	parts []*Part
	// changed is told of changes in their order, and outside of mu.
	changed func(Change, Status)
	telling sync.Mutex
	untold  []told
}

type told struct {
	change Change
	status Status
}

// NewRegister returns one without parts. changed is told of each change, one after another; it must
// not call the register.
func NewRegister(changed func(Change, Status)) *Register { return &Register{changed: changed} }

// Part is the handle by which a part tells the register. Methods of nil do nothing.
type Part struct {
	of     *Register
	status Status
	users  int           // that have begun it, and not ended
	beat   time.Time     // it said last that it works
	within time.Duration // between two of these, at most; 0: it need not say so
	alarm  bool          // was told
	told   time.Time     // a reason was told last
}

// Begin enters a part, which waits from then on. Who enters one that is there gets that.
func (r *Register) Begin(kind Kind, name, dev string) *Part {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.parts {
		if s := &p.status; s.Kind == kind && s.Name == name && s.Dev == dev {
			p.users++
			return p
		}
	}
	p := &Part{of: r, users: 1, status: Status{Kind: kind, Name: name, Dev: dev, State: Waits,
		Since: time.Now(), Error: "it has not begun"}}
	r.parts = append(r.parts, p)
	return p
}

// Within says how often a part has to tell that it works. One that is silent for longer fails.
func (p *Part) Within(d time.Duration) *Part {
	if p != nil {
		p.of.mu.Lock()
		defer p.of.mu.Unlock()
		p.within, p.beat = d, time.Now()
	}
	return p
}

// Works tells that the part works now.
func (p *Part) Works() { p.saw(time.Time{}, "") }

// Saw tells that the part works, and what it saw, sent or wrote then.
func (p *Part) Saw(at time.Time, what string) { p.saw(at, what) }

func (p *Part) saw(at time.Time, what string) {
	if p == nil {
		return
	}
	r := p.of
	r.mu.Lock()
	defer r.mu.Unlock()
	s, now := &p.status, time.Now()
	p.beat = now
	if !at.IsZero() {
		s.Last, s.Saw = at, what
	}
	if s.State != Works {
		s.State, s.Since = Works, now
		s.Error, s.Do, s.Next = "", "", time.Time{}
	}
}

// Waits tells that the part has nothing to do until something comes, and for what it waits.
func (p *Part) Waits(why, do string) {
	if p == nil {
		return
	}
	r := p.of
	r.mu.Lock()
	s := &p.status
	p.beat = time.Now()
	if s.State == Works {
		s.State, s.Since = Waits, p.beat
	}
	if s.State == Waits {
		s.Error, s.Do = why, do
		r.mu.Unlock()
		return
	}
	r.fails(p, why, do, time.Time{})
	r.mu.Unlock()
	r.tell()
}

// Fails tells why the part does not work. What to do is taken from an error that Do has made.
func (p *Part) Fails(err error) { p.FailsUntil(err, time.Time{}) }

// FailsUntil is Fails where it is known when the part is tried again.
func (p *Part) FailsUntil(err error, next time.Time) {
	if p == nil {
		return
	}
	p.of.mu.Lock()
	p.beat = time.Now()
	p.of.fails(p, err.Error(), doOf(err), next)
	p.of.mu.Unlock()
	p.of.tell()
}

// Did tells that the part works, or why not, by what came of what it did, and gives that back.
func (p *Part) Did(err error) error {
	if err != nil {
		p.Fails(err)
	} else {
		p.Works()
	}
	return err
}

// fails notes a failure, with mu held.
func (r *Register) fails(p *Part, why, do string, next time.Time) {
	s, now := &p.status, time.Now()
	why = strings.ReplaceAll(why, "\n", "; ") // of joined errors
	differs := s.Error != why
	if s.State != Fails {
		s.State, s.Since = Fails, now
		s.Failures++
	}
	s.Error, s.Do, s.Next = why, do, next
	s.LastError, s.LastFailed = why, now
	switch {
	case !p.alarm:
		p.alarm, p.told = true, now
		r.untold = append(r.untold, told{Failed, *s})
	case differs && now.Sub(p.told) >= differsEvery:
		p.told = now
		r.untold = append(r.untold, told{Differs, *s})
	}
}

// End takes the part out of the register, once all have who began it.
func (p *Part) End() {
	if p == nil {
		return
	}
	r := p.of
	r.mu.Lock()
	if p.users--; p.users == 0 {
		r.parts = slices.DeleteFunc(r.parts, func(o *Part) bool { return o == p })
		if p.alarm {
			r.untold = append(r.untold, told{Gone, p.status})
		}
	}
	r.mu.Unlock()
	r.tell()
}

// Look finds the parts that were silent or waited for too long, and tells of those that have worked
// again for long enough. It is called now and then.
func (r *Register) Look() {
	if r == nil {
		return
	}
	r.mu.Lock()
	r.look(time.Now())
	r.mu.Unlock()
	r.tell()
}

func (r *Register) look(now time.Time) {
	for _, p := range r.parts {
		s := &p.status
		switch {
		case s.State == Waits && now.Sub(s.Since) >= Patience:
			r.fails(p, s.Error, s.Do, s.Next)
		case s.State == Works && p.within > 0 && now.Sub(p.beat) > p.within:
			r.fails(p, "it has not looked since "+p.beat.Format(time.DateTime),
				"systemctl restart levee-agent; if it comes back, it is a mistake in levee", s.Next)
		case s.State == Works && p.alarm && now.Sub(s.Since) >= settled:
			p.alarm = false
			r.untold = append(r.untold, told{Recovered, *s})
		}
	}
}

// tell tells what was not told yet, in its order.
func (r *Register) tell() {
	r.telling.Lock()
	defer r.telling.Unlock()
	for {
		r.mu.Lock()
		some := r.untold
		r.untold = nil
		r.mu.Unlock()
		if len(some) == 0 {
			return
		}
		for _, t := range some {
			if r.changed != nil {
				r.changed(t.change, t.status)
			}
		}
	}
}

// List returns all parts, by kind, interface and name.
func (r *Register) List() []Status {
	out := []Status{}
	if r == nil {
		return out
	}
	r.mu.Lock()
	r.look(time.Now())
	for _, p := range r.parts {
		out = append(out, p.status)
	}
	r.mu.Unlock()
	r.tell()
	slices.SortStableFunc(out, func(a, b Status) int {
		return cmp.Or(order(a.Kind)-order(b.Kind), strings.Compare(a.Dev, b.Dev),
			strings.Compare(a.Name, b.Name))
	})
	return out
}

// order returns where a kind is listed; one that the table lacks comes last.
func order(k Kind) int {
	if at := slices.Index(Kinds, k); at >= 0 {
		return at
	}
	return len(Kinds)
}

// Failing returns those of some parts that do not work.
func Failing(all []Status) (out []Status) {
	for _, s := range all {
		if s.State == Fails {
			out = append(out, s)
		}
	}
	return out
}
