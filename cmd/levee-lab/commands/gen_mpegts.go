package commands

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"

	"github.com/spf13/cobra"

	"levee/internal/cli"
	"levee/internal/lab/broadcast"
	"levee/internal/lab/gen"
	"levee/internal/monitor/mpegts"
	"levee/internal/packet"
)

const genMPEGTSLong = `Send MPEG transport streams into a lab, with faults that are known: at the end
it says of each stream what whoever follows it has to count, as "levee monitor mpegts" does. The
same --seed makes the same streams.

--fault KIND=N has one in N go wrong, on average: datagrams or packets, whichever it is of. Kinds are
  loss       the network loses one to three datagrams
  skip       the sender leaves a packet out
  duplicate  a packet comes twice, which is legal
  triple     and three times, which is not
  declared   a counter jumps, and the stream says so
  error      a packet has the transport_error_indicator
  unsynced   a packet has lost its sync byte
  scrambled  a packet is scrambled
  repeat     the network brings a datagram twice
  reorder    and two in the other order
  fragment   a datagram comes in two IP fragments
  restart    RTP begins anew, with another source identifier
  silence    nothing comes for three times --silence

The first stream goes to --to, each further one to the next address. --write makes a capture instead
of sending.`

const genMPEGTSExample = `  sudo levee gen mpegts --netns levee-lab-world --dev eth0 --streams 10 --rate 4M --fault loss=1000
  sudo levee gen mpegts --netns levee-lab-world --dev eth0 --rtp --fec --fault reorder=500 --json
  levee gen mpegts --write streams.pcap --duration 60s --fault skip=1000`

type genMPEGTSFlags struct {
	dev, netns, from, to, rate, duration, silence, write string
	faults                                               []string
	streams, packets, vlan, cpu                          int
	seed                                                 uint64
	rtp, fec, ownNetwork, json                           bool
}

func newGenMPEGTS(e *env) *cobra.Command {
	var f genMPEGTSFlags
	cmd := &cobra.Command{
		Use:     "mpegts --dev IF",
		Short:   "Send MPEG transport streams with known faults",
		Long:    genMPEGTSLong,
		Example: genMPEGTSExample,
		Args:    cli.WantArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.config(cmd)
			if err != nil {
				return err
			}
			if f.write != "" {
				return e.writeMPEGTS(c, &f)
			}
			return e.genMPEGTS(c, &f)
		},
	}
	fl := cmd.Flags()
	cli.DevFlag(cmd, &f.dev, "the device to send on")
	fl.StringVar(&f.netns, "netns", "",
		"network namespace of the device, by the name that ip netns lists (default: this one)")
	fl.IntVar(&f.streams, "streams", 1, "how many")
	fl.StringVar(&f.rate, "rate", "4M", "bits a second of each stream")
	fl.StringVar(&f.from, "from", "198.18.0.1:5000", "`address:port` of the sender")
	fl.StringVar(&f.to, "to", "239.1.1.1:5004", "`address:port` of the first stream")
	fl.IntVar(&f.vlan, "vlan", 0, "VLAN id (default: no tag)")
	fl.IntVar(&f.packets, "packets", 7, "packets of a stream in a datagram")
	fl.BoolVar(&f.rtp, "rtp", false, "with RTP")
	fl.BoolVar(&f.fec, "fec", false, "with parity for 20 datagrams each, two ports above")
	fl.StringSliceVar(&f.faults, "fault", nil, "what goes wrong, and how often; see above")
	fl.StringVar(&f.silence, "silence", "1s", "what is called silence")
	fl.StringVar(&f.duration, "duration", "10s", "how long the streams last")
	fl.StringVar(&f.write, "write", "", "write a capture to this file instead of sending")
	fl.Uint64Var(&f.seed, "seed", 1, "seed of everything that varies")
	fl.IntVar(&f.cpu, "cpu", 0, "the core to send from; -1 for any")
	fl.BoolVar(&f.ownNetwork, "own-network", false,
		"the device is not of a lab, and the network behind it is mine")
	cli.JsonFlag(cmd, &f.json)
	return cmd
}

// config reads the flags.
func (f *genMPEGTSFlags) config(cmd *cobra.Command) (c broadcast.Config, err error) {
	switch {
	case f.write == "" && f.dev == "":
		return c, cli.Usagef(cmd, "--dev is missing, or --write")
	case f.write != "" && f.dev != "":
		return c, cli.Usagef(cmd, "--dev and --write exclude each other")
	case f.ownNetwork && !isGroup(f.to):
		return c, cli.Usagef(cmd, "--own-network sends to groups alone: --to 239.1.1.1:5004")
	case f.vlan < 0 || f.vlan > 4094:
		return c, cli.Usagef(cmd, "--vlan %d: an id is 1 to 4094", f.vlan)
	}
	c = broadcast.Config{Streams: f.streams, Packets: f.packets, VLAN: uint16(f.vlan), RTP: f.rtp,
		FEC: f.fec, Seed: f.seed}
	if f.packets == 0 {
		return c, cli.Usagef(cmd, "--packets 0: at least one")
	}
	if c.Rate, err = cli.ParseRate(f.rate); err != nil {
		return c, cli.Usagef(cmd, "--rate: %v", err)
	}
	for _, d := range []struct {
		name, text string
		to         *time.Duration
	}{{"duration", f.duration, &c.Duration}, {"silence", f.silence, &c.Silence}} {
		if *d.to, err = cli.ParseDuration(d.text); err != nil {
			return c, cli.Usagef(cmd, "--%s: %v", d.name, err)
		}
	}
	for _, a := range []struct {
		name, text string
		to         *netip.AddrPort
	}{{"from", f.from, &c.From}, {"to", f.to, &c.To}} {
		if *a.to, err = netip.ParseAddrPort(a.text); err != nil || a.to.Addr().Zone() != "" {
			return c, cli.Usagef(cmd, "--%s %q is no ADDRESS:PORT, such as 239.1.1.1:5004", a.name,
				a.text)
		}
	}
	if c.Faults, err = broadcast.ParseFaults(f.faults); err != nil {
		return c, cli.Usagef(cmd, "--fault: %v", err)
	}
	if err := c.Check(); err != nil {
		return c, cli.Usagef(cmd, "%v", err)
	}
	return c, nil
}

// isGroup says whether streams go to a multicast address, whose Ethernet address follows from it.
func isGroup(to string) bool {
	a, err := netip.ParseAddrPort(to)
	return err == nil && a.Addr().IsMulticast()
}

// epoch is the time at which the streams of a capture begin.
var epoch = time.Unix(1_700_000_000, 0)

// writeStreams writes all frames of a sender as a capture.
func writeStreams(s *broadcast.Sender, w io.Writer) error {
	p, err := packet.NewWriter(w)
	if err != nil {
		return err
	}
	for f, ok := s.Next(); ok; f, ok = s.Next() {
		if err := p.Write(f.Bytes, 0, epoch.Add(f.At)); err != nil {
			return err
		}
	}
	return nil
}

func (e *env) writeMPEGTS(c broadcast.Config, f *genMPEGTSFlags) error {
	out, err := os.Create(f.write)
	if err != nil {
		return err
	}
	s, b := broadcast.New(c), bufio.NewWriterSize(out, 1<<16)
	if err := errors.Join(writeStreams(s, b), b.Flush(), out.Close()); err != nil {
		return err
	}
	return e.tellStreams(s, nil, f.json)
}

func (e *env) genMPEGTS(c broadcast.Config, f *genMPEGTSFlags) error {
	if err := e.Privileged(); err != nil {
		return err
	}
	ctx, stop := e.Signals()
	defer stop()
	s := broadcast.New(c)
	made := make(chan error, 1)
	var pipe *io.PipeReader
	rep, err := gen.Run(ctx, gen.Config{Namespace: f.netns, Device: f.dev, OwnNetwork: f.ownNetwork,
		CPU: f.cpu, Seed: f.seed, Duration: c.Duration + time.Minute,
		Replay: &gen.Replay{Rewrite: !f.ownNetwork,
			Open: func() (io.ReadCloser, error) {
				r, w := io.Pipe()
				pipe = r
				go func() {
					err := writeStreams(s, w)
					w.CloseWithError(err)
					made <- err
				}()
				return r, nil
			}}})
	if pipe != nil {
		pipe.Close()
		// What was not asked for any more ends the writing, and is no error of its own.
		if werr := <-made; werr != nil && !errors.Is(werr, io.ErrClosedPipe) {
			err = errors.Join(err, werr)
		}
	}
	if err != nil {
		return err
	}
	return e.tellStreams(s, &rep, f.json)
}

// MPEGTSReport is the JSON of `levee gen mpegts`.
type MPEGTSReport struct {
	Sent    uint64 `json:"sent"`    // frames that the device took, or that are in the capture
	Refused uint64 `json:"refused"` // of sent: no room in the receiver's ring
	Errors  uint64 `json:"errors"`  // not in sent
	// Whole says that all that is below was sent.
	Whole    bool           `json:"whole"`
	Expected []MPEGTSStream `json:"expected"`
	Totals   mpegts.Totals  `json:"totals"`
	Faults   []MadeFaults   `json:"faults"`
}

// MadeFaults counts how often something went wrong.
type MadeFaults struct {
	Fault broadcast.Fault `json:"fault"`
	Made  uint64          `json:"made"`
}

// MPEGTSStream holds the counts that a monitor has to report of a stream.
type MPEGTSStream struct {
	Src string `json:"src"`
	Dst string `json:"dst"`
	mpegts.Counts
	Datagrams   uint64       `json:"datagrams"`
	Nulls       uint64       `json:"nulls"`
	Unsynced    uint64       `json:"unsynced"`
	RTPLost     uint64       `json:"rtp_lost"`
	RTPLate     uint64       `json:"rtp_late"`
	RTPRestarts uint64       `json:"rtp_restarts"`
	Repeated    uint64       `json:"repeated"`
	Fragments   uint64       `json:"fragments"`
	Silences    uint64       `json:"silences"`
	PIDs        []mpegts.PID `json:"pids"`
}

func (e *env) tellStreams(s *broadcast.Sender, rep *gen.Report, asJSON bool) error {
	out := MPEGTSReport{Whole: true, Faults: []MadeFaults{}, Expected: []MPEGTSStream{},
		Totals: mpegts.Totals{FEC: s.Parity, Fragments: s.Later}}
	if out.Sent = s.Frames; rep != nil {
		out.Sent, out.Refused, out.Errors = rep.Sent, rep.Refused, rep.Errors
		out.Whole = rep.Refused == 0 && rep.Errors == 0 && rep.Sent == s.Frames
	}
	for _, f := range broadcast.Faults {
		if n := s.Made[f]; n > 0 {
			out.Faults = append(out.Faults, MadeFaults{f, n})
		}
	}
	for _, x := range s.Expected() {
		out.Expected = append(out.Expected, MPEGTSStream{Src: x.Src.String(),
			Dst: x.Dst.String(), Counts: x.Counts, Datagrams: x.Datagrams, Nulls: x.Nulls,
			Unsynced: x.Unsynced, RTPLost: x.RTPLost, RTPLate: x.RTPLate,
			RTPRestarts: x.RTPRestarts, Repeated: x.Repeated, Fragments: x.Fragments,
			Silences: x.Silences, PIDs: x.PIDs})
	}
	if asJSON {
		return e.PrintJSON(out)
	}
	if rep == nil {
		fmt.Fprintf(e.Stdout, "made     %s\n", cli.Plural(s.Frames, "packet"))
	} else {
		fmt.Fprintf(e.Stdout, "sent     %s, %s, in %s\n", cli.Plural(rep.Sent, "packet"),
			cli.Plural(rep.Bytes, "byte"), rep.Duration.Round(time.Microsecond))
	}
	if !out.Whole {
		fmt.Fprintf(e.Stdout, "refused  %d, %d not sent for errors, of %d: more is missing than "+
			"is listed\n", rep.Refused, rep.Errors, s.Frames)
	}
	for _, f := range out.Faults {
		fmt.Fprintf(e.Stdout, "fault    %s: %d\n", f.Fault, f.Made)
	}
	t := cli.NewTable("to datagrams packets discontinuities missing duplicates declared errors "+
		"scrambled RTP-lost late repeated fragments silences", "<", ">", ">", ">", ">", ">", ">",
		">", ">", ">", ">", ">", ">", ">")
	for _, x := range out.Expected {
		t.Row(x.Dst, x.Datagrams, x.Packets, x.Discontinuities, x.Missing, x.Duplicates,
			x.Declared, x.Errors, x.Scrambled, x.RTPLost, x.RTPLate, x.Repeated, x.Fragments,
			x.Silences)
	}
	fmt.Fprintln(e.Stdout, "to be counted of each stream:")
	t.Print(e.Stdout, "  ")
	return nil
}
