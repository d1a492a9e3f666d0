package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"levee/internal/dataplane"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/keep"
	"levee/internal/host/systemd"
)

// keep binds a policy to names until somebody ends it.
func (e *env) keep(b *bringing) error {
	ctx, stop := e.Signals()
	defer stop()
	names := strings.Join(b.opts.Names, ", ")
	anew := func(dev string) (dataplane.UpOptions, dataplane.CompileFunc, error) {
		return e.readAnew(b, dev)
	}
	err := dataplane.Keep(ctx, b.opts, b.compiler(), anew, dataplane.KeepEvents{
		Ready: func(reps []*dataplane.Report) { e.keeping(b, names, reps) },
		Came: func(dev string, after time.Duration) {
			e.Sayf("%s has come, and has the policy after %s", dev,
				after.Round(10*time.Microsecond))
		},
		Renamed: func(was, now string) {
			e.Sayf("%s is called %s now, and keeps its policy", was, now)
		},
		Old: func(dev string, err error) {
			e.Sayf("%s has come, and gets the policy as it was read before: %v", dev, err)
		},
		Failed: func(dev string, err error) {
			e.Sayf("%s has come and does not have the policy: %v", dev, err)
		},
		Unlike: func(dev string, err error) {
			e.Sayf("what is delivered to this machine is not what `self` on %s holds: %v", dev, err)
		},
		Past: e.tellPast,
		Judges: func(j inspect.Judged) {
			e.statusf("packets are judged on %s again, at %s", j.Dev, j.Mode)
		},
	})
	switch {
	case errors.Is(err, keep.ErrUnkept):
		e.Sayf("the policy is not kept for %s any more", names)
		return nil
	case err == nil:
		e.Sayf("the policy stays in force, and is not kept for %s any more", names)
	}
	return err
}

// keeping says that every interface there is has the policy, and that it waits for others.
func (e *env) keeping(b *bringing, names string, reps []*dataplane.Report) {
	state := "kept for " + names
	for _, rep := range reps {
		e.notes(rep.Notes)
		if rep.Fallback == nil {
			e.tellUp(b, rep)
			continue
		}
		why := b.standIn(rep, []string{rep.Dev}).Error()
		e.Sayf("%s", why)
		state = why
	}
	if b.flags.json && len(reps) > 0 {
		_ = e.printUpJSON(b.name(), reps) // the stream remembers a failed write
	}
	e.Sayf("kept for %s", names)
	state = strings.ReplaceAll(state, "\n", " ")
	if err := systemd.Notify("READY=1\nSTATUS=" + state); err != nil {
		e.Sayf("cannot tell systemd: %v", err)
	}
}

// tellPast says that packets come past a policy, and what was done.
func (e *env) tellPast(j inspect.Judged, now *dataplane.Report, err error) {
	said := fmt.Sprintf("%s: %s; ", j.Dev, j.Why())
	if err != nil {
		e.statusf("%sit stays at %s: %v", said, j.Mode, err)
		return
	}
	e.notes(now.Notes)
	e.statusf("%sit is in force anew, at %s", said, now.Mode)
}

// statusf says what systemd is to show of this unit, too.
func (e *env) statusf(format string, args ...any) {
	said := fmt.Sprintf(format, args...)
	e.Sayf("%s", said)
	if err := systemd.Notify("STATUS=" + strings.ReplaceAll(said, "\n", " ")); err != nil {
		e.Sayf("cannot tell systemd: %v", err)
	}
}
