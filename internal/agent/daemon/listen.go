package daemon

import (
	"errors"
	"fmt"
	"net"

	"levee/internal/agent"
	"levee/internal/agent/api"
	"levee/internal/agent/client"
	"levee/internal/agent/part"
)

// Listen is the address of the agent's API, besides its socket.
type Listen struct {
	Addresses []string // ADDRESS:PORT
	Hosts     []string // names of this machine that browsers may use
	Cert, Key string   // files, PEM
}

// listens returns where the API answers: the socket for commands, which comes first, and ports.
// What another command line would mend is an error; what can come to be right is tried again and
// again.
func (o *Options) listens(tokens *api.Tokens) ([]agent.Listen, error) {
	f := &o.Listen
	all := []agent.Listen{{Name: client.Socket(), Open: func() (*api.Listener, func(), error) {
		return api.Local(client.Socket())
	}}}
	for _, a := range f.Addresses {
		if err := api.CheckAddress(a, f.Cert, f.Key); err != nil {
			return nil, err
		}
		all = append(all, agent.Listen{Name: a, Open: func() (*api.Listener, func(), error) {
			l, err := o.listenAt(a, tokens)
			return l, nil, err
		}})
	}
	return all, nil
}

func (o *Options) listenAt(address string, tokens *api.Tokens) (*api.Listener, error) {
	f := &o.Listen
	known, err := tokens.List()
	if err != nil {
		return nil, err
	}
	l, err := api.Listen(address, f.Cert, f.Key, f.Hosts)
	if err != nil {
		return nil, err
	}
	if len(known) == 0 {
		if ip := l.Addr().(*net.TCPAddr).IP; !ip.IsLoopback() {
			err := part.Do(fmt.Errorf("there is no token, so that nobody could use %s", address),
				"levee agent token add NAME --role viewer")
			return nil, errors.Join(err, l.Close())
		}
		o.Say("there is no token yet: levee agent token add NAME --role viewer makes one")
	}
	o.Say("answering at %s", l.URL())
	return l, nil
}
