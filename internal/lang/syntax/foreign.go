package syntax

import (
	"strings"

	"levee/internal/lang/diag"
)

// remedy is what to say about a word that is not one of the language, and how to go on behind it,
// so that what else is wrong in the line is reported as well.
type remedy struct {
	hint string
	term string // go on as if this stood there
	skip bool   // go on as if the word were not there
}

func meant(term string) remedy    { return remedy{hint: didYouMean(term), term: term} }
func leaveOut(hint string) remedy { return remedy{hint: hint, skip: true} }
func advice(hint string) remedy   { return remedy{hint: hint} }

// foreign are words of nft, iptables, pf and tcpdump where a term is expected.
var foreign = map[string]remedy{
	"dport":       meant("port"),
	"dst-port":    meant("port"),
	"dstport":     meant("port"),
	"--dport":     meant("port"),
	"ports":       meant("port"),
	"--dports":    advice("write: port { 80, 443 }."),
	"sport":       meant("from port"),
	"src-port":    meant("from port"),
	"srcport":     meant("from port"),
	"--sport":     meant("from port"),
	"saddr":       meant("from"),
	"src":         meant("from"),
	"source":      meant("from"),
	"-s":          meant("from"),
	"daddr":       meant("to"),
	"dst":         meant("to"),
	"dest":        meant("to"),
	"destination": meant("to"),
	"-d":          meant("to"),
	"-p":          leaveOut("write the protocol alone: tcp."),
	"protocol":    meant("proto"),
	"meta":        leaveOut("write the protocol alone: tcp, udp, or proto 47."),
	"l4proto":     leaveOut("write the protocol alone: tcp, udp, or proto 47."),
	"nexthdr":     meant("proto"),
	"icmpv6":      meant("icmp6"),
	"ipv6-icmp":   meant("icmp6"),
	"icmp4":       meant("icmp"),
	"ip6":         meant("ipv6"),
	"inet6":       meant("ipv6"),
	"ip":          leaveOut("write from and to alone, or ipv4 for the family; leave \"ip\" out."),
	"ip4":         meant("ipv4"),
	"inet": leaveOut("a rule without a family matches IPv4 and IPv6; leave it out, or " +
		"write ipv4 or ipv6."),
	"&&":        leaveOut("terms stand one after another and must all hold; leave \"&&\" out."),
	"and":       leaveOut("terms stand one after another and must all hold; leave \"and\" out."),
	"&":         leaveOut("terms stand one after another and must all hold; leave \"&\" out."),
	"||":        advice("write one rule for each case, or a list: port { 80, 443 }."),
	"or":        advice("write one rule for each case, or a list: port { 80, 443 }."),
	"|":         advice("write one rule for each case, or a list: port { 80, 443 }."),
	"keep":      advice(states),
	"state":     advice(states),
	"ct":        advice(states),
	"conntrack": advice(states),
	"ctstate":   advice(states),
	"--ctstate": advice(states),
	"--state":   advice(states),
	"related":   advice(states),
	"-m":        leaveOut("levee has words instead of modules: tcp port { 80, 443 }."),
	"in":        leaveOut("a rule is about what comes in; leave \"in\" out."),
	"out":       advice("a rule for packets that leave begins with it: out drop tcp port 25."),
	"quick":     leaveOut("the first match always decides; leave \"quick\" out."),
	"on": advice("the interface is chosen by `levee up --dev`, or by a line \"interface " +
		"eth0\"."),
	"iif": advice("the interface is chosen by `levee up --dev`, or by a line \"interface " +
		"eth0\"."),
	"iifname": advice("the interface is chosen by `levee up --dev`, or by a line \"interface " +
		"eth0\"."),
	"counter": leaveOut("every rule has a counter; leave \"counter\" out."),
	"count": advice(
		"every rule has a counter; a rule that only counts starts with \"count\"."),
	"comment": advice("write a label instead: as \"...\"."),
	"label":   meant("as"),
	"name":    meant("as"),
	"rollup": advice(
		"it belongs to a set: set NAME = dynamic(max 100000, lease 10m, rollup)."),
	"all":         leaveOut("a rule without terms matches every packet; leave \"all\" out."),
	"length":      meant("len"),
	"size":        meant("len"),
	"hoplimit":    meant("ttl"),
	"hlim":        meant("ttl"),
	"hop-limit":   meant("ttl"),
	"tos":         meant("dscp"),
	"frag":        meant("fragments"),
	"fragment":    meant("fragments"),
	"frags":       meant("fragments"),
	"-f":          meant("fragments"),
	"invalid":     meant("malformed"),
	"vlan-id":     meant("vlan"),
	"cvlan":       meant("inner-vlan"),
	"mac":         advice("write: ether from 02:00:00:00:00:01."),
	"icmp-type":   advice("write: icmp type echo-request."),
	"tcp-flags":   meant("flags"),
	"--tcp-flags": advice("write: flags syn/syn,ack."),
	"--syn":       meant("syn"),
	"accept":      advice("the action stands first: pass ..."),
	"allow":       advice("the action stands first: pass ..."),
	"reject":      advice("the action stands first: drop ..."),
	"deny":        advice("the action stands first: drop ..."),
	"-j":          advice("the action stands first: drop ..."),
	"--jump":      advice("the action stands first: drop ..."),
	"except":      meant("not"),
	"http":        advice("write the port: tcp port 80."),
	"https":       advice("write the port: tcp port 443."),
	"ssh":         advice("write the port: tcp port 22."),
	"host":        advice("say which side: from 192.0.2.1, or to 192.0.2.1."),
	"net":         advice("say which side: from 192.0.2.0/24, or to 192.0.2.0/24."),
	"ip-option": advice("options cannot be matched; packets with options are decoded like all " +
		"others."),
	"dst-type":   advice("write the destination address: to 192.0.2.1."),
	"pkttype":    advice("write the Ethernet destination: ether to ff:ff:ff:ff:ff:ff."),
	"per":        advice(limitRule),
	"ratelimit":  advice(limitRule),
	"limit-rate": advice(limitRule),
	"rate":       advice(limitRule),
	"burst":      advice(limitRule),
	"limit":      advice(limitRule),
	"log": advice("a log is a rule of its own, before the one that decides: log tcp port 23 as " +
		"\"telnet\"."),
	"cookie": advice("a cookie is a rule of its own, before the one that passes: cookie tcp port " +
		"443 above 10kpps."),
	"above":  advice("only a cookie has it: cookie tcp port 443 above 10kpps."),
	"sample": advice("only a log has it: log udp sample 1/100."),
	"with":   advice("terms follow one another without it."),
	"where":  advice("terms follow one another without it."),
	"if":     advice("terms follow one another without it."),
	"then":   advice("the action stands first: drop ..."),
}

// termRemedy says what the word of a term was probably meant to be. The message is "" for the
// ordinary one.
func termRemedy(word string) (msg string, r remedy) {
	lower := strings.ToLower(word)
	if r, ok := foreign[lower]; ok {
		return "", r
	}
	switch {
	case word == "type":
		return "", advice("say which protocol: icmp type 8, or icmp6 type 128.")
	case strings.HasPrefix(word, "@"), strings.HasPrefix(word, "$"):
		return "", advice("a set is named without " + word[:1] +
			": from " + diag.Clip(word[1:]) + ".")
	case oneOf("echo-request echo-reply destination-unreachable time-exceeded packet-too-big "+
		"parameter-problem redirect ping", lower):
		return "", advice("write: icmp type " + strings.Replace(lower, "ping", "echo-request",
			1) + ", or icmp6 type.")
	case oneOf("fin rst psh ack urg ece cwr", lower):
		return "", advice("flags stand in one term, with commas between them: flags syn," +
			strings.Replace(lower, "syn", "ack", 1) + ".")
	case word == "code":
		return "", advice("a code stands behind its type and a slash: icmp type 3/4.")
	case word == "any":
		return "", leaveOut("a rule without addresses matches any packet; leave \"any\" out, or " +
			"write from any.")
	case strings.HasPrefix(word, "//"), strings.HasPrefix(word, "/*"):
		return "", advice("a comment starts with #.")
	case strings.HasPrefix(word, "-"):
		return "", advice("levee has words instead of options: tcp from 192.0.2.0/24 port 80.")
	case isDigits(word):
		return "", leaveOut("say what the number is: port " +
			diag.Clip(word) + ", len " + diag.Clip(word) +
			", ttl " + diag.Clip(word) + ", ...")
	case looksLikeAddress(word):
		return "", leaveOut("say which side: from " + diag.Clip(word) + ", or to " +
			diag.Clip(word) + ".")
	case lower != word && isKeyword[lower]:
		return "", remedy{hint: "words are lower case: " + lower + ".", term: lower}
	case isStatement[word]:
		return "", advice("start a new line for the next statement.")
	}
	if m := diag.Nearest(word, strings.Fields(termWords)); m != "" {
		return "", meant(m)
	}
	return "", advice("terms are from, to, port, a protocol such as tcp, icmp type, len, ...; " +
		"`levee help language` lists all.")
}
