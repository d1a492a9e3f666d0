package defend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"levee/internal/agent/aside"
	"levee/internal/agent/evidence"
	"levee/internal/agent/history"
	"levee/internal/agent/incident"
	"levee/internal/agent/inforce"
	"levee/internal/agent/part"
	"levee/internal/agent/peers"
	"levee/internal/agent/rulebook"
	"levee/internal/agent/sight"
	"levee/internal/dataplane"
	"levee/internal/dataplane/generation"
	"levee/internal/host/access"
	"levee/internal/lang/policy"
)

// ManagerOptions are those of the watchers of all interfaces.
type ManagerOptions struct {
	// Policy reads the operator's policy in force on an interface.
	Policy    func(ctx context.Context, dev string) (*policy.Policy, error)
	InForce   *inforce.Watcher // knows what is in force
	Allowed   func(ctx context.Context, dev string, p *policy.Policy) error
	Incidents *incident.Store
	Book      *rulebook.Book   // of rules of other writers
	Sampled   *history.Sampled // told of each sample; nil: nobody is
	Evidence  *evidence.Store  // of the packets by which floods were judged; nil: none
	Baselines *Baselines       // that outlive this process; nil: none
	Peers     *peers.Table     // whom a cookie need not ask; nil: nobody
	Aside     *aside.Aside     // keeps off busy CPUs; nil: it does not
	Parts     *part.Register   // is told what works; nil: nobody is
	Sight     *sight.Counts    // of what policies pass; nil: nobody compares
	Log       func(format string, args ...any)
}

// lookEvery is the time between two searches for interfaces with detectors.
const lookEvery = 5 * time.Second

// Manager watches all interfaces of a network namespace whose policies have detectors.
type Manager struct {
	ManagerOptions
	mu       sync.Mutex
	watchers map[string]*Watcher
	seen     map[string]inforce.State // that have no detectors
	names    map[int]string           // of interfaces with a policy, by index
	running  context.Context          // of Run; nil: it has not begun
	ended    sync.WaitGroup
	asking   sync.Once // for peers, from the first detector on

	looking *part.Part            // for policies with detectors
	unread  map[string]*part.Part // policies that cannot be read, by interface
	files   fileParts
}

// fileParts are the files that are written about floods.
type fileParts struct{ incidents, rules, baselines, evidence *part.Part }

// NewManager returns one that watches nothing yet.
func NewManager(o ManagerOptions) *Manager {
	if o.InForce == nil {
		o.InForce = &inforce.Watcher{}
	}
	m := &Manager{ManagerOptions: o, watchers: map[string]*Watcher{},
		seen: map[string]inforce.State{}, unread: map[string]*part.Part{},
		looking: o.Parts.Begin(part.Policy, "with detectors", "").Within(lookWithin)}
	if o.Incidents != nil {
		m.files.incidents = o.Parts.Begin(part.File, o.Incidents.Path(), "")
	}
	if o.Book != nil {
		m.files.rules = o.Parts.Begin(part.File, o.Book.Path(), "")
		wrote(m.files.rules, o.Book.Path(), o.Book.Expire(time.Now()))
	}
	if o.Baselines != nil {
		m.files.baselines = o.Parts.Begin(part.File, o.Baselines.Path(), "")
	}
	if o.Evidence != nil {
		m.files.evidence = o.Parts.Begin(part.File, o.Evidence.Path(), "")
		m.files.evidence.Works() // it is written when there is something to keep
	}
	return m
}

// Run watches until ctx ends.
func (m *Manager) Run(ctx context.Context) {
	m.mu.Lock()
	m.running = ctx
	m.mu.Unlock()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	defer func() {
		m.ended.Wait()
		m.save()
	}()
	for {
		m.look(ctx)
		m.save()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// save writes the baselines that watchers have put, and the incidents that could not be written.
func (m *Manager) save() {
	if m.Baselines != nil {
		wrote(m.files.baselines, m.Baselines.Path(), m.Baselines.save())
	}
	if m.Incidents != nil {
		wrote(m.files.incidents, m.Incidents.Path(), m.Incidents.Save())
	}
	if m.Book != nil {
		wrote(m.files.rules, m.Book.Path(), m.Book.Expire(time.Now()))
	}
}

// wrote tells whether a file was written.
func wrote(p *part.Part, path string, err error) {
	_ = p.Did(part.Do(err, access.Write(path, err)))
}

// look begins to watch interfaces that have come.
func (m *Manager) look(ctx context.Context) {
	all, err := m.InForce.Here(ctx, inforce.Recent)
	if err != nil {
		if ctx.Err() == nil {
			m.looking.Fails(adviseRights(err))
		}
		return
	}
	m.looking.Works()
	if m.beginAll(ctx, all) {
		m.closeLeft(all)
	}
}

// beginAll begins to watch those of the interfaces that have come; false: names are to follow.
func (m *Manager) beginAll(ctx context.Context, all []inforce.State) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.follow(all) {
		return false
	}
	for _, s := range all {
		if m.watchers[s.Dev] != nil || m.seen[s.Dev] == s {
			continue
		}
		p, err := m.Policy(ctx, s.Dev)
		if generation.IsGone(err) {
			continue
		}
		if m.read(s.Dev, err); err != nil {
			continue
		}
		if m.seen[s.Dev] = s; len(p.Detects) > 0 || m.Book != nil && len(m.Book.Of(s.Dev)) > 0 {
			m.begin(ctx, &s, p)
		}
	}
	for dev := range m.unread {
		if !slices.ContainsFunc(all, func(s inforce.State) bool { return s.Dev == dev }) {
			m.read(dev, nil) // it is gone
		}
	}
	return true
}

// closeLeft closes the incidents of interfaces without a policy: nothing of what was done about
// them is in force, and nobody watches their course any more.
func (m *Manager) closeLeft(all []inforce.State) {
	if m.Incidents == nil {
		return
	}
	for _, i := range m.Incidents.List() {
		m.mu.Lock()
		watched := m.watchers[i.Dev] != nil
		m.mu.Unlock()
		here := func(s inforce.State) bool { return s.Dev == i.Dev }
		if i.Closed != nil || watched || slices.ContainsFunc(all, here) {
			continue
		}
		state := i.State
		if state == incident.Open || state == incident.Proposed {
			state = incident.Ended
		}
		over(&i, state, "the interface has no policy any more")
		wrote(m.files.incidents, m.Incidents.Path(), m.Incidents.Put(i))
	}
}

// over closes an incident whose rules are no longer in force.
func over(i *incident.Incident, state, why string) {
	now := time.Now()
	for k := range i.Rules {
		if r := &i.Rules[k]; r.IsLive() {
			r.State, r.Gone, r.Why = incident.Gone, &now, why
		}
	}
	i.State, i.Closed = state, &now
}

// read tells whether the policy on an interface could be read: where not, nobody knows whether it
// has detectors.
func (m *Manager) read(dev string, err error) {
	p := m.unread[dev]
	switch {
	case err != nil && p == nil:
		p = m.Parts.Begin(part.Policy, "text", dev)
		m.unread[dev] = p
		fallthrough
	case err != nil:
		p.Fails(fmt.Errorf("it cannot be read, so that nobody looks for floods there: %w", err))
	case p != nil:
		p.End()
		delete(m.unread, dev)
	}
}

func (m *Manager) begin(ctx context.Context, of *inforce.State, p *policy.Policy) {
	dev, index := of.Dev, of.Index
	if m.Peers != nil {
		m.asking.Do(func() {
			known := m.Parts.Begin(part.Help, "clients that are known", "")
			m.ended.Go(func() { m.Peers.Run(ctx, known) })
		})
	}
	parts := newWatchParts(m.Parts, dev)
	parts.set(p.Detects, false)
	m.watchers[dev] = m.watcher(dev, index, parts)
	m.ended.Go(func() {
		m.watch(ctx, dev, index, parts)
		parts.end()
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.watchers, dev)
		delete(m.seen, dev)
	})
}

// watch watches an interface until ctx ends, or it has no policy any more. What fails is tried
// again, by another watcher.
func (m *Manager) watch(ctx context.Context, dev string, index int, parts *watchParts) {
	for failures := 1; ; failures++ {
		m.mu.Lock()
		w := m.watchers[dev]
		m.mu.Unlock()
		err := part.Try(func() error { return w.Run(ctx) })
		if ctx.Err() != nil || err == nil || generation.IsNotAttached(err) ||
			errors.Is(err, errNoPolicy) || errors.Is(err, errIdle) {
			return
		}
		// What failed may be what was asked first, as of an interface that is gone itself.
		if m.isGone(ctx, dev, index) {
			return
		}
		if !w.followed.IsZero() { // it had begun
			failures = 1
		}
		pause := part.Pause(failures)
		parts.fail(adviseRights(fmt.Errorf("nobody looks for floods: %w", err)),
			time.Now().Add(pause))
		for until := time.Now().Add(pause); time.Now().Before(until); {
			select {
			case <-ctx.Done():
				return
			case <-time.After(min(lookEvery, time.Until(until))):
			}
			if m.isGone(ctx, dev, index) { // others wait for this one to end
				return
			}
		}
		m.mu.Lock()
		m.watchers[dev] = m.watcher(dev, index, parts)
		m.mu.Unlock()
	}
}

// isGone says whether an interface has no policy any more, or another name.
func (m *Manager) isGone(ctx context.Context, dev string, index int) bool {
	state, err := inForce(ctx, m.InForce, dev)
	return errors.Is(err, errNoPolicy) || err == nil && state.Index != index
}

// watcher returns one of an interface as long as that has the name.
func (m *Manager) watcher(dev string, index int, parts *watchParts) *Watcher {
	return New(Options{Dev: dev, Incidents: m.Incidents, Book: m.Book, Sampled: m.Sampled,
		Evidence: m.Evidence, Baselines: m.Baselines, Peers: m.Peers, Aside: m.Aside, Log: m.Log,
		Sight: m.Sight, parts: parts, files: m.files, kernel: namespace{}, InForce: m.InForce,
		Policy: func(ctx context.Context) (*policy.Policy, inforce.State, error) {
			for {
				state, err := inForce(ctx, m.InForce, dev)
				if err == nil && state.Index != index {
					err = errNoPolicy
				}
				if err != nil {
					return nil, inforce.State{}, err
				}
				p, err := m.Policy(ctx, dev)
				if err != nil {
					return nil, inforce.State{}, err
				}
				again, err := m.InForce.Here(ctx, 0)
				if err != nil || slices.Contains(again, state) {
					return p, state, err
				}
			}
		},
		Allowed: func(ctx context.Context, p *policy.Policy) error {
			return m.Allowed(ctx, dev, p)
		}})
}

// ErrOver says that an incident has ended.
var ErrOver = errors.New("it is over, and none of its rules is in force")

// Undo takes back what was done about an incident.
func (m *Manager) Undo(ctx context.Context, id string) (incident.Incident, error) {
	return m.do(ctx, id, (*Watcher).undo)
}

// Apply puts the rules that were proposed for an incident into force.
func (m *Manager) Apply(ctx context.Context, id string) (incident.Incident, error) {
	return m.do(ctx, id, (*Watcher).apply)
}

func (m *Manager) do(ctx context.Context, id string,
	what func(*Watcher, context.Context, string) (bool, error)) (incident.Incident, error) {
	i, ok := m.Incidents.Get(id)
	if !ok {
		return i, fmt.Errorf("there is no incident %s: levee agent incidents lists them", id)
	}
	m.mu.Lock()
	w := m.watchers[i.Dev]
	m.mu.Unlock()
	if w == nil {
		return i, fmt.Errorf("incident %s: %w", id, ErrOver)
	}
	var found bool
	var err error
	if !w.Do(func() { found, err = what(w, ctx, id) }) {
		return i, errGone
	}
	if err == nil && !found {
		err = fmt.Errorf("incident %s: %w", id, ErrOver)
	}
	i, _ = m.Incidents.Get(id)
	return i, err
}

// UndoAlone takes back what was done about an incident where no agent runs.
func UndoAlone(ctx context.Context, s *incident.Store, id string) (incident.Incident, error) {
	i, ok := s.Get(id)
	if !ok {
		return i, fmt.Errorf("there is no incident %s: levee agent incidents lists them", id)
	}
	if i.Closed != nil {
		return i, fmt.Errorf("incident %s: %w", id, ErrOver)
	}
	if err := downAlone(ctx, i.Dev); err != nil {
		return i, err
	}
	over(&i, incident.Undone, "taken back by a command")
	if err := s.Put(i); err != nil {
		return i, err
	}
	i, _ = s.Get(id)
	return i, nil
}

// downAlone takes all live rules of an interface out of force.
func downAlone(ctx context.Context, dev string) error {
	err := dataplane.LiveDown(ctx, dev)
	if errors.Is(err, dataplane.ErrNotLive) || generation.IsNotAttached(err) {
		return nil
	}
	return err
}
