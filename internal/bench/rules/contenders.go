package rules

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"

	"levee/internal/bench/load"
	"levee/internal/bench/workload"
	"levee/internal/lab/contender"
)

// contenders returns the contenders that can hold the rules; if asked, also an eBPF program of them
// one by one, with the kernel's JIT and without.
func contenders(rules []workload.Rule, interpreted bool) (out []*load.Contender) {
	p := &load.Levee{Text: Text(rules, dropAll)}
	changed := &load.Levee{Text: append([]byte("drop udp from 198.18.255.1\n"), p.Text...)}
	for _, spec := range []load.Spec{
		load.Plain(contender.XDPDrop()),
		p.Spec("levee", "levee, all rules compiled; a change is the whole policy anew", changed),
		nftRules(rules, dropRest), nftIPRules(rules, dropRest), iptablesRules(rules, dropRest),
	} {
		out = append(out, load.New(spec))
	}
	if interpreted {
		for _, spec := range plain(rules) {
			out = append(out, load.New(spec))
		}
	}
	return out
}

// Behind returns the contenders with rules that never match, followed by one that drops UDP to a
// port; what is left passes.
func Behind(rules []workload.Rule, port uint16) (out []*load.Contender) {
	last := end{fmt.Sprintf("drop udp port %d\ndefault pass\n", port),
		fmt.Sprintf(" udp dport %d", port), fmt.Sprintf(" -p udp --dport %d", port)}
	p := &load.Levee{Text: Text(rules, last.policy)}
	for _, spec := range []load.Spec{p.Spec("levee", "levee, all rules compiled", nil),
		nftRules(rules, last), nftIPRules(rules, last), iptablesRules(rules, last)} {
		spec.Change = nil
		out = append(out, load.New(spec))
	}
	return out
}

// end holds the statements behind the rules in each language: the rest of a policy, and the drop of
// nft and iptables.
type end struct{ policy, nft, iptables string }

// dropRest drops everything that no rule has.
var dropRest = end{policy: dropAll}

// protocols by the names that all tools know.
var protocols = map[uint8]string{1: "icmp", 6: "tcp", 17: "udp", 33: "dccp", 132: "sctp",
	136: "udplite"}

func protocol(p uint8) string {
	if name := protocols[p]; name != "" {
		return name
	}
	return fmt.Sprint(p)
}

func isRange(p workload.Ports) bool { return p.Lo != p.Hi }

// dropAll is the rule that decides where no other does.
const dropAll = "default drop\n"

// Text returns the rules as a policy, in which each drops, and what else is to be in it.
func Text(rules []workload.Rule, rest string) []byte {
	var b bytes.Buffer
	for i := range rules {
		r := &rules[i]
		b.WriteString("drop")
		if r.Src.Bits() == 0 && r.Dst.Bits() == 0 {
			b.WriteString(" ipv4")
		}
		switch name := protocols[r.Proto]; {
		case r.Proto == 0:
		case name != "":
			b.WriteString(" " + name)
		default:
			fmt.Fprintf(&b, " proto %d", r.Proto)
		}
		end := func(word, ports string, p netip.Prefix, v workload.Ports) {
			if p.Bits() > 0 {
				fmt.Fprintf(&b, " %s%s", word, p)
			}
			switch {
			case v == workload.AllPorts:
			case isRange(v):
				fmt.Fprintf(&b, " %s %d-%d", ports, v.Lo, v.Hi)
			default:
				fmt.Fprintf(&b, " %s %d", ports, v.Lo)
			}
		}
		end("from ", "from port", r.Src, r.SrcPort)
		end("to ", "port", r.Dst, r.DstPort)
		b.WriteByte('\n')
	}
	b.WriteString(rest)
	return b.Bytes()
}

// nftRules returns the rules one by one in a chain at netdev ingress, its first hook. They share
// one counter, which makes their work less than levee's, who counts by rule.
func nftRules(rules []workload.Rule, last end) load.Spec {
	const name = "nft rules"
	return load.NFT(load.NetdevIngress, name, "nftables at netdev ingress, rule by rule, in order",
		func(device string) []byte {
			return nftText(rules, last, "netdev", name,
				fmt.Sprintf("chain ingress { type filter hook ingress device \"%s\" priority 0;",
					device))
		}, "insert rule netdev "+load.NFTTable(name)+
			" ingress ip saddr 198.18.255.1 udp dport 1 counter name c drop")
}

// nftIPRules returns the same at the first hook of family ip: later on a packet's way, but there
// rules need not ask whether it is IPv4, as nft lets each rule of netdev do. Of 1,000 rules this
// took less than half of the time.
func nftIPRules(rules []workload.Rule, last end) load.Spec {
	const name = "nft ip rules"
	return load.NFT(load.IPPrerouting, name,
		"nftables, table of family ip, prerouting at priority raw; rule by rule, in order",
		func(string) []byte {
			return nftText(rules, last, "ip", name,
				"chain first { type filter hook prerouting priority raw;")
		}, "insert rule ip "+load.NFTTable(name)+
			" first ip saddr 198.18.255.1 udp dport 1 counter name c drop")
}

// nftText returns the table of a contender with one chain.
func nftText(rules []workload.Rule, last end, family, name, chain string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "table %s %s {\n counter c { }\n %s policy accept;\n", family,
		load.NFTTable(name), chain)
	for i := range rules {
		writeNFT(&b, &rules[i])
	}
	fmt.Fprintf(&b, " %s counter name c drop\n }\n}\n", last.nft)
	return b.Bytes()
}

func writeNFT(b *bytes.Buffer, r *workload.Rule) {
	start := b.Len()
	end := func(word string, p netip.Prefix) {
		if p.Bits() > 0 {
			fmt.Fprintf(b, " ip %s %s", word, p)
		}
	}
	end("saddr", r.Src)
	end("daddr", r.Dst)
	if r.Proto != 0 && !r.HasPorts() {
		fmt.Fprintf(b, " meta l4proto %d", r.Proto)
	}
	header := "th"
	if name := protocols[r.Proto]; name != "" {
		header = name
	} else if r.HasPorts() {
		b.WriteString(" meta l4proto { 6, 17, 33, 132, 136 }")
	}
	for _, v := range []struct {
		word string
		p    workload.Ports
	}{{"sport", r.SrcPort}, {"dport", r.DstPort}} {
		switch {
		case v.p == workload.AllPorts:
		case isRange(v.p):
			fmt.Fprintf(b, " %s %s %d-%d", header, v.word, v.p.Lo, v.p.Hi)
		default:
			fmt.Fprintf(b, " %s %s %d", header, v.word, v.p.Lo)
		}
	}
	if b.Len() == start {
		b.WriteString(" meta protocol ip")
	}
	b.WriteString(" counter name c drop\n")
}

// firstRules call the chain RULES, and count the packets that it passes.
const firstRules = "-A PREROUTING -j RULES\n-A PREROUTING\n"

// iptablesRules returns the rules in a chain of their own, called from the first hook of iptables.
// A rule about ports without a protocol becomes two, for TCP and UDP, since iptables has no other
// way.
func iptablesRules(rules []workload.Rule, last end) load.Spec {
	input := func() []byte {
		var b bytes.Buffer
		b.WriteString("*raw\n:RULES - [0:0]\n" + firstRules)
		for i := range rules {
			r := rules[i]
			protos := []uint8{r.Proto}
			if r.Proto == 0 && r.HasPorts() {
				protos = []uint8{6, 17}
			}
			for _, p := range protos {
				r.Proto = p
				writeIPTables(&b, &r)
			}
		}
		fmt.Fprintf(&b, "-A RULES%s -j DROP\nCOMMIT\n", last.iptables)
		return b.Bytes()
	}
	var text []byte
	return load.Spec{
		Name: "iptables rules", What: "iptables, table raw, chain PREROUTING: its first hook; " +
			"rule by rule, in order", Hook: contender.LocalIn,
		Needs:   [][2]string{{"iptables-restore", "iptables"}},
		Prepare: func(contender.Site) { text = input() },
		Install: func(ctx context.Context, s contender.Site) error {
			_, err := contender.Run(ctx, s.Host, text, "iptables-restore", "-w")
			return err
		},
		Off: func(ctx context.Context, s contender.Site) error {
			return load.FlushFirst(ctx, s,
				"iptables")
		},
		On: func(ctx context.Context, s contender.Site) error {
			_, err := contender.Run(ctx, s.Host, []byte("*raw\n"+firstRules+"COMMIT\n"),
				"iptables-restore", "-w", "--noflush")
			return err
		},
		Change: func(ctx context.Context, s contender.Site) error {
			_, err := contender.Run(ctx, s.Host, nil, "iptables", "-w", "-t", "raw", "-I", "RULES",
				"-s", "198.18.255.1", "-p", "udp", "-j", "DROP")
			return err
		},
		Dropped: func(ctx context.Context, s contender.Site) (uint64, error) {
			return load.CountFirst(ctx, s, "iptables")
		},
		Remove: func(ctx context.Context, s contender.Site) error {
			_, err := contender.Run(ctx, s.Host, nil, "iptables", "-w", "-t", "raw", "-F")
			_, err2 := contender.Run(ctx, s.Host, nil, "iptables", "-w", "-t", "raw", "-X")
			return errors.Join(err, err2)
		},
	}
}

func writeIPTables(b *bytes.Buffer, r *workload.Rule) {
	b.WriteString("-A RULES")
	if r.Src.Bits() > 0 {
		fmt.Fprintf(b, " -s %s", r.Src)
	}
	if r.Dst.Bits() > 0 {
		fmt.Fprintf(b, " -d %s", r.Dst)
	}
	if r.Proto != 0 {
		fmt.Fprintf(b, " -p %s", protocol(r.Proto))
	}
	if r.SrcPort != workload.AllPorts {
		fmt.Fprintf(b, " --sport %d:%d", r.SrcPort.Lo, r.SrcPort.Hi)
	}
	if r.DstPort != workload.AllPorts {
		fmt.Fprintf(b, " --dport %d:%d", r.DstPort.Lo, r.DstPort.Hi)
	}
	b.WriteString(" -j DROP\n")
}
