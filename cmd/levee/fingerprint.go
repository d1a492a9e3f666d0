package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"levee/internal/agent"
	"levee/internal/agent/fingerprint"
	"levee/internal/cli"
	"levee/internal/packet"
)

func newFingerprint(e *env) *cobra.Command {
	var file, target string
	var o fingerprint.Options
	cmd := &cobra.Command{
		Use:   "fingerprint",
		Short: "Describe a captured flood in the format of the DDoS clearing house",
		Long: `Describe a flood of a capture (pcap or pcapng) in the format of the DDoS clearing house, in which
members of an anti-DDoS coalition tell each other of floods: vectors with their service, ports,
flags, lengths, TTLs and sources, as one JSON object. Who was hit is "Anonymous" unless
--show-target.

Without --target it is the address, or the /24 or /64, that got most packets. Of a vector with less
than a twentieth of the packets nothing is said: it came along. --each is how many packets stand
behind each that was captured, where these are samples.`,
		Example: `  levee fingerprint --pcap attack.pcap > fingerprint.json
  levee fingerprint --pcap samples.pcapng --target 192.0.2.1 --each 1000`,
		Args: cli.WantArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return cli.Usagef(cmd, "--pcap is missing")
			}
			if target != "" {
				p, err := agent.ParseEntry(target)
				if err != nil {
					return cli.Usagef(cmd, "--target: %v", err)
				}
				o.Target = p
			}
			if o.Each < 1 || o.Each > 1e9 {
				return cli.Usagef(cmd, "--each is 1 to 1000000000")
			}
			return e.fingerprint(file, o)
		},
	}
	cmd.Flags().StringVar(&file, "pcap", "", "capture of the flood, or - for standard input")
	cmd.Flags().StringVar(&target, "target", "", "address or prefix that was hit")
	cmd.Flags().BoolVar(&o.ShowTarget, "show-target", false, "name it")
	cmd.Flags().Uint64Var(&o.Each, "each", 1, "packets behind each that was captured")
	return cmd
}

func (e *env) fingerprint(file string, o fingerprint.Options) error {
	f, err := e.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := packet.NewReader(f)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	c := fingerprint.New(o)
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		c.Add(rec.Time, rec.Data, rec.Length)
	}
	out, err := c.Fingerprint()
	if err != nil {
		return err
	}
	return e.PrintJSON(out)
}
