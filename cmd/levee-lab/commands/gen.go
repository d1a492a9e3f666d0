package commands

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"levee/internal/cli"
	"levee/internal/lab"
	"levee/internal/lab/gen"
	"levee/internal/lab/trafgen"
	"levee/internal/lang/literal"
	"levee/internal/lang/spec"
	"levee/internal/packet/template"
)

const genLong = `Send packets into a lab: a flood with exact count, rate and duration, packets
in words (--packet, --template) whose values vary, or a capture. A flood's sources are a seeded
permutation of the given prefixes, so that no address comes twice before all have come; the same
--seed sends the same packets. Without --rate it sends as fast as one core can.

--packet takes the words of packets in a policy's tests, with ranges, prefixes and lists, and
how to walk them: counting [down] [step N], random, permuted, each with [every N];
"levee help templates" has all. --template reads such packets from a file, one a line, and sends them
in turn. --trafgen reads a configuration of netsniff-ng's trafgen: bytes, or functions for headers;
what templates cannot say of it is an error with its line.

--path is how they reach the device: live (an XDP program writes them, millions a second),
afxdp, packet (a packet socket past the qdisc), qdisc (one through the programs at egress and the
qdisc) or sendmmsg (a UDP socket). auto takes live where a program can write these packets and
the device takes frames of programs, packet otherwise, and says why. Live frames count as sent when the device has taken them.

It transmits only on a device of a lab (levee lab up), and for at most --duration, by default 10
s. On a network that is your own, --own-network sends from any device; never use it on one that
is not.`

const genExample = `  sudo levee gen --netns levee-lab-world --dev eth0 --kind syn --port 80 --rate 2M --duration 5s
  sudo levee gen --netns levee-lab-world --dev eth0 --packet 'ipv4 udp from 203.0.113.0/24 random port 1024-65535 ttl { 64, 128 }'
  sudo levee gen --netns levee-lab-world --dev eth0 --template packets.txt --path packet --rate 100k
  sudo levee gen --netns levee-lab-world --dev eth0 --trafgen syn.cfg --rate 1M --burst 32
  sudo levee gen --netns levee-lab-world --dev eth0 --pcap attack.pcap --json`

type genFlags struct {
	dev, netns, kind, to, toMAC, fromMAC string
	from, ports, fromPorts               []string
	lengths                              []int
	vlans                                []int
	ttl                                  uint8
	noChecksum                           bool
	flags, packet, template, path        string
	trafgen                              string
	burst                                int
	pcap                                 string
	fast, loop, rewrite                  bool
	count                                uint64
	rate, duration                       string
	seed                                 uint64
	cpu                                  string
	ownNetwork, json                     bool
}

func newGen(e *env) *cobra.Command {
	var f genFlags
	cmd := &cobra.Command{
		Use:     "gen --dev IF",
		Short:   "Send a flood or a capture into a lab",
		Long:    genLong,
		Example: genExample,
		Args:    cli.WantArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := e.genConfig(cmd, &f)
			if err != nil {
				return err
			}
			return e.gen(c, f.json)
		},
	}
	fl := cmd.Flags()
	cli.DevFlag(cmd, &f.dev, "the device to send on")
	fl.StringVar(&f.netns, "netns", "",
		"network namespace of the device, by the name that ip netns lists (default: this one)")
	fl.StringVar(&f.kind, "kind", "udp", "udp, syn, ack, icmp or fragment")
	_ = cmd.RegisterFlagCompletionFunc("kind", cli.Offered(func(*cobra.Command) []string {
		return []string{gen.UDP.String(), gen.SYN.String(), gen.ACK.String(),
			gen.ICMPEcho.String(), gen.Fragment.String()}
	}))
	fl.StringSliceVar(&f.from, "from", nil, "source prefixes (default 16.0.0.0/4 or 2a00::/12)")
	fl.StringVar(&f.to, "to", "", "destination address, of --packet and --template where a packet "+
		"says none (default: IPv4 address of the lab's other end)")
	fl.StringSliceVar(&f.ports, "port", nil,
		"destination ports and ranges, walked in this order: 53,1000-2000 (default 9)")
	fl.StringSliceVar(&f.fromPorts, "from-port", nil, "source ports and ranges (default 40000)")
	fl.IntSliceVar(&f.lengths, "len", nil,
		"bytes of the IP packet, walked in this order (default: the shortest)")
	fl.IntSliceVar(&f.vlans, "vlan", nil, "VLAN ids, outermost first, at most two")
	fl.Uint8Var(&f.ttl, "ttl", 64, "TTL or hop limit")
	fl.StringVar(&f.flags, "flags", "",
		"TCP flags of --kind syn or ack: fin,syn,... or none (default: those of the kind)")
	fl.BoolVar(&f.noChecksum, "no-checksum", false, "leave the UDP checksum zero")
	fl.StringVar(&f.fromMAC, "from-mac", "", "Ethernet source (default: the device's)")
	fl.StringVar(&f.toMAC, "to-mac", "", "Ethernet destination (default: the lab's other end)")
	fl.StringVar(&f.packet, "packet", "",
		"send this `packet` instead, in the words of levee help templates")
	fl.StringVar(&f.template, "template", "",
		"send the packets of this file instead, one a line; - is standard input")
	fl.StringVar(&f.trafgen, "trafgen", "",
		"send the packets of this configuration of trafgen instead; - is standard input")
	fl.IntVar(&f.burst, "burst", 0,
		"with --rate, by live frames: so many packets go at once, 1, 2, 4 to 64 (default 1)")
	fl.StringVar(&f.path, "path", "auto", "auto, live, afxdp, packet, qdisc or sendmmsg")
	fl.StringVar(&f.pcap, "pcap", "",
		"replay this capture instead, at its own times unless --rate or --fast")
	fl.BoolVar(&f.fast, "fast", false, "with --pcap: as fast as possible")
	fl.BoolVar(&f.loop, "loop", false, "with --pcap: start again at the end")
	fl.BoolVar(&f.rewrite, "rewrite", true, "with --pcap: use the lab's Ethernet addresses")
	fl.Uint64Var(&f.count, "count", 0, "stop after so many packets")
	fl.StringVar(&f.rate, "rate", "",
		"packets a second: 1000, 50k, 2M (default: as fast as possible)")
	fl.StringVar(&f.duration, "duration", "",
		"stop after this time (default 10s, unless --count is given)")
	fl.Uint64Var(&f.seed, "seed", 1, "seed of everything that varies")
	fl.StringVar(&f.cpu, "cpu", "0",
		"send from these `cores`: one, -1 for any, or 0-3 and the like by the paths packet, qdisc "+
			"and sendmmsg")
	fl.BoolVar(&f.ownNetwork, "own-network", false,
		"the device is not of a lab, and the network behind it is mine to flood")
	cli.JsonFlag(cmd, &f.json)
	cmd.AddCommand(newGenMPEGTS(e))
	return cmd
}

// floodOnly are the flags that describe a flood, replayOnly those of --pcap.
var (
	floodOnly = []string{"kind", "from", "port", "from-port", "len", "vlan", "ttl", "flags",
		"no-checksum", "from-mac", "to-mac"}
	replayOnly = []string{"fast", "loop", "rewrite"}
)

// genSources are the flags that say what to send, instead of a flood.
var genSources = []string{"pcap", "packet", "template", "trafgen"}

// genSource returns the one of genSources that is given, "" for a flood.
func genSource(cmd *cobra.Command) (string, error) {
	source := ""
	for _, name := range genSources {
		if !cmd.Flags().Changed(name) {
			continue
		}
		if source != "" {
			return "", cli.Usagef(cmd, "--%s and --%s: name one thing to send", source, name)
		}
		source = name
	}
	for _, group := range []struct {
		flags []string
		wrong bool
		why   string
	}{
		{floodOnly, source != "", "with --" + source + ": it describes a flood"},
		{replayOnly, source != "pcap", "without --pcap"},
		{[]string{"to"}, source == "pcap", "with --pcap: its packets say where they go"},
	} {
		for _, name := range group.flags {
			if group.wrong && cmd.Flags().Changed(name) {
				return "", cli.Usagef(cmd, "--%s means nothing %s", name, group.why)
			}
		}
	}
	return source, nil
}

func (e *env) genConfig(cmd *cobra.Command, f *genFlags) (c gen.Config, err error) {
	if f.dev == "" {
		return c, cli.Usagef(cmd, "--dev is missing")
	}
	source, err := genSource(cmd)
	if err != nil {
		return c, err
	}
	c = gen.Config{Namespace: f.netns, Device: f.dev, OwnNetwork: f.ownNetwork,
		Count: f.count, Seed: f.seed}
	if c.Burst = f.burst; cmd.Flags().Changed("burst") {
		if f.rate == "" || f.path != "auto" && f.path != string(gen.Live) {
			return c, cli.Usagef(cmd, "--burst is for live frames with a --rate")
		}
		c.Path = gen.Live // others have bursts of their own
	}
	cores, err := parseCores(f.cpu)
	if err != nil {
		return c, cli.Usagef(cmd, "--cpu: %v", err)
	}
	c.CPU, c.More = cores[0], cores[1:]
	if cmd.Flags().Changed("count") && f.count == 0 {
		return c, cli.Usagef(cmd, "--count 0: at least one packet is needed")
	}
	if f.rate != "" {
		if c.Rate, err = cli.ParseRate(f.rate); err != nil {
			return c, cli.Usagef(cmd, "--rate: %v", err)
		}
	}
	if f.duration != "" {
		if c.Duration, err = cli.ParseDuration(f.duration); err != nil {
			return c, cli.Usagef(cmd, "--duration: %v", err)
		}
	}
	path, err := gen.ParsePath(f.path)
	if err != nil {
		return c, cli.Usagef(cmd, "--path: %v", err)
	}
	if c.Path == gen.Auto {
		c.Path = path
	}
	if source != "" && f.to != "" {
		if c.To, err = floodTarget(cmd, f); err != nil {
			return c, err
		}
	}
	switch source {
	case "packet":
		c.Template, err = e.parseTemplate("--packet", strings.NewReader(f.packet))
	case "template":
		c.Template, err = e.openPackets(f.template, e.parseTemplate)
	case "trafgen":
		c.Template, err = e.openPackets(f.trafgen, e.parseTrafgen)
	case "pcap":
		if f.pcap == cli.StdinName && f.loop {
			return c, cli.Usagef(cmd, "--loop needs a file, not standard input")
		}
		c.Replay = &gen.Replay{
			Open:   func() (io.ReadCloser, error) { return e.Open(f.pcap) },
			Repeat: f.loop, Fast: f.fast, Rewrite: f.rewrite,
		}
	default:
		c.Floods, err = flood(cmd, f)
	}
	return c, err
}

// flood reads the flags that describe a flood.
func flood(cmd *cobra.Command, f *genFlags) ([]gen.Flood, error) {
	fl := gen.Flood{Lengths: f.lengths, NoChecksum: f.noChecksum, TTL: f.ttl}
	kind, err := gen.ParseKind(f.kind)
	if err != nil {
		return nil, cli.Usagef(cmd, "--kind: %v", err)
	}
	fl.Kind = kind
	if f.flags != "" {
		if kind != gen.SYN && kind != gen.ACK {
			return nil, cli.Usagef(cmd, "--flags: a %s flood has no TCP flags", kind)
		}
		if fl.Flags, err = spec.ParseFlags(f.flags); err != nil {
			return nil, cli.Usagef(cmd, "--flags: %v", err)
		}
		fl.NoFlags = fl.Flags == 0
	}
	if fl.To, err = floodTarget(cmd, f); err != nil {
		return nil, err
	}
	for _, s := range f.from {
		prefixes, err := literal.ParsePrefixes(s)
		if err != nil {
			return nil, cli.Usagef(cmd, "--from %q: %v", s, err)
		}
		fl.Sources = append(fl.Sources, prefixes...)
	}
	if len(f.from) == 0 {
		fl.Sources = gen.DefaultSources(fl.To)
	}
	for _, p := range []struct {
		name  string
		words []string
		to    *[]uint16
	}{{"port", f.ports, &fl.Ports}, {"from-port", f.fromPorts, &fl.FromPorts}} {
		if *p.to, err = parsePorts(p.words); err != nil {
			return nil, cli.Usagef(cmd, "--%s: %v", p.name, err)
		}
	}
	for _, v := range f.vlans {
		if v < 0 || v > 4094 {
			return nil, cli.Usagef(cmd, "--vlan %d: an id is 0 to 4094", v)
		}
		fl.VLANs = append(fl.VLANs, uint16(v))
	}
	for _, m := range []struct {
		name, text string
		to         *[6]byte
	}{{"from-mac", f.fromMAC, &fl.FromMAC}, {"to-mac", f.toMAC, &fl.ToMAC}} {
		if m.text == "" {
			continue
		}
		mac, err := net.ParseMAC(m.text)
		if err != nil || len(mac) != 6 {
			return nil, cli.Usagef(cmd, "--%s %q: write it as 02:00:00:00:00:01", m.name, m.text)
		}
		copy(m.to[:], mac)
	}
	return []gen.Flood{fl}, nil
}

// floodTarget is --to, or the other end of the lab's device.
func floodTarget(cmd *cobra.Command, f *genFlags) (netip.Addr, error) {
	if f.to != "" {
		to, err := netip.ParseAddr(f.to)
		if err != nil {
			return to, cli.Usagef(cmd, "--to %q is no address", f.to)
		}
		return to, nil
	}
	to, err := gen.DefaultTo(f.netns, f.dev)
	if errors.Is(err, lab.ErrForeign) {
		return to, fmt.Errorf("%w, and there is no --to: make a lab with `levee lab up`, or name "+
			"an address", err)
	}
	return to, err
}

func (e *env) gen(c gen.Config, asJSON bool) error {
	if err := e.Privileged(); err != nil {
		return err
	}
	ctx, stop := e.Signals()
	defer stop()
	progress := e.Progress()
	c.Progress = func(p gen.Progress) {
		progress.Printf("%s in %s", cli.Plural(p.Sent, "packet"),
			p.Elapsed.Round(100*time.Millisecond))
	}
	rep, err := gen.Run(ctx, c)
	progress.Clear()
	if err != nil {
		return err
	}
	if asJSON {
		return e.PrintJSON(newGenReport(&rep))
	}
	fmt.Fprintf(e.Stdout, "sent     %s, %s, in %s\n", cli.Plural(rep.Sent, "packet"),
		cli.Plural(rep.Bytes, "byte"), rep.Duration.Round(time.Microsecond))
	asked := "as fast as possible"
	if rep.Rate > 0 {
		asked = fmt.Sprintf("%.0f/s, %+.3f %%", rep.Rate, (rep.Achieved/rep.Rate-1)*100)
	}
	fmt.Fprintf(e.Stdout, "rate     %.0f/s (asked: %s)\n", rep.Achieved, asked)
	fmt.Fprintf(e.Stdout, "refused  %d by the receiver's ring, %d not sent for errors\n",
		rep.Refused, rep.Errors)
	for _, why := range rep.Unsent() {
		fmt.Fprintf(e.Stdout, "         not sent: %s\n", why)
	}
	if rep.Filled > 0 {
		fmt.Fprintf(e.Stdout, "         filled with zeros: %s that the capture has cut\n",
			cli.Plural(rep.Filled, "packet"))
	}
	if g := &rep.Gaps; g.Count() > 0 {
		fmt.Fprintf(e.Stdout, "gaps     %s median, %s 99 %%, %s longest%s\n", g.Quantile(0.5),
			g.Quantile(0.99), g.Max, spanned(g.Packets))
	}
	fmt.Fprintf(e.Stdout, "path     %s\n", rep.How)
	if rep.Why != "" {
		fmt.Fprintf(e.Stdout, "         not live frames: %s\n", rep.Why)
	}
	fmt.Fprintf(e.Stdout, "seed     %d\n", rep.Seed)
	return nil
}

// openPackets reads the packets of a file.
func (e *env) openPackets(path string, parse func(string, io.Reader) ([]spec.Packet, error)) (
	[]spec.Packet, error) {
	r, err := e.Open(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if path == cli.StdinName {
		path = "standard input"
	}
	return parse(path, r)
}

// maxConfiguration bounds a configuration of trafgen, in bytes.
const maxConfiguration = 16 << 20

// parseTrafgen reads the packets of a configuration of trafgen.
func (e *env) parseTrafgen(path string, r io.Reader) ([]spec.Packet, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxConfiguration+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(text) > maxConfiguration {
		return nil, fmt.Errorf("%s: more than %d bytes", path, maxConfiguration)
	}
	lines, err := trafgen.Import(path, string(text))
	if err != nil {
		return nil, err
	}
	return e.parseTemplate(path+", as a template", strings.NewReader(lines))
}

// parseTemplate reads packets, and shows what is wrong with them.
func (e *env) parseTemplate(name string, r io.Reader) ([]spec.Packet, error) {
	packets, ds, err := template.Read(name, r)
	if err != nil {
		return nil, err
	}
	if ds.HasErrors() {
		e.PrintDiagnostics(ds)
		return nil, cli.ErrNo
	}
	return packets, nil
}

// parseCores reads -1, a core, or cores as 0-3,6.
func parseCores(list string) (all []int, err error) {
	if list == "-1" {
		return []int{-1}, nil
	}
	for w := range strings.SplitSeq(list, ",") {
		a, b, ok := parseRange(w)
		if !ok {
			return nil, fmt.Errorf("%q is no core and no range of cores", w)
		}
		for n := int(a); n <= int(b); n++ {
			all = append(all, n)
		}
	}
	return all, nil
}

// parseRange reads a number of 16 bits, or two with a hyphen between them, the first no larger.
func parseRange(text string) (from, to uint16, ok bool) {
	lo, hi, isRange := strings.Cut(text, "-")
	if !isRange {
		hi = lo
	}
	a, err1 := strconv.ParseUint(lo, 10, 16)
	b, err2 := strconv.ParseUint(hi, 10, 16)
	return uint16(a), uint16(b), err1 == nil && err2 == nil && a <= b
}

// parsePorts reads ports and ranges of ports, in their order.
func parsePorts(words []string) ([]uint16, error) {
	var all []uint16
	for _, w := range words {
		a, b, ok := parseRange(w)
		if !ok {
			return nil, fmt.Errorf("%q is no port and no range of ports", w)
		}
		if all = append(all, gen.PortRange(a, b)...); len(all) > 1<<16 {
			return nil, fmt.Errorf("more than %d ports", 1<<16)
		}
	}
	return all, nil
}
