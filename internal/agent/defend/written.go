package defend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"levee/internal/agent/episode"
	"levee/internal/agent/incident"
	"levee/internal/agent/inforce"
	"levee/internal/agent/rulebook"
	"levee/internal/dataplane"
	"levee/internal/lang/action"
	"levee/internal/lang/ast"
	"levee/internal/lang/resolve"
	"levee/internal/lang/syntax"
)

// Bounds of how long a rule of a writer may stay.
const (
	shortest = time.Second
	longest  = 7 * 24 * time.Hour
)

// Errors of rules of writers.
var (
	errUnwatched = errors.New("no policy is in force there: levee status lists those that are")
	errRenamed   = errors.New("its name is new, and what is known of it is still under the one " +
		"before: try again in some seconds")
	errFull = errors.New("there is no room for another live rule of this origin: each has " +
		"fewer than are free; withdraw one")
	errNotYours = errors.New("it is of another origin: levee agent undo takes it back, whoever " +
		"it is of")
	errNoRule = errors.New("no such live rule is in force: levee agent rules list names them")
)

// writtenRule returns the text of a rule that somebody wants, with a label, and its first word.
// Without the label it has none.
func writtenRule(text, label string) (string, string, error) {
	text = strings.TrimSpace(text)
	if text == "" || len(text) > rulebook.MaxText || strings.ContainsAny(text, "\n\r#") {
		return "", "", fmt.Errorf("a live rule is one line of at most %d bytes, without a comment",
			rulebook.MaxText)
	}
	p, ds := resolve.Parse("rule", []byte(text+"\ndefault pass\n"), nil)
	tree, _ := syntax.Parse("rule", []byte(text+"\n"))
	switch {
	case p == nil:
		return "", "", fmt.Errorf("%s", ds[0].Message)
	case len(p.Rules) != 1 || len(tree.Stmts) != 1:
		return "", "", fmt.Errorf("write one rule, such as: drop udp from 203.0.113.0/24")
	case p.Rules[0].Label != "":
		return "", "", fmt.Errorf("a live rule gets its label from the agent: leave out as \"...\"")
	case p.Rules[0].Action != action.Drop && p.Rules[0].Action != action.Limit:
		return "", "", fmt.Errorf("a live rule drops or limits: begin it with drop or limit")
	}
	text = strings.TrimSpace(string(ast.Format(tree)))
	word, _, _ := strings.Cut(text, " ")
	if label == "" {
		return text, word, nil
	}
	return text + ` as "` + label + `"`, word, nil
}

// written returns the rules that writers want on the interface.
func (w *Watcher) written() (out []episode.Write) {
	if w.Book == nil {
		return nil
	}
	for _, r := range w.Book.Of(w.Dev) {
		out = append(out, write(&r))
	}
	return out
}

func write(r *rulebook.Rule) episode.Write {
	since, until := r.Since, r.Until
	return episode.Write{Origin: r.Origin, Rule: incident.Rule{Rule: r.Rule, Label: r.ID,
		Action: r.Action, State: incident.Live, Since: &since, Until: &until}}
}

// gone forgets a rule that its writer has no more.
func (w *Watcher) gone(g *episode.Gone) {
	w.Log("%s: live rule %s is gone: %s", w.Dev, g.Label, g.Why)
	wrote(w.files.rules, w.Book.Path(), w.Book.Remove(g.Label))
}

// write puts a rule of a writer into force, or leaves all as it is. Into a policy that has come
// into force meanwhile it goes at the next try.
func (w *Watcher) write(ctx context.Context, r *rulebook.Rule, text string) (err error) {
	for range writeTries {
		if err = w.tryWrite(ctx, r, text); !errors.Is(err, dataplane.ErrOtherPolicy) {
			break
		}
	}
	return err
}

const writeTries = 3

func (w *Watcher) tryWrite(ctx context.Context, r *rulebook.Rule, text string) (err error) {
	_ = w.settle(ctx) // what was wrong with that is told elsewhere
	if !w.floods.Room(r.Origin) {
		return errFull
	}
	var one episode.Live
	if one.Rule.Rule, r.Action, err = writtenRule(text, ""); err != nil {
		return err
	}
	if err := fitsWritten(w.base, []episode.Live{one}); err != nil {
		return err
	}
	r.ID = w.Book.Next()
	if r.Rule, _, err = writtenRule(text, r.ID); err != nil {
		return err
	}
	if err := w.Book.Put(*r); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx) // who asks may go: what is half done would stay
	e := write(r)
	w.parts.set(w.base.Detects, true)
	w.step(ctx, episode.Event{Write: &e})
	err = w.settle(ctx)
	if w.floods.HasWritten(r.ID) {
		w.Log("%s: live rule of %s: %s", w.Dev, r.Origin, r.Rule)
		return nil
	}
	return cmp.Or(err, errNoRule)
}

// erase takes a rule of a writer back.
func (w *Watcher) erase(ctx context.Context, id, why string) error {
	_ = w.settle(ctx)
	if !w.floods.HasWritten(id) {
		return errNoRule
	}
	w.step(ctx, episode.Event{Erase: &episode.Erase{Label: id, Why: why}})
	return w.settle(ctx)
}

// LiveRule is a rule that is in force besides those of the policy.
type LiveRule struct {
	ID       string     `json:"id" doc:"Also its label."`
	Dev      string     `json:"dev" doc:"The interface."`
	Origin   string     `json:"origin" doc:"A detector's name, api: and the name of a token, or command."`
	Rule     string     `json:"rule"`
	State    string     `json:"state" enum:"live,loosened"`
	Since    *time.Time `json:"since,omitempty"`
	Until    *time.Time `json:"until,omitempty" doc:"When it ends, unless whoever it is of renews it."`
	Packets  uint64     `json:"packets" doc:"That it has decided."`
	Bytes    uint64     `json:"bytes"`
	Incident string     `json:"incident,omitempty" doc:"Of a detector's."`
}

func liveRule(dev string, l *episode.Live) LiveRule {
	return LiveRule{ID: l.Rule.Label, Dev: dev, Origin: l.Origin, Rule: l.Rule.Rule,
		State: l.Rule.State, Since: l.Rule.Since, Until: l.Rule.Until, Packets: l.Rule.Packets,
		Bytes: l.Rule.Bytes, Incident: l.Incident}
}

// Rules returns the live rules, by interface, in the order in which they are asked.
func (m *Manager) Rules() []LiveRule {
	m.mu.Lock()
	watchers := make([]*Watcher, 0, len(m.watchers))
	for _, w := range m.watchers {
		watchers = append(watchers, w)
	}
	m.mu.Unlock()
	slices.SortFunc(watchers, func(a, b *Watcher) int { return strings.Compare(a.Dev, b.Dev) })
	out := []LiveRule{}
	for _, w := range watchers {
		w.Do(func() {
			for _, l := range w.floods.Live() {
				if l.Rule.IsLive() {
					out = append(out, liveRule(w.Dev, &l))
				}
			}
		})
	}
	return out
}

// Write puts a rule of an origin into force on an interface for a time.
func (m *Manager) Write(ctx context.Context, origin, dev, text string, lease time.Duration) (
	LiveRule, error) {
	if lease < shortest || lease > longest {
		return LiveRule{}, fmt.Errorf("the lease of a live rule is from 1s to 7d")
	}
	if _, _, err := writtenRule(text, ""); err != nil {
		return LiveRule{}, err
	}
	r := rulebook.Rule{Origin: origin, Dev: dev, Since: time.Now()}
	r.Until = r.Since.Add(lease)
	err := m.on(ctx, dev, func(w *Watcher) error { return w.write(ctx, &r, text) })
	e := write(&r)
	return liveRule(dev, &episode.Live{Rule: e.Rule, Origin: origin}), err
}

// Withdraw takes a rule of an origin back, of anybody where origin is empty. That of a detector
// goes with its incident.
func (m *Manager) Withdraw(ctx context.Context, origin, id string) (LiveRule, error) {
	all := m.Rules()
	at := slices.IndexFunc(all, func(r LiveRule) bool { return r.ID == id })
	if at < 0 {
		return m.forget(origin, id)
	}
	r := all[at]
	switch {
	case origin != "" && origin != r.Origin:
		return r, errNotYours
	case r.Incident != "":
		_, err := m.Undo(ctx, r.Incident)
		return r, err
	}
	return r, m.on(ctx, r.Dev, func(w *Watcher) error { return w.erase(ctx, id, byWriter) })
}

const byWriter = "it was taken back"

// forget forgets a rule that is kept and not in force, as where there is no policy.
func (m *Manager) forget(origin, id string) (LiveRule, error) {
	r, ok := m.Book.Get(id)
	switch {
	case !ok:
		return LiveRule{}, errNoRule
	case origin != "" && origin != r.Origin:
		return LiveRule{}, errNotYours
	}
	e := write(&r)
	return liveRule(r.Dev, &episode.Live{Rule: e.Rule, Origin: r.Origin}), m.Book.Remove(id)
}

// on runs fn in the turn of the watcher of an interface, which begins to watch where none does.
func (m *Manager) on(ctx context.Context, dev string, fn func(*Watcher) error) error {
	for range onTries {
		w, err := m.watcherOn(ctx, dev)
		if err != nil {
			return err
		}
		if w.Do(func() { err = fn(w) }) {
			return err
		}
		select { // it ended at this moment
		case <-time.After(onPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return errGone
}

// Attempts to reach a watcher.
const (
	onTries = 3
	onPause = 100 * time.Millisecond
)

// watcherOn returns the watcher of an interface with a policy.
func (m *Manager) watcherOn(ctx context.Context, dev string) (*Watcher, error) {
	all, err := m.InForce.Here(ctx, 0)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(all, func(s inforce.State) bool { return s.Dev == dev })
	if at < 0 {
		return nil, errUnwatched
	}
	p, err := m.Policy(ctx, dev)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.watchers[dev] == nil {
		switch {
		case m.running == nil || m.running.Err() != nil:
			return nil, errGone
		case !m.follow(all):
			return nil, errRenamed
		}
		m.begin(m.running, &all[at], p)
	}
	return m.watchers[dev], nil
}

// WithdrawAlone takes a rule of a writer back where no agent runs, with all other live rules of the
// interface.
func WithdrawAlone(ctx context.Context, book *rulebook.Book, id string) (LiveRule, error) {
	r, ok := book.Get(id)
	if !ok {
		return LiveRule{}, errNoRule
	}
	if err := downAlone(ctx, r.Dev); err != nil {
		return LiveRule{}, err
	}
	e := write(&r)
	return liveRule(r.Dev, &episode.Live{Rule: e.Rule, Origin: r.Origin}), book.Remove(id)
}
