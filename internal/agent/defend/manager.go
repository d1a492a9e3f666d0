package defend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"levee/internal/agent/evidence"
	"levee/internal/agent/history"
	"levee/internal/agent/incident"
	"levee/internal/dataplane"
	"levee/internal/lang/policy"
)

// ManagerOptions are what all interfaces are watched with.
type ManagerOptions struct {
	// Policy reads the operator's policy in force on an interface.
	Policy    func(ctx context.Context, dev string) (*policy.Policy, error)
	Allowed   func(ctx context.Context, dev string, p *policy.Policy) error
	Incidents *incident.Store
	Sampled   *history.Sampled // told of each sample; nil: nobody is
	Evidence  *evidence.Store  // of the packets by which floods were judged; nil: none
	Baselines *Baselines       // that outlive this process; nil: none
	Peers     *Peers           // whom a cookie need not ask; nil: nobody
	Aside     *Aside           // keeps off busy CPUs; nil: it does not
	Log       func(format string, args ...any)
}

// lookEvery is how often interfaces with detectors are looked for.
const lookEvery = 5 * time.Second

// Manager watches all interfaces of a network namespace whose policies have detectors.
type Manager struct {
	ManagerOptions
	mu       sync.Mutex
	watchers map[string]*Watcher
	seen     map[string]dataplane.PolicyState // that have no detectors
	ended    sync.WaitGroup
	asking   sync.Once // for peers, from the first detector on
}

// NewManager is one that watches nothing yet.
func NewManager(o ManagerOptions) *Manager {
	return &Manager{ManagerOptions: o, watchers: map[string]*Watcher{},
		seen: map[string]dataplane.PolicyState{}}
}

// Run watches until ctx ends.
func (m *Manager) Run(ctx context.Context) {
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

// save writes the baselines that watchers have put.
func (m *Manager) save() {
	if m.Baselines == nil {
		return
	}
	if err := m.Baselines.save(); err != nil {
		m.Log("%v", err)
	}
}

// look begins to watch interfaces that have come.
func (m *Manager) look(ctx context.Context) {
	all, err := dataplane.InForceHere(ctx)
	if err != nil {
		if ctx.Err() == nil {
			m.Log("look for policies with detectors: %v", err)
		}
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range all {
		if m.watchers[s.Dev] != nil || m.seen[s.Dev] == s {
			continue
		}
		p, err := m.Policy(ctx, s.Dev)
		if err != nil {
			m.Log("%s: read the policy: %v", s.Dev, err)
			continue
		}
		if m.seen[s.Dev] = s; len(p.Detects) > 0 {
			m.begin(ctx, s)
		}
	}
}

func (m *Manager) begin(ctx context.Context, s dataplane.PolicyState) {
	dev := s.Dev
	w := New(Options{Dev: dev, Incidents: m.Incidents, Sampled: m.Sampled, Evidence: m.Evidence,
		Baselines: m.Baselines, Peers: m.Peers, Aside: m.Aside, Log: m.Log,
		Policy: func(ctx context.Context) (*policy.Policy, dataplane.PolicyState, error) {
			for {
				all, err := dataplane.InForceHere(ctx)
				if err != nil {
					return nil, dataplane.PolicyState{}, err
				}
				at := slices.IndexFunc(all,
					func(o dataplane.PolicyState) bool { return o.Dev == dev })
				if at < 0 {
					return nil, dataplane.PolicyState{}, fmt.Errorf("there is no policy on %s", dev)
				}
				p, err := m.Policy(ctx, dev)
				if err != nil {
					return nil, dataplane.PolicyState{}, err
				}
				again, err := dataplane.InForceHere(ctx)
				if err != nil || slices.Contains(again, all[at]) {
					return p, all[at], err
				}
			}
		},
		Allowed: func(ctx context.Context, p *policy.Policy) error {
			return m.Allowed(ctx, dev, p)
		}})
	m.watchers[dev] = w
	if m.Peers != nil {
		m.asking.Do(func() { m.ended.Go(func() { m.Peers.run(ctx, m.Log) }) })
	}
	m.ended.Add(1)
	go func() {
		defer m.ended.Done()
		err := w.Run(ctx)
		if err != nil && ctx.Err() == nil && !dataplane.IsNotAttached(err) {
			m.Log("%s: stopped looking for floods: %v", dev, err)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.watchers, dev)
		delete(m.seen, dev)
	}()
}

// ErrOver is that an incident is over.
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
	if err := dataplane.LiveDown(ctx, i.Dev); err != nil && !errors.Is(err, dataplane.ErrNotLive) &&
		!dataplane.IsNotAttached(err) {
		return i, err
	}
	now := time.Now()
	for k := range i.Rules {
		if r := &i.Rules[k]; r.IsLive() {
			r.State, r.Gone, r.Why = incident.Gone, &now, "taken back by a command"
		}
	}
	i.State, i.Closed = incident.Undone, &now
	if err := s.Put(i); err != nil {
		return i, err
	}
	i, _ = s.Get(id)
	return i, nil
}
