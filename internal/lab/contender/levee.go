package contender

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"levee/internal/dataplane"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/store"
	"levee/internal/lang/action"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
)

// Levee is levee itself, put into force as `levee up` does. name and text are the policy's; it may
// not read files.
func Levee(name string, text []byte) Defence { return LeveeAs("levee", name, text) }

// LeveeAs is Levee under another name, where it stands twice.
func LeveeAs(title, name string, text []byte) Defence {
	return LeveeAt(title, name, text, store.XDPNative)
}

// LeveeAt is LeveeAs at the hook of a mode.
func LeveeAt(title, name string, text []byte, mode store.Mode) Defence {
	return &levee{title: title, name: name, text: text, mode: mode}
}

type levee struct {
	title, name string
	text        []byte
	mode        store.Mode
	site        Site
}

func (l *levee) Name() string  { return l.title }
func (l *levee) Rules() string { return string(l.text) }

func (l *levee) Hook() Hook {
	switch l.mode {
	case store.XDPNative:
		return XDP
	case store.XDPGeneric:
		return XDPGeneric
	default:
		return TC
	}
}

func (l *levee) Describe() string {
	if l.mode == store.XDPNative {
		return fmt.Sprintf("levee with %s, XDP in the driver", l.name)
	}
	return fmt.Sprintf("levee with %s, %s", l.name, l.mode)
}

func (l *levee) Install(ctx context.Context, s Site) error {
	l.site = s
	p, err := Resolve(l.name, l.text)
	if err != nil {
		return err
	}
	return leveeUp(ctx, s, l.name, l.text, l.mode, dataplane.Compiler(p))
}

// Resolve reads a policy that names no files. The error has all its diagnostics.
func Resolve(name string, text []byte) (*policy.Policy, error) {
	p, ds := resolve.Parse(name, text, nil)
	if ds.HasErrors() {
		var b bytes.Buffer
		if err := ds.Render(&b, false); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("policy %s has errors:\n%s", name, bytes.TrimSpace(b.Bytes()))
	}
	return p, nil
}

func (l *levee) Dropped(ctx context.Context) (uint64, error) { return LeveeDropped(ctx, l.site) }

func (l *levee) Remove(ctx context.Context) error { return LeveeDown(ctx, l.site) }

// drops are the actions that throw the packets away that they count.
var drops = func() (words []string) {
	for _, a := range action.Table() {
		if a.Action.MayDecide() && a.Verdict == action.Drop {
			words = append(words, a.Word)
		}
	}
	return words
}()

// LeveeDropped adds up levee's counters of rules that drop.
func LeveeDropped(ctx context.Context, s Site) (sum uint64, err error) {
	err = s.Host.Do(func() error {
		all, _, err := inspect.Status(ctx, false)
		if err != nil {
			return err
		}
		for _, a := range all {
			if a.Dev != s.Device {
				continue
			}
			for _, c := range a.Counters {
				if slices.Contains(drops, c.Action) {
					sum += c.Packets
				}
			}
			return nil
		}
		return errors.New("levee is not in force any more: somebody took it down")
	})
	return sum, err
}

// LeveeUp puts a policy into force as `levee up` does; compile gives its program for a target.
func LeveeUp(ctx context.Context, s Site, name string, text []byte,
	compile dataplane.CompileFunc) error {
	return leveeUp(ctx, s, name, text, store.XDPNative, compile)
}

func leveeUp(ctx context.Context, s Site, name string, text []byte, mode store.Mode,
	compile dataplane.CompileFunc) error {
	return s.Host.Do(func() error {
		o := dataplane.UpOptions{Dev: s.Device, Mode: mode, PolicyPath: name, Source: text}
		if _, err := dataplane.Up(ctx, o, compile); err != nil {
			return fmt.Errorf("putting %s into force: %w", name, err)
		}
		return nil
	})
}

// LeveeDown takes levee down, where it is up.
func LeveeDown(ctx context.Context, s Site) error {
	return s.Host.Do(func() error {
		all, _, err := inspect.Status(ctx, false)
		if err != nil || len(all) == 0 {
			return err
		}
		_, err = dataplane.Down(ctx, s.Device)
		return err
	})
}
