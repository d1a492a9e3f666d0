package dashboard

import (
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"sync"

	"levee/internal/agent/api"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/inspect"
	"levee/internal/filter/ir"
	"levee/internal/filter/plan"
	"levee/internal/filter/price"
	"levee/internal/filter/shadow"
	"levee/internal/lang/action"
)

// Bounds of what the page shows of a policy. `levee show` and `levee status` show all.
const (
	mostLines  = 5000
	mostSlots  = 5000
	mostPriced = 400 // slots whose costs are estimated
	mostPairs  = 100
)

// Reader reads policies in force, and estimates costs of each once. It may be used concurrently.
type Reader struct {
	// Counted are the policies in force with their counters, read only.
	Counted func(context.Context) ([]inspect.Attachment, error)

	mu    sync.Mutex
	costs map[string]map[string]float64 // ns by place, by hash of the policy
}

// Read reads the policy on an interface.
func (r *Reader) Read(ctx context.Context, dev string) (*Policy, error) {
	all, err := r.Counted(ctx)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].Dev == dev {
			return r.of(ctx, &all[i])
		}
	}
	return nil, api.Refuse(http.StatusNotFound, "levee has no policy on %q: GET "+
		"/api/v1/interfaces lists those that have one", dev)
}

func (r *Reader) of(ctx context.Context, a *inspect.Attachment) (*Policy, error) {
	shown, _, err := inspect.Show(ctx, a.Dev)
	if err != nil {
		return nil, err
	}
	p := &Policy{Dev: a.Dev, Policy: filepath.Base(a.Policy), Hook: string(a.Mode), Since: a.Since,
		TrialSeconds: a.Trial.Seconds(), Slots: []Slot{},
		Lines: strings.Split(strings.TrimRight(string(shown.Source), "\n"), "\n")}
	if len(p.Lines) > mostLines {
		p.Lines = p.Lines[:mostLines]
	}
	costs := r.estimates(a.Hash, shown)
	for _, c := range a.Counters[:min(len(a.Counters), mostSlots)] {
		p.Slots = append(p.Slots, Slot{ID: c.ID, Line: c.Line, Rule: c.Rule, Label: c.Label,
			Text: c.Text, Reason: c.Reason, Verdict: verdictOf(c.Action), Packets: c.Packets,
			Bytes: c.Bytes, Ns: costs[c.Rule]})
	}
	if a.Shadow != nil {
		p.Shadow = newShadow(a.Shadow)
	}
	return p, nil
}

// verdictOf returns what becomes of a packet that an action counts: pass, drop, answer, redirect,
// or nothing.
func verdictOf(word string) string {
	switch a, ok := action.Named(word); {
	case !ok || !a.MayDecide():
		return ""
	case a == action.Cookie:
		return "answer"
	default:
		return a.Verdict().String()
	}
}

func newShadow(s *inspect.ShadowState) *Shadow {
	out := &Shadow{Policy: filepath.Base(s.Policy), Since: s.Since, Packets: s.Untold.Packets,
		Pairs: []Pair{}}
	decision := func(c generation.SlotCounter, v shadow.Verdict) Decision {
		return Decision{v.String(), c.Rule, c.Line, c.Label, c.Text}
	}
	for i := range s.Pairs {
		p := &s.Pairs[i]
		out.Packets += p.Packets
		if p.Differs() {
			out.Differ += p.Packets
		}
		if len(out.Pairs) < mostPairs {
			out.Pairs = append(out.Pairs, Pair{p.Differs(), p.Packets,
				decision(p.Judged, p.JudgedVerdict), decision(p.Would, p.WouldVerdict)})
		}
	}
	return out
}

// estimates returns the ns of a packet by the place of the rule that decides it; none of a policy
// that is too large for that.
func (r *Reader) estimates(hash string, shown *inspect.InForce) map[string]float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if costs, there := r.costs[hash]; there {
		return costs
	}
	if len(r.costs) > 16 {
		r.costs = nil
	}
	if r.costs == nil {
		r.costs = map[string]map[string]float64{}
	}
	r.costs[hash] = estimate(shown)
	return r.costs[hash]
}

func estimate(shown *inspect.InForce) map[string]float64 {
	p, _ := shown.Parse()
	if p == nil || len(p.Slots()) > mostPriced {
		return nil
	}
	planned, err := plan.New(ir.Build(p), plan.Target{})
	if err != nil {
		return nil
	}
	bySlot := map[int][]plan.Traffic{}
	for _, t := range planned.Evenly() {
		bySlot[t.Slot] = append(bySlot[t.Slot], t)
	}
	out := map[string]float64{}
	for slot, traffic := range bySlot {
		_, ns := planned.Estimate(price.Default, traffic)
		out[p.Where(planned.Slots[slot])] = ns
	}
	return out
}
