package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"levee/internal/cli"
	"levee/internal/dataplane/judge"
	"levee/internal/dataplane/loader"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

const evalLong = `Print the verdict for each packet of a capture (pcap or pcapng), one a line,
in order:

  1 drop edge.levee:14 "abuser"
  2 pass edge.levee:20 (default)

--engine oracle asks the reference evaluator and needs no privileges. --engine bpf runs the
compiled program in the kernel. --engine both, the default where it is allowed, runs
both and compares: a packet that they judge differently is shown in hexadecimal with its story,
and the exit status is 1.

With --link l3 the policy is one for a device whose packets begin with the IP header, and so are
the packets: other ones of the capture are left out, and counted.

Frames that the capture has cut are judged at their length on the wire. Those above 65,536 bytes
are judged by the oracle alone, with a note at the end. Dynamic sets are empty,
unless --entry puts something into them; a note names them. A capture does not tell which connections are known, who
is proven, or by which interface a source is reached: established and proven hold for no packet,
not established for each, terms on the way back neither way. A note names what was unknown. levee
up --shadow judges live traffic, with all of it.

--json prints an object a line: n, verdict, rule,
label, reason (rule, protect, malformed, essential or default) and engine.

--summary prints packets and bytes by rule instead, and with --json one object.`

const evalExample = `  levee eval edge.levee --pcap attack.pcap --summary
  levee eval edge.levee --pcap attack.pcap --json | jq -c 'select(.verdict == "pass")'
  sudo tcpdump -i eth0 -w - | levee eval edge.levee --pcap - --engine oracle`

type evalFlags struct {
	pcap, engine  string
	link          string
	json, summary bool
	entries       []string
}

func newEval(e *env) *cobra.Command {
	var f evalFlags
	cmd := &cobra.Command{
		Use:     "eval FILE --pcap P",
		Short:   "Judge each packet of a capture",
		Long:    evalLong,
		Example: evalExample,
		Args:    cli.WantArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return e.eval(cmd, args[0], &f)
		},
	}
	cmd.Flags().StringVar(&f.pcap, "pcap", "", "the capture, or - for standard input")
	cmd.Flags().StringVar(&f.engine, "engine", "",
		"oracle, bpf or both (default: both with privileges, else oracle)")
	cmd.Flags().BoolVar(&f.summary, "summary", false,
		"print packets and bytes by rule instead of a line for each packet")
	entryFlag(cmd, &f.entries)
	linkFlag(cmd, &f.link)
	cli.JsonFlag(cmd, &f.json)
	return cmd
}

// chooseEngine checks --engine; "" becomes both where the process may load programs.
func (e *env) chooseEngine(cmd *cobra.Command, want string) (judge.Choice, error) {
	switch engine := judge.Engine(want); engine {
	case judge.Oracle:
		return judge.Choice{Engine: engine}, nil
	case judge.Compiled, judge.Both:
		if err := e.Privileged(); err != nil {
			return judge.Choice{},
				cli.Refusedf("the compiled program cannot be run here: %w; or use "+
					"--engine oracle", err)
		}
		return judge.Choice{Engine: engine}, nil
	case "":
		return e.automatic(), nil
	}
	return judge.Choice{}, cli.Usagef(cmd, "--engine %q: use oracle, bpf or both", want)
}

// automatic chooses both engines if this process may load programs, else the oracle.
func (e *env) automatic() judge.Choice {
	if err := e.Privileged(); err != nil {
		return judge.Choice{Engine: judge.Oracle, Auto: true, Why: err.Error()}
	}
	return judge.Choice{Engine: judge.Both, Auto: true}
}

func (e *env) eval(cmd *cobra.Command, file string, f *evalFlags) error {
	if f.pcap == "" {
		return cli.Usagef(cmd, "--pcap is missing")
	}
	if file == cli.StdinName && f.pcap == cli.StdinName {
		return cli.Usagef(cmd, "only one of FILE and --pcap can be standard input")
	}
	choice, err := e.chooseEngine(cmd, f.engine)
	if err != nil {
		return err
	}
	if choice.Link, err = parseLink(cmd, f.link); err != nil {
		return err
	}
	p, entries, err := e.policyWith(cmd, file, choice.Link, f.entries)
	if err != nil {
		return err
	}
	c, err := e.openCapture(f.pcap)
	if err != nil {
		return err
	}
	defer c.Close()
	j, err := choice.New(p)
	if err != nil {
		return err
	}
	defer j.Close()
	if err := j.Add(entries...); err != nil {
		return err
	}
	if choice.Why != "" {
		e.Sayf("judged by the oracle alone: %s", choice.Why)
	}
	run := &evalRun{e: e, p: p, j: j, c: c, link: choice.Link, json: f.json, brief: f.summary,
		count: make([]tally, len(j.Slots())), empty: emptySets(p, entries)}
	err = run.all()
	if !f.summary {
		return err
	}
	if f.json {
		return errors.Join(e.PrintJSON(run.summary()), err)
	}
	run.printSummary()
	return err
}

// evalRun is one pass over a capture.
type evalRun struct {
	e     *env
	p     *policy.Policy
	j     *judge.Judge
	c     *capture
	link  packet.Link
	json  bool
	brief bool     // no line for each packet
	empty []string // sets that nobody has put something into
	out   *bufio.Writer
	count []tally // by slot
	n     int     // packets judged
	other int     // packets of the capture that the link layer cannot have
	cut   int     // of them, cut by the capture
	long  int     // of them, too long for the kernel to run the program on
	diffs int     // of them, judged differently by the two engines
}

// tally is packets and their bytes, whole frames.
type tally struct{ packets, bytes uint64 }

// maxStories bounds how many differences are shown in full; all are counted.
const maxStories = 10

func (r *evalRun) all() error {
	r.out = r.e.Stdout.Buffered()
	enc := json.NewEncoder(r.out)
	enc.SetEscapeHTML(false)
	progress := r.e.Progress()
	for r.e.Stdout.Err == nil {
		frame, cut, err := r.c.next()
		if err == io.EOF {
			break
		}
		if err == nil {
			frame, err = r.link.Carry(frame)
		}
		if errors.Is(err, packet.ErrNotL3) {
			r.other++
			continue
		}
		if err == nil {
			err = r.one(enc, frame, cut)
		}
		if err != nil {
			progress.Clear()
			r.out.Flush()
			return err
		}
		if r.c.idle() {
			r.out.Flush()
		}
		if !r.e.Stdout.Terminal {
			progress.Printf("%d packets", r.n)
		}
	}
	progress.Clear()
	r.out.Flush()
	r.sayUntold()
	if r.cut > 0 {
		r.e.Sayf("%s cut by the capture, judged at the length on the wire",
			cli.Plural(r.cut, "packet"))
	}
	if r.other > 0 {
		r.e.Sayf("%s left out: %v", cli.Plural(r.other, "packet"), packet.ErrNotL3)
	}
	if r.long > 0 {
		r.e.Sayf("%s of more than %d bytes, judged by the oracle alone: the kernel runs no "+
			"program "+
			"on frames from memory that are longer", cli.Plural(r.long, "packet"),
			loader.MaxFrame)
	}
	if r.diffs > 0 {
		return fmt.Errorf("the oracle and the compiled program judge %d of %s differently: "+
			"please report it with the policy and the packets",
			r.diffs, cli.Plural(r.n, "packet"))
	}
	return nil
}

// sayUntold says what rules ask for and no capture tells. A policy that passes `established` seems
// to drop most of what it would pass.
func (r *evalRun) sayUntold() {
	var said []string
	for _, f := range field.Remembered() {
		if u := f.Info().Untold; r.p.Asks(f) && !slices.Contains(said, u) {
			said = append(said, u)
		}
	}
	if len(r.empty) > 0 {
		said = append(said, "Sets were taken as empty (--entry fills them): "+
			strings.Join(r.empty, ", ")+".")
	}
	if r.n > 0 && said != nil {
		r.e.Sayf("%s To judge live traffic with that: levee up --shadow FILE",
			strings.Join(said, " "))
	}
}

func (r *evalRun) one(enc *json.Encoder, frame []byte, cut bool) error {
	r.j.At(r.c.at)
	v, err := r.j.Frame(frame)
	if err != nil {
		return fmt.Errorf("packet %d: %w", r.n+1, err)
	}
	r.n++
	if cut {
		r.cut++
	}
	r.count[v.Slot].packets++
	r.count[v.Slot].bytes += uint64(len(frame))
	by := r.j.Engine()
	if v.Long {
		r.long++
		by = judge.Oracle
	}
	line := r.verdict(v.Decision, by)
	switch {
	case r.brief:
	case r.json:
		if err := enc.Encode(line); err != nil && r.e.Stdout.Err == nil {
			return fmt.Errorf("packet %d: make JSON: %w", r.n, err)
		}
	default:
		fmt.Fprintln(r.out, line)
	}
	if v.Differs {
		if r.diffs++; r.diffs <= maxStories {
			r.difference(frame, v)
		}
	}
	return nil
}

// verdict returns a decision about the packet that was judged last.
func (r *evalRun) verdict(d judge.Decision, by judge.Engine) judge.Judged {
	return judge.NewJudged(r.p, r.j.Slots()[d.Slot], d.Action, r.n, by)
}

// difference shows a packet that the engines judge differently.
func (r *evalRun) difference(frame []byte, v judge.Verdict) {
	r.out.Flush()
	w := r.e.Stderr
	want, got := r.verdict(v.Decision, judge.Oracle), r.verdict(v.Compiled, judge.Compiled)
	fmt.Fprintf(w, "packet %d is judged differently:\n  oracle            %s %s%s\n  compiled "+
		"program  %s %s%s\n",
		r.n, want.Verdict, want.Rule, want.Note(), got.Verdict, got.Rule, got.Note())
	fmt.Fprintf(w, "  packet            %x\n\n", frame)
	tr := r.j.Story()
	printTrace(w, &tr, "  ")
	fmt.Fprintln(w)
}

// evalSummary is the object of `levee eval --summary --json`.
type evalSummary struct {
	Packets int        `json:"packets"`
	Engine  string     `json:"engine"`
	Rules   []evalRule `json:"rules"` // that decided a packet, in the order of the policy
}

type evalRule struct {
	Packets uint64    `json:"packets"`
	Bytes   uint64    `json:"bytes"` // of whole frames without FCS
	Verdict string    `json:"verdict"`
	Rule    cli.Shown `json:"rule"`
	Label   string    `json:"label"`
	Reason  string    `json:"reason"`
}

func (r *evalRun) summary() evalSummary {
	sum := evalSummary{Packets: r.n, Engine: string(r.j.Engine()), Rules: []evalRule{}}
	for i, c := range r.count {
		if c.packets == 0 {
			continue
		}
		s := r.j.Slots()[i]
		sum.Rules = append(sum.Rules, evalRule{c.packets, c.bytes, s.Action.String(),
			cli.Shown(r.p.Where(s)), r.p.LabelOf(s), s.Reason.String()})
	}
	return sum
}

// printSummary prints what each rule decided.
func (r *evalRun) printSummary() {
	t := cli.NewTable("packets bytes verdict rule label", ">", ">", "<", "<", "<")
	for _, d := range r.summary().Rules {
		t.Row(d.Packets, d.Bytes, d.Verdict, d.Rule, d.Label)
	}
	t.Print(r.e.Stdout, "")
	fmt.Fprintf(r.e.Stdout, "%s (%s)\n", cli.Plural(r.n, "packet"), r.j.Engine())
}
