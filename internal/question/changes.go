package question

import (
	"context"
	"fmt"
	"time"

	"levee/internal/cli"
	"levee/internal/dataplane/inspect"
	"levee/internal/filter/region"
	"levee/internal/lang/policy"
)

// shownChanges is the number of packet kinds decided otherwise that `levee up` names.
const shownChanges = 5

// changesTime is the time for which a policy put in force is compared with the one before.
const changesTime = 2 * time.Second

// Changes returns what can be said in a short time of the packets that a policy decides otherwise
// than the one in force on an interface; nil where none is, or where it cannot be read.
func Changes(ctx context.Context, dev string, p *policy.Policy) *region.Told {
	ctx, cancel := context.WithTimeout(ctx, changesTime)
	defer cancel()
	return changes(ctx, dev, p)
}

func changes(ctx context.Context, dev string, p *policy.Policy) *region.Told {
	in, _, err := inspect.Show(ctx, dev)
	if err != nil || p == nil {
		return nil
	}
	before, _ := judges(in)
	if before == nil {
		return nil
	}
	told := region.Compare(ctx, before, p).Tell(before, p)
	return &told
}

// PrintChanges prints the short form, the first line behind a word.
func PrintChanges(to *cli.Output, word string, told *region.Told) {
	w := to.Screen()
	fmt.Fprintf(w, "%s%s\n", word, told.Short())
	for _, line := range told.Lines(shownChanges) {
		fmt.Fprintf(w, "%*s%s\n", len(word), "", line)
	}
	if more := len(told.Differences) - shownChanges; more > 0 {
		fmt.Fprintf(w, "%*sand %d more\n", len(word), "", more)
	}
	w.Flush()
}

// DryRun prints what a policy would change, interface by interface.
func DryRun(e *cli.Env, p *policy.Policy, devs []string, asJSON bool) error {
	ctx, stop := e.Signals()
	defer stop()
	all := make(map[string]*region.Told, len(devs))
	for _, dev := range devs {
		all[dev] = changes(ctx, dev, p)
	}
	if asJSON {
		return e.PrintJSON(map[string]any{"interfaces": all})
	}
	for _, dev := range devs {
		if all[dev] == nil {
			fmt.Fprintf(e.Stdout, "%s: no policy is in force, all packets pass\n", dev)
			continue
		}
		PrintChanges(e.Stdout, dev+": ", all[dev])
	}
	return nil
}
