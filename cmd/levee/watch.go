package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"levee/internal/agent/flowtap"
	"levee/internal/agent/stream"
	"levee/internal/cli"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/tap"
	"levee/internal/filter/logging"
	"levee/internal/filter/oracle"
	"levee/internal/lang/diag"
	"levee/internal/lang/policy"
	"levee/internal/packet"
	"levee/internal/usage"
)

var watchLong = fmt.Sprintf(`Show packets as they are judged, a line each, until Ctrl-C: when, which rule, and
what stands in the packet's headers. --json prints an object a line, with the first %[1]d bytes of
the packet.

With --verdict, --reason or --rule these are packets that the policy has decided, with the
verdict, by any rule: "levee watch --verdict drop" shows every drop and why. The policy in force
does not change: a program of this command has the packet after it, and goes when the command
ends, or within three seconds when it is killed. Each CPU tells of at most --rate packets a second,
of one rule half of these. Only one watch of decisions or capture is there at a time.

Without these they are the packets that rules with "log" tell of. A log tells of a packet where it
stands: what decides the packet comes behind. Each CPU tells of at most %[2]d packets a second.
One watch of logs goes beside one of decisions.

With --stream they are flows, a line each: what their clients say first, read as the agent's sources
of that kind read it. A flow over UDP is proven once the policy has proven it, and shown as "not
proven" after ten seconds; at once where the policy has no "prove". One program at a time reads
flows of an interface: where the agent has a source of streams, that is the agent.

What is not shown is counted by rule, and told once a second in a line of its own: packets above
the rate, packets that found the ring full as this command was too slow, and those that lay in a
ring when it ended. Without --dev it is the one interface of this network namespace that has a
policy.`, logging.EventPacket, logging.EventsPerSecond)

const watchExample = `  sudo levee watch --verdict drop
  sudo levee watch --reason default,malformed
  sudo levee watch --rule "bad networks" --rate 100
  sudo levee watch --stream tls --port 443,8443
  sudo levee watch --dev eth0 --json | jq -r .from`

// watchReasons are the reasons of decisions, as policies' slots name them.
var watchReasons = []policy.Reason{policy.ByMalformed, policy.ByProtect, policy.ByRule,
	policy.ByEssential, policy.ByDefault}

func newWatch(e *env) *cobra.Command {
	o := tap.Deciding{Snap: logging.EventPacket}
	var asJSON, wide bool
	var flows flowtap.Watching
	cmd := &cobra.Command{
		Use:     "watch",
		Short:   "Show packets that are dropped or passed, or that log rules tell of",
		Long:    watchLong,
		Example: watchExample,
		Args:    cli.WantArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			decisions := o.Verdict != "" || o.Rule != "" || len(o.Reasons) > 0
			if err := checkWatch(&o, decisions, cmd.Flags().Changed("rate")); err != nil {
				return err
			}
			err := flows.Check(decisions)
			if err != nil {
				return err
			}
			if o.Dev, _, err = e.inForce(cmd, o.Dev); err != nil {
				return err
			}
			if flows.Dev, flows.JSON = o.Dev, asJSON; flows.Kind != "" {
				return e.watchStreams(flows)
			}
			if decisions {
				return e.watchDecisions(o, e.newWatchPrinter(o.Dev, asJSON, wide))
			}
			return e.watch(o.Dev, e.newWatchPrinter(o.Dev, asJSON, wide))
		},
	}
	cli.DevFlag(cmd, &o.Dev, "watch this interface")
	cli.NoService(cmd, "levee top shows what its rules count")
	fl := cmd.Flags()
	fl.StringVar(&o.Verdict, "verdict", "", "packets with this verdict: pass, drop or redirect")
	fl.StringSliceVar(&o.Reasons, "reason", nil, "packets that were decided for this reason: "+
		words(watchReasons))
	fl.StringVar(&o.Rule, "rule", "", "packets that this rule decided: its label or line")
	fl.IntVar(&o.Rate, "rate", 1000, "at most n decisions a second and CPU")
	fl.StringVar(&flows.Kind, "stream", "", "what clients say first: "+
		strings.Join(stream.Names(), ", "))
	fl.StringSliceVar(&flows.Ports, "port", nil, "with --stream: flows to these ports, as 443 or "+
		"8000-8010, instead of those of the kind")
	fl.BoolVar(&wide, "wide", false, "show all fields of all headers, in long lines")
	cli.JsonFlag(cmd, &asJSON)
	return cmd
}

// words are values in words.
func words[T fmt.Stringer](values []T) string {
	var out []string
	for _, v := range values {
		out = append(out, v.String())
	}
	return strings.Join(out, ", ")
}

func checkWatch(o *tap.Deciding, decisions, rated bool) error {
	if !tap.IsVerdict(o.Verdict) {
		return usage.Wrongf("--verdict is pass, drop or redirect, not %s", diag.Quoted(o.Verdict))
	}
	for _, given := range o.Reasons {
		if !slices.ContainsFunc(watchReasons, func(r policy.Reason) bool {
			return r.String() == given
		}) {
			return usage.Wrongf("--reason is one of %s, not %s", words(watchReasons),
				diag.Quoted(given))
		}
	}
	switch {
	case o.Rate < 1 || o.Rate > tap.MostDecisions:
		return usage.Wrongf("--rate takes 1 to %d packets a second", tap.MostDecisions)
	case rated && !decisions:
		return usage.Wrongf("--rate is for decisions: give --verdict, --reason or --rule, too; " +
			"`sample` is for logs")
	}
	return nil
}

// watched is one line of `levee watch --json`: a packet, or what was lost.
type watched struct {
	Time  time.Time `json:"time"`
	Dev   string    `json:"dev"`
	Rule  cli.Shown `json:"rule"` // empty if it is gone
	Label string    `json:"label"`
	// of decisions
	Verdict string       `json:"verdict,omitempty"`
	Reason  string       `json:"reason,omitempty"`
	CPU     *int         `json:"cpu,omitempty"`
	Bytes   int          `json:"bytes,omitempty"` // of the whole frame
	From    string       `json:"from,omitempty"`
	To      string       `json:"to,omitempty"`
	Text    string       `json:"text,omitempty"` // the headers in words
	Packet  string       `json:"packet,omitempty"`
	Lost    *watchedLost `json:"lost,omitempty"`
}

// watchedLost are packets that were not told of, and where they were lost.
type watchedLost struct {
	Bound  uint64 `json:"bound"`  // above what a CPU tells a second
	Ring   uint64 `json:"ring"`   // no place in the ring, as this command was too slow
	Reader uint64 `json:"reader"` // this command ended before it had shown them
}

// watchPrinter prints what is told, in lines or as JSON.
type watchPrinter struct {
	e      *env
	dev    string
	asJSON bool
	wide   bool
	enc    *json.Encoder
}

func (e *env) newWatchPrinter(dev string, asJSON, wide bool) *watchPrinter {
	p := &watchPrinter{e: e, dev: dev, asJSON: asJSON, wide: wide, enc: json.NewEncoder(e.Stdout)}
	p.enc.SetEscapeHTML(false)
	return p
}

// show prints one, and says whether there is still somebody who reads.
func (p *watchPrinter) show(w *watched, line string) bool {
	if !p.asJSON {
		fmt.Fprintln(p.e.Stdout, line)
	} else if err := p.enc.Encode(w); err != nil && p.e.Stdout.Err == nil {
		p.e.Sayf("make JSON: %v", err)
	}
	return p.e.Stdout.Err == nil
}

// lineOf begins the line about packets of an interface: when they were told of, and where. A person
// at a terminal has said where, and sees it in each line that is longer than the terminal is wide.
func lineOf(out *cli.Output, at time.Time, dev string) string {
	if out.Terminal {
		return at.Format("15:04:05.000")
	}
	return at.Format("15:04:05.000 ") + dev
}

// packet prints a packet; w has what is special to it.
func (p *watchPrinter) packet(w *watched, rule generation.SlotCounter, frame []byte,
	link packet.Link) bool {
	var d packet.Packet
	whole, _ := packet.Record{Data: frame, Length: w.Bytes}.Whole(nil)
	link.Decode(whole, &d)
	w.Dev, w.Rule, w.Label = p.dev, cli.Shown(rule.Rule), rule.Label
	w.Packet, w.Text = hex.EncodeToString(frame), oracle.Headers(frame, w.Bytes, link)
	if d.IsIP() && d.Src.IsValid() {
		w.From, w.To = d.Src.String(), d.Dst.String()
	}
	by := shortNameOf(rule)
	if w.Verdict != "" {
		by = w.Verdict + " " + by
	}
	text := w.Text
	if !p.wide {
		text = oracle.Brief(frame, w.Bytes, link)
	}
	return p.show(w, fmt.Sprintf("%s %s %s", lineOf(p.e.Stdout, w.Time, p.dev), by, text))
}

// lost prints losses; bound says in words what they are above.
func (p *watchPrinter) lost(l tap.Losses, bound string) {
	at := p.e.Now()
	w := &watched{Time: at, Dev: p.dev, Rule: cli.Shown(l.Rule.Rule), Label: l.Rule.Label,
		Lost: &watchedLost{l.Bound, l.Ring, l.Reader}}
	p.show(w, fmt.Sprintf("%s %s lost: %s", lineOf(p.e.Stdout, at, p.dev), shortNameOf(l.Rule),
		lossesInWords(l, bound)))
}

func lossesInWords(l tap.Losses, bound string) string {
	var parts []string
	for _, part := range []struct {
		n    uint64
		what string
	}{
		{l.Bound, "above " + bound},
		{l.Ring, "as this command was too slow"},
		{l.Reader, "as this command ended"},
	} {
		if part.n > 0 {
			parts = append(parts, cli.Plural(part.n, "packet")+" "+part.what)
		}
	}
	return strings.Join(parts, ", ")
}

// watch shows what logs tell of.
func (e *env) watch(dev string, p *watchPrinter) error {
	ctx, stop := e.Signals()
	defer stop()
	return tap.Watch(ctx, dev, func(ev tap.Event) {
		if !p.packet(&watched{Time: ev.At, CPU: &ev.CPU, Bytes: ev.Bytes}, ev.Rule, ev.Packet,
			ev.Link) {
			stop()
		}
	}, func(l tap.Losses) {
		p.lost(l, fmt.Sprintf("%d a second and CPU", logging.EventsPerSecond))
	})
}

// watchStreams shows what clients say first.
func (e *env) watchStreams(w flowtap.Watching) error {
	ctx, stop := e.Signals()
	defer stop()
	return flowtap.Watch(ctx, w, e.Stdout, func(packets uint64) {
		e.Sayf("lost: %s of flows, as this command was too slow", cli.Plural(packets, "packet"))
	})
}

// watchDecisions shows what the policy decides.
func (e *env) watchDecisions(o tap.Deciding, p *watchPrinter) error {
	ctx, stop := e.Signals()
	defer stop()
	bound := fmt.Sprintf("the rate of %d a second and CPU", o.Rate)
	total, err := tap.WatchDecisions(ctx, o, func(c tap.Captured) bool {
		return p.packet(&watched{Time: c.At, CPU: &c.CPU, Bytes: c.Bytes, Verdict: c.Verdict,
			Reason: c.Rule.Reason}, c.Rule, c.Packet, c.Link)
	}, func(l tap.Losses) { p.lost(l, bound) })
	if total.Bound+total.Ring+total.Reader > 0 {
		e.Sayf("%d shown; lost: %s", total.Shown, lossesInWords(total.Losses, bound))
	}
	if total.Lapsed {
		e.Sayf("the watch stood still for more than three seconds: of packets in that time it " +
			"knows nothing")
	}
	return err
}

// nameOfRule returns where a rule stands, and its label.
func nameOfRule(c generation.SlotCounter) string {
	switch {
	case c.Rule == "":
		return "-"
	case c.Label != "":
		return fmt.Sprintf("%s %q", cli.Shown(c.Rule), c.Label)
	}
	return string(cli.Shown(c.Rule))
}

// shortNameOf returns the label of a rule, or where it stands.
func shortNameOf(c generation.SlotCounter) string {
	if c.Rule != "" && c.Label != "" {
		return fmt.Sprintf("%q", c.Label)
	}
	return nameOfRule(c)
}
