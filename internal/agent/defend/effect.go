package defend

import (
	"context"
	"errors"
	"fmt"
	"time"

	"levee/internal/agent/episode"
	"levee/internal/agent/incident"
	"levee/internal/agent/part"
	"levee/internal/agent/sent"
	"levee/internal/dataplane"
)

// answer is the result of an effect that runs beside the loop.
type answer struct {
	event episode.Event
	rules []episode.Live // in force, where that has changed
	err   error
}

// step hands an event to the machine, and carries its effects out.
func (w *Watcher) step(ctx context.Context, e episode.Event) {
	now := time.Now()
	for _, f := range w.floods.Step(now, e) {
		w.effect(ctx, now, &f)
	}
}

func (w *Watcher) effect(ctx context.Context, now time.Time, f *episode.Effect) {
	switch {
	case f.Search != nil:
		w.search(ctx, now, f.Search)
	case f.Put != nil:
		w.change(ctx, f.Put)
	case f.Renew != nil:
		w.renew(ctx, f.Renew.Lease)
	case f.Save != nil:
		wrote(w.files.incidents, w.Incidents.Path(), w.Incidents.Put(*f.Save))
	case f.Log != "":
		w.Log("%s: %s", w.Dev, f.Log)
	case f.Strict != nil:
		for _, e := range w.eyes {
			if e.Name == f.Strict.Detector {
				e.detector.Strict(f.Strict.Until)
			}
		}
	case f.Drops != nil:
		for _, e := range w.eyes {
			if e.Name == f.Drops.Detector {
				e.detector.Drops(f.Drops.Packets, f.Drops.Until)
			}
		}
	case f.Reset:
		w.refused = sent.Refused{} // what was refused since is of before
		for _, e := range w.eyes {
			e.detector.Reset(now)
		}
	case f.Forget != nil:
		w.good.forget(*f.Forget)
		w.flows.forget(*f.Forget)
	case f.Gone != nil:
		w.gone(f.Gone)
	case f.Spare:
		w.good.spare(w.regulars.spare())
	}
}

// Packets of a search.
const (
	enough   = 1500 // packets of a flood are enough
	patience = 150 * time.Millisecond
	fewest   = 60
)

// search looks for rules, when enough of a flood was seen.
func (w *Watcher) search(ctx context.Context, now time.Time, s *episode.Search) {
	a := s.Alarm
	frames := w.recent.since(s.Since, func(fr *frame) bool {
		w.decode(fr)
		return a.Kinds.Is(&w.packet) && (!a.To.IsValid() || a.To.Contains(w.packet.Dst)) &&
			(!a.From.IsValid() || a.From.Contains(w.packet.Src))
	})
	if len(frames) < enough && (now.Sub(s.Since) < patience || len(frames) < fewest) {
		w.step(ctx, episode.Event{Few: &episode.Few{}})
		return
	}
	j := w.job(s, frames, now)
	j.step("samples taken")
	go func() {
		var found *episode.Found
		begun := time.Now()
		err := part.Try(func() (err error) { found, err = j.run(ctx); return err })
		if err != nil {
			found = &episode.Found{Err: err.Error()}
		}
		found.Took = time.Since(begun)
		w.answers <- answer{episode.Event{Found: found}, nil, err}
		err = part.Try(func() error {
			j.retain(frames)
			if of := j.samples(found.Rules); len(of) > 0 {
				w.Do(func() { w.regulars.sampled(of) })
			}
			return nil
		})
		if err != nil {
			w.Log("%s: behind a search: %v", w.Dev, err)
		}
	}()
}

// change has the kernel judge by other live rules.
func (w *Watcher) change(ctx context.Context, p *episode.Put) {
	c := &changer{kernel: w.kernel, dev: w.Dev, base: w.base, over: w.state, rules: p.Rules,
		allowed: w.Allowed, steps: p.Steps}
	known := w.Peers
	go func() {
		err := part.Try(func() error {
			if p.Cookie {
				c.proven = known.All()
			}
			return c.put(ctx)
		})
		if err != nil && c.stands(ctx) {
			w.Log("%s: live rules are as they were asked for, but: %v", w.Dev, err)
			err = nil
		}
		a := &episode.Applied{Steps: c.steps}
		if err != nil {
			a.Err = err.Error()
			if a.Other = errors.Is(err, dataplane.ErrOtherPolicy); !a.Other {
				a.Unfit = c.blame(ctx)
			}
		}
		w.answers <- answer{episode.Event{Applied: a}, p.Rules, err}
	}()
}

// finish takes what came of a search or of a change.
func (w *Watcher) finish(ctx context.Context, a answer) {
	if err := w.sampler.Follow(ctx); err != nil {
		w.Log("%s: %v", w.Dev, err)
	}
	if a.err != nil {
		w.nextReady = time.Now().Add(readyEvery)
		w.Log("%s: live rules: %v", w.Dev, a.err)
	}
	if a.err != nil || a.event.Applied != nil {
		w.parts.put(a.err, len(a.rules))
	}
	if a.event.Applied != nil && a.err == nil {
		w.regulars.rules(w.slots(a.rules))
	}
	w.step(ctx, a.event)
	seen := len(w.strangers) > 0
	w.strangers = map[string]bool{}
	limits, _, _ := w.floods.Strangers(time.Now())
	if len(limits) > 0 && !seen {
		w.newcomers.Begin(time.Now())
	}
	for _, l := range limits {
		w.strangers[l.Rule.Label] = true
	}
	if a.event.Applied != nil && a.event.Applied.Other {
		if err := w.follow(ctx); err != nil {
			w.Log("%s: read the policy that has come into force: %v", w.Dev, err)
		}
	}
}

// slots are the labels of live rules by their slot in the program in force, without cookies and
// greylists: who is asked comes again.
func (w *Watcher) slots(rules []episode.Live) map[int]string {
	out := map[int]string{}
	p, err := compose(w.base, rules)
	if err != nil {
		return out // the kernel has refused them, too
	}
	for i, r := range p.Rules {
		for _, l := range rules {
			if r.Label == l.Rule.Label && !episode.Asks(l.Rule.Action) {
				out[p.RuleSlot(i)] = r.Label
			}
		}
	}
	return out
}

// settle waits for what goes on in the kernel, and says what came of it.
func (w *Watcher) settle(ctx context.Context) error {
	if !w.floods.Working() {
		return nil
	}
	a := <-w.answers
	w.finish(ctx, a)
	return errors.Join(a.err, w.settle(ctx))
}

// renew has the kernel keep live rules for one more lease, which begins now.
func (w *Watcher) renew(ctx context.Context, lease time.Duration) {
	err := w.kernel.renew(ctx, w.Dev, lease)
	if errors.Is(err, dataplane.ErrNotLive) {
		w.lost(ctx, nil)
		return
	}
	r := &episode.Renewed{}
	if err != nil {
		r.Err = err.Error()
		w.parts.tried(fmt.Errorf("renew them: %w", err))
	}
	w.step(ctx, episode.Event{Renewed: r})
}

// count reads what live rules have dropped.
func (w *Watcher) count(ctx context.Context) {
	if len(w.floods.Live()) == 0 {
		return
	}
	rules, counts, err := w.kernel.live(ctx, w.Dev)
	switch {
	case err != nil:
		w.Log("%s: count what live rules drop: %v", w.Dev, err)
	case rules == nil: // somebody else has ended them, or a policy has taken their place
		w.lost(ctx, nil)
	default:
		w.step(ctx, episode.Event{Counted: &episode.Counted{Rules: counts, Costs: w.costs}})
	}
}

// refit looks whether live rules fit a policy that has come into force. Those that do not are gone.
func (w *Watcher) refit(ctx context.Context) {
	now := time.Now()
	x := &episode.Unfit{Why: map[string]string{}}
	for _, l := range w.floods.Live() {
		if err := w.fitsNow(now, l); err != nil {
			x.Why[l.Rule.Label] = err.Error()
		}
	}
	w.step(ctx, episode.Event{Unfit: x})
}

// fitsNow is an error for a live rule that does not fit the policy in force.
func (w *Watcher) fitsNow(now time.Time, l episode.Live) error {
	one := []episode.Live{l}
	if l.Of == nil {
		return fitsWritten(w.base, one)
	}
	if l.Rule.State == incident.Loosened {
		one[0].Rule.Rule = episode.Tightened(l.Rule.Rule)
	}
	p, err := compose(w.base, one)
	if err != nil {
		return err
	}
	if !fits(w.base, p) {
		return errors.New("it does not fit the policy that came into force")
	}
	if l.Rule.Action != "drop" { // what it costs depends on when packets come, and is measured
		return nil
	}
	good := w.good.sample(now, w.link, p)
	if share := harm(w.base, p, l.Rule.Label, good); share > byChance(l.Of.Collateral, good) {
		return fmt.Errorf("it would drop %.3g %% of good traffic by the policy that came into "+
			"force", 100*share)
	}
	return nil
}

// adopt goes on with what an agent before this one has left.
func (w *Watcher) adopt(ctx context.Context) {
	there, _, err := w.kernel.live(ctx, w.Dev)
	if err != nil {
		w.Log("%s: look for live rules: %v", w.Dev, err)
	}
	a := &episode.Adopt{InKernel: there != nil, Written: w.written()}
	if there != nil {
		a.Texts = there.Rules
	}
	for _, i := range w.Incidents.List() {
		if i.Dev == w.Dev {
			a.Incidents = append(a.Incidents, i)
		}
	}
	w.step(ctx, episode.Event{Adopt: a})
	w.recall(time.Now())
	w.regulars.rules(w.slots(w.floods.Live()))
	if there == nil {
		w.refit(ctx)
	}
}

// undo withdraws the rules of an incident that is not over, and keeps them out for an hour. The
// result is false if there is no such incident.
func (w *Watcher) undo(ctx context.Context, id string) (bool, error) {
	_ = w.settle(ctx) // what was wrong with that is told elsewhere
	if !w.floods.Has(id) {
		return false, nil
	}
	w.step(ctx, episode.Event{Undo: &episode.Command{ID: id}})
	_ = w.settle(ctx)
	return true, nil
}

// apply puts the rules that were proposed for an incident into force.
func (w *Watcher) apply(ctx context.Context, id string) (bool, error) {
	_ = w.settle(ctx)
	if !w.floods.Has(id) {
		return false, nil
	}
	if !w.floods.Waiting(id) {
		return true, fmt.Errorf("incident %s has no rules that wait to be applied", id)
	}
	w.step(ctx, episode.Event{Apply: &episode.Command{ID: id}})
	return true, w.settle(ctx)
}
