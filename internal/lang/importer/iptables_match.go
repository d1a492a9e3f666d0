package importer

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
)

// transport reads options about ports, flags and ICMP.
func (p *ipRule) transport(o string) (bool, error) {
	switch o {
	case "--dport", "--destination-port":
		return true, p.ports([]numField{fPort}, strings.ReplaceAll(p.value(), ",", "?"))
	case "--sport", "--source-port":
		return true, p.ports([]numField{fFromPort}, strings.ReplaceAll(p.value(), ",", "?"))
	case "--dports", "--destination-ports":
		return true, p.ports([]numField{fPort}, p.value())
	case "--sports", "--source-ports":
		return true, p.ports([]numField{fFromPort}, p.value())
	case "--ports":
		return true, p.ports([]numField{fFromPort, fPort}, p.value())
	case "--syn":
		p.flags(flagMatch{0x17, 0x02})
	case "--tcp-flags":
		mask, err := parseFlags(p.value())
		if err != nil {
			return true, err
		}
		value, err := parseFlags(p.next())
		if err != nil {
			return true, err
		}
		p.flags(flagMatch{mask, value})
	case "--icmp-type":
		return true, p.icmp(fICMP, p.value())
	case "--icmpv6-type":
		return true, p.icmp(fICMP6, p.value())
	default:
		return false, nil
	}
	return true, nil
}

// ports reads a list of ports for one field, or for either of two.
func (p *ipRule) ports(fields []numField, v string) error {
	var in []span
	for _, s := range strings.Split(v, ",") {
		r, err := parseSpansOf(servicePorts(s), ":", 0xffff)
		if err != nil && strings.IndexFunc(s,
			func(c rune) bool { return c >= 'a' && c <= 'z' }) >= 0 && !strings.Contains(s, "?") {
			p.unknown("names the service "+quote(s), "write its number, as iptables-save does")
			return nil
		}
		if err != nil {
			return fmt.Errorf("port %w", err)
		}
		in = append(in, r...)
	}
	set := joinSpans(in)
	if p.not { // neither of the fields
		m := match{}
		for _, f := range fields {
			m = m.with(f, set.not(0xffff))
		}
		p.both(m.settle())
		return nil
	}
	var alts []match
	for _, f := range fields {
		alts = append(alts, match{}.with(f, set).settle())
	}
	p.both(alts...)
	return nil
}

// flags asks for TCP flags, or for others.
func (p *ipRule) flags(f flagMatch) {
	switch m := (match{}); {
	case f.value&^f.mask != 0 && !p.not, f.mask == 0 && p.not:
		p.r.alts = nil // cannot hold
	case f.value&^f.mask != 0, f.mask == 0: // holds for all that have flags
		p.both(m.with(fProto, just(6)).with(fPort, allPorts).settle())
	case p.not:
		p.both(m.withoutFlags(f).settle())
	default:
		p.both(m.withFlags(f).settle())
	}
}

func (p *ipRule) icmp(f numField, v string) error {
	if f == fICMP && (v == "any" || v == "255" || v == "255/255") {
		if p.not {
			p.r.alts = nil
		}
		return nil
	}
	s, err := parseICMPType(v, f == fICMP6)
	if err != nil {
		p.unknown(err.Error()+" that levee knows", "write its number, as iptables-save does")
		return nil
	}
	p.number(f, s)
	p.settle()
	return nil
}

func (p *ipRule) settle() { p.both(match{}) }

// header reads options about other fields.
func (p *ipRule) header(o string) (bool, error) {
	numbers := map[string]struct {
		f          numField
		below, off int // the values below or above the given one; off for equal: 0
	}{
		"--ttl-eq": {fTTL, 0, 0}, "--ttl-lt": {fTTL, 1, 0}, "--ttl-gt": {fTTL, 0, 1},
		"--ttl":   {fTTL, 0, 0},
		"--hl-eq": {fTTL, 0, 0}, "--hl-lt": {fTTL, 1, 0}, "--hl-gt": {fTTL, 0, 1},
	}
	if n, ok := numbers[o]; ok {
		v, err := strconv.ParseUint(p.value(), 0, 8)
		if err != nil {
			return true, fmt.Errorf("%s needs a number up to 255", o)
		}
		s := just(v)
		switch {
		case n.below == 1:
			s = just(v).not(255).and(between(0, v))
		case n.off == 1:
			s = just(v).not(255).and(between(v, 255))
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
		s, err := parseSpansOf(p.value(), ":", 0xffff)
		if err != nil {
			return true, fmt.Errorf("length %w", err)
		}
		p.number(fLen, s)
	case "--dscp", "--dscp-class":
		v, err := parseDSCP(p.value())
		if err != nil {
			return true, err
		}
		p.number(fDSCP, just(v))
		p.settle()
	case "--tos":
		return true, p.tos(p.value())
	case "--src-range", "--dst-range":
		a, err := parseSpan(p.value())
		if err != nil {
			return true, err
		}
		p.address(o[2:5], &addrSet{addrs: addrSpans{a}})
	case "--mac-source":
		v, err := parseMAC(p.value())
		if err != nil {
			return true, err
		}
		p.number(fEtherFrom, just(v))
	case "--match-set", "--set":
		p.matchSet(p.next(), p.next())
	case "--return-nomatch":
		p.unknown("asks for the elements of a set that are marked nomatch",
			"put them into a set of their own")
	case "--update-counters", "--update-subcounters": // of the set, not of the packet
	case "--src-type", "--dst-type":
		p.addrType(o[2:5], p.value())
	case "--pkt-type":
		if v := p.value(); p.t.leaves {
			p.unknown(frameText, "")
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
		return fmt.Errorf("%s is not a TOS", quote(s))
	}
	if mask&3 != 0 {
		p.unknown("asks for the whole TOS byte, ECN included, and a policy has its DSCP",
			"write dscp with the upper six bits")
		return nil
	}
	var in []span
	for d := range uint64(64) {
		if d<<2&mask == value&mask {
			in = append(in, span{Lo: d, Hi: d})
		}
	}
	p.number(fDSCP, joinSpans(in))
	p.settle()
	return nil
}

// matchSet reads --match-set NAME src,dst.
func (p *ipRule) matchSet(name, dirs string) {
	alts, about, why := p.t.sets.match(name, strings.Split(dirs, ","))
	if why != nil {
		p.unknown(why.what, why.instead)
		return
	}
	p.r.filled = append(p.r.filled, about...)
	if !p.not {
		p.both(alts...)
		return
	}
	if len(alts) != 1 {
		p.unknown("asks for what is not in set "+quote(name)+", which holds several fields",
			"pass what is in it by a rule before")
		return
	}
	m := alts[0]
	switch ports := m.f[fPort] != nil || m.f[fFromPort] != nil; {
	case m.never:
	case m.fromDyn != nil || m.toDyn != nil:
		p.unknown("asks for what is not in set "+quote(name)+", which is filled at run time",
			"pass what is in it by a rule before")
	case m.from.pos != nil && m.to.pos == nil && m.f[fProto] == nil:
		p.notIn("src", m.from.pos)
	case m.to.pos != nil && m.from.pos == nil && m.f[fProto] == nil:
		p.notIn("dst", m.to.pos)
	case m.from.pos == nil && m.to.pos == nil && m.f[fEtherFrom] != nil:
		p.both(match{}.with(fEtherFrom, m.f[fEtherFrom].not(1<<48-1)))
	case m.from.pos == nil && m.to.pos == nil && ports:
		p.notPorts(&m)
	default:
		p.unknown("asks for what is not in set "+quote(name)+", which holds several fields",
			"pass what is in it by a rule before")
	}
}

func (p *ipRule) notIn(dir string, s *addrSet) {
	var m match
	side(&m, dir).neg = []*addrSet{s}
	p.both(m.settle())
}

// notPorts is `! --match-set` of a bitmap:port: for TCP and UDP the other ports, for the rest
// always.
func (p *ipRule) notPorts(m *match) {
	f := fPort
	if m.f[f] == nil {
		f = fFromPort
	}
	ports := spans{{Lo: 6, Hi: 6}, {Lo: 17, Hi: 17}}
	p.both(match{}.with(fProto, ports).with(f, m.f[f].not(0xffff)).settle(),
		match{}.with(fProto, ports.not(255)).settle())
	p.remark(Changed, "the set has no ports for a fragment that is not the first, so netfilter "+
		"takes it as not in the set; here no rule about ports matches it", "")
}

func (p *ipRule) addrType(dir, v string) {
	switch {
	case dir == "dst" && p.t.onlyInput() && v == "LOCAL":
		p.toThisMachine()
		return
	case dir == "dst" && p.t.onlyInput() && v == "BROADCAST":
		p.toAll()
		return
	case dir == "dst" && p.t.onlyInput() && v == "ANYCAST" && !p.tab.six && !p.not:
		p.r.alts = nil
		p.remark(Noticed, "no packet of IPv4 to an address of type ANYCAST comes to INPUT: the "+
			"kernel drops it before", "")
		return
	case dir == "src" && (v == "BROADCAST" || v == "LOCAL"):
		p.fromOwn(v)
		return
	}
	if v != "MULTICAST" {
		p.unknown("asks for addresses of type "+quote(v)+
			", which the routing table of the machine knows", "write the addresses")
		return
	}
	s := "224.0.0.0/4"
	if p.tab.six {
		s = "ff00::/8"
	}
	a, _ := parseSpan(s)
	p.address(dir, &addrSet{addrs: addrSpans{a}})
}

// toThisMachine is --dst-type LOCAL in INPUT, where a packet that is not for an address of the
// machine is for a group or for all.
func (p *ipRule) toThisMachine() {
	in := []addrSpan{prefixSpan(netip.MustParsePrefix("224.0.0.0/4")),
		prefixSpan(netip.MustParsePrefix("255.255.255.255/32"))}
	text := "multicast and 255.255.255.255"
	if p.tab.six {
		in, text = []addrSpan{prefixSpan(netip.MustParsePrefix("ff00::/8"))}, "multicast"
	}
	p.not = !p.not
	p.address("dst", &addrSet{addrs: joinAddrs(in)})
	p.remark(Changed, "which addresses are LOCAL the routing table knows: in INPUT it is all but "+
		text+", and so it stands in the policy; the broadcast addresses of networks count as "+
		"local there", "write the machine's addresses in their place")
}

// toAll is --dst-type BROADCAST. The broadcast addresses of networks are in `self`, where a frame
// to all Ethernet addresses tells them from the machine's own.
func (p *ipRule) toAll() {
	if p.tab.six { // IPv6 has none
		if !p.not {
			p.r.alts = nil
		}
		return
	}
	const text = "the broadcast addresses of networks are those of `self` in frames to all"
	all := &addrSet{addrs: addrSpans{prefixSpan(netip.MustParsePrefix("255.255.255.255/32"))}}
	own, frames := addressIn("dst", self, p.not), match{}.with(fEtherTo, just(1<<48-1))
	if p.not {
		p.address("dst", all)
		p.both(own, match{}.with(fEtherTo, frames.f[fEtherTo].not(1<<48-1)))
	} else {
		own = own.and(&frames)
		p.both(addressIn("dst", all, false), own.with(fEther, only4).settle())
	}
	p.remark(Changed, text, "")
}

// fromOwn is --src-type LOCAL or BROADCAST. `self` has both, and what comes from the other the
// kernel drops before.
func (p *ipRule) fromOwn(what string) {
	if p.tab.six && what == "BROADCAST" { // IPv6 has none
		if !p.not {
			p.r.alts = nil
		}
		return
	}
	p.both(addressIn("src", self, p.not))
	p.remark(Changed, "addresses of type "+what+" are `self`: those of the machine, and of "+
		"broadcasts", "")
}

// onlyInput tells whether all imported chains see packets to this machine alone.
func (t *ipTables) onlyInput() bool {
	return !slices.ContainsFunc(t.opts.Chains,
		func(c string) bool { return path.Base(c) != "INPUT" })
}

func (p *ipRule) pktType(v string) {
	if v != "broadcast" {
		p.unknown("asks for frames of type "+quote(v), "write `ether to` with the addresses")
		return
	}
	p.number(fEtherTo, just(1<<48-1))
}

// state reads options about connections.
func (p *ipRule) state(o string) (bool, error) {
	switch o {
	case "--state", "--ctstate":
		states := strings.Split(p.value(), ",")
		if p.not {
			states = negated(states)
		}
		if p.r.states != nil { // -m state and -m conntrack in one rule
			states = slices.DeleteFunc(states,
				func(s string) bool { return !slices.Contains(p.r.states, s) })
		}
		p.r.states = states
	case "--ctproto", "--ctorigsrc", "--ctorigdst", "--ctreplsrc", "--ctrepldst", "--ctorigsrcport",
		"--ctorigdstport", "--ctreplsrcport", "--ctrepldstport", "--ctstatus", "--ctexpire",
		"--ctdir":
		p.value()
		p.unknown("asks for "+o+" of the connection, which a policy has no word for", "")
	default:
		return false, nil
	}
	return true, nil
}

// modules are the matches that no policy has, with what to do instead.
var modules = map[string]reason{
	"connbytes": {"counts bytes of a connection", ""},
	"connmark":  {"asks for a mark of the connection", ""},
	"owner":     {"asks for the local process", ""},
	"u32":       {"looks at bytes anywhere in the packet", ""}, "bpf": {"runs a program", ""},
	"time":      {"asks for the time", "replace the policy by a timer"},
	"statistic": {"matches at random", ""},
	"geoip":     {"asks for a country", "use a set of its networks: mmdb(\"PATH\", country DE)"},
	"policy":    {"asks for IPsec", ""}, "socket": {"asks for a local socket", ""},
	"physdev": {"asks for a port of a bridge", "put levee onto that port"},
	"helper":  {"asks for a helper of connection tracking", ""},
	"tcpmss":  {"asks for an option of TCP", ""}, "ecn": {"asks for ECN bits", ""},
	"frag": {"asks for fields of the fragment header", "write `fragments`"},
	"osf":  {"guesses the operating system", ""}, "cluster": {"divides work among machines", ""},
	"realm":    {"asks the routing table", ""},
	"devgroup": {"asks for a group of interfaces", "choose one with --dev"},
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
		p.path.used = true
		return nil
	}
	if plain[p.module] {
		p.useLimit()
		return nil
	}
	if m, ok := modules[p.module]; ok {
		p.unknown("-m "+p.module+" "+m.what, m.instead)
	} else {
		p.unknown("-m "+printable(p.module, 30)+" is a match that levee does not know", "")
	}
	p.badAll = true
	return nil
}

// other passes over an option that is not known, with its values.
func (p *ipRule) other(o string) error {
	if !strings.HasPrefix(o, "-") {
		return fmt.Errorf("%s stands where an option is expected", quote(o))
	}
	if p.module == "rpfilter" && p.path.option(o) {
		return nil
	}
	if !p.badAll {
		p.unknown("has the option "+quote(o)+", which no policy has words for", "")
	}
	for len(p.w) > 0 && !p.w[0].option() {
		p.w = p.w[1:]
	}
	return nil
}
