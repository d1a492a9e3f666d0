package cli

import (
	"time"

	"github.com/spf13/cobra"
)

// DevFlag gives a command the interface that it works on.
func DevFlag(cmd *cobra.Command, v *string, usage string) {
	cmd.Flags().StringVar(v, "dev", "", usage)
}

// JsonFlag gives a listing its --json.
func JsonFlag(cmd *cobra.Command, v *bool) {
	cmd.Flags().BoolVar(v, "json", false, "print JSON; field names stay from release to release")
}

// DurationFlag reads the duration of a flag into to; none leaves it as it is.
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
