package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"levee/internal/cli"
	"levee/internal/dataplane"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/keep"
)

func newConfirm(e *env) *cobra.Command {
	var dev string
	cmd := &cobra.Command{
		Use:   "confirm [--dev IF]",
		Short: "Keep the policy that `levee up --confirm` put on trial",
		Long: `Keep the policy that is on trial on an interface, and on those that have it together
with it. Without --dev it is the only one of this network namespace.`,
		Example: "  sudo levee confirm --dev eth0",
		Args:    cli.WantArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return e.confirm(cmd, dev)
		},
	}
	cli.DevFlag(cmd, &dev, "the interface")
	cli.NoService(cmd, "its policy has no trial, and stays")
	return cmd
}

func (e *env) confirm(cmd *cobra.Command, dev string) error {
	ctx := context.Background()
	onTrial := func(a *inspect.Attachment) bool { return a.Trial > 0 }
	devs, err := e.devsOf(ctx, cmd, dev, "a policy on trial", onTrial)
	if err != nil {
		return err
	}
	for _, dev := range devs {
		notes, err := dataplane.Confirm(ctx, dev)
		e.notes(notes)
		if err != nil {
			return err
		}
	}
	fmt.Fprintf(e.Stdout, "confirmed: the policy stays on %s\n", strings.Join(devs, ", "))
	return nil
}

// devsOf returns the interfaces that share a policy: that of dev or, with "", that of the only
// policy of this network namespace for which want holds. what names that property in errors.
func (e *env) devsOf(ctx context.Context, cmd *cobra.Command, dev, what string,
	want func(*inspect.Attachment) bool) ([]string, error) {
	if err := e.Privileged(); err != nil { // whoever may only read would come no further
		return nil, err
	}
	all, notes, err := inspect.Status(ctx, false)
	if err != nil {
		return nil, err
	}
	e.notes(notes)
	if dev != "" {
		return dataplane.Others(all, dev), nil
	}
	var devs, together []string
	for i := range all {
		if want(&all[i]) {
			if devs = append(devs, all[i].Dev); together == nil {
				together = dataplane.Others(all, all[i].Dev)
			}
		}
	}
	switch {
	case len(devs) == 0:
		return nil, fmt.Errorf("no interface of this network namespace has %s", what)
	case len(devs) > 1 && !slices.Equal(devs, together):
		return nil, cli.Usagef(cmd, "several interfaces have %s: choose one with --dev, of %s",
			what, strings.Join(devs, ", "))
	}
	return devs, nil
}

func newDown(e *env) *cobra.Command {
	var dev string
	var shadow bool
	cmd := &cobra.Command{
		Use:   "down [--dev IF]",
		Short: "Take the policy off an interface",
		Long: `Take levee's program off an interface and remove everything that was kept for it:
counters, dynamic sets, pins. Without --dev it is the only interface of this network namespace
that has a policy, or all that have one together.

With --shadow only the shadow goes, and the policy in force stays.`,
		Example: "  sudo levee down --dev eth0\n  sudo levee down --shadow",
		Args:    cli.WantArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if shadow {
				return e.downShadow(cmd, dev)
			}
			return e.down(cmd, dev)
		},
	}
	cli.DevFlag(cmd, &dev, "the interface")
	cli.NoService(cmd, "levee wrap COMMAND --remove takes its policy off")
	cmd.Flags().BoolVar(&shadow, "shadow", false, "only the shadow")
	return cmd
}

func (e *env) down(cmd *cobra.Command, dev string) error {
	ctx := context.Background()
	devs := []string{dev}
	if dev == "" {
		kept, err := keep.EndIdle(ctx) // those that wait for interfaces
		if err != nil {
			return err
		}
		if len(kept) > 0 {
			fmt.Fprintf(e.Stdout, "%s: no policy is kept any more\n", strings.Join(kept, ", "))
			return nil
		}
		if devs, err = e.devsOf(ctx, cmd, "", "a policy",
			func(*inspect.Attachment) bool { return true }); err != nil {
			return err
		}
	}
	for _, dev := range devs {
		notes, err := dataplane.DownAfter(ctx, dev, e.interrupts(""), devs...)
		e.notes(notes)
		if err != nil {
			return err
		}
		fmt.Fprintf(e.Stdout, "%s: no policy any more\n", dev)
	}
	return nil
}

// notes tells what a command found and mended on its way.
func (e *env) notes(notes []string) {
	for _, n := range notes {
		e.Sayf("%s", n)
	}
}
