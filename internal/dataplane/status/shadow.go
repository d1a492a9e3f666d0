package status

import (
	"context"
	"fmt"
	"time"

	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/inspect"
	"levee/internal/filter/oracle"
	"levee/internal/filter/shadow"
	"levee/internal/lang/diag"
)

// Shadow is the policy that judges beside the one in force.
type Shadow struct {
	Policy  diag.Shown `json:"policy"`
	Hash    string     `json:"hash"` // SHA-256 of its text
	Since   time.Time  `json:"since"`
	Program uint32     `json:"program"` // id
	Packets uint64     `json:"packets"` // judged by both
	Differ  uint64     `json:"differ"`  // of these, with different verdicts
}

func newShadow(s *inspect.ShadowState) *Shadow {
	if s == nil {
		return nil
	}
	out := &Shadow{Policy: diag.Shown(s.Policy), Hash: s.Hash, Since: s.Since,
		Program: s.Program, Packets: s.Untold.Packets}
	for i := range s.Pairs {
		out.Packets += s.Pairs[i].Packets
		if s.Pairs[i].Differs() {
			out.Differ += s.Pairs[i].Packets
		}
	}
	return out
}

// DiffReport is the object of `levee status --diff --json`.
type DiffReport struct {
	Interfaces []Diff `json:"interfaces"`
}

// Diff is one interface with a shadow.
type Diff struct {
	Dev    string     `json:"dev"`
	Policy diag.Shown `json:"policy"` // in force
	Shadow Shadow     `json:"shadow"`
	// pairs of rules that met packets; those whose verdicts differ first
	Pairs []Pair `json:"pairs"`
	// newest flows of the pairs that differ
	Flows []Flow `json:"flows"`
	// packets that a cookie in force had answered, so that the shadow could not judge them
	Unjudged uint64       `json:"unjudged"`
	Untold   uint64       `json:"untold"`  // packets of pairs above what is told apart
	Unasked  []diag.Shown `json:"unasked"` // cookies of the shadow, which answer nobody
	Rules    []DiffRule   `json:"rules"`   // what the shadow has counted
}

// Decision is the verdict of one of the two policies, and its rule.
type Decision struct {
	Verdict string     `json:"verdict"` // pass, drop or redirect
	Rule    diag.Shown `json:"rule"`
	Line    int        `json:"line"`
	Label   string     `json:"label"`
	Text    string     `json:"text"`
}

// Pair is a rule in force with one of the shadow, and what came to both.
type Pair struct {
	Differs bool     `json:"differs"`
	Packets uint64   `json:"packets"`
	Bytes   uint64   `json:"bytes"`
	InForce Decision `json:"in_force"`
	Shadow  Decision `json:"shadow"`
}

// Flow is a sample of packets that both judge otherwise.
type Flow struct {
	At      time.Time `json:"at"`      // of its last packet
	Packets uint64    `json:"packets"` // since it is a sample
	Bytes   int       `json:"bytes"`   // of one frame
	Headers string    `json:"headers"` // of the same
	InForce Decision  `json:"in_force"`
	Shadow  Decision  `json:"shadow"`
}

// DiffRule is a counter of the shadow.
type DiffRule struct {
	Rule    diag.Shown `json:"rule"`
	Line    int        `json:"line"`
	Label   string     `json:"label"`
	Verdict string     `json:"verdict"`
	Packets uint64     `json:"packets"`
	Bytes   uint64     `json:"bytes"`
}

func newDecision(c generation.SlotCounter, v shadow.Verdict) Decision {
	return Decision{v.String(), diag.Shown(c.Rule), c.Line, c.Label, c.Text}
}

// Shadows returns the decisions that shadows would have made otherwise, and notes for the user: on
// one interface, or with "" on all of this network namespace or of every one.
func Shadows(ctx context.Context, dev string, everywhere bool) (*DiffReport, []string, error) {
	all, notes, err := inspect.Status(ctx, everywhere)
	if err != nil {
		return nil, nil, err
	}
	rep := &DiffReport{Interfaces: []Diff{}}
	for i := range all {
		if all[i].Shadow != nil && (dev == "" || all[i].Dev == dev) {
			rep.Interfaces = append(rep.Interfaces, newDiff(&all[i]))
		}
	}
	if len(rep.Interfaces) == 0 {
		where := "any interface"
		if dev != "" {
			where = dev
		}
		err = fmt.Errorf("no shadow judges on %s: levee up --shadow FILE puts one there", where)
	}
	return rep, notes, err
}

func newDiff(a *inspect.Attachment) Diff {
	s := a.Shadow
	out := Diff{Dev: a.Dev, Policy: diag.Shown(a.Policy), Shadow: *newShadow(s),
		Pairs: []Pair{}, Flows: []Flow{}, Rules: []DiffRule{}, Unjudged: s.Unjudged,
		Untold: s.Untold.Packets, Unasked: diag.ShownAll(s.Unasked)}
	for i := range s.Pairs {
		p := &s.Pairs[i]
		out.Pairs = append(out.Pairs, Pair{p.Differs(), p.Packets, p.Bytes,
			newDecision(p.Judged, p.JudgedVerdict), newDecision(p.Would, p.WouldVerdict)})
	}
	for i := range s.Flows {
		p := &s.Flows[i]
		out.Flows = append(out.Flows, Flow{p.At, p.Packets, p.Length,
			oracle.Headers(p.Packet, p.Length, p.Link), newDecision(p.Judged, p.JudgedVerdict),
			newDecision(p.Would, p.WouldVerdict)})
	}
	for _, c := range s.Rules {
		out.Rules = append(out.Rules, DiffRule{diag.Shown(c.Rule), c.Line, c.Label, c.Action,
			c.Packets, c.Bytes})
	}
	return out
}

// Name returns the rule, and its label if it has one.
func (d Decision) Name() string {
	if d.Label == "" || d.Line == 0 {
		return string(d.Rule)
	}
	return fmt.Sprintf("%s %q", d.Rule, d.Label)
}
