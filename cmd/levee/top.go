package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"levee/internal/cli"
	"levee/internal/dataplane/status"
	"levee/internal/lang/diag"
	"levee/internal/top"
)

const topLong = `Show rules by packets a second on the whole terminal, with how these were in the last
readings. Above them stands what the policy remembers, and how that went: limits with their live
budgets, evictions and debts, connections, proven clients, entries of sets.

Keys: q quits, s sorts by rate, by packets or as in the policy, p pauses, tab shows the next
interface, and behind these the services that have a policy of their own (levee wrap), arrows and
page keys scroll. Where there is no terminal, use levee status --watch.`

func newTop(e *env) *cobra.Command {
	var f statusFlags
	cmd := &cobra.Command{
		Use:     "top",
		Short:   "Show rules by packets a second, on the whole terminal",
		Long:    topLong,
		Example: "  sudo levee top\n  sudo levee top --dev eth0 --interval 250ms",
		Args:    cli.WantArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			every, err := f.every(cmd)
			if err != nil {
				return err
			}
			out, isFile := e.Stdout.W.(*os.File)
			if !e.Stdout.Terminal || !isFile {
				return cli.Usagef(cmd, "standard output is no terminal; use levee status --watch")
			}
			ctx, stop := e.Signals()
			defer stop()
			return top.Run(ctx, func() (top.Snapshot, error) { return e.snapshot(&f) }, every,
				e.Stdin, out)
		},
	}
	cli.DevFlag(cmd, &f.dev, "only this interface")
	cmd.Flags().BoolVar(&f.all, "all", false, "of all network namespaces")
	cmd.Flags().StringVar(&f.interval, "interval", "1s", "between readings, 100ms to 1h")
	return cmd
}

// snapshot reads the counters. What else status says in notes would spoil the picture.
func (e *env) snapshot(f *statusFlags) (top.Snapshot, error) {
	rep, err := e.readStatus(f)
	if err != nil {
		return top.Snapshot{}, err
	}
	now := top.Snapshot{At: e.Now()}
	for i := range rep.Interfaces {
		s := &rep.Interfaces[i]
		shown := top.Interface{
			Name: s.Dev, Memory: memories(s),
			Title: fmt.Sprintf("%s, %s, for %s", diag.Base(string(s.Policy)), s.Hook,
				max(0, e.Now().Sub(s.Since)).Round(time.Second)),
			Rules: shownRules(s.Rules),
		}
		now.Interfaces = append(now.Interfaces, shown)
	}
	for i := range rep.Services {
		now.Interfaces = append(now.Interfaces, e.shownService(&rep.Services[i]))
	}
	return now, nil
}

// shownService returns a service with its policy, which stands behind the interfaces.
func (e *env) shownService(s *status.Service) top.Interface {
	shown := top.Interface{
		Name:   "service " + s.Service,
		Memory: memories(&status.Interface{Dev: s.Service, Memories: s.Memories, Sets: s.Sets}),
		Title: fmt.Sprintf("%s, %s, for %s", diag.Base(string(s.Policy)), s.Hook,
			max(0, e.Now().Sub(s.Since)).Round(time.Second)),
		Rules: shownRules(s.Rules),
	}
	if !s.InForce {
		shown.Title += "; not in force: " + s.Why
	}
	return shown
}

// shownRules returns the rules that have something to show.
func shownRules(rules []status.Rule) (out []top.Rule) {
	for _, r := range rules {
		if !r.Quiet() {
			out = append(out, top.Rule{ID: r.ID, Verdict: r.Verdict, Where: string(r.Rule),
				Label: r.Label, Text: r.Unlabelled(), Packets: r.Packets})
		}
	}
	return out
}

// memories returns the things that a policy remembers.
func memories(s *status.Interface) (out []top.Memory) {
	add := func(name string, live int, format string, args ...any) {
		out = append(out, top.Memory{Name: name, Live: uint64(max(0, live)),
			Text: fmt.Sprintf(format, args...)})
	}
	for _, l := range s.Words(s.Dev) {
		add(l.Name, l.Live, "%s", l.Now)
	}
	for _, set := range s.Sets {
		add("set "+set.Name, set.Entries, "%d of %d entries, %d refused", set.Entries, set.Max,
			set.Refused)
	}
	return out
}
