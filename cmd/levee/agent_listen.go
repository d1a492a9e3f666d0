package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/spf13/cobra"

	"levee/internal/agent/api"
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
		return usagef(cmd, "--tls-cert, --tls-key and --host are for --listen")
	case (f.cert == "") != (f.key == ""):
		return usagef(cmd, "--tls-cert and --tls-key go together")
	}
	for _, a := range f.addresses {
		if _, err := netip.ParseAddrPort(a); err != nil {
			return usagef(cmd, "--listen: %q is no ADDRESS:PORT, such as 127.0.0.1:7443 or "+
				"[::1]:7443",
				a)
		}
	}
	return nil
}

// listenAPI opens the ports, all or none.
func (e *env) listenAPI(f *listenFlags, tokens *api.Tokens) (all []*api.Listener, err error) {
	defer func() {
		if err != nil {
			for _, l := range all {
				err = errors.Join(err, l.Close())
			}
			all = nil
		}
	}()
	if len(f.addresses) == 0 {
		return nil, nil
	}
	known, err := tokens.List()
	if err != nil {
		return nil, err
	}
	for _, a := range f.addresses {
		l, err := api.Listen(a, f.cert, f.key, f.hosts)
		if err != nil {
			return all, err
		}
		all = append(all, l)
		if len(known) == 0 {
			if ip := l.Addr().(*net.TCPAddr).IP; !ip.IsLoopback() {
				return all, fmt.Errorf("there is no token, so that nobody could use %s: levee "+
					"agent token add NAME --role viewer makes one", a)
			}
			e.sayf("there is no token yet: levee agent token add NAME --role viewer makes one")
		}
		e.sayf("answering at %s", l.URL())
	}
	return all, nil
}
