// Package foreign knows words of nft, iptables, pf and tcpdump that people write in policies, and
// what to say about them.
//
// In go words where a term is expected, out come hints, and how to read on. It knows no policy.
package foreign

import "levee/internal/lang/diag"

// Remedy holds the hint for a word that the language does not have, and how to parse what follows
// it, so that other errors of the line are reported as well.
type Remedy struct {
	Hint string
	Term string // go on as if this stood there
	Skip bool   // go on as if the word were not there
}

// Meant goes on as if a term stood there.
func Meant(term string) Remedy { return Remedy{Hint: diag.DidYouMean(term), Term: term} }

// LeaveOut goes on as if the word were not there.
func LeaveOut(hint string) Remedy { return Remedy{Hint: hint, Skip: true} }

// Advice says what to write, and no more.
func Advice(hint string) Remedy { return Remedy{Hint: hint} }

// limitRule is for rates where a rule does not begin with limit.
const limitRule = "a rate is a rule of its own, before the one that passes: limit tcp port 22 " +
	"rate 10/s by source."

// States is for rules about connections. It never leads to a rule that lets everything in.
const States = "what belongs to a connection is let in by a rule of its own (pass established); " +
	"say also what may begin one, by port (pass tcp port 443)."

// Words are words of nft, iptables, pf and tcpdump where a term is expected.
var Words = map[string]Remedy{
	"dport":       Meant("port"),
	"dst-port":    Meant("port"),
	"dstport":     Meant("port"),
	"--dport":     Meant("port"),
	"ports":       Meant("port"),
	"--dports":    Advice("write: port { 80, 443 }."),
	"sport":       Meant("from port"),
	"src-port":    Meant("from port"),
	"srcport":     Meant("from port"),
	"--sport":     Meant("from port"),
	"saddr":       Meant("from"),
	"src":         Meant("from"),
	"source":      Meant("from"),
	"-s":          Meant("from"),
	"daddr":       Meant("to"),
	"dst":         Meant("to"),
	"dest":        Meant("to"),
	"destination": Meant("to"),
	"-d":          Meant("to"),
	"-p":          LeaveOut("write the protocol alone: tcp."),
	"protocol":    Meant("proto"),
	"meta":        LeaveOut("write the protocol alone: tcp, udp, or proto 47."),
	"l4proto":     LeaveOut("write the protocol alone: tcp, udp, or proto 47."),
	"nexthdr":     Meant("proto"),
	"icmpv6":      Meant("icmp6"),
	"ipv6-icmp":   Meant("icmp6"),
	"icmp4":       Meant("icmp"),
	"ip6":         Meant("ipv6"),
	"inet6":       Meant("ipv6"),
	"ip":          LeaveOut("write from and to alone, or ipv4 for the family; leave \"ip\" out."),
	"ip4":         Meant("ipv4"),
	"inet": LeaveOut("a rule without a family matches IPv4 and IPv6; leave it out, or " +
		"write ipv4 or ipv6."),
	"&&":        LeaveOut("terms stand one after another and must all hold; leave \"&&\" out."),
	"and":       LeaveOut("terms stand one after another and must all hold; leave \"and\" out."),
	"&":         LeaveOut("terms stand one after another and must all hold; leave \"&\" out."),
	"||":        Advice("write one rule for each case, or a list: port { 80, 443 }."),
	"or":        Advice("write one rule for each case, or a list: port { 80, 443 }."),
	"|":         Advice("write one rule for each case, or a list: port { 80, 443 }."),
	"keep":      Advice(States),
	"state":     Advice(States),
	"ct":        Advice(States),
	"conntrack": Advice(States),
	"ctstate":   Advice(States),
	"--ctstate": Advice(States),
	"--state":   Advice(States),
	"related":   Advice(States),
	"-m":        LeaveOut("levee has words instead of modules: tcp port { 80, 443 }."),
	"in":        LeaveOut("a rule is about what comes in; leave \"in\" out."),
	"out":       Advice("a rule for packets that leave begins with it: out drop tcp port 25."),
	"quick":     LeaveOut("the first match always decides; leave \"quick\" out."),
	"on": Advice("the interface is chosen by `levee up --dev`, or by a line \"interface " +
		"eth0\"."),
	"iif": Advice("the interface is chosen by `levee up --dev`, or by a line \"interface " +
		"eth0\"."),
	"iifname": Advice("the interface is chosen by `levee up --dev`, or by a line \"interface " +
		"eth0\"."),
	"counter": LeaveOut("every rule has a counter; leave \"counter\" out."),
	"count": Advice(
		"every rule has a counter; a rule that only counts starts with \"count\"."),
	"comment": Advice("write a label instead: as \"...\"."),
	"label":   Meant("as"),
	"name": {Hint: "a label stands behind as; of a DNS message write: dns name \"example.com\".",
		Term: "as"},
	"rollup": Advice(
		"it belongs to a set: set NAME = dynamic(max 100000, lease 10m, rollup)."),
	"all":         LeaveOut("a rule without terms matches every packet; leave \"all\" out."),
	"length":      Meant("len"),
	"size":        Meant("len"),
	"hoplimit":    Meant("ttl"),
	"hlim":        Meant("ttl"),
	"hop-limit":   Meant("ttl"),
	"tos":         Meant("dscp"),
	"frag":        Meant("fragments"),
	"fragment":    Meant("fragments"),
	"frags":       Meant("fragments"),
	"-f":          Meant("fragments"),
	"invalid":     Meant("malformed"),
	"vlan-id":     Meant("vlan"),
	"cvlan":       Meant("inner-vlan"),
	"mac":         Advice("write: ether from 02:00:00:00:00:01."),
	"icmp-type":   Advice("write: icmp type echo-request."),
	"tcp-flags":   Meant("flags"),
	"--tcp-flags": Advice("write: flags syn/syn,ack."),
	"--syn":       Meant("syn"),
	"accept":      Advice("the action stands first: pass ..."),
	"allow":       Advice("the action stands first: pass ..."),
	"reject":      Advice("the action stands first: drop ..."),
	"deny":        Advice("the action stands first: drop ..."),
	"-j":          Advice("the action stands first: drop ..."),
	"--jump":      Advice("the action stands first: drop ..."),
	"except":      Meant("not"),
	"http":        Advice("write the port: tcp port 80."),
	"https":       Advice("write the port: tcp port 443."),
	"ssh":         Advice("write the port: tcp port 22."),
	"host":        Advice("say which side: from 192.0.2.1, or to 192.0.2.1."),
	"net":         Advice("say which side: from 192.0.2.0/24, or to 192.0.2.0/24."),
	"ip-option": Advice("options cannot be matched; packets with options are decoded like all " +
		"others."),
	"dst-type":   Advice("write the destination address: to 192.0.2.1."),
	"pkttype":    Advice("write the Ethernet destination: ether to ff:ff:ff:ff:ff:ff."),
	"per":        Advice(limitRule),
	"ratelimit":  Advice(limitRule),
	"limit-rate": Advice(limitRule),
	"rate":       Advice(limitRule),
	"burst":      Advice(limitRule),
	"limit":      Advice(limitRule),
	"log": Advice("a log is a rule of its own, before the one that decides: log tcp port 23 as " +
		"\"telnet\"."),
	"cookie": Advice("a cookie is a rule of its own, before the one that passes: cookie tcp port " +
		"443 above 10kpps."),
	"above":  Advice("only a cookie and a greylist have it: cookie tcp port 443 above 10kpps."),
	"sample": Advice("only a log has it: log udp sample 1/100."),
	"with":   Advice("terms follow one another without it."),
	"where":  Advice("terms follow one another without it."),
	"if":     Advice("terms follow one another without it."),
	"then":   Advice("the action stands first: drop ..."),
}
