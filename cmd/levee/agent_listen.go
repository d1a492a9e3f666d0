package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/spf13/cobra"

	"levee/internal/agent"
	"levee/internal/agent/api"
	"levee/internal/agent/part"
	"levee/internal/cli"
)

// listenFlags are where the agent's API is, besides its socket.
type listenFlags struct {
	addresses, hosts []string
	cert, key        string
}

func (f *listenFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.addresses, "listen", nil,
		"also answer at ADDRESS:PORT, for callers with a token; other than loopback needs TLS")
	cmd.Flags().StringVar(&f.cert, "tls-cert", "", "certificate chain for --listen, PEM")
	cmd.Flags().StringVar(&f.key, "tls-key", "", "its key, PEM")
	cmd.Flags().StringArrayVar(&f.hosts, "host", nil,
		"a name of this machine that browsers may use at --listen; those of the certificate they "+
			"may")
}

func (f *listenFlags) check(cmd *cobra.Command) error {
	switch {
	case len(f.addresses) == 0 && (f.cert != "" || f.key != "" || len(f.hosts) > 0):
		return cli.Usagef(cmd, "--tls-cert, --tls-key and --host are for --listen")
	case (f.cert == "") != (f.key == ""):
		return cli.Usagef(cmd, "--tls-cert and --tls-key go together")
	}
	for _, a := range f.addresses {
		if _, err := netip.ParseAddrPort(a); err != nil {
			return cli.Usagef(cmd, "--listen: %q is no ADDRESS:PORT, such as 127.0.0.1:7443 or "+
				"[::1]:7443",
				a)
		}
	}
	return nil
}

// listens are where the API answers: the socket for commands, which comes first, and ports. What
// another command line would mend is an error; what can come to be right is tried again and again.
func (e *env) listens(f *listenFlags, tokens *api.Tokens) ([]agent.Listen, error) {
	all := []agent.Listen{{Name: agentSocket(), Open: func() (*api.Listener, func(), error) {
		return api.Local(agentSocket())
	}}}
	for _, a := range f.addresses {
		if err := api.CheckAddress(a, f.cert, f.key); err != nil {
			return nil, err
		}
		all = append(all, agent.Listen{Name: a, Open: func() (*api.Listener, func(), error) {
			l, err := e.listenAt(a, f, tokens)
			return l, nil, err
		}})
	}
	return all, nil
}

func (e *env) listenAt(address string, f *listenFlags, tokens *api.Tokens) (*api.Listener, error) {
	known, err := tokens.List()
	if err != nil {
		return nil, err
	}
	l, err := api.Listen(address, f.cert, f.key, f.hosts)
	if err != nil {
		return nil, err
	}
	if len(known) == 0 {
		if ip := l.Addr().(*net.TCPAddr).IP; !ip.IsLoopback() {
			err := part.Do(fmt.Errorf("there is no token, so that nobody could use %s", address),
				"levee agent token add NAME --role viewer")
			return nil, errors.Join(err, l.Close())
		}
		e.Sayf("there is no token yet: levee agent token add NAME --role viewer makes one")
	}
	e.Sayf("answering at %s", l.URL())
	return l, nil
}
