package main

import (
	"fmt"
	"io"
	"math"
	"time"

	"github.com/spf13/cobra"

	"levee/internal/cli"
	"levee/internal/filter/codegen"
	"levee/internal/filter/ir"
	"levee/internal/filter/limit"
	"levee/internal/filter/plan"
	"levee/internal/filter/state"
	"levee/internal/kernel"
	"levee/internal/lang/diag"
	"levee/internal/lang/policy"
	"levee/internal/packet"
	"levee/internal/quantity"
	"levee/internal/rings"
)

const checkLong = `Parse, resolve and type-check policies, and compile them: all errors at once,
each with file, line, column, the line itself and a hint. Warns of rules that can never match,
of a default that no packet reaches, of empty set files, of rules with ports that fragments walk
past, of rings that cannot be read from the same queue, and of rules that take what essential
rules would let through: ARP, neighbour discovery, path-MTU messages, DHCP answers, MLD queries,
LACP, EAPOL. A rule that is about such traffic alone ("drop arp") is taken as meant. For each
limit it prints up to how many sources that send once may come within how long for the limit to
be exact for all others, and how many packets a second that is where they do not come in bursts.
Nothing is loaded, no privileges are needed.

--explain-compile also prints what the compiler made of the policy: the tables, and the plan of
the program as a tree of blocks. Each block has the ns that it costs a packet, of packets that
are spread evenly over the rules: in no order, and at least, where the CPU predicts all; its
instructions and bytes; and why it was chosen.`

const checkExample = `  levee check edge.levee
  levee check --explain-compile edge.levee
  levee check --json edge.levee | jq '.files[].diagnostics[]'`

func newCheck(e *env) *cobra.Command {
	var asJSON, explain bool
	var onLink string
	cmd := &cobra.Command{
		Use:     "check FILE...",
		Short:   "Parse, resolve and type-check a policy; warn of rules that can never match",
		Long:    checkLong,
		Example: checkExample,
		Args:    cli.WantSome("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			link, err := parseLink(cmd, onLink)
			if err != nil {
				return err
			}
			return e.check(args, link, asJSON, explain)
		},
	}
	cmd.Flags().BoolVar(&explain, "explain-compile", false,
		"print what the compiler chose, and why")
	linkFlag(cmd, &onLink)
	cli.JsonFlag(cmd, &asJSON)
	return cmd
}

// checked is one file in the object of `levee check --json`.
type checked struct {
	File        string           `json:"file"`
	OK          bool             `json:"ok"` // no errors; there may be warnings
	Rules       int              `json:"rules"`
	Sets        int              `json:"sets"`
	Tests       int              `json:"tests"`
	Diagnostics diag.Diagnostics `json:"diagnostics"`
	Limits      []checkedLimit   `json:"limits"`
	state.Rooms
	// sets of names, which the agent fills
	Names   []checkedNames `json:"names,omitempty"`
	Program *compiled      `json:"program,omitempty"` // with --explain-compile
}

// checkedNames is a set of the addresses of names.
type checkedNames struct {
	Set   string   `json:"set"`
	Names []string `json:"names"`
	Room  int      `json:"room"` // for so many addresses
}

// checkedLimit is the memory of a limit, and the rate for which it is enough.
type checkedLimit struct {
	Rule  cli.Shown `json:"rule"`
	Label string    `json:"label"`
	Slots int       `json:"slots"` // budgets that there is room for
	Bytes int       `json:"bytes"`
	// up to how many sources that send once may come within HoldSeconds, for it to be exact for all
	// others; 0: any number
	ExactCrowd  float64 `json:"exact_crowd"`
	HoldSeconds float64 `json:"hold_seconds"`
	// the same as packets a second, where they come evenly or by chance
	ExactBelow float64 `json:"exact_below_pps"`
}

// compiled is the result of compiling a policy.
type compiled struct {
	Instructions int             `json:"instructions"` // 8 bytes each
	TableBytes   int             `json:"table_bytes"`
	Tables       []compiledTable `json:"tables"`
	Plan         *plan.Report    `json:"plan"`

	plan *plan.Plan
}

type compiledTable struct {
	For   string `json:"for"`
	Kind  string `json:"kind"`
	Bytes int    `json:"bytes"`
	Why   string `json:"why"`
}

func (e *env) check(files []string, link packet.Link, asJSON, explain bool) error {
	all := []checked{}
	err := e.EachFile(files, func(file string) error {
		c, err := e.checkOne(file, link, explain)
		if err != nil {
			return err
		}
		if asJSON {
			for i, d := range c.Diagnostics {
				c.Diagnostics[i].File = diag.Unquoted(d.File)
			}
			all = append(all, *c)
		} else if err := e.printChecked(c); err != nil {
			return err
		}
		if !c.OK {
			return cli.ErrNo
		}
		return nil
	})
	if asJSON {
		if jerr := e.PrintJSON(map[string]any{"files": all}); jerr != nil {
			return jerr
		}
	}
	return err
}

func (e *env) checkOne(file string, link packet.Link, explain bool) (*checked, error) {
	pr, err := e.Parse(file)
	if err != nil {
		return nil, err
	}
	if pr.Policy != nil {
		pr.Diags = diag.Merge(pr.Diags, lacks(pr, link, withoutEthernet))
		pr.Diags = diag.Merge(pr.Diags, rings.Warn(pr.Policy, pr.Tree))
	}
	c := &checked{File: pr.Src.Name(), OK: !pr.Diags.HasErrors(), Diagnostics: pr.Diags,
		Limits: []checkedLimit{}}
	if p := pr.Policy; p != nil && c.OK {
		c.Rules, c.Sets, c.Tests = p.Count(), len(p.Sets), len(p.Tests)
		lowered := ir.Build(p)
		c.Diagnostics = append(c.Diagnostics, ir.Diagnostics(pr.Tree, lowered.Findings)...)
		memory, err := kernel.Memory()
		if err != nil {
			return nil, err
		}
		made, err := plan.New(lowered, plan.Target{Link: link, Memory: memory})
		if ds := plan.Refused(p, pr.Tree, err); ds != nil {
			c.OK, c.Diagnostics = false, append(c.Diagnostics, ds...)
			return c, nil
		}
		if err != nil {
			return nil, err
		}
		prog, err := codegen.Emit(made)
		if err != nil {
			return nil, err
		}
		for i := range made.Limits {
			c.Limits = append(c.Limits, checkLimit(made, &made.Limits[i]))
		}
		if out := made.Out; out != nil {
			for i := range out.Limits {
				c.Limits = append(c.Limits, checkLimit(out, &out.Limits[i]))
			}
		}
		c.Rooms = made.State.Rooms()
		for _, s := range p.Sets {
			if len(s.Names) > 0 {
				c.Names = append(c.Names, checkedNames{s.Name, s.Names, s.Max})
			}
		}
		if explain {
			c.Program = describe(prog, made)
		}
	}
	if c.Diagnostics == nil {
		c.Diagnostics = diag.Diagnostics{}
	}
	return c, nil
}

func checkLimit(made *plan.Plan, l *plan.Limit) checkedLimit {
	slot := made.Slots[l.Slot]
	out := checkedLimit{
		Rule: cli.Shown(made.Program.Policy.Where(slot)), Label: made.Program.Policy.LabelOf(slot),
		Slots: 1, Bytes: limit.Size(l.Limit), ExactBelow: math.Floor(l.Bound()),
		ExactCrowd: math.Floor(l.Crowd()), HoldSeconds: l.Hold().Seconds(),
	}
	if !l.One() {
		out.Slots = l.Lines() * policy.SlotsInLine
	}
	return out
}

// print says which rates a limit withstands.
func (l *checkedLimit) print(w io.Writer) {
	name := string(l.Rule)
	if l.Label != "" {
		name += fmt.Sprintf(" %q", l.Label)
	}
	if l.ExactBelow == 0 {
		what := "one budget, always exact"
		if l.Slots > 1 {
			what = "a budget for each prefix, always exact"
		}
		fmt.Fprintf(w, "  limit %s: %s\n", name, what)
		return
	}
	fmt.Fprintf(w, "  limit %s: room for %d budgets in %s; exact while at most %.0f sources that "+
		"send once come within %s (%s where they do not come in bursts)\n", name, l.Slots,
		quantity.Print(float64(l.Bytes), "bytes"),
		l.ExactCrowd, time.Duration(l.HoldSeconds*float64(time.Second)).Round(time.Millisecond),
		quantity.Print(l.ExactBelow, "packets/s"))
}

func describe(prog *codegen.Program, made *plan.Plan) *compiled {
	c := &compiled{Tables: []compiledTable{}, Plan: made.Report(), plan: made}
	for _, p := range prog.Spec.Programs {
		c.Instructions += len(p.Instructions)
	}
	for _, t := range prog.Tables {
		c.Tables = append(c.Tables, compiledTable(t))
		c.TableBytes += t.Bytes
	}
	return c
}

func (e *env) printChecked(c *checked) error {
	e.PrintDiagnostics(c.Diagnostics)
	if !c.OK {
		return nil
	}
	warnings := ""
	if n := len(c.Diagnostics); n > 0 {
		warnings = ", " + cli.Plural(n, "warning")
	}
	out := e.Stdout.Screen()
	fmt.Fprintf(out, "%s: ok, %s, %s%s\n", diag.Quoted(c.File), cli.Plural(c.Rules, "rule"),
		cli.Plural(c.Sets, "set"), warnings)
	for i := range c.Limits {
		c.Limits[i].print(out)
	}
	for _, line := range c.Rooms.Words() {
		fmt.Fprintf(out, "  %s\n", line)
	}
	for _, n := range c.Names {
		fmt.Fprintf(out, "  set %s: empty until `levee agent` looks up %s; room for %d "+
			"addresses\n", n.Set, cli.Plural(len(n.Names), "name"), n.Room)
	}
	if c.Program == nil {
		return out.Flush()
	}
	fmt.Fprintf(out, "program: %s; tables: %s\n",
		cli.Plural(c.Program.Instructions, "instruction"), cli.Plural(c.Program.TableBytes, "byte"))
	t := cli.NewTable("FOR KIND BYTES WHY", "<", "<", ">", "<")
	for _, row := range c.Program.Tables {
		t.Row(row.For, row.Kind, row.Bytes, row.Why)
	}
	if len(c.Program.Tables) > 0 {
		t.Print(out, "  ")
	}
	if err := c.Program.plan.Print(out); err != nil {
		return err
	}
	return out.Flush()
}
