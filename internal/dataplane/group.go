package dataplane

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/store"
	"levee/internal/host/local"
	"levee/internal/kernel"
	"levee/internal/lang/policy"
)

// Interfaces lists those of this network namespace that names and patterns fit, in the order of
// the names, each once. Unless some will do, a name without an interface is an error, and so are
// patterns that together fit none; both match kernel.ErrRefused.
func Interfaces(names []string, some bool) ([]string, error) {
	links, err := local.Links()
	if err != nil {
		return nil, err
	}
	var devs []string
	for _, name := range names {
		found := false
		for _, l := range links {
			if dev := l.Attrs().Name; policy.Fits(name, dev) {
				found = true
				if !slices.Contains(devs, dev) {
					devs = append(devs, dev)
				}
			}
		}
		if !found && !some && !policy.IsPattern(name) {
			return nil, attach.NoInterface(name)
		}
	}
	if len(devs) == 0 && !some {
		return nil, kernel.RefuseAs(unix.ENODEV,
			"no interface of this network namespace fits %s; `ip link` lists what there is",
			strings.Join(names, ", "))
	}
	return devs, nil
}

// TrueName returns the name of the interface with an alternative name (`altname` of ip-link(8));
// any other name as it is.
func TrueName(name string) string {
	if l, err := netlink.LinkByName(name); err == nil {
		return l.Attrs().Name
	}
	return name
}

// Others lists the interfaces that have their policy together with one of them, and that one.
func Others(all []inspect.Attachment, dev string) []string {
	i := slices.IndexFunc(all, func(a inspect.Attachment) bool { return a.Dev == dev })
	if i < 0 || all[i].Together == "" {
		return []string{dev}
	}
	var devs []string
	for _, a := range all {
		if a.Together == all[i].Together {
			devs = append(devs, a.Dev)
		}
	}
	return devs
}

// UpAll is Up on several interfaces that share one policy and its memory. The policy comes into
// force on all of them, or on an error without reports all interfaces keep what they had. An error
// beside reports is of what is done once the policy is in force. The reports are in the order of
// devs.
func UpAll(ctx context.Context, devs []string, o UpOptions, compile CompileFunc) ([]*Report,
	error) {
	if o.Else == nil {
		return upAsking(ctx, devs, o, compile)
	}
	first := o
	first.Fallbacks = nil
	reps, err := upAsking(ctx, devs, first, compile)
	if len(reps) > 0 || !errors.Is(err, attach.ErrUnable) {
		return reps, err
	}
	// Not within the command before: what is asked may look into the kernel.
	o.Fallbacks = append(o.Else(), o.Fallbacks...)
	return upAsking(ctx, devs, o, Unusable(err))
}

// upOnce is UpAll without what may have to be asked meanwhile.
func upOnce(ctx context.Context, devs []string, o UpOptions, compile CompileFunc) ([]*Report,
	error) {
	var reps []*Report
	err := store.Transact(ctx, func(s *store.Store) error {
		if err := s.Mount(); err != nil {
			return err
		}
		if err := o.ask(s, devs); err != nil {
			return err
		}
		all, err := putAll(ctx, s, devs, o, compile, nil)
		if errors.Is(err, attach.ErrUnable) && len(o.Fallbacks) > 0 {
			all, err = fallBack(ctx, s, devs, o, err)
		}
		if err != nil {
			return err
		}
		last := all[len(all)-1].swapped // until then budgets of the policy before were charged
		for _, u := range all {
			u.swapped = last
			err = errors.Join(err, u.finish())
			u.Close()
			switch {
			case u.report.Fallback != nil:
			case u.Confirm == 0:
				remember(s, u.key, u.dev.Name, u.staged.desc)
			default:
				tried(s, u.dev.Name, u.staged.desc)
			}
			reps = append(reps, u.report)
		}
		reps[0].Notes = s.Notes
		return err
	})
	return reps, err
}

// fallBack puts the first valid one of the fallbacks into force.
func fallBack(ctx context.Context, s *store.Store, devs []string, o UpOptions,
	cause error) (all []*up,
	err error) {
	for _, f := range o.Fallbacks {
		with, why := o, cause
		if p := f.Past; p != nil {
			with.PolicyPath, with.Source, with.Files = p.Path, p.Source, p.Files
			with.instead, why = cause.Error(), nil
		}
		if all, err = putAll(ctx, s, devs, with, f.Compile, why); err != nil {
			continue
		}
		for _, u := range all {
			u.report.Fallback, u.report.Past = cause, f.Past
		}
		return all, nil
	}
	return nil, fmt.Errorf("%w; nor can what stands in for it: %w", cause, err)
}

// putAll puts a policy into force on all interfaces, without removing what it replaces. If one does
// not take it, those before it go back.
func putAll(ctx context.Context, s *store.Store, devs []string, o UpOptions, compile CompileFunc,
	cause error) (all []*up, err error) {
	var ahead []*staged
	for _, dev := range devs {
		o.Dev = dev
		u := &up{Store: s, UpOptions: o, compile: compile, cause: cause, later: len(all) > 0,
			devs: devs}
		u.shareWith(ahead)
		if err = u.put(ctx); err != nil {
			u.Close()
			break
		}
		all, ahead = append(all, u), append(ahead, u.staged)
	}
	if err == nil {
		return all, nil
	}
	if len(devs) > 1 {
		err = fmt.Errorf("%s: %w", devs[len(all)], err)
	}
	for _, u := range slices.Backward(all) {
		if back := u.undo(); back != nil {
			err = errors.Join(err, fmt.Errorf("%s has the new policy still: %w", u.Dev, back))
		}
		u.Close()
	}
	return nil, err
}

// undo restores what was in force before put. All that put replaced exists until finish.
func (u *up) undo() error {
	if u.at == nil {
		a, err := attach.Open(u.Store, u.key)
		if err != nil {
			return err
		}
		defer a.Close()
		return generation.Detach(u.Store, a)
	}
	g, pin := u.at.Current(), store.PinProg
	if u.at.Trial() != nil {
		pin = store.PinTrial
	}
	before, err := u.OpenProgram(filepath.Join(u.Pins(u.key, g.Generation), pin))
	if err != nil {
		return err
	}
	defer before.Close()
	if err := u.Step("undo"); err != nil {
		return err
	}
	if g.Mode != u.staged.desc.Mode {
		err = u.moveBack(g, before)
	} else {
		err = u.at.Link.Update(before) // traffic changes here
	}
	if err == nil {
		err = u.turnBack(g, pin == store.PinTrial)
	}
	if err != nil {
		return kernel.Refuse(err, "go back to the policy before")
	}
	return u.unstage(u.staged)
}

// turnBack has a generation judge what leaves that did so before, for as long as its trial lasts if
// it is on trial.
func (u *up) turnBack(g *store.Description, trial bool) error {
	turn, err := u.staged.turn()
	if err != nil || turn == nil {
		return err
	}
	defer turn.Close()
	if trial {
		turn.Give(g.Generation, g.Deadline, g.Fallback)
	} else {
		turn.Give(g.Generation, 0, 0)
	}
	return nil
}
