package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"levee/internal/dataplane"
)

func newConfirm(e *env) *cobra.Command {
	var dev string
	cmd := &cobra.Command{
		Use:   "confirm [--dev IF]",
		Short: "Keep the policy that `levee up --confirm` put on trial",
		Long: `Keep the policy that is on trial on an interface. Without --dev it is the only
interface of this network namespace that has one.`,
		Example: "  sudo levee confirm --dev eth0",
		Args:    wantArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return e.confirm(cmd, dev)
		},
	}
	devFlag(cmd, &dev, "the interface")
	return cmd
}

func (e *env) confirm(cmd *cobra.Command, dev string) error {
	ctx := context.Background()
	if dev == "" {
		var err error
		onTrial := func(a *dataplane.Attachment) bool { return a.Trial > 0 }
		if dev, err = e.onlyDev(ctx, cmd, "a policy on trial", onTrial); err != nil {
			return err
		}
	}
	if err := dataplane.Confirm(ctx, dev); err != nil {
		return err
	}
	fmt.Fprintf(e.stdout, "confirmed: the policy stays on %s\n", dev)
	return nil
}

func devFlag(cmd *cobra.Command, v *string, usage string) {
	cmd.Flags().StringVar(v, "dev", "", usage)
}

// onlyDev is the interface of this network namespace for which want holds, if there is exactly one;
// what names what it has.
func (e *env) onlyDev(ctx context.Context, cmd *cobra.Command, what string,
	want func(*dataplane.Attachment) bool) (string, error) {
	all, notes, err := dataplane.Status(ctx, false)
	if err != nil {
		return "", err
	}
	e.notes(notes)
	var devs []string
	for i := range all {
		if want(&all[i]) {
			devs = append(devs, all[i].Dev)
		}
	}
	switch len(devs) {
	case 0:
		return "", fmt.Errorf("no interface of this network namespace has %s", what)
	case 1:
		return devs[0], nil
	}
	return "", usagef(cmd, "several interfaces have %s: choose one with --dev, of %s", what,
		strings.Join(devs, ", "))
}

func newDown(e *env) *cobra.Command {
	var dev string
	cmd := &cobra.Command{
		Use:   "down [--dev IF]",
		Short: "Take the policy off an interface",
		Long: `Take levee's program off an interface and remove everything that was kept for it:
counters, dynamic sets, pins. Without --dev it is the only interface of this network namespace
that has a policy.`,
		Example: "  sudo levee down --dev eth0",
		Args:    wantArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return e.down(cmd, dev)
		},
	}
	devFlag(cmd, &dev, "the interface")
	return cmd
}

func (e *env) down(cmd *cobra.Command, dev string) error {
	ctx := context.Background()
	if dev == "" {
		var err error
		if dev, err = e.onlyDev(ctx, cmd, "a policy",
			func(*dataplane.Attachment) bool { return true }); err != nil {
			return err
		}
	}
	notes, err := dataplane.Down(ctx, dev)
	e.notes(notes)
	if err != nil {
		return err
	}
	fmt.Fprintf(e.stdout, "%s: no policy any more\n", dev)
	return nil
}

// notes tells what a command found and mended on its way.
func (e *env) notes(notes []string) {
	for _, n := range notes {
		e.sayf("%s", n)
	}
}
