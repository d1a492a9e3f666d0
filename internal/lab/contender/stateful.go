package contender

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// The web service of examples/service.levee, as an administrator would protect it who knows all
// that the kernel has: what can be dropped without state goes at the first hook, SYNs are answered
// by synproxy, and conntrack knows the rest. Rates without a key, where levee's are by source: with
// sources that come once, a hash by source is work that drops nothing
// (docs/explanation/measured-floods.md, "A service under floods"). A flow table is for what is
// forwarded.

// NFTStateful is nftables with synproxy and conntrack.
func NFTStateful() Defence {
	return &strict{settings: strictly, Defence: &nft{
		name: "nft synproxy", tables: []string{"netdev levee_service", "inet levee_service"},
		rules: nftServiceRules,
		what: "nftables with synproxy and conntrack; what needs no state is dropped at netdev " +
			"ingress",
	}}
}

const nftServiceRules = `
table netdev levee_service {
	chain ingress {
		type filter hook ingress device "%[1]s" priority 0; policy accept;
		ip length < 44 tcp flags & (syn | ack) == syn counter drop comment "bare-syn"
		ip6 length < 24 tcp flags & (syn | ack) == syn counter drop comment "bare-syn6"
		ip frag-off & 0x3fff != 0 counter drop comment "fragment"
		exthdr frag exists counter drop comment "fragment"
		icmp type echo-request limit rate over 500/second counter drop comment "icmp-flood"
		icmpv6 type echo-request limit rate over 500/second counter drop comment "icmp6-flood"
		udp dport 443 limit rate over 2000/second burst 2000 packets counter drop comment "udp-flood"
		udp dport 443 accept
		udp sport { 53, 67, 123, 547 } accept
		meta l4proto udp counter drop comment "udp"
	}
}
table inet levee_service {
	chain raw {
		type filter hook prerouting priority raw; policy accept;
		iifname "%[1]s" tcp dport { 80, 443 } tcp flags & (fin | syn | rst | ack) == syn notrack
	}
	chain input {
		type filter hook input priority filter; policy accept;
		iif lo accept
		ct state established,related accept
		tcp dport { 80, 443 } ct state invalid,untracked synproxy mss 1460 wscale 7 timestamp sack-perm
		ct state invalid counter drop comment "invalid"
		udp dport 443 accept
		icmp type { echo-request, destination-unreachable, time-exceeded } accept
		icmpv6 type { echo-request, destination-unreachable, packet-too-big, time-exceeded, parameter-problem } accept
		icmpv6 type { nd-router-solicit, nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert, nd-redirect, mld-listener-query } accept
		counter drop comment "default"
	}
}
`

// IPTablesStateful is iptables with synproxy and conntrack.
func IPTablesStateful() Defence {
	return &strict{settings: strictly, Defence: &iptables{
		name: "iptables synproxy", hook: Prerouting, counts: chain{"raw", "PREROUTING"},
		rules4:  fmt.Sprintf(iptablesServiceRules, "44", "icmp --icmp-type echo-request"),
		rules6:  fmt.Sprintf(iptablesServiceRules, "64", "icmpv6 --icmpv6-type echo-request"),
		further: []chain{{"filter", "INPUT"}},
		what: "iptables and ip6tables with synproxy and conntrack; what needs no state is " +
			"dropped in raw PREROUTING",
	}}
}

const iptablesServiceRules = `*raw
-A PREROUTING -i lo -j ACCEPT
-A PREROUTING -p tcp --syn -m length ! --length %s:65535 -j DROP
-A PREROUTING -p %s -m hashlimit --hashlimit-above 500/sec --hashlimit-name icmp -j DROP
-A PREROUTING -p udp --dport 443 -m hashlimit --hashlimit-above 2000/sec --hashlimit-burst 2000 --hashlimit-name udp -j DROP
-A PREROUTING -p udp -m multiport ! --dports 443 -m multiport ! --sports 53,67,123,547 -j DROP
-A PREROUTING -p tcp --syn -m multiport --dports 80,443 -j CT --notrack
COMMIT
*filter
-A INPUT -i lo -j ACCEPT
-A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT
-A INPUT -p tcp -m multiport --dports 80,443 -m conntrack --ctstate INVALID,UNTRACKED -j SYNPROXY --sack-perm --timestamp --wscale 7 --mss 1460
-A INPUT -m conntrack --ctstate INVALID -j DROP
-A INPUT -p udp --dport 443 -j ACCEPT
-A INPUT -p icmp -j ACCEPT
-A INPUT -p icmpv6 -j ACCEPT
-A INPUT -j DROP
COMMIT
`

// strict is a defence with what it asks of conntrack. With synproxy it takes no segment for the
// beginning of a connection but a SYN (the manual of iptables-extensions), and forgets a closed one
// soon. With the usual two minutes a client that comes again from the same port is not proxied, and
// finds nobody: 4 % of the visitors.
type strict struct {
	Defence
	settings []setting
	site     Site
}

// setting is one of conntrack's, and what it is otherwise.
type setting struct{ name, strict, usual string }

var strictly = []setting{
	{"tcp_loose", "0", "1"},
	{"tcp_timeout_time_wait", "1", "120"},
	{"tcp_timeout_close", "1", "10"},
}

func (s *strict) Tracks() bool { return true }

func (s *strict) Install(ctx context.Context, at Site) error {
	err := s.Defence.Install(ctx, at)
	if errors.Is(err, ErrMissing) || ctx.Err() != nil {
		return err
	}
	if s.site = at; err == nil {
		err = s.set(true)
	}
	if err != nil {
		return fmt.Errorf("synproxy or conntrack is %w in this kernel: %w", ErrMissing, err)
	}
	return nil
}

func (s *strict) Remove(ctx context.Context) error {
	if err := s.Defence.Remove(ctx); err != nil || s.site.Host == nil {
		return err
	}
	return s.set(false)
}

func (s *strict) set(strict bool) error {
	return s.site.Host.Do(func() error {
		for _, v := range s.settings {
			text := v.usual
			if strict {
				text = v.strict
			}
			name := "/proc/sys/net/netfilter/nf_conntrack_" + v.name
			err := os.WriteFile(name, []byte(text), 0o644)
			if err != nil {
				return fmt.Errorf("setting what conntrack takes for a connection: %w", err)
			}
		}
		return nil
	})
}
