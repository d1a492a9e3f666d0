package commands

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"levee/internal/bench/linerate"
	"levee/internal/cli"
)

const calcLong = `Convert link speed, frame size, packets a second, ns and cycles a packet into
each other. Give two of them (or packets a second, ns or cycles alone, for the others of these
three); the unit says which is which:

  10G  100Mbit/s     link speed, in bits a second; k, M, G, T are powers of 1000
  64   1518B         frame size in bytes
  14.88Mpps          packets a second
  67.2ns  1us        time a packet
  336cycles          CPU cycles a packet, of all cores together

A frame is counted as in IEEE 802.3 and RFC 2544: with its check sequence (FCS, 4 bytes), 64 to
1518 bytes, a VLAN tag 4 more. Linux and tcpdump leave the FCS out (60 to 1514): --no-fcs. --ip
counts from the IP header on, as an MTU does. Each frame takes 20 bytes more on the wire:
preamble and start delimiter 8, gap 12.`

const calcExample = `  levee calc 10G 64
  levee calc 100G 1500 --ip --ghz 2.6 --cores 8
  levee calc 10G 5Mpps
  levee calc 67.2ns 200cycles`

func newCalc(e *env) *cobra.Command {
	var q linerate.Quantities
	var noFCS, ip, asJSON bool
	cmd := &cobra.Command{
		Use:     "calc QUANTITY...",
		Short:   "Convert link speed, frame size, packets a second, ns and cycles a packet",
		Long:    calcLong,
		Example: calcExample,
		Args:    cli.WantSome("QUANTITY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			counting := linerate.WithFCS
			switch {
			case noFCS && ip:
				return cli.Usagef(cmd, "--no-fcs and --ip count a frame in different ways")
			case noFCS:
				counting = linerate.WithoutFCS
			case ip:
				counting = linerate.IPPacket
			}
			for name, given := range map[string]bool{"ghz": q.Clock > 0, "cores": q.Cores > 0} {
				if cmd.Flags().Changed(name) && !given {
					return cli.Usagef(cmd, "--%s: a number above zero is needed", name)
				}
			}
			for _, word := range args {
				if err := q.Add(word, counting); err != nil {
					return cli.Usagef(cmd, "%v", err)
				}
			}
			out, err := linerate.Solve(q)
			if err != nil {
				return cli.Usagef(cmd, "%v", err)
			}
			if asJSON {
				return e.PrintJSON(out)
			}
			e.printQuantities(&out)
			return nil
		},
	}
	cmd.Flags().Float64Var(&q.Clock, "ghz", 0, "clock of a core, for cycles")
	cmd.Flags().IntVar(&q.Cores, "cores", 0, "cores that share the packets (default 1)")
	cmd.Flags().BoolVar(&noFCS, "no-fcs", false,
		"frame sizes do not count the check sequence, as in Linux: 60 to 1514")
	cmd.Flags().BoolVar(&ip, "ip", false, "sizes are of the IP packet: 20 to 1500")
	cli.JsonFlag(cmd, &asJSON)
	return cmd
}

// printQuantities prints what is known, one quantity a line.
func (e *env) printQuantities(q *linerate.Quantities) {
	t := cli.NewTable("", "<", "<")
	if q.Speed > 0 {
		t.Row("link", metric(q.Speed, "bit/s"))
	}
	if q.Frame > 0 {
		t.Row("frame", fmt.Sprintf("%s bytes with FCS, %s without, %s on the wire", digits(q.Frame),
			digits(q.Frame-linerate.FCS), digits(q.Frame+linerate.Overhead)))
	}
	if q.Rate > 0 {
		t.Row("packets", metric(q.Rate, "pps"))
	}
	if q.Time > 0 {
		t.Row("time", digits(q.Time)+" ns a packet")
	}
	if q.Cycles > 0 {
		cores := "one core"
		if q.Cores > 1 {
			cores = cli.Plural(q.Cores, "core")
		}
		t.Row("cycles", fmt.Sprintf("%s a packet, on %s of %s GHz", digits(q.Cycles), cores,
			digits(q.Clock)))
	}
	if q.Payload > 0 {
		t.Row("payload", metric(q.Payload, "bit/s")+" from the IP header on")
	}
	t.Print(e.Stdout, "")
}

// metric returns a number with four digits and the prefix of its power of 1000.
func metric(v float64, unit string) string {
	for _, p := range []struct {
		size float64
		name string
	}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if v >= p.size {
			return digits(v/p.size) + " " + p.name + unit
		}
	}
	return digits(v) + " " + unit
}

// digits returns a number with four digits, or all of those before the point.
func digits(v float64) string {
	if v >= 1000 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}
