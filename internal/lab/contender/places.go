package contender

import (
	"context"
	"errors"
	"fmt"
)

// Places to drop UDP datagrams to one port, each by the one rule that an administrator would write
// there.

// NFTOneRule is one rule at netdev ingress.
func NFTOneRule(port uint16) Defence {
	return &nft{
		name: "nft netdev ingress (one rule)", tables: []string{"netdev levee_place"},
		what: "nftables at netdev ingress, one rule for the port",
		rules: fmt.Sprintf(`table netdev levee_place {
	chain ingress {
		type filter hook ingress device "%%s" priority 0; policy accept;
		udp dport %d counter drop
	}
}
`, port),
	}
}

// IPTablesRaw is one rule in iptables' and ip6tables' first chain, which has no conntrack in front
// of it.
func IPTablesRaw(port uint16) Defence {
	return oneRule("iptables raw PREROUTING (one rule)", Prerouting, chain{"raw", "PREROUTING"},
		port,
		"iptables and ip6tables, table raw, chain PREROUTING, one rule for the port")
}

// IPTablesInput is one rule in the chain that most administrators use.
func IPTablesInput(port uint16) Defence {
	return oneRule("iptables INPUT (one rule)", LocalIn, chain{"filter", "INPUT"}, port,
		"iptables and ip6tables, chain INPUT, one rule for the port")
}

func oneRule(name string, hook Hook, c chain, port uint16, what string) Defence {
	rules := fmt.Sprintf("*%s\n-A %s -p udp --dport %d -j DROP\nCOMMIT\n", c.table, c.name, port)
	return &iptables{name: name, what: what, hook: hook, counts: c, rules4: rules, rules6: rules}
}

// The rule for which a host with a firewall needs conntrack; the flood never matches it. Without
// such a rule the kernel does not hook conntrack into the namespace at all.
const (
	trackRules = "*filter\n-A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT\nCOMMIT\n"
	rawRules   = "*raw\n-A PREROUTING -p udp -j CT --notrack\nCOMMIT\n"
)

// Recvmmsg returns the application as the only defence: it receives each packet and discards it.
func Recvmmsg() Defence {
	return &application{name: "recvmmsg",
		what: "no filter: the application takes each packet by recvmmsg and discards it"}
}

// RecvmmsgConntrack returns the application behind a firewall that follows connections.
func RecvmmsgConntrack() Defence {
	return &application{
		name: "recvmmsg with conntrack", tracks: true,
		what: "the application, with conntrack in the path: a rule that accepts established " +
			"connections",
		rules: &iptables{
			rules4: trackRules, rules6: trackRules, counts: chain{"filter", "INPUT"},
		},
	}
}

// RecvmmsgNotrack returns the same firewall, told not to follow UDP.
func RecvmmsgNotrack() Defence {
	return &application{
		name: "recvmmsg with NOTRACK",
		what: "the application, with the same rule, and conntrack turned off for UDP in table " +
			"raw (NOTRACK)",
		rules: &iptables{
			rules4: rawRules + trackRules, rules6: rawRules + trackRules,
			counts: chain{"filter", "INPUT"}, further: []chain{{"raw", "PREROUTING"}},
		},
	}
}

// application drops by taking from the socket.
type application struct {
	name, what string
	tracks     bool
	rules      *iptables // nil for none
	site       Site
}

func (a *application) Name() string     { return a.name }
func (a *application) Describe() string { return a.what }
func (a *application) Hook() Hook       { return Application }
func (a *application) Tracks() bool     { return a.tracks }

func (a *application) Rules() string {
	if a.rules == nil {
		return ""
	}
	return a.rules.Rules()
}

func (a *application) Install(ctx context.Context, s Site) error {
	if s.Application == nil {
		return errNoApplication
	}
	a.site = s
	if a.rules == nil {
		return nil
	}
	return a.rules.Install(ctx, s)
}

func (a *application) Dropped(context.Context) (uint64, error) {
	if a.site.Application == nil {
		return 0, errNoApplication
	}
	return a.site.Application.Received()
}

func (a *application) Remove(ctx context.Context) error {
	if a.rules == nil || a.site.Application == nil {
		return nil
	}
	var errs []error
	errs = append(errs, a.rules.Remove(ctx))
	if a.tracks {
		errs = append(errs, a.site.Host.Forget())
	}
	return errors.Join(errs...)
}
