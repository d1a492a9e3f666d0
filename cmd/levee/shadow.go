package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"levee/internal/cli"
	"levee/internal/dataplane"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/status"
	"levee/internal/filter/shadow"
	"levee/internal/lang/diag"
)

// shadowReport is the object of `levee up --shadow --json`, for each interface.
type shadowReport struct {
	Dev       string      `json:"dev"`
	Shadow    cli.Shown   `json:"shadow"`
	Policy    cli.Shown   `json:"policy"` // in force
	Hook      string      `json:"hook"`
	Program   uint32      `json:"program"`            // id of the shadow's
	Replaced  cli.Shown   `json:"replaced,omitempty"` // the shadow before
	Unasked   []cli.Shown `json:"unasked"`            // cookies of the shadow, which answer nobody
	Answering []cli.Shown `json:"answering"`          // cookies in force, whose SYNs it does not see
}

// upShadow has a policy judge packets beside the one in force.
func (e *env) upShadow(pr *cli.Parsed, devs []string, o dataplane.UpOptions, f *upFlags) error {
	for _, dev := range devs {
		if err := e.linkFor(pr, dev); err != nil {
			return err
		}
	}
	ctx, stop := e.Signals()
	defer stop()
	reps, err := dataplane.UpShadow(ctx, devs, o, pr.Policy)
	if err != nil {
		return err
	}
	e.notes(reps[0].Notes)
	all := []shadowReport{}
	for _, r := range reps {
		all = append(all, shadowReport{r.Dev, cli.Shown(pr.Policy.File), cli.Shown(r.Policy),
			string(r.Mode), r.Program, cli.Shown(r.Replaced), diag.ShownAll(r.Unasked),
			diag.ShownAll(r.Answering)})
	}
	if f.json {
		return e.PrintJSON(map[string]any{"shadows": all})
	}
	for i, r := range all {
		fmt.Fprintf(e.Stdout, "%s judges beside %s on %s, and drops nothing\n", r.Shadow,
			diag.Base(string(r.Policy)), r.Dev)
		if r.Replaced != "" {
			fmt.Fprintf(e.Stdout, "  replaced  the shadow %s, whose counts are gone\n", r.Replaced)
		}
		if len(r.Unasked) > 0 {
			fmt.Fprintf(e.Stdout, "  cookies   of %s answer nobody: SYNs go on as those of proven "+
				"clients do\n", strings.Join(reps[i].Unasked, ", "))
		}
		if len(r.Answering) > 0 {
			fmt.Fprintf(e.Stdout, "  cookies   in force (%s) answer SYNs before the shadow sees "+
				"them: these are counted as not judged\n", strings.Join(reps[i].Answering, ", "))
		}
		fmt.Fprintf(e.Stdout, "  compare   levee status --diff --dev %s\n", r.Dev)
	}
	return nil
}

// downShadow ends shadows.
func (e *env) downShadow(cmd *cobra.Command, dev string) error {
	ctx := context.Background()
	devs, err := e.devsOf(ctx, cmd, dev, "a shadow",
		func(a *inspect.Attachment) bool { return a.Shadow != nil })
	if err != nil {
		return err
	}
	for _, dev := range devs {
		was, notes, err := dataplane.DownShadow(ctx, dev)
		e.notes(notes)
		if err != nil {
			return err
		}
		fmt.Fprintf(e.Stdout, "%s: the shadow %s judges no more\n", dev, diag.Base(was))
	}
	return nil
}

// statusDiff shows what shadows would do otherwise.
func (e *env) statusDiff(f *statusFlags) error {
	rep, notes, err := status.Shadows(context.Background(), f.dev, f.all)
	e.notes(notes)
	if err != nil {
		return err
	}
	if f.json {
		return e.PrintJSON(rep)
	}
	for i := range rep.Interfaces {
		if i > 0 {
			fmt.Fprintln(e.Stdout)
		}
		printDiff(e.Stdout, &rep.Interfaces[i])
	}
	return nil
}

// flowsOfPair is the number of flows printed of one pair.
const flowsOfPair = 5

func printDiff(w io.Writer, d *status.Diff) {
	fmt.Fprintf(w, "%s: %s in force, %s beside it since %s\n", d.Dev,
		diag.Base(string(d.Policy)), diag.Base(string(d.Shadow.Policy)),
		d.Shadow.Since.Format(time.DateTime))
	fmt.Fprintf(w, "  %s judged by both, %d of them otherwise\n",
		cli.Plural(int(d.Shadow.Packets), "packet"), d.Shadow.Differ)
	if d.Unjudged > 0 {
		fmt.Fprintf(w, "  %s answered by a cookie in force, which the shadow could not judge\n",
			cli.Plural(int(d.Unjudged), "packet"))
	}
	if d.Untold > 0 {
		fmt.Fprintf(w, "  %s of more pairs of rules than are told apart\n",
			cli.Plural(int(d.Untold), "packet"))
	}
	if len(d.Unasked) > 0 {
		fmt.Fprintf(w, "  cookies of the shadow answer nobody\n")
	}
	fmt.Fprintln(w)
	t := cli.NewTable("PACKETS BYTES IN-FORCE RULE SHADOW RULE LABEL", ">", ">", "<", "<", "<", "<",
		"<")
	for _, p := range d.Pairs {
		mark := p.Shadow.Verdict
		if p.Differs {
			mark = "-> " + mark
		}
		t.Row(p.Packets, p.Bytes, p.InForce.Verdict, p.InForce.Rule, mark, p.Shadow.Rule,
			p.Shadow.Label)
	}
	t.Print(w, "  ")
	if len(d.Flows) == 0 {
		return
	}
	fmt.Fprintln(w)
	for _, p := range d.Pairs {
		n := 0
		for i := range d.Flows {
			f := &d.Flows[i]
			if f.InForce != p.InForce || f.Shadow != p.Shadow || n == flowsOfPair {
				continue
			}
			n++
			fmt.Fprintf(w, "  %s %s -> %s by %s, %s: %s\n", f.At.Format("15:04:05"),
				f.InForce.Verdict, f.Shadow.Verdict, f.Shadow.Name(),
				cli.Plural(int(f.Packets), "packet"), f.Headers)
		}
	}
	if slices.ContainsFunc(d.Pairs, func(p status.Pair) bool { return p.Differs }) {
		fmt.Fprintf(w, "  (the newest flows; --json has up to %d a CPU)\n", shadow.Flows)
	}
}
