package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"levee/internal/lab"
)

// The network:
//
//	world ------ mid: loses 5 % each way, filters, translates ------ edge: levee, 203.0.113.0/24
const (
	edge = "edge"
	mid  = "mid"
)

// policyText is the policy of levee in front of the network.
const policyText = `# A network of services, for make probe-proof
set cookied = { 203.0.113.141-203.0.113.150 }
cookie tcp to cookied port 443
pass established
drop tcp port 23
pass tcp to 203.0.113.131-203.0.113.135 as "pit"
pass tcp port { 22, 80, 443, 8081 } as "services"
pass udp port 53 as "names"
pass icmp
default drop
`

// behindText is the ruleset of netfilter behind levee, on the same machine.
const behindText = `
table ip behind {
	chain nat { type nat hook prerouting priority dstnat;
		ip daddr 203.0.113.131-203.0.113.135 meta l4proto tcp redirect to :7777
	}
	chain raw { type filter hook prerouting priority raw;
		iifname eth0 ip daddr 203.0.113.151-203.0.113.160 tcp dport 80 tcp flags syn notrack
	}
	chain in { type filter hook input priority filter;
		iifname eth0 ip daddr 203.0.113.151-203.0.113.160 tcp dport 80 ct state invalid,untracked synproxy mss 1460 wscale 7 timestamp sack-perm
		ip daddr 203.0.113.101-203.0.113.110 tcp dport 22 reject with tcp reset
		ip daddr 203.0.113.111-203.0.113.120 meta l4proto { tcp, udp } reject with icmp admin-prohibited
		ip daddr 203.0.113.121-203.0.113.130 drop
		ip daddr 203.0.113.220-203.0.113.254 drop
	}
}
`

// betweenText is the ruleset on the way to levee.
const betweenText = `
table ip between {
	chain nat { type nat hook prerouting priority dstnat;
		ip daddr 203.0.113.201 tcp dport 8443 dnat to 203.0.113.202:443
		ip daddr 203.0.113.136-203.0.113.140 meta l4proto tcp redirect to :7777
		ip daddr 203.0.113.210 tcp dport 80 redirect to :7777
	}
	chain on { type filter hook forward priority filter;
		tcp dport 8081 drop
		%s
	}
}
`

// lossRule drops 5 % of what goes through, each way.
const lossRule = "numgen random mod 100 < 5 drop"

// services lists what listens, and how the network answers for it.
var (
	tcpPorts = []uint16{22, 23, 80, 443, 8081, 8443}
	udpPorts = []uint16{53}
)

type service struct {
	proto string
	addr  netip.Addr
	port  uint16
}

func (s service) String() string { return fmt.Sprintf("%s %s %d", s.addr, s.proto, s.port) }

func host(n int) netip.Addr { return netip.AddrFrom4([4]byte{203, 0, 113, byte(n)}) }

// listening returns what the machine behind levee has: 200 services, and more behind what hides
// them.
func listening() (all []service) {
	add := func(proto string, first, last int, ports ...uint16) {
		for n := first; n <= last; n++ {
			for _, p := range ports {
				all = append(all, service{proto, host(n), p})
			}
		}
	}
	add("tcp", 1, 46, 22, 80, 443) // 138
	add("udp", 1, 53, 53)          // 53
	add("tcp", 141, 145, 443)      // 5, behind cookies
	add("tcp", 151, 155, 80)       // 5, behind a proxy of SYNs
	add("tcp", 202, 202, 443)      // 1, and by translation at 201
	add("tcp", 1, 5, 23, 8081)     // hidden by levee, and by a filter on the way
	add("tcp", 101, 110, 22)       // hidden by resets
	add("tcp", 111, 130, 22, 80)   // hidden behind levee
	return all
}

// reachable returns what somebody outside can use.
func reachable() map[service]bool {
	out := map[service]bool{}
	for _, s := range listening() {
		n := int(s.addr.As4()[3])
		hidden := s.port == 23 || s.port == 8081 || n >= 101 && n <= 130
		if !hidden {
			out[s] = true
		}
	}
	out[service{"tcp", host(201), 8443}] = true
	out[service{"tcp", host(210), 80}] = true
	return out
}

// answersForAll says that something accepts each connection there, whatever listens.
func answersForAll(a netip.Addr) bool { n := a.As4()[3]; return n >= 131 && n <= 140 }

// network is the lab, with its listeners and levee in force.
type network struct {
	*lab.Lab
	dir    string // of the binaries
	listen []net.Listener
	udp    []net.PacketConn
}

func build(ctx context.Context, dir, work string, loss bool) (*network, error) {
	l, err := lab.New(ctx, lab.Topology{Pairs: []lab.Pair{{Inner: edge, Outer: mid},
		{Inner: mid, Outer: lab.World}}, Forward: []string{mid}, ReceiverCPU: 1, Offload: true})
	if err != nil {
		return nil, err
	}
	n := &network{Lab: l, dir: dir}
	if err := n.setUp(ctx, work, loss); err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

func (n *network) setUp(ctx context.Context, work string, loss bool) error {
	policy := filepath.Join(work, "edge.levee")
	if err := os.WriteFile(policy, []byte(policyText), 0o644); err != nil {
		return err
	}
	rule := ""
	if loss {
		rule = lossRule
	}
	for _, c := range []struct {
		host, in string
		args     []string
	}{
		// It tells of each port on which nobody listens: how many a second is the host's affair.
		{edge, "", []string{"sysctl", "-q", "net.ipv4.icmp_ratelimit=0",
			"net.ipv4.icmp_msgs_per_sec=100000", "net.ipv4.icmp_msgs_burst=10000"}},
		{edge, "", []string{"ip", "route", "add", "local", "203.0.113.0/24", "dev", "lo"}},
		{mid, "", []string{"ip", "route", "add", "203.0.113.0/24", "via", "198.18.0.1"}},
		{lab.World, "", []string{"ip", "route", "add", "203.0.113.0/24", "via", "198.18.1.1"}},
		{edge, behindText, []string{"nft", "-f", "-"}},
		// A connection whose SYN a proxy has answered is not known before.
		{edge, "", []string{"sysctl", "-q", "net.netfilter.nf_conntrack_tcp_loose=0"}},
		{mid, fmt.Sprintf(betweenText, rule), []string{"nft", "-f", "-"}},
		{edge, "", []string{filepath.Join(n.dir, "levee"), "up", policy, "--dev", "eth0"}},
	} {
		cmd := n.Host(c.host).Command(ctx, c.args[0], c.args[1:]...)
		cmd.Stdin = strings.NewReader(c.in)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %s: %w\n%s", c.host, strings.Join(c.args, " "), err, out)
		}
	}
	if err := n.Host(edge).Do(func() error {
		for _, s := range append(listening(), service{"tcp", netip.IPv4Unspecified(), 7777}) {
			if err := n.serve(s); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	return n.Host(mid).Do(func() error {
		return n.serve(service{"tcp", netip.IPv4Unspecified(), 7777})
	})
}

// serve has a service listen: of TCP it says its name to who connects, of UDP it says what it got.
func (n *network) serve(s service) error {
	at := netip.AddrPortFrom(s.addr, s.port).String()
	if s.proto == "udp" {
		c, err := net.ListenPacket("udp", at)
		if err != nil {
			return err
		}
		n.udp = append(n.udp, c)
		go func() {
			buf := make([]byte, 512)
			for {
				k, from, err := c.ReadFrom(buf)
				if err != nil {
					return
				}
				_, _ = c.WriteTo(buf[:k], from)
			}
		}()
		return nil
	}
	l, err := net.Listen("tcp", at)
	if err != nil {
		return err
	}
	n.listen = append(n.listen, l)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprintf(c, "service at %s\r\n", at)
			_ = c.Close()
		}
	}()
	return nil
}

// whisper sends a datagram to the world ten times a second: masscan 1.3.2 ends with the first
// packet that it sees after its wait, and would wait for ever on a silent interface.
func (n *network) whisper(ctx context.Context) {
	_ = n.Host(mid).Do(func() error {
		c, err := net.Dial("udp", "198.18.1.2:9")
		if err != nil {
			return err
		}
		defer c.Close()
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
				_, _ = c.Write([]byte("x")) // the world's kernel refuses it
			}
		}
	})
}

func (n *network) close() error {
	for _, l := range n.listen {
		_ = l.Close()
	}
	for _, c := range n.udp {
		_ = c.Close()
	}
	down := n.Host(edge).Command(context.Background(), filepath.Join(n.dir, "levee"), "down")
	_ = down.Run() // without a policy there is nothing to take off
	return n.Close()
}

// asked returns the services that are asked for, of all addresses but the first and the last.
func asked() (all []service) {
	for n := 1; n < 255; n++ {
		for _, p := range tcpPorts {
			all = append(all, service{"tcp", host(n), p})
		}
		for _, p := range udpPorts {
			all = append(all, service{"udp", host(n), p})
		}
	}
	return all
}

func words(ports []uint16) string {
	var out []string
	for _, p := range slices.Sorted(slices.Values(ports)) {
		out = append(out, fmt.Sprint(p))
	}
	return strings.Join(out, ",")
}
