package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"levee/internal/agent/defend"
	"levee/internal/cli"
	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/judge"
	"levee/internal/dataplane/sets"
	"levee/internal/dataplane/store"
	"levee/internal/dataplane/tap"
	"levee/internal/filter/oracle"
	"levee/internal/lang/policy"
	"levee/internal/lang/spec"
	"levee/internal/packet"
	"levee/internal/packet/template"
)

const explainLong = `Tell the story of one packet: the headers that were found in it, each rule
that was looked at with the first term that does not hold, and what decided.

The packet is in words, as in the tests of a policy ("levee help language"); or an Ethernet
frame without frame check sequence, in hexadecimal (blanks, line ends and colons are ignored; "-"
reads it from standard input); or packet --n of a capture. With --live it is the next packet of
which a "log" rule of the policy in force tells, or the next --n of them, as they come: their first
128 bytes, and zeros for the rest. Connections, budgets and proofs are not known to the story. With
--leaves the packet is one that leaves by the interface.

Without FILE it is judged by the policy that is in force, on --dev or on the one interface of this
network namespace that has one, with the live rules of the agent and what its dynamic sets hold now
(root). A packet in words then goes to an address of that interface, unless it says where to. With
FILE dynamic sets are empty. --entry puts something into them. With --link l3 a frame begins with
the IP header. With --service it is the policy of a service ("levee wrap"), and does too.`

const explainExample = `  sudo levee explain 'tcp syn from 192.0.2.1 port 22'
  levee explain edge.levee 'udp from 192.0.2.1 from port 53 port 40000 len 1400'
  levee explain edge.levee --packet "020000000002 020000000001 0806 0001..."
  sudo levee explain --live --n 5
  sudo levee explain --service nginx.service 'tcp syn from 192.0.2.1 to 192.0.2.9 port 443'
  levee explain edge.levee --pcap attack.pcap --n 17
  levee explain edge.levee --pcap attack.pcap --n 17 --entry abusers=203.0.113.0/24`

type explainFlags struct {
	dev          string
	packet, pcap string
	link         string
	n            int
	live         bool
	leaves       bool
	json         bool
	entries      []string

	file, words string // the arguments
}

func newExplain(e *env) *cobra.Command {
	var f explainFlags
	cmd := &cobra.Command{
		Use:     "explain [FILE] (PACKET | --packet HEX | --pcap P --n N | --live)",
		Short:   "Show step by step how one packet is judged",
		Long:    explainLong,
		Example: explainExample,
		Args: func(cmd *cobra.Command, args []string) error {
			return f.take(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return e.explain(cmd, &f)
		},
	}
	cli.DevFlag(cmd, &f.dev, "judge by the policy in force on this interface")
	cli.ServiceFlag(cmd, &f.dev, store.Service, "judge by the policy of this service")
	cmd.Flags().StringVar(&f.packet, "packet", "",
		"the frame in hexadecimal, or - for standard input")
	cmd.Flags().StringVar(&f.pcap, "pcap", "", "a capture, or - for standard input")
	cmd.Flags().IntVar(&f.n, "n", 1,
		"which packet of --pcap, counted from 1; how many packets of --live")
	cmd.Flags().BoolVar(&f.live, "live", false, "packets that log rules tell of, as they come")
	cmd.Flags().BoolVar(&f.leaves, "leaves", false, "the packet leaves by the interface")
	entryFlag(cmd, &f.entries)
	linkFlag(cmd, &f.link)
	cli.JsonFlag(cmd, &f.json)
	return cmd
}

// take sorts the arguments out: a packet in words stands where no option has one.
func (f *explainFlags) take(cmd *cobra.Command, args []string) error {
	inWords := f.packet == "" && f.pcap == "" && !f.live
	if inWords && len(args) > 0 {
		f.words, args = args[len(args)-1], args[:len(args)-1]
	}
	if len(args) > 0 {
		f.file, args = args[0], args[1:]
	}
	switch {
	case len(args) > 0:
		return cli.Usagef(cmd,
			"%q is one argument too many; a packet in words stands in quotes, as one "+
				"argument", args[0])
	case inWords && f.words == "":
		return cli.Usagef(cmd, "PACKET, --packet or --pcap is missing")
	case f.packet != "" && f.pcap != "":
		return cli.Usagef(cmd, "--packet and --pcap exclude each other")
	case f.live && (f.packet != "" || f.pcap != ""):
		return cli.Usagef(cmd, "--live and --packet or --pcap exclude each other")
	case f.live && cmd.Flags().Changed("service"):
		return cli.Usagef(cmd, "--live and --service exclude each other: services have no log "+
			"rules")
	case f.live && f.leaves:
		return cli.Usagef(cmd, "--live and --leaves exclude each other")
	case f.live && f.file != "":
		return cli.Usagef(cmd, "--live is of the policy in force: FILE is one argument too many")
	case f.file != "" && cmd.Flags().Changed("service"):
		return cli.Usagef(cmd, "FILE and --service exclude each other")
	case f.file != "" && f.dev != "":
		return cli.Usagef(cmd, "FILE and --dev exclude each other")
	case f.file == "" && cmd.Flags().Changed("link"):
		return cli.Usagef(cmd,
			"--link is for FILE: an interface says itself what its packets begin with")
	case f.n < 1:
		return cli.Usagef(cmd, "--n %d: packets are counted from 1", f.n)
	case (f.file == cli.StdinName) && (f.packet == cli.StdinName || f.pcap == cli.StdinName):
		return cli.Usagef(cmd, "only one of FILE and packet can be standard input")
	}
	return nil
}

func (e *env) explain(cmd *cobra.Command, f *explainFlags) error {
	var words *spec.Packet
	if f.words != "" {
		var err error
		if words, err = e.packetInWords(cmd, f); err != nil {
			return err
		}
	}
	by, err := e.explainPolicy(cmd, f)
	if err != nil {
		return err
	}
	j, err := judge.NewOn(by.policy, by.link, judge.Oracle)
	if err != nil {
		return err
	}
	if err := j.Add(by.entries...); err != nil {
		return err
	}
	if f.live {
		return e.explainLive(cmd, by, j, f)
	}
	var frame []byte
	if words != nil {
		frame, err = by.frame(words, f.leaves)
		j.Tell(words.Tells)
	} else {
		frame, err = e.explainFrame(cmd, by.link, f)
	}
	if err != nil {
		return err
	}
	if f.leaves {
		if by.policy.Out == nil {
			return errors.New("the policy has no rule for what leaves: all of it passes")
		}
		if _, err := j.Leave(frame); err != nil {
			return err
		}
		return e.tell(by.policy, by.link, j.Story(), f.n, f.json)
	}
	return e.tell(by.policy, by.link, j.Explain(frame), f.n, f.json)
}

// tell tells the story of a packet, which has a number.
func (e *env) tell(p *policy.Policy, link packet.Link, tr oracle.Trace, n int,
	asJSON bool) error {
	room, err := judge.NewConnections(p, link, &tr)
	if err != nil {
		return err
	}
	if asJSON {
		s := judge.NewStory(p, &tr, n)
		s.Connections = room
		return e.PrintJSON(s)
	}
	out := e.Stdout.Screen()
	printTrace(out, &tr, "")
	if room != nil {
		fmt.Fprintf(out, "\n%s\n", room)
	}
	return out.Flush()
}

// explainLive tells the stories of packets as they arrive.
func (e *env) explainLive(cmd *cobra.Command, by *explained, j *judge.Judge,
	f *explainFlags) error {
	dev, _, err := e.inForce(cmd, f.dev)
	if err != nil {
		return err
	}
	ctx, stop := e.Signals()
	defer stop()
	told := 0
	var failed error
	event := func(ev tap.Event) {
		if told == f.n || failed != nil {
			return
		}
		told++
		if told > 1 && !f.json {
			fmt.Fprintln(e.Stdout)
		}
		frame := append(ev.Packet, make([]byte, max(0, ev.Bytes-len(ev.Packet)))...)
		failed = e.tell(by.policy, by.link, j.Explain(frame), told, f.json)
		if told == f.n || failed != nil {
			stop()
		}
	}
	err = tap.Watch(ctx, dev, event, func(tap.Losses) {})
	return errors.Join(err, failed)
}

// maxHex bounds the text of one packet on standard input; a frame has at most 65,549 bytes, and a
// dump with offsets takes about four characters for each.
const maxHex = 1 << 20

// explained holds the policy that judges the packet of a story, and the entries of its sets.
type explained struct {
	dev     string // "" for a policy that is not in force
	policy  *policy.Policy
	link    packet.Link // what packets begin with
	entries []judge.Entry
}

// frame returns the frame of a packet in words. One that is judged by a policy in force as it
// arrives goes to its interface, where the words do not say otherwise.
func (by *explained) frame(p *spec.Packet, leaves bool) ([]byte, error) {
	if _, service := store.ServiceNamed(by.dev); by.dev != "" && !leaves && !service {
		to, err := sets.Destination(by.dev)
		if err != nil {
			return nil, err
		}
		d := template.Defaults{EtherTo: to.MAC, To4: to.IPv4, To6: to.IPv6}
		d.Fill(p)
	}
	frame, err := p.Build()
	if err == nil {
		frame, err = by.link.Carry(frame)
	}
	if err != nil {
		return nil, fmt.Errorf("the packet is %w", err)
	}
	return frame, nil
}

// explainPolicy returns what judges: the policy in FILE, or the one in force.
func (e *env) explainPolicy(cmd *cobra.Command, f *explainFlags) (*explained, error) {
	if f.file != "" {
		link, err := parseLink(cmd, f.link)
		if err != nil {
			return nil, err
		}
		p, entries, err := e.policyWith(cmd, f.file, link, f.entries)
		return &explained{policy: p, link: link, entries: entries}, err
	}
	dev, in, err := e.inForce(cmd, f.dev)
	if err != nil {
		return nil, err
	}
	link := packet.L3
	if _, ok := store.ServiceNamed(dev); !ok {
		if link, err = attach.LinkLayer(dev); err != nil {
			return nil, err
		}
	}
	p, ds := in.Parse()
	if p == nil {
		e.PrintDiagnostics(ds)
		return nil, fmt.Errorf("the policy in force on %s cannot be read again by this levee: "+
			"levee up puts it in force anew", dev)
	}
	if in.OnError != "" {
		p = p.Fallback(true)
	} else if p, err = defend.WithLive(p, in.Live); err != nil {
		return nil, err
	}
	entries, err := judge.Entries(context.Background(), dev, p)
	if err != nil {
		return nil, err
	}
	more, err := parseEntries(cmd, p, f.entries)
	return &explained{dev, p, link, append(entries, more...)}, err
}

// packetInWords returns the packet that f.words describe.
func (e *env) packetInWords(cmd *cobra.Command, f *explainFlags) (*spec.Packet, error) {
	p, ds := template.One("packet", f.words)
	if p == nil && f.file == "" && !strings.Contains(f.words, " ") { // more likely FILE
		return nil, cli.Usagef(cmd, "PACKET, --packet or --pcap is missing: %q is no packet",
			f.words)
	}
	if p == nil {
		e.PrintDiagnostics(ds)
		return nil, cli.Usagef(cmd, "%q is no packet", f.words)
	}
	return p, nil
}

func (e *env) explainFrame(cmd *cobra.Command, link packet.Link,
	f *explainFlags) ([]byte, error) {
	if f.pcap != "" {
		frame, err := e.nthFrame(f.pcap, f.n)
		if err == nil {
			if frame, err = link.Carry(frame); err != nil {
				err = fmt.Errorf("packet %d is %w", f.n, err)
			}
		}
		return frame, err
	}
	text := f.packet
	if text == cli.StdinName {
		b, err := io.ReadAll(io.LimitReader(e.Stdin, maxHex+1))
		if err != nil {
			return nil, fmt.Errorf("read the packet from standard input: %w", err)
		}
		text = string(b)
	}
	if len(text) > maxHex {
		return nil, fmt.Errorf("the packet has more than %d characters, no frame is that long",
			maxHex)
	}
	frame, err := packet.ParseHex(text)
	if err != nil {
		return nil, cli.Usagef(cmd, "--packet: %v", err)
	}
	return frame, nil
}
