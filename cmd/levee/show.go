package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"levee/internal/cli"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/service"
	"levee/internal/dataplane/store"
	"levee/internal/lang/resolve"
)

const showLong = `Print the policy in force as one text that can be put in force again: laid out
as "levee fmt" does, with what its set files held in the place of their names, also if the files
have changed since. Dynamic sets are named, their entries are not: see "levee set list --export".
Without --dev it is the policy of the one interface of this network namespace that has one.`

const showExample = `  sudo levee show --dev eth0 > saved.levee
  sudo levee show --dev eth0 | diff edge.levee -`

func newShow(e *env) *cobra.Command {
	var dev string
	var number int
	cmd := &cobra.Command{
		Use:     "show [--dev IF | --service NAME]",
		Short:   "Print the policy in force",
		Long:    showLong,
		Example: showExample,
		Args:    cli.WantArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, ok := store.ServiceNamed(dev); ok && cmd.Flags().Changed("past") {
				return cli.Usagef(cmd, "--past and --service exclude each other")
			}
			if cmd.Flags().Changed("past") {
				return e.showPast(cmd, dev, number)
			}
			return e.show(cmd, dev)
		},
	}
	cmd.Flags().IntVar(&number, "past", 0,
		"the policy of this number of levee rollback --list, which was in force before")
	cli.DevFlag(cmd, &dev, "the interface")
	cli.ServiceFlag(cmd, &dev, store.Service, "the service, in place of an interface")
	return cmd
}

func (e *env) show(cmd *cobra.Command, dev string) error {
	dev, p, err := e.inForce(cmd, dev)
	if err != nil {
		return err
	}
	text, err := resolve.Whole(p.Name(), p.Source, p.Files)
	if err != nil {
		return err
	}
	if p.Trial {
		e.Sayf("this policy is on trial; to keep it: levee confirm --dev %s", dev)
	}
	fmt.Fprintf(e.Stdout, "%s", text)
	return nil
}

// inForce reads the policy in force on an interface, or, where dev is "", on the only one that has
// a policy.
func (e *env) inForce(cmd *cobra.Command, dev string) (string, *inspect.InForce, error) {
	ctx := context.Background()
	if dev == "" {
		devs, err := e.devsOf(ctx, cmd, "", "a policy",
			func(*inspect.Attachment) bool { return true })
		if err != nil {
			return "", nil, err
		}
		dev = devs[0] // others have the same one
	}
	if name, ok := store.ServiceNamed(dev); ok {
		p, err := service.InForce(ctx, name)
		return dev, p, err
	}
	p, notes, err := inspect.Show(ctx, dev)
	e.notes(notes)
	if err != nil {
		return "", nil, err
	}
	if p.Instead != "" {
		e.Sayf("this policy was in force on %s before, and stands in for another that cannot be: "+
			"%s", dev, p.Instead)
	}
	if p.OnError != "" {
		e.Sayf("of this policy only its protect rules, the essential rules and what \"on error\" "+
			"says are in force on %s: %s", dev, p.OnError)
	}
	return dev, p, nil
}

// shown is inForce for those that need no name of the interface.
func (e *env) shown(cmd *cobra.Command, dev string) (*inspect.InForce, error) {
	_, in, err := e.inForce(cmd, dev)
	return in, err
}
