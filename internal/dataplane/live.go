package dataplane

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/sets"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
)

// Live rules are what the agent adds to the policy in force against a flood. The policy with them
// in it is a trial whose fallback is the policy without: the kernel goes back to that by itself
// when nobody renews the lease. Show, and whoever else asks for the policy in force, gets the
// operator's text.

// LiveOptions say which rules are added, and to what.
type LiveOptions struct {
	Dev string
	// Over is the policy without live rules, for which they were made.
	Over  sets.PolicyState
	Rules []inspect.LiveRule
	Lease time.Duration
	// Proven are sources that need not prove that they are there where a rule is a cookie, for as
	// long as one that has.
	Proven []netip.Addr
}

// Errors of Live.
var (
	// ErrOtherPolicy: another policy is in force than the one for which rules were made.
	ErrOtherPolicy = errors.New("another policy has come into force")
	// ErrOnTrial: the policy in force is on trial, and has to be confirmed before rules are added.
	ErrOnTrial = errors.New("the policy in force is on trial")
	// ErrNotLive: there are no live rules (any more).
	ErrNotLive = errors.New("there are no live rules")
)

// Live puts the policy in force with rules in it into force, in one step, in the place of live
// rules that there are. compile makes the program of both.
func Live(ctx context.Context, o LiveOptions, compile CompileFunc) (*Report, error) {
	var rep *Report
	err := store.Transact(ctx, func(s *store.Store) error {
		a, err := generation.Find(s, o.Dev)
		if err != nil {
			return err
		}
		base := a.Base()
		mine := sets.PolicyState{Dev: o.Over.Dev, Index: o.Over.Index,
			Generation: base.Generation, Program: base.Program}
		files, err := s.SetFiles(a.Key, base)
		trial := a.Trial() != nil && !a.Current().IsLive()
		a.Close()
		switch {
		case err != nil:
			return err
		case trial:
			return ErrOnTrial
		case mine != o.Over:
			return ErrOtherPolicy
		case base.OnError != "":
			return fmt.Errorf("only what \"on error\" asks for is in force on %s", o.Dev)
		}
		u := &up{Store: s, compile: compile, devs: []string{o.Dev}, UpOptions: UpOptions{
			Dev: o.Dev, putOn: base.Dev, Names: base.Names,
			Confirm: o.Lease, PolicyPath: base.Policy, Source: base.Source, Files: files,
			instead: base.Instead, live: o.Rules, proven: o.Proven}}
		defer u.Close()
		if err := u.put(ctx); err != nil {
			return err
		}
		rep = u.report
		err = u.finish()
		rep.Notes = s.Notes
		return err
	})
	return rep, err
}

// LiveRenew has the live rules of an interface stay for another lease.
func LiveRenew(ctx context.Context, dev string, lease time.Duration) error {
	return store.Transact(ctx, func(s *store.Store) error {
		a, g, err := findLive(s, dev)
		if err != nil {
			return err
		}
		defer a.Close()
		name, _ := codegen.MapOf(g.TrialMaps, codegen.Deadline)
		m, err := s.OpenPinned(a.Key, g.Generation, name)
		if err == nil && m == nil {
			err = ErrNotLive
		}
		if err != nil {
			return err
		}
		defer m.Close()
		deadline, err := store.DeadlineAfter(lease)
		if err != nil {
			return err
		}
		mem, err := store.MapMemory(m, 8)
		if err != nil {
			return err
		}
		turn, err := generation.OpenTurn(s, a, g)
		if err != nil {
			return errors.Join(err, unix.Munmap(mem))
		}
		defer turn.Close()
		// First what the kernel looks at: killed in between, the rules end too early, not too late.
		binary.NativeEndian.PutUint64(mem, deadline)
		turn.Give(g.Generation, deadline, g.Fallback)
		if err := unix.Munmap(mem); err != nil {
			return err
		}
		g.Deadline, g.ConfirmBy = deadline, time.Now().Add(lease)
		return store.WriteJSON(s.DescriptionPath(a.Key, g.Generation), g)
	})
}

// LiveDown takes the live rules of an interface back: the policy without them is in force, the very
// program that the rules replaced. One that was renamed since its policy came is found by its
// former name; of one that is gone no rule is in force.
func LiveDown(ctx context.Context, dev string) error {
	return store.Transact(ctx, func(s *store.Store) error {
		a, g, err := findLive(s, dev)
		if errors.Is(err, unix.ENODEV) {
			err = ErrNotLive
			if now, failed := attach.Renamed(s, dev); failed != nil {
				err = failed
			} else if len(now) > 0 {
				a, g, err = findLive(s, now[0])
			}
		}
		if err != nil {
			return err
		}
		defer a.Close()
		return generation.EndNow(s, a, g)
	})
}

// findLive returns the attachment on dev, and its generation with live rules.
func findLive(s *store.Store, dev string) (*attach.Attachment, *store.Description, error) {
	a, err := generation.Find(s, dev)
	if err != nil {
		return nil, nil, err
	}
	if g := a.Trial(); g != nil && g.IsLive() {
		return a, g, nil
	}
	a.Close()
	return nil, nil, ErrNotLive
}

// LiveOf reads the live rules of an interface and the packets that each slot with a label has
// counted, without the counts of CPUs. nil: there are none.
func LiveOf(ctx context.Context, dev string) (rules *inspect.LiveRules,
	counts map[string]store.Counter,
	err error) {
	counts = map[string]store.Counter{}
	err = generation.TransactOn(ctx, dev, func(s *store.Store, a *attach.Attachment) error {
		if rules, err = inspect.TellLive(s, a); err != nil || rules == nil {
			return err
		}
		totals, err := generation.Totals(s, a)
		for _, sl := range a.Current().Slots {
			if sl.Label != "" {
				sum := generation.SumCPUs(totals[sl.Counts()])
				counts[sl.Label] = store.Counter{Packets: sum.Packets, Bytes: sum.Bytes}
			}
		}
		return err
	})
	return rules, counts, err
}
