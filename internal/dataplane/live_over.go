package dataplane

import (
	"context"
	"errors"
	"maps"
	"slices"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/store"
)

// A policy that takes the place of one with live rules has those in it from its first packet on
// (docs/explanation/decisions/0146-live-rules-go-on.md). Two generations are staged: the policy,
// and over it the policy with the rules, whose fallback it is. The second gets the traffic.

// Carried are live rules that go on in a policy.
type Carried struct {
	Rules   []inspect.LiveRule
	Compile CompileFunc // of the policy with them
	// Lost says why rules do not go on, a line each.
	Lost []string
}

// mostAsked is the largest number of questions about live rules, which may change meanwhile.
const mostAsked = 5

// unaskedError lists, by interface, live rules in force for which Carry has not been asked.
type unaskedError struct {
	rules map[string][]inspect.LiveRule
}

func (*unaskedError) Error() string { return "live rules are in force" }

// upAsking is upOnce, which is told of live rules what becomes of them. That is asked while nothing
// is locked, since the answer may look into the kernel.
func upAsking(ctx context.Context, devs []string, o UpOptions, compile CompileFunc) ([]*Report,
	error) {
	for range mostAsked {
		var unasked *unaskedError
		reps, err := upOnce(ctx, devs, o, compile)
		if !errors.As(err, &unasked) {
			return reps, err
		}
		o.asked, o.carried = unasked.rules, map[string]*Carried{}
		for dev, rules := range unasked.rules {
			o.carried[dev] = o.Carry(ctx, dev, rules)
		}
	}
	o.Carry, o.carried = nil, nil
	return upOnce(ctx, devs, o, compile)
}

// ask returns an *unaskedError if live rules are in force for which Carry has not been asked.
func (o *UpOptions) ask(s *store.Store, devs []string) error {
	if o.Carry == nil || o.Confirm > 0 {
		return nil
	}
	found := map[string][]inspect.LiveRule{}
	for _, dev := range devs {
		d, err := attach.FindDevice(dev)
		if err != nil {
			continue // put says so
		}
		key, err := attach.KeyOn(s, d)
		if err != nil {
			return err
		}
		a, err := attach.Open(s, key)
		if err != nil {
			return err
		}
		l, err := inspect.TellLive(s, a)
		a.Close()
		if err != nil {
			return err
		}
		if l != nil && l.LeaseSeconds > 0 {
			found[dev] = l.Each()
		}
	}
	if maps.EqualFunc(found, o.asked, slices.Equal) {
		return nil
	}
	return &unaskedError{found}
}

// bringLive stages the policy with the live rules of the one before it over the policy that is
// staged. What keeps them from following keeps no policy from being put in force.
func (u *up) bringLive(st *staged, t attach.Try) error {
	if u.at == nil || len(u.live) > 0 || u.beside != nil {
		return nil
	}
	g := u.at.Trial()
	if g == nil || !g.IsLive() {
		return nil
	}
	c := u.carried[u.Dev]
	switch {
	case u.Confirm > 0:
		u.Note("%s: its live rules (%d) end while the policy is on trial", u.Dev, len(g.Live))
		return nil
	case c == nil, u.cause != nil, u.instead != "":
		u.Note("%s: its live rules (%d) end; an agent that runs adds those again that fit", u.Dev,
			len(g.Live))
		return nil
	}
	for _, why := range c.Lost {
		u.Note("%s: %s", u.Dev, why)
	}
	if len(c.Rules) == 0 {
		return nil
	}
	left, err := store.TimeLeft(g.Deadline)
	if err != nil {
		return err
	}
	f := &up{Store: u.Store, compile: c.Compile, dev: u.dev, key: u.key, joined: u.joined,
		at: u.over(st), devs: u.devs, group: u.group, routes: u.routes, beneath: st,
		UpOptions: UpOptions{Dev: u.Dev, Names: u.Names, PolicyPath: u.PolicyPath,
			Source: u.Source, Files: u.Files, Confirm: max(left, MinTrial), live: c.Rules,
			egressMode: u.egressMode, tc: u.tc}}
	if !u.leaves { // else others go on with those memories
		f.rulesOf = g
	}
	next, err := f.stage(t, st.desc.Reason)
	if err != nil {
		u.Note("%s: its live rules (%d) end, as they cannot be put into the policy: %v", u.Dev,
			len(c.Rules), errors.Join(err, f.dropMoves()))
		return nil
	}
	f.staged, st.live, st.over = next, next, f
	return nil
}

// over returns the attachment as it will be when what is staged is in force.
func (u *up) over(st *staged) *attach.Attachment {
	at := *u.at
	at.Generations = maps.Clone(at.Generations)
	at.Generations[st.desc.Generation] = st.desc
	if st.shadow != nil {
		at.Generations[st.shadow.desc.Generation] = st.shadow.desc
	}
	at.Program, at.OnDevice = st.desc.Program, 0
	return &at
}

// judges returns what gets the traffic: the policy with live rules, if there are any.
func (st *staged) judges() *staged {
	if st.live != nil {
		return st.live
	}
	return st
}
