package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"levee/internal/agent/signature"
	"levee/internal/cli"
	"levee/internal/dataplane/tap"
	"levee/internal/host/atomicfile"
	"levee/internal/lang/diag"
	"levee/internal/lang/policy"
	"levee/internal/lang/syntax"
	"levee/internal/packet"
	"levee/internal/usage"
)

const proposeLong = `Propose the fewest rules that drop a flood and leave good traffic alone: from a capture of the
flood (pcap or pcapng) and one of good traffic, as "levee capture --write" makes them. What is
printed is a policy; each rule has its coverage of the flood and its collateral, the share of good
packets that it drops, in a comment. Both are what the oracle says of these packets. Nothing is put
in force.

--dev looks at what passes an interface --for some time, in the place of --flood (root, and a
policy in force). Good traffic that comes along does no harm.

With --policy only what that policy passes counts, what it protects or passes as essential is left
alone, and each rule says in front of which one it should stand. --write FILE makes a policy with
the rules in it. Without --good rules are narrow, and their collateral is unknown.

The exit status is 1 where no rule is proposed: the sentence says why. "levee help propose" tells
how rules are found, and what the figures do not cover.`

const proposeExample = `  levee propose --flood attack.pcap --good yesterday.pcapng
  levee propose --flood attack.pcap --good calm.pcapng --policy edge.levee --write new.levee
  sudo levee propose --dev eth0 --for 5s --good calm.pcapng --json | jq -r '.rules[].rule'`

// proposeOptions are those of the command.
type proposeOptions struct {
	flood, good string
	dev         string
	lasts       time.Duration
	policy      string
	collateral  float64
	rules       int
	link        packet.Link
	write       string
	json        bool
}

func newPropose(e *env) *cobra.Command {
	o := proposeOptions{lasts: 10 * time.Second}
	var lasts, collateral, link string
	cmd := &cobra.Command{
		Use:     "propose",
		Short:   "Propose rules against a flood, with what they cost good traffic",
		Long:    proposeLong,
		Example: proposeExample,
		Args:    cli.WantArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.DurationFlag(cmd, "for", lasts, &o.lasts); err != nil {
				return err
			}
			share, err := cli.ParsePercent(collateral)
			if err != nil {
				return cli.Usagef(cmd, "--collateral: %v", err)
			}
			o.collateral = share / 100
			if o.link, err = parseLink(cmd, link); err != nil {
				return err
			}
			if err := o.check(cmd.Flags().Changed("for")); err != nil {
				return err
			}
			return e.propose(&o)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&o.flood, "flood", "", "the capture `file` of the flood, or - for standard input")
	fl.StringVar(&o.good, "good", "", "a capture of good traffic")
	cli.DevFlag(cmd, &o.dev, "look at what passes this interface, in the place of --flood")
	fl.StringVar(&lasts, "for", "10s", "how long to look at --dev")
	fl.StringVar(&o.policy, "policy", "", "the policy that the rules are for")
	fl.StringVar(&collateral, "collateral", "0.1%", "share of good packets that may be dropped")
	fl.IntVar(&o.rules, "rules", 8, "at most so many rules")
	fl.StringVar(&o.write, "write", "", "write a policy with the rules in it")
	linkFlag(cmd, &link)
	cli.JsonFlag(cmd, &o.json)
	return cmd
}

func (o *proposeOptions) check(lasts bool) error {
	switch {
	case (o.flood == "") == (o.dev == ""):
		return usage.Wrongf("give a capture of the flood with --flood, or an interface with --dev")
	case lasts && o.dev == "":
		return usage.Wrongf("--for goes with --dev")
	case o.lasts <= 0 || o.lasts > time.Hour:
		return usage.Wrongf("--for takes up to an hour")
	case o.collateral < 0 || o.collateral > 0.5:
		return usage.Wrongf("--collateral takes 0 to 50 percent")
	case o.rules < 1 || o.rules > 32:
		return usage.Wrongf("--rules takes 1 to 32")
	case o.flood == cli.StdinName && (o.good == cli.StdinName || o.policy == cli.StdinName),
		o.good == cli.StdinName && o.policy == cli.StdinName:
		return usage.Wrongf("only one of --flood, --good and --policy can be standard input")
	}
	return nil
}

func (e *env) propose(o *proposeOptions) error {
	limits := signature.Limits{Collateral: o.collateral, Rules: o.rules}
	var src *cli.Parsed
	if o.policy != "" {
		var err error
		if src, err = e.Parse(o.policy); err != nil {
			return err
		}
		if src.Policy == nil {
			e.PrintDiagnostics(src.Diags)
			return cli.ErrNo
		}
		limits.Policy = src.Policy
	}
	flood, err := e.floodSample(o, limits.Policy)
	if err != nil {
		return err
	}
	if src != nil {
		if err := e.forLink(src, o.link, withoutEthernet); err != nil {
			return err
		}
	}
	var good *signature.Sample
	if o.good != "" {
		if good, err = e.sampleOf(o.good, o.link, limits.Policy); err != nil {
			return err
		}
	}
	p, err := signature.Propose(flood, good, limits)
	if err != nil {
		return err
	}
	return e.printProposal(o, p, src)
}

// floodSample reads the flood from a capture, or looks at an interface.
func (e *env) floodSample(o *proposeOptions, p *policy.Policy) (*signature.Sample, error) {
	if o.dev != "" {
		return e.passing(o, p)
	}
	return e.sampleOf(o.flood, o.link, p)
}

// sampleOf draws a sample from a capture.
func (e *env) sampleOf(path string, link packet.Link, p *policy.Policy) (*signature.Sample, error) {
	c, err := e.openCapture(path)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	s := signature.NewSample(link, p, 0)
	other, err := s.AddAll(func() ([]byte, int, error) {
		frame, _, err := c.next()
		return frame, c.missing, err
	})
	if err != nil {
		return nil, err
	}
	if other > 0 {
		e.Sayf("%s: %s left out: %v", c.title, cli.Plural(other, "packet"), packet.ErrNotL3)
	}
	if s.Seen() == 0 {
		return nil, fmt.Errorf("%s: the capture has no packets", diag.Quoted(c.title))
	}
	return s, nil
}

// passing returns a sample of the packets that an interface passes, beginning now.
func (e *env) passing(o *proposeOptions, p *policy.Policy) (*signature.Sample, error) {
	ctx, stop := e.Signals()
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, o.lasts)
	defer cancel()
	var err error
	if o.link, err = e.link(o.dev); err != nil {
		return nil, err
	}
	s := signature.NewSample(o.link, p, 0)
	known := map[string]bool{}
	if p != nil {
		for _, slot := range p.Slots() {
			known[slot.ID] = true
		}
	}
	var buf []byte
	lost, err := tap.Capture(ctx, tap.Capturing{Dev: o.dev, Verdict: "pass",
		Snap: 2048, Rate: 10_000}, func(c tap.Captured) bool {
		if c.Link == o.link {
			rec := packet.Record{Data: c.Packet, Length: c.Bytes}
			frame, missing := rec.Whole(buf)
			if missing > 0 {
				buf = frame
			}
			by := c.Rule.ID
			if !known[by] { // another policy is in force
				by = ""
			}
			s.AddPassed(frame, missing, by)
		}
		return true
	})
	switch {
	case err != nil:
		return nil, err
	case errors.Is(ctx.Err(), context.Canceled):
		return nil, ctx.Err()
	case s.Seen() == 0:
		return nil, fmt.Errorf("%s: nothing passed for %v", diag.Quoted(o.dev), o.lasts)
	}
	e.Sayf("%s of those that passed %s looked at; lost: %d above 10000 a second and CPU, %d that "+
		"this command was too slow for", cli.Plural(s.Seen(), "packet"), diag.Quoted(o.dev),
		lost.Above, lost.Kernel)
	return s, nil
}

// printProposal prints what was found, and writes the policy with it.
func (e *env) printProposal(o *proposeOptions, p *signature.Proposal, src *cli.Parsed) error {
	if o.json {
		if err := e.PrintJSON(p.Report()); err != nil {
			return err
		}
	} else if src == nil && len(p.Rules) > 0 {
		fmt.Fprintf(e.Stdout, "%s", p.Policy())
	} else {
		e.printRules(p)
	}
	if len(p.Rules) == 0 {
		return cli.ErrNo
	}
	if o.write == "" {
		return nil
	}
	text := p.Policy()
	if src != nil {
		tree, _ := syntax.Parse(src.Src.Title(), src.Src.Text)
		text = p.Into(tree)
	}
	return atomicfile.Write(o.write, text, 0o644)
}

// printRules prints rules for a policy that there is.
func (e *env) printRules(p *signature.Proposal) {
	fmt.Fprintf(e.Stdout, "# %s\n", p.Sentence)
	for _, n := range p.Notes {
		fmt.Fprintf(e.Stdout, "# %s\n", n)
	}
	for i := range p.Rules {
		r := &p.Rules[i]
		where := "behind all rules"
		if r.Before != nil {
			where = fmt.Sprintf("in front of line %d: %s", r.Before.Pos.Line, r.Before.Text)
		}
		fmt.Fprintf(e.Stdout, "# %s\n# %s\n%s\n", p.Figures(r), diag.Escaped(where), r.Text)
	}
	if p.Tail != "" {
		fmt.Fprintf(e.Stdout, "# in front of the default, to say that it is meant\n%s\n", p.Tail)
	}
}
