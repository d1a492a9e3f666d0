package main

import (
	"context"
	"fmt"
	"time"

	"levee/internal/dataplane"
	"levee/internal/filter/region"
	"levee/internal/lang/policy"
)

// changesTime is how long a policy that is put in force is compared with the one before.
const changesTime = 2 * time.Second

// shownChanges is how many kinds of packets `levee up` names that are decided otherwise.
const shownChanges = 5

// changes are the packets that a policy decides otherwise than the one in force on an interface;
// nil where none is, or where it cannot be read.
func changes(ctx context.Context, dev string, p *policy.Policy) *region.Told {
	in, _, err := dataplane.Show(ctx, dev)
	if err != nil || p == nil {
		return nil
	}
	before, _ := in.Parse()
	if before == nil {
		return nil
	}
	if in.OnError != "" {
		before = before.Fallback(true)
	}
	told := region.Compare(ctx, before, p).Tell(before, p)
	return &told
}

// printChanges prints the short form, the first line behind a word.
func (e *env) printChanges(word string, told *region.Told) {
	fmt.Fprintf(e.Stdout, "%s%s\n", word, told.Short())
	for i, line := range told.Lines(shownChanges) {
		fmt.Fprintf(e.Stdout, "%*s%s\n", len(word), "", line)
		if i == shownChanges-1 && len(told.Differences) > shownChanges {
			fmt.Fprintf(e.Stdout, "%*sand %d more\n", len(word), "",
				len(told.Differences)-shownChanges)
		}
	}
}

// dryRun prints what a policy would change, interface by interface, and does nothing.
func (e *env) dryRun(b *bringing, devs []string) error {
	ctx, stop := e.Signals()
	defer stop()
	all := make(map[string]*region.Told, len(devs))
	for _, dev := range devs {
		all[dev] = changes(ctx, dev, b.policy())
	}
	if b.flags.json {
		return e.PrintJSON(map[string]any{"interfaces": all})
	}
	for _, dev := range devs {
		if all[dev] == nil {
			fmt.Fprintf(e.Stdout, "%s: no policy is in force, all packets pass\n", dev)
			continue
		}
		e.printChanges(dev+": ", all[dev])
	}
	return nil
}
