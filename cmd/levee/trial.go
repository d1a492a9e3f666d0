package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"levee/internal/dataplane"
	"levee/internal/dataplane/generation"
)

// awaitConfirm waits for the end of a trial, which is one on all interfaces.
func (e *env) awaitConfirm(ctx context.Context, reps []*dataplane.Report, trial string) error {
	rep, devs := reps[0], reps[0].Dev
	for _, r := range reps[1:] {
		devs += ", " + r.Dev
	}
	e.Sayf("to keep it: levee confirm --dev %s; Ctrl-C goes back at once", rep.Dev)
	end := e.Now().Add(rep.Trial)
	progress := e.Progress()
	defer progress.Clear()
	past := false
	for {
		progress.Printf("%s left to confirm", max(0, end.Sub(e.Now())).Round(time.Second))
		if was := past; rep.Judging.Why() != "" && !was {
			past = true
			e.Sayf("packets come past the policy on trial: `levee status --dev %s` tells", rep.Dev)
		}
		look, cancel := context.WithTimeout(ctx, confirmLook)
		how, err := dataplane.WaitTrial(look, rep, confirmLook/4)
		cancel()
		switch {
		case ctx.Err() != nil:
			progress.Clear()
			return e.rollBack(reps, devs)
		case errors.Is(err, context.DeadlineExceeded):
			continue
		case err != nil:
			return err
		}
		progress.Clear()
		switch how {
		case dataplane.Confirmed:
			e.Sayf("confirmed, the policy stays on %s", devs)
			return nil
		case dataplane.Replaced:
			return fmt.Errorf("not confirmed: another policy has been put on %s meanwhile", devs)
		case dataplane.Vanished:
			return fmt.Errorf("not confirmed: an interface of %s has vanished, and its policy "+
				"with it", devs)
		case dataplane.TakenDown:
			return fmt.Errorf("not confirmed: the policy has been taken off %s meanwhile", devs)
		}
		return fmt.Errorf("not confirmed within %s: %s before", trial, asWas(reps, devs))
	}
}

// asWas says that the interfaces of devs have what they had before.
func asWas(reps []*dataplane.Report, devs string) string {
	if len(reps) == 1 {
		return devs + " is as it was"
	}
	return devs + " are as they were"
}

// confirmLook is the pause between two looks of the waiting command, which draws the time that is
// left.
const confirmLook = time.Second

// rollBack ends the trial now, after a signal.
func (e *env) rollBack(reps []*dataplane.Report, devs string) error {
	var failed error
	for _, rep := range reps {
		notes, err := generation.RollBack(context.Background(), rep.Dev, rep.Generation)
		failed = errors.Join(failed, err)
		e.notes(notes)
	}
	if failed != nil {
		return fmt.Errorf("interrupted, and going back at once failed; the kernel goes back by "+
			"itself within %s: %w", reps[0].Trial, failed)
	}
	return fmt.Errorf("interrupted: %s before", asWas(reps, devs))
}
