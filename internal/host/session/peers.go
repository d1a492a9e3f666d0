package session

import (
	"net/netip"

	"github.com/vishvananda/netlink"
)

// States of TCP that a connection is in after its handshake, of tcp_states.h: in the others, and in
// FIN_WAIT1 with TCP Fast Open, the peer may be anybody who can forge a SYN.
var proven = map[uint8]bool{
	netlink.TCP_ESTABLISHED: true, netlink.TCP_FIN_WAIT2: true, netlink.TCP_TIME_WAIT: true,
	netlink.TCP_CLOSE_WAIT: true, netlink.TCP_CLOSING: true,
}

// Peers returns the addresses, beyond this machine, with which this network namespace has a TCP
// connection whose handshake is done, or has ended one within a minute. One address may come again.
func Peers() ([]netip.Addr, error) {
	socks, err := tcpSockets(ownProc)
	if err != nil {
		return nil, err
	}
	var out []netip.Addr
	for _, s := range socks {
		if peer := s.Remote.Addr(); proven[s.State] && !peer.IsLoopback() {
			out = append(out, peer)
		}
	}
	return out, nil
}
