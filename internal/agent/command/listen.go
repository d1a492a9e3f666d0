package command

import (
	"net/netip"

	"github.com/spf13/cobra"

	"levee/internal/agent/daemon"
	"levee/internal/cli"
)

// listenFlags say where the agent's API is, besides its socket.
func listenFlags(cmd *cobra.Command, f *daemon.Listen) {
	cmd.Flags().StringArrayVar(&f.Addresses, "listen", nil,
		"also answer at ADDRESS:PORT, for callers with a token; other than loopback needs TLS")
	cmd.Flags().StringVar(&f.Cert, "tls-cert", "", "certificate chain for --listen, PEM")
	cmd.Flags().StringVar(&f.Key, "tls-key", "", "its key, PEM")
	cmd.Flags().StringArrayVar(&f.Hosts, "host", nil,
		"a name of this machine that browsers may use at --listen; those of the certificate they "+
			"may")
}

// checkListen refuses flags that mean nothing.
func checkListen(cmd *cobra.Command, f *daemon.Listen) error {
	switch {
	case len(f.Addresses) == 0 && (f.Cert != "" || f.Key != "" || len(f.Hosts) > 0):
		return cli.Usagef(cmd, "--tls-cert, --tls-key and --host are for --listen")
	case (f.Cert == "") != (f.Key == ""):
		return cli.Usagef(cmd, "--tls-cert and --tls-key go together")
	}
	for _, a := range f.Addresses {
		if _, err := netip.ParseAddrPort(a); err != nil {
			return cli.Usagef(cmd, "--listen: %q is no ADDRESS:PORT, such as 127.0.0.1:7443 or "+
				"[::1]:7443",
				a)
		}
	}
	return nil
}
