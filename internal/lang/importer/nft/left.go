package nft

import (
	"encoding/json"
	"strings"

	"levee/internal/lang/importer"
	"levee/internal/lang/importer/match"
)

func noWord(what, instead string) dim {
	return dim{why: &importer.Reason{What: what, Instead: instead}}
}

// left returns the left side of a match, or the key of a map. Of what leaves the policy's interface
// is that by which it does.
func (p *nftRule) left(raw json.RawMessage) dim {
	key, inner := object(raw)
	var m struct{ Key, Protocol string }
	if !p.n.leaves || json.Unmarshal(inner, &m) != nil {
		return left(raw)
	}
	switch {
	case key == "meta" && (m.Key == "oifname" || m.Key == "oif"):
		return dim{iface: true}
	case key == "meta" && (m.Key == "iifname" || m.Key == "iif"):
		return noWord("asks for the interface that a packet came by", "")
	case key == "meta" && m.Key == "skuid":
		return dim{num: match.UID}
	case key == "meta" && m.Key == "skgid":
		return dim{num: match.GID}
	case key == "meta" && m.Key == "cgroup":
		return noWord("asks for a class of net_cls", "ask for the unit: service \"NAME.service\"")
	case key == "meta" && m.Key == "pkttype",
		key == "payload" && (m.Protocol == "ether" || m.Protocol == "vlan"):
		return noWord(importer.FrameText, "")
	}
	return left(raw)
}

// left reads the left side of a match, or the key of a map.
func left(raw json.RawMessage) dim {
	key, inner := object(raw)
	switch key {
	case "payload":
		var p struct{ Protocol, Field string }
		if json.Unmarshal(inner, &p) != nil || p.Protocol == "" {
			return noWord("looks at bytes by their offset", "")
		}
		return payload(p.Protocol, p.Field)
	case "meta":
		var m struct{ Key string }
		_ = json.Unmarshal(inner, &m)
		return meta(m.Key)
	case "ct":
		var c struct{ Key string }
		_ = json.Unmarshal(inner, &c)
		if c.Key == "state" {
			return dim{state: true}
		}
		return noWord("asks for "+importer.Printable("ct "+c.Key,
			40)+", which a policy has no word for", "")
	case "exthdr":
		return noWord("asks for an extension header of IPv6",
			"for fragments write `ipv6 fragments`")
	case "fib", "rt":
		return noWord("asks the routing table ("+key+")", "write the addresses")
	case "socket", "osf", "numgen", "jhash", "symhash", "ipsec", "tcp option", "sctp chunk",
		"ip option":
		return noWord("asks for "+key, "")
	case "&", "|", "^", "<<", ">>":
		return noWord("calculates with bits before it compares", "")
	}
	return noWord("has an expression that levee does not know", "")
}

// payloads are fields of headers.
var payloads = func() map[string]dim {
	v4, v6 := match.Match{}.With(match.Ether, match.Only4),
		match.Match{}.With(match.Ether, match.Only6)
	return map[string]dim{
		"ip saddr":     {dir: "src", dep: v4},
		"ip daddr":     {dir: "dst", dep: v4},
		"ip6 saddr":    {dir: "src", dep: v6},
		"ip6 daddr":    {dir: "dst", dep: v6},
		"ip protocol":  {num: match.Proto, dep: v4, parse: parseProtocolName},
		"ip6 nexthdr":  {num: match.Proto, dep: v6, parse: parseProtocolName},
		"ip version":   {num: match.Ether, dep: v4, after: versionOf},
		"ip6 version":  {num: match.Ether, dep: v6, after: versionOf},
		"ip ttl":       {num: match.TTL, dep: v4},
		"ip6 hoplimit": {num: match.TTL, dep: v6},
		"ip dscp":      {num: match.DSCP, dep: v4, parse: parseDSCPName},
		"ip6 dscp":     {num: match.DSCP, dep: v6, parse: parseDSCPName},
		"ip length":    {num: match.Len, dep: v4},
		"ip6 length":   {num: match.Len, dep: v6, after: payloadOf},
		"icmp type":    {num: match.ICMP, parse: icmpName(false), after: typesOf},
		"icmp code":    {num: match.ICMP, parse: icmpCode, after: codesOf},
		"icmpv6 type":  {num: match.ICMP6, parse: icmpName(true), after: typesOf},
		"icmpv6 code":  {num: match.ICMP6, parse: icmp6Code, after: codesOf},
		"ether saddr":  {num: match.EtherFrom, parse: parseMACName},
		"ether daddr":  {num: match.EtherTo, parse: parseMACName},
		"ether type":   {num: match.Ether, parse: parseEtherName},
		"vlan id":      {num: match.VLAN},
		"th sport":     {num: match.FromPort},
		"th dport":     {num: match.Port},
	}
}()

// payload returns a field of a header.
func payload(proto, name string) dim {
	if d, ok := payloads[proto+" "+name]; ok {
		return d
	}
	if n, err := match.ProtocolNumber(proto); err == nil && (name == "sport" || name == "dport") &&
		match.WithPorts.And(match.Just(uint64(n))).Within(match.WithPorts) &&
		len(match.WithPorts.And(match.Just(uint64(n)))) == 1 {
		d := dim{num: match.Port, dep: match.Match{}.With(match.Proto, match.Just(uint64(n)))}
		if name == "sport" {
			d.num = match.FromPort
		}
		return d
	}
	if proto == "tcp" && name == "window" {
		return noWord("asks for tcp window, which an import does not carry over",
			"write `window` with its values")
	}
	return noWord("asks for "+importer.Printable(proto+" "+name,
		40)+", for which a policy has no word", "")
}

// Names of codes that nft prints (RFC 792, RFC 1812, RFC 4443).
var (
	icmpCodes = map[string]uint64{"net-unreachable": 0, "host-unreachable": 1,
		"prot-unreachable": 2, "port-unreachable": 3, "frag-needed": 4, "net-prohibited": 9,
		"host-prohibited": 10, "admin-prohibited": 13}
	icmp6Codes = map[string]uint64{"no-route": 0, "admin-prohibited": 1, "addr-unreachable": 3,
		"port-unreachable": 4, "policy-fail": 5, "reject-route": 6}
)

func icmpCode(s string) (match.Spans, error) { return named(icmpCodes, s) }

func icmp6Code(s string) (match.Spans, error) { return named(icmp6Codes, s) }

func named(names map[string]uint64, s string) (match.Spans, error) {
	if v, ok := names[s]; ok {
		return match.Just(v), nil
	}
	return match.ParseSpansOf(s, "-", 255)
}

// meta returns what nft knows of a packet besides its bytes.
func meta(key string) dim {
	switch key {
	case "l4proto":
		return dim{num: match.Proto, parse: parseProtocolName}
	case "nfproto":
		// NFPROTO_IPV4, NFPROTO_IPV6
		return dim{num: match.Ether, parse: parseEtherName, after: func(s match.Spans) match.Spans {
			switch {
			case len(s) == 1 && s[0] == match.Span{Lo: 2, Hi: 2}:
				return match.Only4
			case len(s) == 1 && s[0] == match.Span{Lo: 10, Hi: 10}:
				return match.Only6
			}
			return s
		}}
	case "protocol":
		return dim{num: match.Ether, parse: parseEtherName}
	case "iifname", "iif":
		return dim{iface: true}
	case "length":
		return dim{num: match.Len}
	case "pkttype":
		return dim{num: match.EtherTo, parse: func(s string) (match.Spans, error) {
			if s == "broadcast" {
				return match.Just(1<<48 - 1), nil
			}
			return nil, errPktType
		}}
	case "oifname", "oif":
		return noWord("asks for the outgoing interface, which is chosen after levee has judged "+
			"the packet", "match the destination addresses behind that interface")
	case "mark":
		return noWord("asks for a mark that other rules set", "")
	}
	if key == "hour" || key == "day" || key == "time" {
		return noWord("asks for the time (meta "+key+")", "replace the policy by a timer")
	}
	return noWord("asks for "+importer.Printable("meta "+key,
		40)+", for which a policy has no word", "")
}

// isFlags tells whether raw is the field `tcp flags`.
func isFlags(raw json.RawMessage) bool {
	key, inner := object(raw)
	var p struct{ Protocol, Field string }
	return key == "payload" && json.Unmarshal(inner, &p) == nil && p.Protocol == "tcp" &&
		p.Field == "flags"
}

// fragmentOffset tells whether raw is `ip frag-off & MASK`.
func fragmentOffset(raw json.RawMessage) (mask uint64, ok bool) {
	key, inner := object(raw)
	parts := array(inner)
	if key != "&" || len(parts) != 2 {
		return 0, false
	}
	key, inner = object(parts[0])
	var p struct{ Protocol, Field string }
	if key != "payload" || json.Unmarshal(inner, &p) != nil || p.Protocol != "ip" ||
		p.Field != "frag-off" {
		return 0, false
	}
	s, ok := scalar(parts[1])
	m, err := match.ParseSpansOf(s, "-", 0xffff)
	if !ok || err != nil || strings.Contains(s, "-") {
		return 0, false
	}
	return m[0].Lo, true
}
