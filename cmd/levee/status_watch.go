package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"levee/internal/cli"
	"levee/internal/dataplane/status"
)

// watchStatus shows the status again and again, with rates, until a signal ends it.
func (e *env) watchStatus(cmd *cobra.Command, f *statusFlags) error {
	every, err := f.every(cmd)
	if err != nil {
		return err
	}
	ctx, stop := e.Signals()
	defer stop()
	tick := time.NewTicker(every)
	defer tick.Stop()
	before := status.Readings{}
	for e.Stdout.Err == nil {
		rep, err := e.readStatus(f)
		if err != nil {
			return err
		}
		before = rep.Rates(before, e.Now())
		if err := e.redrawStatus(rep, f); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
	return nil
}

// every returns the time between two readings.
func (f *statusFlags) every(cmd *cobra.Command) (time.Duration, error) {
	every, err := cli.ParseDuration(f.interval)
	if err != nil {
		return 0, cli.Usagef(cmd, "--interval: %v", err)
	}
	if every < 100*time.Millisecond || every > time.Hour {
		return 0, cli.Usagef(cmd, "--interval %s: from 100ms to 1h", f.interval)
	}
	return every, nil
}

// redrawStatus prints one picture at once: in the place of the one before where a terminal is, else
// behind it.
func (e *env) redrawStatus(rep *status.Report, f *statusFlags) error {
	if f.json {
		enc := json.NewEncoder(e.Stdout)
		enc.SetEscapeHTML(false)
		return enc.Encode(rep)
	}
	out := e.Stdout.Picture()
	e.printStatuses(out, rep, f)
	if !e.Stdout.Terminal {
		fmt.Fprintln(out)
	}
	return out.Flush()
}
