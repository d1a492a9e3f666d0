package importer

import (
	"fmt"
	"net/netip"
	"strings"
)

// ipRule reads the options of one rule.
type ipRule struct {
	ruleReader
	t      *ipTables
	tab    *ipTable
	w      []word // options not read yet
	not    bool   // a ! stands before the option
	module string // the last -m
	target string
	goes   bool   // target is behind -g
	to     string // of DNAT and REDIRECT
	badAll bool
	seen   seenLately
	texts  []ipString // of -m string
	path   pathModule
	ipLimit
}

// rule makes a chainRule of a line. It fails on values that iptables would refuse; what a policy
// has no words for is remembered in the rule.
func (t *ipTables) rule(tab *ipTable, l ipLine, number int) (*chainRule, error) {
	p := &ipRule{t: t, tab: tab, w: l.words, ruleReader: ruleReader{t.out, &chainRule{
		origin: origin{file: tab.file, line: l.line, text: l.text},
		label:  fmt.Sprintf("%s:%d", l.chain.name, number),
		alts:   []match{{}},
	}}}
	for len(p.w) > 0 {
		if err := p.option(); err != nil {
			return nil, err
		}
	}
	if err := p.finish(); err != nil {
		return nil, err
	}
	return p.r, nil
}

// next is the value of an option.
func (p *ipRule) next() string {
	if len(p.w) == 0 {
		return ""
	}
	s := p.w[0]
	p.w = p.w[1:]
	return s.text
}

// value is next, after an exclamation mark where old versions print it.
func (p *ipRule) value() string {
	if len(p.w) > 0 && p.w[0] == (word{text: "!"}) {
		p.next()
		p.not = true
	}
	return p.next()
}

// number narrows a field, or its complement.
func (p *ipRule) number(f numField, s spans) {
	if p.not {
		s = s.not(fieldTop[f])
	}
	p.both(match{}.with(f, s))
}

// option reads one option with its values.
func (p *ipRule) option() error {
	if p.w[0].quoted {
		return fmt.Errorf("%s stands where an option is expected", quote(p.w[0].text))
	}
	o := p.next()
	if p.not = o == "!"; p.not {
		o = p.next()
	}
	for i, group := range [...]func(*ipRule, string) (bool, error){
		(*ipRule).basic, (*ipRule).transport, (*ipRule).header, (*ipRule).state,
		(*ipRule).mark, (*ipRule).limits, (*ipRule).text,
	} {
		if known, err := group(p, o); known || err != nil {
			if p.rate != "" && i == 3 { // see carryStates
				p.r.stateLast = true
			} else if p.rate != "" && (0 < i && i < 5 || i == 6) {
				p.early = true
			}
			return err
		}
	}
	return p.other(o)
}

// basic reads the options that every rule may have.
func (p *ipRule) basic(o string) (bool, error) {
	switch o {
	case "-s", "--source", "--src", "-d", "--destination", "--dst":
		return true, p.addresses(o, p.value())
	case "-p", "--protocol", "--proto":
		v := p.value()
		if strings.EqualFold(v, "all") || v == "0" {
			return true, nil
		}
		n, err := protocolNumber(v)
		if err != nil {
			return true, err
		}
		p.number(fProto, just(uint64(n)))
	case "-i", "--in-interface":
		p.in(p.value())
	case "-o", "--out-interface":
		if p.t.leaves {
			p.in(p.value())
			return true, nil
		}
		p.unknown("asks for the outgoing interface "+quote(p.value())+
			", which is chosen after levee has judged the packet",
			"match the destination addresses behind that interface")
	case "-f", "--fragment":
		p.fragment()
	case "-m", "--match":
		p.module, p.badAll = p.next(), false
		return true, p.useModule()
	case "-j", "--jump", "-g", "--goto":
		p.target, p.goes = p.next(), o == "-g" || o == "--goto"
		p.ofTarget()
	case "-c", "--set-counters":
		p.next()
		p.next()
	case "--comment":
		p.r.label, p.r.named = p.next(), true
	default:
		return false, nil
	}
	return true, nil
}

// ofTarget passes over the options of the target, which decide nothing. What else stands behind
// -j is of the rule, and of its matches: iptables takes options in any order.
func (p *ipRule) ofTarget() {
	switch p.target {
	case "ACCEPT", "DROP", "RETURN":
		return
	case "REJECT", "TARPIT":
		for len(p.w) > 0 && rejects[p.w[0].text] && !p.w[0].quoted {
			if p.next() == "--reject-with" {
				p.next()
			}
		}
		return
	}
	if p.tab.byName[p.target] != nil {
		return
	}
	for len(p.w) > 0 && !p.w[0].ofRule() {
		switch o := p.next(); o {
		case "--log-prefix", "--nflog-prefix", "--ulog-prefix":
			p.r.logs = p.next()
		case "--to-destination", "--to-ports":
			p.to = p.next()
		case "--add-set":
			p.out.fills[quote(p.next())] = true
		case "--set-mark", "--set-xmark", "--or-mark", "--and-mark", "--xor-mark":
			p.setsMark(o, p.next())
		case "--restore-mark", "--hmark-tuple":
			p.r.setsMark = 0xffffffff
		}
	}
}

// rejects are the options of REJECT and TARPIT.
var rejects = map[string]bool{"--reject-with": true, "--tarpit": true, "--honeypot": true,
	"--reset": true}

// ofRule tells whether a word behind a target is an option of the rule, which no target has.
func (w word) ofRule() bool {
	if w.quoted {
		return false
	}
	switch w.text {
	case "!", "-s", "-d", "-p", "-i", "-o", "-f", "-m", "-c", "--source", "--src",
		"--destination", "--dst", "--protocol", "--proto", "--in-interface", "--out-interface",
		"--fragment", "--match", "--set-counters":
		return true
	}
	return false
}

// addresses reads -s and -d, lists included.
func (p *ipRule) addresses(o, v string) error {
	var in []addrSpan
	for _, s := range strings.Split(v, ",") {
		if host, _, _ := strings.Cut(s, "/"); isHostName(host) {
			p.unknown("names the host "+quote(s), "write its addresses, as iptables-save does")
			return nil
		}
		a, contiguous, err := parseMaskedAddr(s)
		if err != nil {
			return err
		}
		if !contiguous {
			p.unknown("asks for an address with the mask "+quote(s)+", which is not a prefix",
				"list the prefixes")
			return nil
		}
		in = append(in, a)
	}
	dir := "src"
	if o == "-d" || o == "--destination" || o == "--dst" {
		dir = "dst"
	}
	p.address(dir, &addrSet{addrs: joinAddrs(in)})
	return nil
}

// address narrows one side.
func (p *ipRule) address(dir string, s *addrSet) {
	if s.addrs.mapped() {
		p.unknown("has an IPv4-mapped IPv6 address, which no policy has", "write it as IPv4")
		return
	}
	var m match
	if p.not {
		if len(s.addrs) == 1 && s.addrs[0] == prefixSpan(netip.PrefixFrom(s.addrs[0].lo, 0)) {
			p.r.alts = nil // not anywhere
			return
		}
		side(&m, dir).neg = []*addrSet{s}
	} else {
		side(&m, dir).pos = s
	}
	p.both(m.settle())
}

// in reads -i: a policy protects one interface.
func (p *ipRule) in(name string) {
	dev := p.t.opts.Device
	stem, wild := strings.CutSuffix(name, "+")
	switch {
	case wild && stem == "": // any
		if p.not {
			p.r.alts = nil
		}
	case name == "lo" && !p.not && dev != "lo":
		p.r.alts = nil
		p.r.aboutLoopback()
	case name == "lo" && dev == "":
	case !p.not && vlanOf(name, dev) != nil:
		p.both(match{}.with(fVLAN, vlanOf(name, dev)))
		p.remark(Changed, vlanRemark(name, dev), "")
	case dev != "":
		hit := name == dev || wild && strings.HasPrefix(dev, stem)
		if hit == p.not {
			p.r.alts, p.r.absent = nil, true
			p.remark(LeftOut, "is about interface "+quote(name)+", by which nothing comes to "+dev,
				"import it with --dev "+name+" for that interface")
		}
	default:
		p.unknown("asks for interface "+quote(name)+", and a policy protects one interface",
			"choose one with --dev "+name)
	}
}

// fragment reads -f: the second and later fragments.
func (p *ipRule) fragment() { p.number(fFragment, just(later)) }

// finish draws together what was read.
func (p *ipRule) finish() error {
	r := p.r
	p.finishTexts()
	p.finishPath()
	p.finishRecent()
	p.finishLimit()
	switch p.target {
	case "ACCEPT":
		r.verb = doAccept
	case "DROP", "":
		r.verb = doDrop
		if p.target == "" {
			r.verb = doCount
		}
	case "REJECT", "TARPIT":
		r.verb = doDrop
		p.remark(Changed, p.target+" becomes a drop: levee sends no answer",
			"clients wait for a timeout; let the packets pass to the kernel where they should be "+
				"refused")
	case "RETURN":
		r.verb = doReturn
	default:
		return p.extraTarget()
	}
	p.checkFragment()
	return nil
}

// checkFragment looks whether a policy has words for the fragments of the rule. A drop or a count
// may be of some more.
func (p *ipRule) checkFragment() { p.r.checkFragment() }

func (r *chainRule) checkFragment() {
	for i := range r.alts {
		m := &r.alts[i]
		switch {
		case !m.vague():
		case r.verb == doDrop && m.f[fFragment][0].Lo == later:
			r.remarks = append(r.remarks, r.remark(Changed,
				"asks for second and later fragments, `fragments` is the first one too; where "+
					"netfilter reassembles (INPUT, or with conntrack) it never sees any",
				"look whether fragments are expected at all"))
			return
		default:
			r.unknown = append(r.unknown, reason{"tells first fragments from later ones, which " +
				"no policy does", "write `fragments` or `not fragments` if that is meant"})
			return
		}
	}
}

// quiet are targets that decide nothing.
var quiet = map[string]reason{
	"TRACE":    {"TRACE is for debugging", "use `levee explain`"},
	"AUDIT":    {"AUDIT writes a record", ""},
	"MARK":     {"MARK sets a mark", "rules that ask for its bits are left out"},
	"CONNMARK": {"CONNMARK sets a mark", "rules that ask for its bits are left out"},
	"CT":       {"CT sets up connection tracking", ""},
	"NOTRACK":  {"NOTRACK keeps packets out of connection tracking", ""},
	"TCPMSS":   {"TCPMSS changes the packet", ""}, "DSCP": {"DSCP changes the packet", ""},
	"TOS": {"TOS changes the packet", ""},
	"TTL": {"TTL changes the packet", ""}, "HL": {"HL changes the packet", ""},
	"ECN":      {"ECN changes the packet", ""},
	"CLASSIFY": {"CLASSIFY sets a priority", ""}, "CHECKSUM": {"CHECKSUM changes the packet", ""},
	"SECMARK":     {"SECMARK sets a label", ""},
	"CONNSECMARK": {"CONNSECMARK sets a label", ""}, "LED": {"LED lights a lamp", ""},
	"RATEEST": {"RATEEST measures", ""}, "IDLETIMER": {"IDLETIMER measures", ""},
	"TEE":   {"TEE sends a copy elsewhere", ""},
	"SET":   {"SET fills a set from packets", "fill a dynamic set with `levee set add`"},
	"HMARK": {"HMARK sets a mark", ""}, "TCPOPTSTRIP": {"TCPOPTSTRIP changes the packet", ""},
}

// extraTarget finishes rules whose target is none of the plain verdicts.
func (p *ipRule) extraTarget() error {
	r := p.r
	if c := p.tab.byName[p.target]; c != nil {
		r.verb, r.target = doJump, c
		if p.goes {
			r.verb = doGoto
		}
		if c.base {
			return fmt.Errorf("jump to %s, which is no chain of one's own", quote(p.target))
		}
		p.checkFragment()
		return nil
	}
	if p.target == "LOG" || p.target == "NFLOG" || p.target == "ULOG" {
		p.isLog(p.target)
		return nil
	}
	if q, ok := quiet[p.target]; ok {
		r.verb, r.unknown = doNothing, nil
		r.remarks = []Remark{r.origin.remark(LeftOut, q.what+", and decides nothing", q.instead)}
		return nil
	}
	if p.target == "SYNPROXY" {
		p.answersSYNs("SYNPROXY")
		return nil
	}
	if p.target == "TPROXY" {
		r.verb = doAccept
		p.remark(Changed, tproxyText, "")
		p.checkFragment()
		return nil
	}
	r.verb = doNothing
	switch p.target {
	case "QUEUE", "NFQUEUE":
		p.unknown(p.target+" lets a program decide", "")
	case "DNAT", "REDIRECT":
		p.natTo()
		fallthrough
	case "SNAT", "MASQUERADE", "NETMAP":
		p.unknown(p.target+" rewrites addresses or ports, which levee does not do",
			"keep it in the nat table")
	default:
		p.unknown("there is neither a chain nor a known target "+quote(p.target), "")
	}
	return nil
}
