package iptables

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"levee/internal/lang/importer"
	"levee/internal/lang/importer/match"
	"levee/internal/lang/importer/state"
)

// transport reads options about ports, flags and ICMP.
func (p *ipRule) transport(o string) (bool, error) {
	switch o {
	case "--dport", "--destination-port":
		return true, p.ports([]match.Field{match.Port}, strings.ReplaceAll(p.value(), ",", "?"))
	case "--sport", "--source-port":
		return true, p.ports([]match.Field{match.FromPort}, strings.ReplaceAll(p.value(), ",", "?"))
	case "--dports", "--destination-ports":
		return true, p.ports([]match.Field{match.Port}, p.value())
	case "--sports", "--source-ports":
		return true, p.ports([]match.Field{match.FromPort}, p.value())
	case "--ports":
		return true, p.ports([]match.Field{match.FromPort, match.Port}, p.value())
	case "--syn":
		p.flags(match.Flags{Mask: 0x17, Value: 0x02})
	case "--tcp-flags":
		mask, err := match.ParseFlags(p.value())
		if err != nil {
			return true, err
		}
		value, err := match.ParseFlags(p.next())
		if err != nil {
			return true, err
		}
		p.flags(match.Flags{Mask: mask, Value: value})
	case "--icmp-type":
		return true, p.icmp(match.ICMP, p.value())
	case "--icmpv6-type":
		return true, p.icmp(match.ICMP6, p.value())
	default:
		return false, nil
	}
	return true, nil
}

// ports reads a list of ports for one field, or for either of two.
func (p *ipRule) ports(fields []match.Field, v string) error {
	var in []match.Span
	for _, s := range strings.Split(v, ",") {
		r, err := match.ParseSpansOf(match.ServicePorts(s), ":", 0xffff)
		if err != nil && strings.IndexFunc(s,
			func(c rune) bool { return c >= 'a' && c <= 'z' }) >= 0 && !strings.Contains(s, "?") {
			p.Unknown("names the service "+match.Quote(s),
				"write its number, as iptables-save does")
			return nil
		}
		if err != nil {
			return fmt.Errorf("port %w", err)
		}
		in = append(in, r...)
	}
	set := match.JoinSpans(in)
	if p.not { // neither of the fields
		m := match.Match{}
		for _, f := range fields {
			m = m.With(f, set.Not(0xffff))
		}
		p.Both(m.Settle())
		return nil
	}
	var alts []match.Match
	for _, f := range fields {
		alts = append(alts, match.Match{}.With(f, set).Settle())
	}
	p.Both(alts...)
	return nil
}

// flags asks for TCP flags, or for others.
func (p *ipRule) flags(f match.Flags) {
	switch m := (match.Match{}); {
	case f.Value&^f.Mask != 0 && !p.not, f.Mask == 0 && p.not:
		p.Rule.Alts = nil // cannot hold
	case f.Value&^f.Mask != 0, f.Mask == 0: // holds for all that have flags
		p.Both(m.With(match.Proto, match.Just(6)).With(match.Port, match.AllPorts).Settle())
	case p.not:
		p.Both(m.WithoutFlags(f).Settle())
	default:
		p.Both(m.WithFlags(f).Settle())
	}
}

func (p *ipRule) icmp(f match.Field, v string) error {
	if f == match.ICMP && (v == "any" || v == "255" || v == "255/255") {
		if p.not {
			p.Rule.Alts = nil
		}
		return nil
	}
	s, err := match.ParseICMPType(v, f == match.ICMP6)
	if err != nil {
		p.Unknown(err.Error()+" that levee knows", "write its number, as iptables-save does")
		return nil
	}
	p.number(f, s)
	p.settle()
	return nil
}

func (p *ipRule) settle() { p.Both(match.Match{}) }

// header reads options about other fields.
func (p *ipRule) header(o string) (bool, error) {
	numbers := map[string]struct {
		f          match.Field
		below, off int // the values below or above the given one; off for equal: 0
	}{
		"--ttl-eq": {match.TTL, 0, 0}, "--ttl-lt": {match.TTL, 1, 0}, "--ttl-gt": {match.TTL, 0, 1},
		"--ttl":   {match.TTL, 0, 0},
		"--hl-eq": {match.TTL, 0, 0}, "--hl-lt": {match.TTL, 1, 0}, "--hl-gt": {match.TTL, 0, 1},
	}
	if n, ok := numbers[o]; ok {
		v, err := strconv.ParseUint(p.value(), 0, 8)
		if err != nil {
			return true, fmt.Errorf("%s needs a number up to 255", o)
		}
		s := match.Just(v)
		switch {
		case n.below == 1:
			s = match.Just(v).Not(255).And(match.Between(0, v))
		case n.off == 1:
			s = match.Just(v).Not(255).And(match.Between(v, 255))
		}
		p.number(n.f, s)
		p.settle()
		return true, nil
	}
	if p.module == "recent" { // it has a --set of its own
		return false, nil
	}
	switch o {
	case "--length":
		s, err := match.ParseSpansOf(p.value(), ":", 0xffff)
		if err != nil {
			return true, fmt.Errorf("length %w", err)
		}
		p.number(match.Len, s)
	case "--dscp", "--dscp-class":
		v, err := match.ParseDSCP(p.value())
		if err != nil {
			return true, err
		}
		p.number(match.DSCP, match.Just(v))
		p.settle()
	case "--tos":
		return true, p.tos(p.value())
	case "--src-range", "--dst-range":
		a, err := match.ParseSpan(p.value())
		if err != nil {
			return true, err
		}
		p.address(o[2:5], &match.Set{Addresses: match.AddressSpans{a}})
	case "--mac-source":
		v, err := match.ParseMAC(p.value())
		if err != nil {
			return true, err
		}
		p.number(match.EtherFrom, match.Just(v))
	case "--match-set", "--set":
		p.matchSet(p.next(), p.next())
	case "--return-nomatch":
		p.Unknown("asks for the elements of a set that are marked nomatch",
			"put them into a set of their own")
	case "--update-counters", "--update-subcounters": // of the set, not of the packet
	case "--src-type", "--dst-type":
		p.addrType(o[2:5], p.value())
	case "--pkt-type":
		if v := p.value(); p.t.leaves {
			p.Unknown(importer.FrameText, "")
		} else {
			p.pktType(v)
		}
	default:
		return false, nil
	}
	return true, nil
}

// tos reads VALUE/MASK of the whole byte; a policy has words for its upper six bits.
func (p *ipRule) tos(s string) error {
	v, m, has := strings.Cut(s, "/")
	value, err := strconv.ParseUint(v, 0, 8)
	mask, errM := uint64(0xff), error(nil)
	if has {
		mask, errM = strconv.ParseUint(m, 0, 8)
	}
	if err != nil || errM != nil {
		return fmt.Errorf("%s is not a TOS", match.Quote(s))
	}
	if mask&3 != 0 {
		p.Unknown("asks for the whole TOS byte, ECN included, and a policy has its DSCP",
			"write dscp with the upper six bits")
		return nil
	}
	var in []match.Span
	for d := range uint64(64) {
		if d<<2&mask == value&mask {
			in = append(in, match.Span{Lo: d, Hi: d})
		}
	}
	p.number(match.DSCP, match.JoinSpans(in))
	p.settle()
	return nil
}

// matchSet reads --match-set NAME src,dst.
func (p *ipRule) matchSet(name, dirs string) {
	alts, about, why := p.t.sets.match(name, strings.Split(dirs, ","))
	if why != nil {
		p.Unknown(why.What, why.Instead)
		return
	}
	p.Rule.Filled = append(p.Rule.Filled, about...)
	for i := range alts {
		for _, s := range []*match.Set{alts[i].From.In, alts[i].To.In} {
			if s != nil && !p.LacksMapped(s, p.not) {
				return
			}
		}
	}
	if !p.not {
		p.Both(alts...)
		return
	}
	if len(alts) != 1 {
		p.Unknown("asks for what is not in set "+match.Quote(name)+", which holds several fields",
			"pass what is in it by a rule before")
		return
	}
	m := alts[0]
	switch ports := m.Fields[match.Port] != nil || m.Fields[match.FromPort] != nil; {
	case m.Never:
	case m.FromDyn != nil || m.ToDyn != nil:
		p.Unknown("asks for what is not in set "+match.Quote(name)+", which is filled at run time",
			"pass what is in it by a rule before")
	case m.From.In != nil && m.To.In == nil && m.Fields[match.Proto] == nil:
		p.notIn("src", m.From.In)
	case m.To.In != nil && m.From.In == nil && m.Fields[match.Proto] == nil:
		p.notIn("dst", m.To.In)
	case m.From.In == nil && m.To.In == nil && m.Fields[match.EtherFrom] != nil:
		p.Both(match.Match{}.With(match.EtherFrom, m.Fields[match.EtherFrom].Not(1<<48-1)))
	case m.From.In == nil && m.To.In == nil && ports:
		p.notPorts(&m)
	default:
		p.Unknown("asks for what is not in set "+match.Quote(name)+", which holds several fields",
			"pass what is in it by a rule before")
	}
}

func (p *ipRule) notIn(dir string, s *match.Set) {
	var m match.Match
	importer.Side(&m, dir).Not = []*match.Set{s}
	p.Both(m.Settle())
}

// notPorts is `! --match-set` of a bitmap:port: for TCP and UDP the other ports, for the rest
// always.
func (p *ipRule) notPorts(m *match.Match) {
	f := match.Port
	if m.Fields[f] == nil {
		f = match.FromPort
	}
	ports := match.Spans{{Lo: 6, Hi: 6}, {Lo: 17, Hi: 17}}
	p.Both(match.Match{}.With(match.Proto, ports).With(f, m.Fields[f].Not(0xffff)).Settle(),
		match.Match{}.With(match.Proto, ports.Not(255)).Settle())
	p.Remark(importer.Changed,
		"the set has no ports for a fragment that is not the first, so netfilter "+
			"takes it as not in the set; here no rule about ports matches it", "")
}

func (p *ipRule) addrType(dir, v string) {
	switch {
	case dir == "dst" && p.t.leaves && v == "LOCAL": // such packets leave by loopback
		if !p.not {
			p.Rule.Alts = nil
			p.Rule.AboutLoopback()
		}
		return
	case dir == "dst" && p.atInput() && v == "LOCAL":
		p.toThisMachine()
		return
	case dir == "dst" && p.atInput() && v == "BROADCAST":
		p.toAll()
		return
	case dir == "dst" && p.atInput() && v == "ANYCAST" && !p.tab.six && !p.not:
		p.Rule.Alts = nil
		p.Remark(importer.Noticed,
			"no packet of IPv4 to an address of type ANYCAST comes to INPUT: the "+
				"kernel drops it before", "")
		return
	case dir == "src" && (v == "BROADCAST" || v == "LOCAL"):
		p.fromOwn(v)
		return
	case dir == "src" && v == "UNICAST":
		p.fromOne()
		return
	}
	if v != "MULTICAST" {
		p.Unknown("asks for addresses of type "+match.Quote(v)+
			", which the routing table of the machine knows", "write the addresses")
		return
	}
	s := "224.0.0.0/4"
	if p.tab.six {
		s = "ff00::/8"
	}
	a, _ := match.ParseSpan(s)
	p.address(dir, &match.Set{Addresses: match.AddressSpans{a}})
}

// atInput tells whether the chain of the rule sees packets to this machine alone. Chains of the
// tables raw and mangle may be reached from PREROUTING.
func (p *ipRule) atInput() bool {
	if len(p.t.opts.Chains) > 0 {
		return p.t.onlyInput()
	}
	return p.tab.name != "raw" && (p.tab.name != "mangle" || p.chain.Name == "INPUT")
}

// toThisMachine is --dst-type LOCAL in INPUT, where a packet that is not for an address of the
// machine is for a group or for all.
func (p *ipRule) toThisMachine() {
	in := []match.AddressSpan{match.PrefixSpan(netip.MustParsePrefix("224.0.0.0/4")),
		match.PrefixSpan(netip.MustParsePrefix("255.255.255.255/32"))}
	text := "multicast and 255.255.255.255"
	if p.tab.six {
		in, text = []match.AddressSpan{match.PrefixSpan(netip.MustParsePrefix("ff00::/8"))},
			"multicast"
	}
	p.not = !p.not
	p.address("dst", &match.Set{Addresses: match.JoinAddrs(in)})
	p.Remark(importer.Changed,
		"which addresses are LOCAL the routing table knows: in INPUT it is all but "+
			text+", and so it stands in the policy; the broadcast addresses of networks count as "+
			"local there", "write the machine's addresses in their place")
}

// toAll is --dst-type BROADCAST. The broadcast addresses of networks are in `self`, where a frame
// to all Ethernet addresses tells them from the machine's own.
func (p *ipRule) toAll() {
	if p.tab.six { // IPv6 has none
		if !p.not {
			p.Rule.Alts = nil
		}
		return
	}
	const text = "the broadcast addresses of networks are those of `self` in frames to all"
	all := &match.Set{Addresses: match.AddressSpans{
		match.PrefixSpan(netip.MustParsePrefix("255.255.255.255/32"))}}
	own, frames := importer.AddressIn("dst", match.Self, p.not),
		match.Match{}.With(match.EtherTo, match.Just(1<<48-1))
	if p.not {
		p.address("dst", all)
		p.Both(own, match.Match{}.With(match.EtherTo, frames.Fields[match.EtherTo].Not(1<<48-1)))
	} else {
		own = own.And(&frames)
		p.Both(importer.AddressIn("dst", all, false), own.With(match.Ether, match.Only4).Settle())
	}
	p.Remark(importer.Changed, text, "")
}

// fromOwn reads --src-type LOCAL or BROADCAST. Both become `self`, which has the addresses of both
// types: the kernel drops packets from the other type before any rule.
func (p *ipRule) fromOwn(what string) {
	if p.tab.six && what == "BROADCAST" { // IPv6 has none
		if !p.not {
			p.Rule.Alts = nil
		}
		return
	}
	p.Both(importer.AddressIn("src", match.Self, p.not))
	p.Remark(importer.Changed,
		"addresses of type "+what+" are `self`: those of the machine, and of "+
			"broadcasts", "")
}

// fromOne is --src-type UNICAST. What comes from the machine's own addresses, or from broadcasts of
// its networks, is of other types, and the kernel drops it.
func (p *ipRule) fromOne() {
	text, prefixes := "0.0.0.0/8, 224.0.0.0/4 and 255.255.255.255", []string{"0.0.0.0/8",
		"224.0.0.0/4", "255.255.255.255/32"}
	if p.tab.six {
		text, prefixes = "`::` and ff00::/8", []string{"::/128", "ff00::/8"}
	}
	var in []match.AddressSpan
	for _, s := range prefixes {
		in = append(in, match.PrefixSpan(netip.MustParsePrefix(s)))
	}
	p.not = !p.not
	p.address("src", &match.Set{Addresses: match.JoinAddrs(in)})
	p.Remark(importer.Changed, "addresses of type UNICAST are all but "+text+": what comes from "+
		"the machine's own, or from broadcasts, the kernel drops before", "")
}

// onlyInput tells whether all imported chains see packets to this machine alone.
func (t *ipTables) onlyInput() bool {
	return !slices.ContainsFunc(t.opts.Chains,
		func(c string) bool { return path.Base(c) != "INPUT" })
}

func (p *ipRule) pktType(v string) {
	switch v {
	case "broadcast":
	case "multicast":
		if !p.not {
			p.groups = p.Rule.Alts
			p.addrType("dst", "MULTICAST")
			return
		}
		fallthrough
	default:
		p.Unknown("asks for frames of type "+match.Quote(v), "write `ether to` with the addresses")
		return
	}
	p.number(match.EtherTo, match.Just(1<<48-1))
}

// finishGroups says what is not the same of --pkt-type multicast, where the rule decides something.
func (p *ipRule) finishGroups() {
	switch p.Rule.Verb {
	case importer.DoAccept, importer.DoDrop, importer.DoReturn, importer.DoJump, importer.DoGoto:
		if p.groups != nil {
			p.Rule.Widen("frames to a group are told by their address of IP", "", p.groups)
		}
	}
}

// state reads options about connections.
func (p *ipRule) state(o string) (bool, error) {
	switch o {
	case "--state", "--ctstate":
		states := strings.Split(p.value(), ",")
		switch {
		case p.t.leaves && slices.Contains(states, state.Sent):
			p.Unknown("asks for what nat has sent elsewhere", "")
			return true, nil
		case p.not:
			p.notSent(states)
			states = state.Negated(states)
		case slices.Equal(states, []string{state.Sent}):
			p.isSent(1)
			p.Remark(importer.Noticed, importer.SentText, "")
			return true, nil
		}
		if p.Rule.States != nil { // -m state and -m conntrack in one rule
			if slices.Contains(slices.Concat(states, p.Rule.States), state.Sent) {
				p.Unknown("asks for a state or what nat has sent elsewhere, and for states once "+
					"more", "write a rule for --ctstate DNAT alone")
				return true, nil
			}
			states = slices.DeleteFunc(states,
				func(s string) bool { return !slices.Contains(p.Rule.States, s) })
		}
		p.Rule.States = states
	case "--ctproto", "--ctorigsrc", "--ctorigdst", "--ctreplsrc", "--ctrepldst", "--ctorigsrcport",
		"--ctorigdstport", "--ctreplsrcport", "--ctrepldstport", "--ctstatus", "--ctexpire",
		"--ctdir":
		p.value()
		p.Unknown("asks for "+o+" of the connection, which a policy has no word for", "")
	default:
		return false, nil
	}
	return true, nil
}

// isSent narrows the rule to what nat has sent elsewhere (1), or to what it has not (0).
func (p *ipRule) isSent(is uint64) {
	p.Both(match.Match{}.With(match.Sent, match.Just(is)))
	p.early = p.early || p.rate != "" // others use the limit up, too
}

// notSent leaves the packets whose addresses nat changes out, where the states name these.
func (p *ipRule) notSent(states []string) {
	if slices.Contains(states, state.Sent) {
		p.isSent(0)
	}
	if slices.Contains(states, "SNAT") {
		p.Unknown("asks for what nat has given another source", "")
	}
}

// modules are the matches that no policy has, with what to do instead.
var modules = map[string]importer.Reason{
	"connbytes": {What: "counts bytes of a connection", Instead: ""},
	"connmark":  {What: "asks for a mark of the connection", Instead: ""},
	"bpf":       {What: "runs a program", Instead: ""},
	"time":      {What: "asks for the time", Instead: "replace the policy by a timer"},
	"statistic": {What: "matches at random", Instead: ""},
	"geoip": {What: "asks for a country",
		Instead: "use a set of its networks: mmdb(\"PATH\", country DE)"},
	"socket":   {What: "asks for a local socket", Instead: ""},
	"helper":   {What: "asks for a helper of connection tracking", Instead: ""},
	"tcpmss":   {What: "asks for an option of TCP", Instead: ""},
	"ecn":      {What: "asks for ECN bits", Instead: ""},
	"frag":     {What: "asks for fields of the fragment header", Instead: "write `fragments`"},
	"osf":      {What: "guesses the operating system", Instead: ""},
	"cluster":  {What: "divides work among machines", Instead: ""},
	"realm":    {What: "asks the routing table", Instead: ""},
	"devgroup": {What: "asks for a group of interfaces", Instead: "choose one with --dev"},
}

// plain are modules whose options are all known here.
var plain = map[string]bool{
	"tcp": true, "udp": true, "udplite": true, "sctp": true, "dccp": true, "icmp": true,
	"icmp6": true, "icmpv6": true, "multiport": true, "iprange": true, "length": true, "ttl": true,
	"hl":   true,
	"dscp": true, "tos": true, "set": true, "mac": true, "comment": true, "addrtype": true,
	"pkttype": true, "state": true, "conntrack": true,
	"mark":  true,
	"limit": true, "hashlimit": true, "connlimit": true, "recent": true, "quota": true,
}

// useModule notes a module without which the rule does not mean the same.
func (p *ipRule) useModule() error {
	if p.module == "" {
		return fmt.Errorf("-m needs a name")
	}
	if p.module == "string" {
		p.texts = append(p.texts, ipString{to: anywhere})
		return nil
	}
	if p.module == "rpfilter" {
		p.path.used, p.early = true, p.early || p.rate != ""
		return nil
	}
	if p.module == "policy" {
		p.ipsec.used = true
		return nil
	}
	if p.module == "physdev" {
		p.bridge.used = true
		return nil
	}
	if p.module == "owner" || p.module == "cgroup" || p.module == "u32" {
		return nil
	}
	if plain[p.module] {
		p.useLimit()
		return nil
	}
	if m, ok := modules[p.module]; ok {
		p.Unknown("-m "+p.module+" "+m.What, m.Instead)
	} else {
		p.Unknown("-m "+importer.Printable(p.module, 30)+" is a match that levee does not know", "")
	}
	p.badAll = true
	return nil
}

// other passes over an option that is not known, with its values.
func (p *ipRule) other(o string) error {
	if !strings.HasPrefix(o, "-") {
		return fmt.Errorf("%s stands where an option is expected", match.Quote(o))
	}
	if p.module == "rpfilter" && p.path.option(o) || p.module == "policy" && p.secured(o) ||
		p.module == "physdev" && p.bridge.option(p, o) {
		return nil
	}
	if !p.badAll {
		p.Unknown("has the option "+match.Quote(o)+", which no policy has words for", "")
	}
	for len(p.w) > 0 && !p.w[0].option() {
		p.w = p.w[1:]
	}
	return nil
}
