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
	"levee/internal/filter/oracle"
	"levee/internal/filter/shadow"
	"levee/internal/lang/syntax"
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
			string(r.Mode), r.Program, cli.Shown(r.Replaced), shownAll(r.Unasked),
			shownAll(r.Answering)})
	}
	if f.json {
		return e.PrintJSON(map[string]any{"shadows": all})
	}
	for i, r := range all {
		fmt.Fprintf(e.Stdout, "%s judges beside %s on %s, and drops nothing\n", r.Shadow,
			syntax.Base(string(r.Policy)), r.Dev)
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

func shownAll(in []string) []cli.Shown {
	out := []cli.Shown{}
	for _, s := range in {
		out = append(out, cli.Shown(s))
	}
	return out
}

// downShadow ends shadows.
func (e *env) downShadow(cmd *cobra.Command, dev string) error {
	ctx := context.Background()
	devs, err := e.devsOf(ctx, cmd, dev, "a shadow",
		func(a *dataplane.Attachment) bool { return a.Shadow != nil })
	if err != nil {
		return err
	}
	for _, dev := range devs {
		was, notes, err := dataplane.DownShadow(ctx, dev)
		e.notes(notes)
		if err != nil {
			return err
		}
		fmt.Fprintf(e.Stdout, "%s: the shadow %s judges no more\n", dev, syntax.Base(was))
	}
	return nil
}

// statusShadow is the policy that judges beside the one in force.
type statusShadow struct {
	Policy  cli.Shown `json:"policy"`
	Hash    string    `json:"hash"` // SHA-256 of its text
	Since   time.Time `json:"since"`
	Program uint32    `json:"program"` // id
	Packets uint64    `json:"packets"` // judged by both
	Differ  uint64    `json:"differ"`  // of these, with different verdicts
}

func newStatusShadow(s *dataplane.ShadowState) *statusShadow {
	if s == nil {
		return nil
	}
	out := &statusShadow{Policy: cli.Shown(s.Policy), Hash: s.Hash, Since: s.Since,
		Program: s.Program, Packets: s.Untold.Packets}
	for i := range s.Pairs {
		out.Packets += s.Pairs[i].Packets
		if s.Pairs[i].Differs() {
			out.Differ += s.Pairs[i].Packets
		}
	}
	return out
}

// diffReport is the object of `levee status --diff --json`.
type diffReport struct {
	Interfaces []diffInterface `json:"interfaces"`
}

type diffInterface struct {
	Dev    string       `json:"dev"`
	Policy cli.Shown    `json:"policy"` // in force
	Shadow statusShadow `json:"shadow"`
	// pairs of rules that packets came to; those whose verdicts differ first
	Pairs []diffPair `json:"pairs"`
	// newest flows of the pairs that differ
	Flows []diffFlow `json:"flows"`
	// packets that a cookie in force had answered, so that the shadow could not judge them
	Unjudged uint64      `json:"unjudged"`
	Untold   uint64      `json:"untold"`  // packets of pairs above what is told apart
	Unasked  []cli.Shown `json:"unasked"` // cookies of the shadow, which answer nobody
	Rules    []diffRule  `json:"rules"`   // what the shadow has counted
}

type diffDecision struct {
	Verdict string    `json:"verdict"` // pass or drop
	Rule    cli.Shown `json:"rule"`
	Line    int       `json:"line"`
	Label   string    `json:"label"`
	Text    string    `json:"text"`
}

type diffPair struct {
	Differs bool         `json:"differs"`
	Packets uint64       `json:"packets"`
	Bytes   uint64       `json:"bytes"`
	InForce diffDecision `json:"in_force"`
	Shadow  diffDecision `json:"shadow"`
}

type diffFlow struct {
	At      time.Time    `json:"at"`      // of its last packet
	Packets uint64       `json:"packets"` // since it is a sample
	Bytes   int          `json:"bytes"`   // of one frame
	Headers string       `json:"headers"` // of the same
	InForce diffDecision `json:"in_force"`
	Shadow  diffDecision `json:"shadow"`
}

type diffRule struct {
	Rule    cli.Shown `json:"rule"`
	Line    int       `json:"line"`
	Label   string    `json:"label"`
	Verdict string    `json:"verdict"`
	Packets uint64    `json:"packets"`
	Bytes   uint64    `json:"bytes"`
}

func newDecision(c dataplane.SlotCounter, v shadow.Verdict) diffDecision {
	return diffDecision{v.String(), cli.Shown(c.Rule), c.Line, c.Label, c.Text}
}

// statusDiff shows what shadows would do otherwise.
func (e *env) statusDiff(f *statusFlags) error {
	all, notes, err := dataplane.Status(context.Background(), f.all)
	if err != nil {
		return err
	}
	e.notes(notes)
	rep := diffReport{Interfaces: []diffInterface{}}
	for i := range all {
		if all[i].Shadow != nil && (f.dev == "" || all[i].Dev == f.dev) {
			rep.Interfaces = append(rep.Interfaces, newDiff(&all[i]))
		}
	}
	if len(rep.Interfaces) == 0 {
		where := "any interface"
		if f.dev != "" {
			where = f.dev
		}
		return fmt.Errorf("no shadow judges on %s: levee up --shadow FILE puts one there", where)
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

func newDiff(a *dataplane.Attachment) diffInterface {
	s := a.Shadow
	out := diffInterface{Dev: a.Dev, Policy: cli.Shown(a.Policy), Shadow: *newStatusShadow(s),
		Pairs: []diffPair{}, Flows: []diffFlow{}, Rules: []diffRule{}, Unjudged: s.Unjudged,
		Untold: s.Untold.Packets, Unasked: shownAll(s.Unasked)}
	for i := range s.Pairs {
		p := &s.Pairs[i]
		out.Pairs = append(out.Pairs, diffPair{p.Differs(), p.Packets, p.Bytes,
			newDecision(p.Judged, p.JudgedVerdict), newDecision(p.Would, p.WouldVerdict)})
	}
	for i := range s.Flows {
		p := &s.Flows[i]
		out.Flows = append(out.Flows, diffFlow{p.At, p.Packets, p.Length,
			oracle.Headers(p.Packet, p.Link), newDecision(p.Judged, p.JudgedVerdict),
			newDecision(p.Would, p.WouldVerdict)})
	}
	for _, c := range s.Rules {
		out.Rules = append(out.Rules, diffRule{cli.Shown(c.Rule), c.Line, c.Label, c.Action,
			c.Packets, c.Bytes})
	}
	return out
}

// flowsOfPair is how many flows of one pair are printed.
const flowsOfPair = 5

func printDiff(w io.Writer, d *diffInterface) {
	fmt.Fprintf(w, "%s: %s in force, %s beside it since %s\n", d.Dev,
		syntax.Base(string(d.Policy)), syntax.Base(string(d.Shadow.Policy)),
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
				f.InForce.Verdict, f.Shadow.Verdict, f.Shadow.name(),
				cli.Plural(int(f.Packets), "packet"), f.Headers)
		}
	}
	if slices.ContainsFunc(d.Pairs, func(p diffPair) bool { return p.Differs }) {
		fmt.Fprintf(w, "  (the newest flows; --json has up to %d a CPU)\n", shadow.Flows)
	}
}

// name is the rule, and its label if it has one.
func (d diffDecision) name() string {
	if d.Label == "" || d.Line == 0 {
		return string(d.Rule)
	}
	return fmt.Sprintf("%s %q", d.Rule, d.Label)
}
