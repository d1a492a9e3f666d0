// Package status tells what runs where: the one model that text, JSON, the API, metrics and top
// show of policies in force. In go interfaces with their counters and memories, out come a report,
// its rates and its metrics. It must never change anything.
package status

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"levee/internal/dataplane"
	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/keep"
	"levee/internal/dataplane/service"
	"levee/internal/dataplane/store"
	"levee/internal/filter/state"
	"levee/internal/host/lost"
	"levee/internal/lang/diag"
	"levee/internal/lang/policy"
)

// Report is the object of `levee status --json`.
type Report struct {
	Interfaces []Interface `json:"interfaces"`
	Services   []Service   `json:"services"` // that have a policy of their own
	Kept       []Kept      `json:"kept"`     // policies that are bound to names
	// what the CPUs dropped before any policy, of all interfaces; [] where it is not told
	Backlogs []lost.Backlog `json:"backlogs"`
}

// Service is one that has a policy of its own.
type Service struct {
	Service string `json:"service"`
	// a program of the policy is at its cgroup, which is there while it runs; always of a filter of
	// sockets
	InForce    bool              `json:"in_force"`
	Why        string            `json:"why,omitempty"` // it is not in force
	Policy     diag.Shown        `json:"policy"`
	Hash       string            `json:"hash"` // SHA-256 of its text
	Hook       string            `json:"hook"` // cgroup or socket
	Since      time.Time         `json:"since"`
	Generation int               `json:"generation"`
	Changed    []diag.Shown      `json:"changed"` // files, as of an interface
	Program    store.ProgramInfo `json:"program"`
	Rules      []Rule            `json:"rules"`
	Sets       []Set             `json:"sets"`
	state.Memories
	// when what memories tell was read, if not now
	Told time.Time `json:"told,omitzero"`
}

// newService returns what a service shares with an interface that has a policy.
func newService(a *service.Status) Service {
	why := ""
	if !a.InForce {
		why = service.WhyNot(a.Name)
	}
	a.Judging = &inspect.Judging{}
	i := newInterface(&a.Attachment)
	return Service{Service: a.Name, InForce: a.InForce, Why: why, Policy: i.Policy, Hash: i.Hash,
		Hook: i.Hook, Since: i.Since, Generation: i.Generation, Changed: i.Changed,
		Program: i.Program, Rules: i.Rules, Sets: i.Sets, Memories: i.Memories, Told: i.Told}
}

// Kept is a policy that is bound to names.
type Kept struct {
	Names    []string   `json:"names"`
	Policy   diag.Shown `json:"policy"`
	Pid      int        `json:"pid"`      // of the process that keeps it
	Running  bool       `json:"running"`  // that process lives
	Starting bool       `json:"starting"` // it is not yet in force on the interfaces that there are
	Waiting  []string   `json:"waiting"`  // names that no interface has
}

// Interface is one that has a policy.
type Interface struct {
	Dev     string `json:"dev"`
	Ifindex int    `json:"ifindex"`
	// the interfaces that have the policy together with it, and itself; [] for one alone
	Together     []string   `json:"together"`
	Netns        uint64     `json:"netns"` // cookie of the network namespace
	Policy       diag.Shown `json:"policy"`
	Hash         string     `json:"hash"` // SHA-256 of its text
	Hook         string     `json:"hook"`
	Reason       string     `json:"reason"` // why this hook
	Since        time.Time  `json:"since"`
	Generation   int        `json:"generation"`
	TrialSeconds float64    `json:"trial_seconds"` // left to confirm; 0: not on trial
	Judging      Judging    `json:"judging"`
	// what the card and its queues drop before the policy and behind it; none for other network
	// namespaces
	Lost *lost.Counts `json:"lost,omitempty"`
	// rules that the agent has added
	Live       *inspect.LiveRules `json:"live,omitempty"`
	RolledBack *Back              `json:"rolled_back,omitempty"`
	// why only the fallback of the policy is in force
	OnError string `json:"on_error,omitempty"`
	// why this policy, which was in force before, is so again in place of another
	Instead string `json:"instead,omitempty"`
	// files of the policy that hold something else than when it was put in force, or are gone
	Changed []diag.Shown      `json:"changed"`
	Program store.ProgramInfo `json:"program"`
	Rules   []Rule            `json:"rules"`
	Sets    []Set             `json:"sets"`
	state.Memories
	// the policy beside it, where there is one
	Shadow *Shadow `json:"shadow,omitempty"`
	// when what memories tell, and of the shadow, was read, if not now
	Told time.Time `json:"told,omitzero"`
	// the interface that tells of the memories that this one shares with it
	SharedWith string `json:"shared_with,omitempty"`
}

// Judging says whether the packets of an interface come to its policy.
type Judging struct {
	State    string   `json:"state"`                  // not yet, seen, still or partly
	Seconds  *float64 `json:"seen_seconds,omitempty"` // since a packet was last seen to be judged
	Unjudged uint64   `json:"unjudged"`               // packets that came while it stands still
	Amiss    []string `json:"amiss"`                  // settings by which it judges wrongly
	// the largest MTU that the driver takes while the program is attached, where one is known
	LargestMTU int    `json:"largest_mtu,omitempty"`
	Why        string `json:"-"` // "" if nothing is wrong
	Doubt      bool   `json:"-"` // inspect.Compare knows more
}

func newJudging(j *inspect.Judging) Judging {
	s := Judging{State: string(j.State), Unjudged: j.Past, Amiss: []string{},
		LargestMTU: j.LargestMTU, Why: j.Why(), Doubt: j.Doubt}
	if j.State != inspect.NotYet {
		ago := j.Ago.Seconds()
		s.Seconds = &ago
	}
	s.Amiss = append(s.Amiss, j.Amiss...)
	return s
}

// Failing reports whether packets of an interface come past its policy.
func (r *Report) Failing() bool {
	return slices.ContainsFunc(r.Interfaces,
		func(s Interface) bool { return s.Judging.Why != "" })
}

// Back is a policy that was not confirmed in time.
type Back struct {
	Policy     diag.Shown `json:"policy"`
	Generation int        `json:"generation"`
	Deadline   time.Time  `json:"deadline"`
}

// Rule is one counter; bytes are of whole frames without FCS.
type Rule struct {
	Label   string     `json:"label"`
	Line    int        `json:"line"` // 0 for built-in rules
	Packets uint64     `json:"packets"`
	Bytes   uint64     `json:"bytes"`
	Verdict string     `json:"verdict"` // pass, drop, redirect or count
	Reason  string     `json:"reason"`
	Rule    diag.Shown `json:"rule"`
	Text    string     `json:"text"`
	CPUs    []CPU      `json:"cpus"` // by CPU, up to the last that counted anything
	// since the time before, with --watch; none the first time that the rule is seen
	PacketsPerSecond *float64 `json:"packets_per_second,omitempty"`
	BitsPerSecond    *float64 `json:"bits_per_second,omitempty"`

	ID string `json:"-"` // across replaces
}

// Quiet says whether a rule is built in and has counted nothing, so that no screen needs a row for
// it. The default is never, and neither is a live rule, which has no line either.
func (r *Rule) Quiet() bool {
	return r.Line == 0 && r.Packets == 0 && r.Reason != policy.ByDefault.String() &&
		r.Reason != policy.ByRule.String()
}

// Unlabelled returns the text of the rule for a table with a column of labels.
func (r *Rule) Unlabelled() string {
	return strings.TrimSuffix(r.Text, fmt.Sprintf(" as %q", r.Label))
}

// CPU holds the counts of one CPU.
type CPU struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// Set is a dynamic set.
type Set struct {
	Name         string  `json:"name"`
	Entries      int     `json:"entries"`
	Max          int     `json:"max"`
	LeaseSeconds float64 `json:"lease_seconds"` // 0: until deleted
	Refused      uint64  `json:"refused"`       // entries not taken because the set was full
	RollUp       bool    `json:"rollup"`
	Keep         bool    `json:"keep"` // entries outlive a reboot
	Type         string  `json:"type"` // of the entries: addresses, services, endpoints, names
}

// Settle looks longer where it is not sure whether packets come to a policy.
func (r *Report) Settle(ctx context.Context) error {
	for i := range r.Interfaces {
		s := &r.Interfaces[i]
		if !s.Judging.Doubt {
			continue
		}
		looked, err := inspect.Compare(ctx, s.Dev)
		if err != nil {
			return err
		}
		looked.Amiss = s.Judging.Amiss
		s.Judging = newJudging(looked)
	}
	return nil
}

// Look returns what runs where now, and notes for the user: on one interface, or with "" on all of
// this network namespace or of every one.
func Look(ctx context.Context, dev string, everywhere bool) (*Report, []string, error) {
	all, notes, err := inspect.Status(ctx, everywhere)
	if err == nil {
		err = inspect.Settled(ctx, all)
	}
	if err != nil {
		return nil, nil, err
	}
	kept, err := keep.List(ctx)
	if err != nil {
		return nil, notes, err
	}
	own, err := attach.NetnsCookie()
	if err != nil {
		return nil, notes, err
	}
	rep := &Report{Interfaces: []Interface{}, Services: []Service{}, Kept: []Kept{},
		Backlogs: lost.Backlogs("")}
	if rep.Backlogs == nil {
		rep.Backlogs = []lost.Backlog{}
	}
	for _, k := range kept {
		s := Kept{k.Names, diag.Shown(k.Policy), k.Pid, k.Running, k.Starting, k.Waiting}
		if s.Waiting == nil {
			s.Waiting = []string{}
		}
		rep.Kept = append(rep.Kept, s)
	}
	if dev == "" {
		services, err := service.All(ctx)
		if err != nil {
			return nil, notes, err
		}
		for i := range services {
			rep.Services = append(rep.Services, newService(&services[i]))
		}
	}
	for i := range all {
		if dev == "" || all[i].Dev == dev {
			s := newInterface(&all[i])
			if all[i].Together != "" {
				s.Together = dataplane.Others(all, all[i].Dev)
			}
			if s.Netns == own {
				s.Lost, _ = lost.Read(s.Dev) // it may be gone meanwhile
			}
			rep.Interfaces = append(rep.Interfaces, s)
		}
	}
	if dev != "" && len(rep.Interfaces) == 0 && !rep.waits(dev) {
		if err := dataplane.Exists(dev); err != nil {
			return nil, notes, err
		}
		return nil, notes, fmt.Errorf("levee has no policy on %s in this network namespace; "+
			"`levee status` lists what there is", dev)
	}
	return rep, notes, nil
}

// waits reports whether a policy is kept for an interface that is not there.
func (r *Report) waits(dev string) bool {
	return slices.ContainsFunc(r.Kept, func(k Kept) bool {
		return slices.Contains(k.Waiting, dev)
	})
}

// Words returns the lines of what an interface remembers, and of what it loses.
func (s *Interface) Words(dev string) []state.Line {
	lines := s.Memories.Words(dev)
	if l := s.Lost; l != nil && l.AtLeast > 0 {
		lines = append(lines, state.Line{Key: "lost", Status: l.Words(), Name: "lost",
			Live: int(l.AtLeast), Now: l.Words()})
	}
	return lines
}

func newInterface(a *inspect.Attachment) Interface {
	s := Interface{
		Dev: a.Dev, Ifindex: a.Ifindex, Netns: a.Netns, Policy: diag.Shown(a.Policy),
		Hash: a.Hash, Hook: string(a.Mode), Reason: a.Reason, Since: a.Since,
		Generation: a.Generation, TrialSeconds: a.Trial.Seconds(), Live: a.Live, OnError: a.OnError,
		Instead: a.Instead,
		Changed: changedSince(a), Program: a.Program, Judging: newJudging(a.Judging),
		Together: []string{}, Rules: []Rule{}, Sets: []Set{}, Memories: a.Memories,
		Told: a.Told, SharedWith: a.SharedWith,
	}
	if rb := a.RolledBack; rb != nil {
		s.RolledBack = &Back{diag.Shown(rb.Policy), rb.Generation, rb.Deadline}
	}
	for _, c := range a.Counters {
		r := Rule{
			Label: c.Label, Line: c.Line, Packets: c.Packets, Bytes: c.Bytes,
			Verdict: c.Action, Reason: c.Reason, Rule: diag.Shown(c.Rule), Text: c.Text,
			CPUs: []CPU{},
			ID:   c.ID,
		}
		for _, cpu := range c.CPUs {
			r.CPUs = append(r.CPUs, CPU(cpu))
		}
		s.Rules = append(s.Rules, r)
	}
	if s.Limits == nil {
		s.Limits = []state.Budgets{}
	}
	s.Shadow = newShadow(a.Shadow)
	for _, set := range a.Sets {
		s.Sets = append(s.Sets, Set{set.Name, set.Entries, set.Max, set.Lease.Seconds(),
			set.Refused, set.RollUp, set.Keep, set.EntryType().String()})
	}
	return s
}
