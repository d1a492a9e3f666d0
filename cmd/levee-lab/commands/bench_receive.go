package commands

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"levee/internal/bench/receive"
	"levee/internal/cli"
)

const benchReceiveLong = `Compare ways in which a process gets packets from an interface: a UDP
socket by recvmmsg, PACKET_MMAP of version 3, libpcap (tcpdump, where it is installed), a ring
buffer of BPF, AF_XDP with copies and without, DPDK on AF_XDP (testpmd, where it is installed),
and a ring of a policy (levee help rings). All get the same flood on the same path, in turn. For
each size of frame, and for 1 core, which the kernel's receiving thread and the reader share, or
2, where the reader has one of its own: the packets a second that the reader takes, the share
that is lost behind the card's ring, and the run time that a packet costs in the reader and in
the receiving thread, with 95 % intervals.

A window counts only if packets balance: what the generator offered is what the card's ring
refused, the reader took and the way itself counts as lost. The lab's veth has no zero copy, and
says so. All of it takes about six minutes. Exit status 1 means that a way that is here has no
figure, or that the run was interrupted: it prints what it has, marked as incomplete.`

const benchReceiveExample = `  sudo levee bench receive
  sudo levee bench receive --quick --only 'libpcap,AF_XDP' --html receive.html
  sudo levee bench receive --sizes 64,1500 --cores 1 --rate 500k`

func newBenchReceive(e *env) *cobra.Command {
	var o receive.Options
	var rate string
	cmd := newMeasurement(e, benchCommand{
		use:   "receive",
		short: "Ways to receive: recvmmsg, PACKET_MMAP, libpcap, AF_XDP, ring buffers",
		long:  benchReceiveLong, example: benchReceiveExample,
		options: &o.Options,
		rounds:  "rounds (default 6, the fewest that give an interval)",
		window:  "length of a window (default 400ms, quick 100ms)",
		seed:    "seed of the flood",
		quick:   "short windows and two sizes: a look, not a figure to quote",
	}, func(cmd *cobra.Command) error {
		if rate == "" {
			return nil
		}
		n, err := numbersFlag(cmd, "rate", []string{rate}, cli.ParseRate)
		if err == nil {
			o.Rate = n[0]
		}
		return err
	}, func(ctx context.Context) (*receive.Report, error) { return receive.Run(ctx, o) })
	cmd.Flags().StringSliceVar(&o.Only, "only", nil,
		"only these: "+strings.Join(receive.Names(), "; "))
	cmd.Flags().IntSliceVar(&o.Sizes, "sizes", nil, "bytes of frames, without their check "+
		"sequence (default 64,256,512,1024,1500)")
	cmd.Flags().IntSliceVar(&o.Cores, "cores", nil, "1, 2 (default both)")
	cmd.Flags().StringVar(&rate, "rate", "",
		"packets a second that are sent: 500k, 1M (default as many as go)")
	return cmd
}
