package command

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"levee/internal/agent"
	"levee/internal/agent/client"
	"levee/internal/cli"
	"levee/internal/lang/diag"
)

// printLists are the lines of `levee agent status` for lists.
func (e *env) printLists(out io.Writer, lists []agent.ListStatus) {
	for _, l := range lists {
		read := "not read yet"
		if !l.Read.IsZero() {
			read = fmt.Sprintf("read %s ago", ago(l.Read))
		}
		fmt.Fprintf(out, "list      %s (%s): %s for %s, %d refused, %d skipped; %s; %s\n", l.Name,
			l.Kind, entries(l.Entries), l.Set, l.Refused, l.Skipped, read,
			diag.Quoted(l.Place))
		if l.Held != nil {
			h := l.Held
			fmt.Fprintf(out, "          a change waits since %s: %s more, %d fewer, as %s: levee "+
				"agent diff %s\n", h.Since.Format(time.RFC3339), entries(h.Added), h.Removed,
				h.Why, l.Name)
		}
		if l.Example != "" {
			fmt.Fprintf(out, "          skipped: %s\n", diag.Quoted(l.Example))
		}
	}
}

func newAgentDiff(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "diff [SOURCE]",
		Short: "Show changes of lists that wait",
		Long: `Show what a list would change that changes by more than its source allows: a line with + for
each entry that would come, with - for each that would go. Until it is accepted, what was taken last
holds. The exit status is 1 if no change waits.`,
		Example: "  sudo levee agent diff drop | less",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			q := url.Values{}
			if len(args) == 1 {
				q.Set("source", args[0])
			}
			var r agent.HeldReport
			if err := client.Ask(http.MethodGet, "lists/held?"+q.Encode(), nil, &r); err != nil {
				return err
			}
			if asJSON {
				if err := e.PrintJSON(r); err != nil {
					return err
				}
			} else {
				e.printHeld(r.Held)
			}
			if len(r.Held) == 0 {
				return cli.ErrNo
			}
			return nil
		},
	}
	cli.JsonFlag(cmd, &asJSON)
	return cmd
}

func (e *env) printHeld(all []agent.Held) {
	out := e.Stdout.Buffered()
	defer out.Flush()
	for _, h := range all {
		fmt.Fprintf(out, "# %s, set %s: %s, %d more, %d fewer; since %s\n", h.Source, h.Set,
			entries(h.Entries), len(h.Added), len(h.Removed), h.Since.Format(time.RFC3339))
		for _, a := range h.Added {
			fmt.Fprintln(out, "+"+a)
		}
		for _, r := range h.Removed {
			fmt.Fprintln(out, "-"+r)
		}
	}
}

func newAgentAccept(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "accept SOURCE",
		Short: "Take a change of a list that waits",
		Long: `Take the change of a list that "levee agent diff" shows. Entries that came with it are
leased, those that went are withdrawn for this source.`,
		Example: "  sudo levee agent accept drop",
		Args:    cli.WantArgs("SOURCE"),
		RunE: func(_ *cobra.Command, args []string) error {
			var in agent.AcceptInput
			in.Body.Source = args[0]
			var done agent.Accepted
			err := client.Ask(http.MethodPost, "lists/accept", &in.Body, &done)
			if err != nil {
				return err
			}
			fmt.Fprintf(e.Stdout, "%s: %d added, %d removed, %d refused\n", done.Source, done.Added,
				done.Removed, done.Refused)
			return nil
		},
	}
}
