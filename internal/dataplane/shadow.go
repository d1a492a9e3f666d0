package dataplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/filter/plan"
	"levee/internal/filter/state"
	"levee/internal/kernel"
	"levee/internal/lang/action"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
	"levee/internal/lang/setfile"
)

// A shadow is a policy that judges the packets of an interface beside the one in force, and changes
// nothing. It is a generation of its own, whose description names the generation beside which it
// judges. The program of that generation hands packets to it as to a capture: by the pinned array
// of programs, and at egress by another array. If the policy in force has no program at egress, the
// shadow's is attached there itself, and takes turns as others do. So a shadow is gone when the
// generation is, and a new policy gets one of its own before it judges
// (docs/explanation/decisions/0057-shadow.md, 0159-shadow-of-out.md).

// beside says of a shadow that is being staged where it will judge.
type beside struct {
	of       *store.Description // the generation that judges
	counters *ebpf.Map          // of that
	before   *store.Description // the shadow that this one continues, nil if it begins
	number   uint64
	since    time.Time
}

// shadowed returns the shadow whose policy is being put in force, nil if it is another's.
func (u *up) shadowed() *store.Description {
	if u.at == nil || u.beside != nil || u.staging() != nil {
		return nil
	}
	sh := u.at.Shadow()
	if sh == nil || sh.Hash != generation.HashOf(u.Source) {
		return nil
	}
	return sh
}

// staging returns the shadow that follows the policy that is being put in force, nil if none does.
func (u *up) staging() *store.Description {
	if u.at == nil || u.beside != nil {
		return nil
	}
	if sh := u.at.Shadow(); sh != nil && sh.Hash != generation.HashOf(u.Source) {
		return sh
	}
	return nil
}

// ShadowReport says what UpShadow did.
type ShadowReport struct {
	Dev      string
	Mode     store.Mode
	Policy   string // in force
	Program  uint32 // id of the shadow's
	Replaced string // the shadow before
	// Unasked are the cookies of the shadow, which answer nobody, and those of the policy in force,
	// whose answers it does not see.
	Unasked, Answering []string
	Notes              []string
}

// UpShadow puts a policy on interfaces as a shadow: it judges packets beside the policy in force,
// without any effect. On an error all interfaces keep what they had.
func UpShadow(ctx context.Context, devs []string, o UpOptions, p *policy.Policy) (
	reps []*ShadowReport, err error) {
	err = store.Transact(ctx, func(s *store.Store) error {
		var all []*up
		var ahead []*staged
		defer func() {
			for _, u := range all {
				if u.staged != nil {
					u.staged.Close()
				}
				u.Close()
			}
		}()
		for _, dev := range devs {
			o.Dev = dev
			u := &up{Store: s, UpOptions: o, compile: besideCompiler(p), devs: devs}
			u.shareWith(ahead)
			all = append(all, u)
			if err = u.stageFirstShadow(); err != nil {
				err = fmt.Errorf("%s: %w", dev, err)
				break
			}
			ahead = append(ahead, u.staged)
		}
		for _, u := range all {
			if err == nil {
				err = u.commitShadow()
			}
		}
		if err != nil {
			for _, u := range slices.Backward(all) {
				err = errors.Join(err, u.withdrawShadow())
			}
			return err
		}
		for _, u := range all {
			d := u.staged.desc
			r := &ShadowReport{Dev: u.Dev, Mode: d.Mode, Policy: u.beside.of.Policy,
				Program: d.Program, Unasked: d.Unasked, Answering: cookieRules(u.beside.of)}
			if sh := u.at.Shadow(); sh != nil {
				r.Replaced = sh.Policy
			}
			reps = append(reps, r)
			u.staged.writers.Close()
			if err := u.finishMoves(); err != nil {
				s.Note("%v", err)
			}
			if err := u.tidyShadow(); err != nil {
				s.Note("%v", err)
			}
		}
		reps[0].Notes = s.Notes
		return nil
	})
	return reps, err
}

// stageFirstShadow loads and pins a shadow beside the policy in force. Packets do not come to it
// yet, and no command but this one knows of it.
func (u *up) stageFirstShadow() (err error) {
	if u.at, err = generation.Find(u.Store, u.Dev); err != nil {
		return err
	}
	u.key = u.at.Key
	if g := u.at.Trial(); g != nil && g.IsLive() {
		return errors.New("live rules of the agent are in force, which come and go: try again " +
			"when they are gone, or take them back with `levee agent undo`")
	} else if g != nil {
		return errors.New("the policy in force is on trial: confirm it first")
	}
	if u.dev, err = attach.FindDevice(u.Dev); err != nil {
		return err
	}
	u.staged, err = u.stageBeside(u.at.Current(), nil)
	return err
}

// stageBeside loads and pins a shadow beside a generation, whose maps are pinned. On an error
// nothing of it is left. before is the shadow that it continues.
func (u *up) stageBeside(of, before *store.Description) (_ *staged, err error) {
	if _, ok := codegen.MapOf(of.Maps, state.HoldsCapture); !ok {
		return nil, errors.New("the policy in force does not say what decided (an older levee " +
			"loaded it, or it is what \"on error\" asks for): load it again with `levee up`")
	}
	u.beside = &beside{of: of, before: before, number: uint64(time.Now().UnixNano()),
		since: time.Now()}
	if before != nil {
		u.beside.number, u.beside.since = before.Shadow, before.Since
	}
	leaves, err := generation.HandsOnLeaving(u.Store, u.key, of)
	if err != nil {
		return nil, err
	}
	name, _ := codegen.MapOf(of.Maps, codegen.Counters)
	u.beside.counters, err = u.OpenPinned(u.key, of.Generation, name)
	if err == nil && u.beside.counters == nil {
		err = kernel.Refuse(nil, "the counters of the policy in force are gone")
	}
	if err != nil {
		return nil, err
	}
	defer u.beside.counters.Close()
	u.joined = of.Joined
	t := codegen.Target{Hook: of.Mode.Hook(), Link: of.Link, Frags: of.Frags, Called: of.Joined,
		CPUs:   ebpf.MustPossibleCPU(),
		Shadow: plan.Judged{RowBytes: of.RowBytes, Slots: len(of.Slots), Leaves: leaves}}
	if _, t.HZ, err = kernel.Jiffies(); err != nil {
		return nil, err
	}
	if t.Memory, err = kernel.Memory(); err != nil {
		return nil, err
	}
	p, err := u.compiled(t)
	if err != nil {
		return nil, err
	}
	st := &staged{key: u.key}
	defer func() {
		if err != nil {
			err = errors.Join(err, u.unstage(st))
			st.Close()
		}
	}()
	if before == nil {
		// Who writes to sets finds those of the shadow then. A policy that is staged has done this.
		if st.writers, err = u.Exclude(st.key, len(p.Dynamic) > 0); err != nil {
			return nil, err
		}
	}
	if st.plain, err = u.loadOver(p); err != nil {
		return nil, err
	}
	if err := u.newDescription(st, p, attach.Try{Mode: of.Mode, Frags: of.Frags},
		of.Reason); err != nil {
		return nil, err
	}
	d := st.desc
	d.Netns, d.Ifindex, d.Since = of.Netns, of.Ifindex, u.beside.since
	d.ShadowOf, d.Shadow, d.Unasked = of.Generation, u.beside.number, unasked(d)
	if d.MadeQdisc && !of.MadeQdisc {
		// A command that is killed leaves no description of a shadow.
		of.MadeQdisc = true
		if err := store.WriteJSON(u.DescriptionPath(u.key, of.Generation), of); err != nil {
			return nil, err
		}
	}
	if err := u.pin(st); err != nil {
		return nil, err
	}
	if len(u.Files) > 0 {
		if err := store.WriteSecret(u.FilesPath(st.key, d.Generation), u.Files); err != nil {
			return nil, err
		}
	}
	if err := u.linkOthers(st, p); err != nil {
		return st, err
	}
	return st, u.adopt(st.desc.Maps, st.plain.Began)
}

// unasked returns the cookies of a shadow.
func unasked(d *store.Description) (out []string) {
	for _, sl := range d.Slots {
		if sl.Action == action.Cookie.String() {
			out = append(out, sl.Where)
		}
	}
	return out
}

// cookieRules returns the cookies of a generation.
func cookieRules(d *store.Description) (out []string) {
	for _, c := range d.Cookies {
		out = append(out, generation.CounterOf(d, c.ID).Rule)
	}
	return out
}

// commitShadow has packets come to the shadow that is staged.
func (u *up) commitShadow() error {
	if err := u.Step("describe shadow"); err != nil {
		return err
	}
	if err := store.WriteJSON(u.DescriptionPath(u.key, u.staged.desc.Generation),
		u.staged.desc); err != nil {
		return err
	}
	if err := u.Step("hook"); err != nil {
		return err
	}
	if err := generation.Hook(u.Store, u.key, u.beside.of, u.staged.desc); err != nil {
		return err
	}
	turn, err := u.staged.turn()
	if err != nil {
		return err
	}
	defer turn.Close()
	turn.Give(u.beside.of.Generation, 0, 0)
	return nil
}

// withdrawShadow goes back to what was before stageFirstShadow.
func (u *up) withdrawShadow() error {
	if u.staged == nil || u.beside == nil {
		return nil
	}
	// Somebody else may be behind the policy, where the shadow has not come that far.
	hooked, err := generation.HandsTo(u.Store, u.key, u.beside.of, u.staged.desc.Program)
	if before := u.at.Shadow(); err == nil && hooked && before != nil {
		err = generation.Hook(u.Store, u.key, u.beside.of, before)
	} else if err == nil && hooked {
		err = generation.Unhook(u.Store, u.key, u.beside.of)
	}
	return errors.Join(err, u.unstage(u.staged))
}

// tidyShadow removes the shadow that this one has replaced.
func (u *up) tidyShadow() error {
	at, err := generation.Settle(u.Store, u.key)
	if at != nil {
		at.Close()
	}
	return err
}

// bringShadow gives the policy that is staged the shadow of the one before it. What keeps the
// shadow from following keeps no policy from being put in force.
func (u *up) bringShadow(st *staged, t attach.Try) error {
	sh := u.staging()
	if sh == nil {
		return nil
	}
	f := &up{Store: u.Store, dev: u.dev, key: u.key, at: u.at, devs: u.devs, leaves: u.leaves,
		ahead: u.aheadShadows}
	f.Dev, f.Names, f.PolicyPath, f.Source = u.Dev, u.Names, sh.Policy, sh.Source
	err := store.ReadJSON(u.FilesPath(u.key, sh.Generation), &f.Files)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	p, ds := resolve.Parse(filepath.Base(sh.Policy), sh.Source, setfile.Recorded(f.Files))
	if p == nil {
		u.Note("the shadow %s ends: it cannot be read again: %s", sh.Policy, ds[0].Message)
		return nil
	}
	f.compile = besideCompiler(p)
	next, err := f.stageBeside(st.desc, sh)
	_ = f.dropMoves() // it is the same policy: what it knows stays where it is
	if err == nil {
		f.staged, st.shadow = next, next
		err = store.WriteJSON(u.DescriptionPath(u.key, next.desc.Generation), next.desc)
	}
	if err == nil {
		err = generation.Hook(u.Store, u.key, st.desc, next.desc)
	}
	if err == nil {
		return nil
	}
	u.Note("the shadow %s ends: it cannot follow the policy: %v", sh.Policy, err)
	if next == nil {
		return nil
	}
	err = u.unstage(next)
	next.Close()
	st.shadow = nil
	return err
}

// DownShadow ends the shadow on an interface, and reports whether there was one.
func DownShadow(ctx context.Context, dev string) (was string, notes []string, err error) {
	notes, err = generation.NotedOn(ctx, dev, func(s *store.Store, a *attach.Attachment) error {
		sh := a.Shadow()
		if sh == nil {
			return fmt.Errorf("no shadow judges on %s", dev)
		}
		was = sh.Policy
		if err := endShadows(s, a); err != nil {
			return err
		}
		after, err := generation.Settle(s, a.Key)
		if after != nil {
			after.Close()
		}
		return err
	})
	return was, notes, err
}

// endShadows has no packet come to a shadow any more. What they have left goes when the attachment
// is settled.
func endShadows(s *store.Store, a *attach.Attachment) error {
	for _, sh := range a.All() {
		if sh.ShadowOf == 0 {
			continue
		}
		if err := s.Step("unhook"); err != nil {
			return err
		}
		if of := a.Generations[sh.ShadowOf]; of != nil {
			if err := generation.Unhook(s, a.Key, of); err != nil {
				return err
			}
		}
		if err := s.Step("forget shadow"); err != nil {
			return err
		}
		if err := os.Remove(s.DescriptionPath(a.Key, sh.Generation)); err != nil {
			return kernel.Refuse(err, "remove a shadow")
		}
	}
	return nil
}
