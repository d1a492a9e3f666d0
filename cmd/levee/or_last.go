package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"levee/internal/dataplane"
	"levee/internal/dataplane/lockout"
	"levee/internal/lang/policy"
	"levee/internal/lang/salvage"
	"levee/internal/lang/setfile"
)

// orLast prepares the stand-ins for a policy that cannot be put in force: the policies that were in
// force before, then that of `on error`.
func (e *env) orLast(b *bringing, devs []string) {
	b.opts.Else = func() []dataplane.Fallback {
		all := e.standIns(b, devs)
		b.nothingBefore = len(all) == 0
		return all
	}
	if b.policy() != nil || b.parsed == nil {
		return
	}
	src := b.parsed.Src
	right := salvage.Policy(src.Title(), src.Text, setfile.In(src.Dir()))
	if right == nil {
		return
	}
	ctx, stop := e.Signals()
	defer stop()
	var all []lockout.AtRisk
	for _, dev := range devs {
		r, err := e.gate().Look(ctx, right, dev, b.flags.force)
		if err != nil {
			continue // it is not there yet
		}
		all = append(all, r)
	}
	if len(all) == 0 {
		all = []lockout.AtRisk{{}}
	}
	b.opts.Fallbacks = e.gate().Fallbacks(right, all)
}

// standIns returns the policies that were in force on the interfaces, the newest first. Those that
// would cut a session come behind the others: nothing else may be left.
func (e *env) standIns(b *bringing, devs []string) (all []dataplane.Fallback) {
	ctx, stop := e.Signals()
	defer stop()
	var cutting []dataplane.Fallback
	for _, name := range slices.Concat(devs, b.opts.Names) {
		if policy.IsPattern(name) || len(all)+len(cutting) > 0 {
			continue
		}
		policies, notes, err := dataplane.Past(context.Background(), name)
		e.notes(notes)
		if err != nil {
			e.Sayf("cannot read which policies were in force on %s: %v", name, err)
		}
		for i := range policies {
			was := &policies[i]
			p, err := was.Parse()
			if err != nil {
				e.Sayf("%v", err)
				continue
			}
			f := dataplane.Fallback{Compile: dataplane.Compiler(p), Past: was}
			cuts := func(dev string) bool {
				r, err := e.gate().Look(ctx, p, dev, b.flags.force)
				return err == nil && r.Check(p) != nil
			}
			if slices.ContainsFunc(devs, cuts) {
				cutting = append(cutting, f)
			} else {
				all = append(all, f)
			}
		}
	}
	return append(all, cutting...)
}

// standIn returns an error that says which policy stands in for the given one, and why.
func (b *bringing) standIn(rep *dataplane.Report, devs []string) error {
	on := strings.Join(devs, ", ")
	if was := rep.Past; was != nil {
		return fmt.Errorf("%s could not be put in force on %s (%w); the policy that was so since "+
			"%s is back, number %d of `levee rollback --list`", b.name(), on, rep.Fallback,
			was.Since.Format(time.DateTime), was.Number)
	}
	return fmt.Errorf("%s could not be put in force on %s (%w); its protect rules, the essential "+
		"rules and its \"on error\" are", b.name(), on, rep.Fallback)
}
