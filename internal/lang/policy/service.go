package policy

import (
	"fmt"
	"slices"

	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
	"levee/internal/lang/field"
)

// Refusal is a feature that a policy asks for where it cannot be had.
type Refusal struct {
	Pos  Pos
	What string // that the policy asks for
	Why  string // it is not there, and what to do
}

func (r Refusal) String() string { return r.What + ": " + r.Why }

// NotOfService lists what a policy asks for that a service does not have: at its cgroup, or, with
// sockets, at its sockets. Both see packets without an Ethernet header, behind the interface.
func (p *Policy) NotOfService(sockets bool) (all []Refusal) {
	add := func(at Pos, what, why string) { all = append(all, Refusal{at, what, why}) }
	rules := slices.Concat(p.Protect, p.Rules)
	if p.Out != nil {
		rules = slices.Concat(rules, p.Out.Protect, p.Out.Rules)
	}
	for _, r := range rules {
		if why := r.Action.Info().NoService; why != "" {
			add(r.Pos, fmt.Sprintf("a rule with %q", r.Action.Info().Word), why)
		}
		for i := range r.Match {
			t := &r.Match[i]
			info := t.Field.Info()
			switch {
			case t.ethernet():
				add(t.Pos, info.Name, "packets of a service have no Ethernet header")
			case info.NoService != "":
				add(t.Pos, info.Name, info.NoService)
			case sockets && info.NoSocket != "":
				add(t.Pos, info.Name, info.NoSocket)
			case sockets && t.Field == field.Flow:
				add(t.Pos, info.Name, "a filter of sockets does not see what leaves, by which "+
					"connections are known: the policy of a cgroup can ask for it (levee wrap "+
					"unit)")
			}
		}
		if l := r.Limit; l != nil {
			for _, k := range l.Keys {
				for _, f := range k.Fields {
					info := f.Info()
					switch {
					case info.Ethernet:
						add(r.Pos, info.Name, "packets of a service have no Ethernet header")
					case sockets && info.NoSocket != "":
						add(r.Pos, info.Name, info.NoSocket)
					}
				}
			}
		}
	}
	const interfaces = "the agent works for policies of interfaces: write it into that of the " +
		"one by which its packets come"
	for _, s := range p.Sources {
		add(s.Pos, "a source of events", interfaces)
	}
	for _, l := range p.Lists {
		add(l.Pos, "a list", interfaces)
	}
	for _, d := range p.Detects {
		add(d.Pos, "detect", interfaces)
	}
	for _, v := range p.Proves {
		add(v.Pos, "prove", "clients prove themselves to the policy of an interface")
	}
	for _, s := range p.Sets {
		switch {
		case s.Self:
			add(s.Pos, "the set self", "it is filled for policies of interfaces")
		case s.Keep:
			add(s.Pos, "a set with keep", "entries of its sets live as long as it is wrapped")
		}
	}
	if p.OnError != KeepLast {
		add(p.ErrorPos, "on error", "a service does not start where its policy cannot be in force")
	}
	if len(p.Interfaces) > 0 {
		add(Pos{1, 1}, "interface", "a policy of a service is on no interface")
	}
	if sockets && p.Out != nil {
		add(outPos(p.Out), "a rule for what leaves", "a filter of sockets sees what arrives "+
			"alone: the policy of a cgroup can ask for it (levee wrap unit)")
	}
	return all
}

// outPos returns where a policy speaks of what leaves.
func outPos(o *Out) Pos {
	for _, r := range slices.Concat(o.Protect, o.Rules) {
		return r.Pos
	}
	return o.Default.Pos
}

// ForService are errors for what a service does not have; see NotOfService.
func (p *Policy) ForService(tree *ast.File, sockets bool) diag.Diagnostics {
	c := &diag.Collector{File: tree.Name}
	for _, r := range p.NotOfService(sockets) {
		c.Errorf(r.Pos.Mark(), "", "a service has no use for %s: %s", r.What, r.Why)
	}
	return tree.Diagnostics(c)
}
