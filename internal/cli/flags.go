package cli

import (
	"errors"
	"time"

	"github.com/spf13/cobra"
)

// DevFlag adds --dev, the interface on which a command works.
func DevFlag(cmd *cobra.Command, v *string, usage string) {
	cmd.Flags().StringVar(v, "dev", "", usage)
}

// ServiceFlag gives a command that works on an interface, or on a service in its place, the flag
// for that: it writes what stands for the service.
func ServiceFlag(cmd *cobra.Command, dev *string, stands func(name string) string, usage string) {
	cmd.Flags().Var(&serviceValue{to: dev, stands: stands}, "service", usage)
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("dev") && cmd.Flags().Changed("service") {
			return Usagef(cmd, "--dev and --service exclude each other")
		}
		return run(cmd, args)
	}
}

// serviceValue is the value of --service.
type serviceValue struct {
	name   string
	to     *string
	stands func(string) string
}

func (v *serviceValue) String() string { return v.name }
func (v *serviceValue) Type() string   { return "string" }

func (v *serviceValue) Set(name string) error {
	if name == "" {
		return errors.New("a name is missing")
	}
	v.name, *v.to = name, v.stands(name)
	return nil
}

// RefuseFlag has a command say why it does not have a flag that one could expect, and what to do.
func RefuseFlag(cmd *cobra.Command, name, why string) {
	cmd.Flags().Var(refusedFlag(why), name, "not with any `value`: "+why)
	_ = cmd.Flags().MarkHidden(name)
}

// NoService has a command that works on interfaces alone say so of --service.
func NoService(cmd *cobra.Command, why string) {
	RefuseFlag(cmd, "service", "this command is for interfaces: "+why+" (levee "+
		"help services)")
}

// refusedFlag is the reason of a flag that is not there.
type refusedFlag string

func (refusedFlag) String() string     { return "" }
func (refusedFlag) Type() string       { return "string" }
func (f refusedFlag) Set(string) error { return errors.New(string(f)) }

// JsonFlag gives a listing its --json.
func JsonFlag(cmd *cobra.Command, v *bool) {
	cmd.Flags().BoolVar(v, "json", false, "print JSON; field names stay from release to release")
}

// DurationFlag reads the duration of a flag into the variable to; none leaves it as it is.
func DurationFlag(cmd *cobra.Command, name, text string, to *time.Duration) error {
	if !cmd.Flags().Changed(name) {
		return nil
	}
	d, err := ParseDuration(text)
	if err != nil {
		return Usagef(cmd, "--%s: %v", name, err)
	}
	*to = d
	return nil
}
