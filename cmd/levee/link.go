package main

import (
	"github.com/spf13/cobra"

	"levee/internal/cli"
	"levee/internal/lang/diag"
	"levee/internal/packet"
)

// linkFlag adds --link.
func linkFlag(cmd *cobra.Command, v *string) {
	cmd.Flags().StringVar(v, "link", packet.Ethernet.String(),
		"what packets begin with: ethernet, or l3 for the IP header (WireGuard, tun, GRE, PPP)")
}

// parseLink reads --link.
func parseLink(cmd *cobra.Command, v string) (packet.Link, error) {
	link, err := packet.ParseLink(v)
	if err != nil {
		return 0, cli.Usagef(cmd, "--link: %v", err)
	}
	return link, nil
}

// lacks are errors for what a policy asks of packets of a link layer that these lack; where says
// which packets these are.
func lacks(pr *cli.Parsed, link packet.Link, where string) diag.Diagnostics {
	if link == packet.Ethernet {
		return nil
	}
	return pr.Policy.WithoutEthernet(pr.Tree, where)
}

// forLink returns an error, which is printed, for a policy that asks packets of the link layer for
// what they lack.
func (e *env) forLink(pr *cli.Parsed, link packet.Link, where string) error {
	ds := lacks(pr, link, where)
	e.PrintDiagnostics(ds)
	if ds.HasErrors() {
		return cli.ErrNo
	}
	return nil
}

// linkFor is forLink for the link layer of an interface that is to have a policy.
func (e *env) linkFor(pr *cli.Parsed, dev string) error {
	link, err := e.link(dev)
	if err != nil {
		return err
	}
	return e.forLink(pr, link, "packets of "+dev)
}

// withoutEthernet names the packets without an Ethernet header by --link.
const withoutEthernet = "packets of --link l3"
