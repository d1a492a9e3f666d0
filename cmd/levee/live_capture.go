package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/net/bpf"

	"levee/internal/cli"
	"levee/internal/dataplane/captured"
	"levee/internal/dataplane/tap"
	"levee/internal/filter/oracle"
	"levee/internal/host/tcpdump"
	"levee/internal/lang/diag"
	"levee/internal/packet"
	"levee/internal/usage"
)

const captureLong = `Show packets after the policy of an interface has judged them, until Ctrl-C: when, what
decided and how, and what stands in the headers. With --write they go to a capture in the format
pcapng, with the rule as comment, the verdict, the queue and a number for each packet; "-" is
standard output, for "levee capture --write - | tshark -r -".

An EXPRESSION is one of tcpdump's (pcap-filter(7)), which the installed tcpdump reads; the kernel
filters by it. It sees the first 256 bytes of a packet, without tags that the card has taken off.
--verdict and --rule take packets that pass or are dropped, or that one rule decided, by its label
or its line.

Nothing about the policy in force changes: a program of this command has the packet after it, and
goes when the command ends, or within three seconds when it is killed. At most --rate packets a
second and CPU are handed on; what is lost is counted, and told at the end.`

const captureExample = `  sudo levee capture --verdict drop tcp port 443
  sudo levee capture --rule "bad networks" --write drops.pcapng --count 1000`

// captureOptions are those of the command.
type captureOptions struct {
	tap.Capturing
	write string
	count int
	lasts time.Duration
	expr  string
}

func newCapture(e *env) *cobra.Command {
	o := captureOptions{}
	var lasts string
	cmd := &cobra.Command{
		Use:     "capture [EXPRESSION]",
		Short:   "Capture packets with what decided them",
		Long:    captureLong,
		Example: captureExample,
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.expr = strings.Join(args, " ")
			if err := cli.DurationFlag(cmd, "duration", lasts, &o.lasts); err != nil {
				return err
			}
			if err := o.check(); err != nil {
				return err
			}
			var err error
			if o.Dev, _, err = e.inForce(cmd, o.Dev); err != nil {
				return err
			}
			return e.capture(&o)
		},
	}
	cli.DevFlag(cmd, &o.Dev, "capture from this interface")
	cli.NoService(cmd, "capture from the interface by which its packets come")
	fl := cmd.Flags()
	fl.StringVar(&o.write, "write", "", "write a capture to `FILE`, \"-\" being standard output")
	fl.StringVar(&o.Verdict, "verdict", "",
		"only packets with this `VERDICT`: pass, drop or redirect")
	fl.StringVar(&o.Rule, "rule", "", "only packets that this rule decided: its `LABEL` or line")
	fl.IntVar(&o.Snap, "snap", 128, "first `BYTES` of each packet")
	fl.IntVar(&o.Rate, "rate", 10_000, "at most `N` packets a second and CPU")
	fl.IntVar(&o.count, "count", 0, "end after `N` packets; 0: go on")
	fl.StringVar(&lasts, "duration", "", "end after this `TIME`")
	return cmd
}

func (o *captureOptions) check() error {
	switch {
	case !tap.IsVerdict(o.Verdict):
		return usage.Wrongf("--verdict is pass, drop or redirect, not %s", diag.Quoted(o.Verdict))
	case o.Snap < 1 || o.Snap > tap.MostSnap:
		return usage.Wrongf("--snap takes 1 to %d bytes", tap.MostSnap)
	case o.Rate < 1 || o.Rate > 10_000_000:
		return usage.Wrongf("--rate takes 1 to 10000000 packets a second")
	case o.count < 0:
		return usage.Wrongf("--count takes a number above zero")
	}
	return nil
}

// capture hands on packets until a signal, the end of the time, or the last of the count.
func (e *env) capture(o *captureOptions) error {
	ctx, stop := e.Signals()
	defer stop()
	if o.lasts > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.lasts)
		defer cancel()
	}
	if o.expr != "" {
		o.Filter = func(l packet.Link) ([]bpf.Instruction, error) {
			link := tcpdump.Ethernet
			if l == packet.L3 {
				link = tcpdump.RawIP
			}
			return tcpdump.Compile(ctx, link, o.expr)
		}
	}
	if o.write == cli.StdinName && e.Stdout.Terminal {
		return usage.Wrongf("a capture is no text for a terminal: give --write a file, or leave " +
			"it out for lines")
	}
	to := &captureTo{dev: o.Dev, out: e.Stdout}
	if o.write != "" {
		to.file = &captured.File{Dev: o.Dev, Filter: o.expr, Snap: int(o.Snap),
			Program: cli.VersionLine(), Open: func() (io.WriteCloser, error) {
				return e.captureFile(o.write)
			}}
	}
	n := 0
	lost, err := tap.Capture(ctx, o.Capturing, func(p tap.Captured) bool {
		if err := to.packet(p); err != nil {
			return false
		}
		n++
		return n != o.count
	})
	if errors.Join(err, to.err) == nil && to.file != nil {
		err = to.file.End(lost)
	}
	if err = errors.Join(err, to.err); err != nil {
		return err
	}
	if o.write != "" || lost.Above+lost.Kernel > 0 {
		e.Sayf("%s captured; lost: %d above the rate, %d that this command was too slow for",
			cli.Plural(n, "packet"), lost.Above, lost.Kernel)
	}
	return nil
}

// captureTo names the place of captured packets.
type captureTo struct {
	dev  string
	out  *cli.Output    // lines
	file *captured.File // nil: lines
	err  error
}

// packet hands on one packet.
func (t *captureTo) packet(p tap.Captured) error {
	switch {
	case t.err != nil:
	case t.file == nil:
		t.line(p)
		t.err = t.out.Err
	default:
		t.err = t.file.Packet(&p, nameOfRule(p.Rule))
	}
	return t.err
}

func (t *captureTo) line(p tap.Captured) {
	fmt.Fprintf(t.out, "%s %s %s %s\n", lineOf(t.out, p.At, t.dev), p.Verdict,
		shortNameOf(p.Rule), oracle.Brief(p.Packet, p.Bytes, p.Link))
}

// captureFile opens what --write names.
func (e *env) captureFile(path string) (io.WriteCloser, error) {
	if path == cli.StdinName {
		return unbuffered{e.Stdout}, nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	return &bufferedFile{bufio.NewWriter(f), f}, nil
}

// unbuffered is standard output without a buffer: a reader may follow it live.
type unbuffered struct{ io.Writer }

func (unbuffered) Close() error { return nil }

// bufferedFile is a file that is written in large pieces.
type bufferedFile struct {
	*bufio.Writer
	file *os.File
}

func (b *bufferedFile) Close() error { return errors.Join(b.Flush(), b.file.Close()) }
