package iptables

import (
	"fmt"
	"net/netip"
	"strings"

	"levee/internal/lang/importer"
	"levee/internal/lang/importer/match"
)

// ipRule reads the options of one rule.
type ipRule struct {
	importer.RuleReader
	t      *ipTables
	tab    *ipTable
	w      []word // options not read yet
	not    bool   // a ! stands before the option
	module string // the last -m
	target string
	goes   bool   // target is behind -g
	draws  bool   // of a range of ports
	to     string // of DNAT, REDIRECT and NETMAP
	badAll bool
	seen   importer.SeenLately
	chain  *importer.Chain
	texts  []ipString // of -m string
	words  []ipWords  // of -m u32
	path   rpfilter
	ipsec  ipsec
	bridge bridged
	// an option of -m owner is negated
	negated bool
	groups  []match.Match // what --pkt-type multicast is asked of
	ipLimit
}

// rule reads a line. It fails on values that iptables would refuse; what a policy
// has no words for is remembered in the rule.
func (t *ipTables) rule(tab *ipTable, l ipLine, number int) (*importer.ChainRule, error) {
	p := &ipRule{t: t, tab: tab, chain: l.chain, w: l.words, RuleReader: importer.RuleReader{
		Out: t.out, Rule: &importer.ChainRule{
			Origin: importer.Origin{File: tab.File, Line: l.line, Text: l.text},
			Label:  fmt.Sprintf("%s:%d", l.chain.Name, number),
			Alts:   []match.Match{{}},
		}}}
	for len(p.w) > 0 {
		if err := p.option(); err != nil {
			return nil, err
		}
	}
	if err := p.finish(); err != nil {
		return nil, err
	}
	p.finishOwner()
	p.finishGroups()
	return p.Rule, nil
}

// next returns the value of an option.
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
func (p *ipRule) number(f match.Field, s match.Spans) {
	if p.not {
		s = s.Not(match.Top[f])
	}
	p.Both(match.Match{}.With(f, s))
}

// option reads one option with its values.
func (p *ipRule) option() error {
	if p.w[0].quoted {
		return fmt.Errorf("%s stands where an option is expected", match.Quote(p.w[0].text))
	}
	o := p.next()
	if p.not = o == "!"; p.not {
		o = p.next()
	}
	for i, group := range [...]func(*ipRule, string) (bool, error){
		(*ipRule).basic, (*ipRule).transport, (*ipRule).header, (*ipRule).state,
		(*ipRule).mark, (*ipRule).limits, (*ipRule).text, (*ipRule).sender,
		(*ipRule).u32,
	} {
		if known, err := group(p, o); known || err != nil {
			if p.rate != "" && i == 3 { // see carryStates
				p.Rule.StateLast = true
			} else if p.rate != "" && i != 0 && i != 5 {
				p.early = true
			} else if i == 0 && !noCondition[o] { // iptables looks at these first
				p.counts = nil
			}
			return err
		}
	}
	return p.other(o)
}

// noCondition are the options that every rule may have and that ask for nothing.
var noCondition = map[string]bool{"-m": true, "--match": true, "-j": true, "--jump": true,
	"-g": true, "--goto": true, "-c": true, "--set-counters": true, "--comment": true}

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
		n, err := match.ProtocolNumber(v)
		if err != nil {
			return true, err
		}
		p.number(match.Proto, match.Just(uint64(n)))
	case "-i", "--in-interface":
		p.in(p.value())
	case "-o", "--out-interface":
		if p.t.leaves {
			p.in(p.value())
			return true, nil
		}
		p.Unknown("asks for the outgoing interface "+match.Quote(p.value())+
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
		p.Rule.Label, p.Rule.Named = p.next(), true
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
			p.Rule.Logs = p.next()
		case "--to-destination", "--to-ports", "--to":
			p.to = p.next()
		case "--random", "--random-fully":
			p.draws = true
		case "--add-set":
			p.Out.Fills[match.Quote(p.next())] = true
		case "--set-mark", "--set-xmark", "--or-mark", "--and-mark", "--xor-mark":
			p.setsMark(o, p.next())
		case "--restore-mark", "--hmark-tuple":
			p.Rule.SetsMark = 0xffffffff
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
	var in []match.AddressSpan
	for _, s := range strings.Split(v, ",") {
		if host, _, _ := strings.Cut(s, "/"); match.IsHostName(host) {
			p.Unknown("names the host "+match.Quote(s),
				"write its addresses, as iptables-save does")
			return nil
		}
		a, contiguous, err := match.ParseMaskedAddr(s)
		if err != nil {
			return err
		}
		if !contiguous {
			p.Unknown("asks for an address with the mask "+match.Quote(s)+", which is not a prefix",
				"list the prefixes")
			return nil
		}
		in = append(in, a)
	}
	dir := "src"
	if o == "-d" || o == "--destination" || o == "--dst" {
		dir = "dst"
	}
	p.address(dir, &match.Set{Addresses: match.JoinAddrs(in)})
	return nil
}

// address narrows one side.
func (p *ipRule) address(dir string, s *match.Set) {
	if s.TakeMapped(); !p.LacksMapped(s, p.not) {
		return
	}
	var m match.Match
	if p.not {
		if len(s.Addresses) == 1 &&
			s.Addresses[0] == match.PrefixSpan(netip.PrefixFrom(s.Addresses[0].Lo, 0)) {
			p.Rule.Alts = nil // not anywhere
			return
		}
		importer.Side(&m, dir).Not = []*match.Set{s}
	} else {
		importer.Side(&m, dir).In = s
	}
	p.Both(m.Settle())
}

// in reads -i: a policy protects one interface.
func (p *ipRule) in(name string) {
	dev := p.t.opts.Device
	stem, wild := strings.CutSuffix(name, "+")
	switch {
	case wild && stem == "": // any
		if p.not {
			p.Rule.Alts = nil
		}
	case name == "lo" && !p.not && dev != "lo":
		p.Rule.Alts = nil
		p.Rule.AboutLoopback()
	case name == "lo" && dev == "":
	case dev != "":
		alts := importer.Came([]string{name}, "+", dev, p.t.vlans, p.not)
		if len(alts) == 0 {
			p.Rule.Alts, p.Rule.Absent = nil, true
			if p.not {
				p.Remark(importer.LeftOut, importer.Others(name, dev), "")
				return
			}
			p.Remark(importer.LeftOut,
				"is about interface "+match.Quote(name)+", by which nothing comes to "+dev,
				"import it with --dev "+name+" for that interface")
			return
		}
		if importer.VlanOf(name, dev) != nil {
			p.Remark(importer.Changed, importer.VlanRemark(name, dev), "")
		}
		p.Both(alts...)
	default:
		p.Unknown("asks for interface "+match.Quote(name)+", and a policy protects one interface",
			"choose one with --dev "+name)
	}
}

// fragment reads -f: the second and later fragments.
func (p *ipRule) fragment() { p.number(match.Fragment, match.Just(match.Later)) }

// finish draws together what was read.
func (p *ipRule) finish() error {
	r := p.Rule
	p.finishTexts()
	p.finishWords()
	p.finishPath()
	p.finishIPsec()
	p.finishBridge()
	p.finishRecent()
	p.finishLimit()
	switch p.target {
	case "ACCEPT":
		r.Verb = importer.DoAccept
	case "DROP", "":
		r.Verb = importer.DoDrop
		if p.target == "" {
			r.Verb = importer.DoCount
		}
	case "REJECT", "TARPIT":
		r.Verb = importer.DoDrop
		p.Remark(importer.Changed, p.target+" becomes a drop: levee sends no answer",
			"clients wait for a timeout; let the packets pass to the kernel where they should be "+
				"refused")
	case "RETURN":
		r.Verb = importer.DoReturn
	default:
		return p.extraTarget()
	}
	p.Rule.CheckFragment()
	return nil
}

// quiet are targets that decide nothing.
var quiet = map[string]importer.Reason{
	"TRACE": {What: "TRACE is for debugging", Instead: "use `levee explain`"},
	"AUDIT": {What: "AUDIT writes a record", Instead: ""},
	"MARK":  {What: "MARK sets a mark", Instead: "rules that ask for its bits are left out"},
	"CONNMARK": {What: "CONNMARK sets a mark",
		Instead: "rules that ask for its bits are left out"},
	"CT":          {What: "CT sets up connection tracking", Instead: ""},
	"NOTRACK":     {What: "NOTRACK keeps packets out of connection tracking", Instead: ""},
	"TCPMSS":      {What: "TCPMSS changes the packet", Instead: ""},
	"DSCP":        {What: "DSCP changes the packet", Instead: ""},
	"TOS":         {What: "TOS changes the packet", Instead: ""},
	"TTL":         {What: "TTL changes the packet", Instead: ""},
	"HL":          {What: "HL changes the packet", Instead: ""},
	"ECN":         {What: "ECN changes the packet", Instead: ""},
	"CLASSIFY":    {What: "CLASSIFY sets a priority", Instead: ""},
	"CHECKSUM":    {What: "CHECKSUM changes the packet", Instead: ""},
	"SECMARK":     {What: "SECMARK sets a label", Instead: ""},
	"CONNSECMARK": {What: "CONNSECMARK sets a label", Instead: ""},
	"LED":         {What: "LED lights a lamp", Instead: ""},
	"RATEEST":     {What: "RATEEST measures", Instead: ""},
	"IDLETIMER":   {What: "IDLETIMER measures", Instead: ""},
	"TEE":         {What: "TEE sends a copy elsewhere", Instead: ""},
	"SET": {What: "SET fills a set from packets",
		Instead: "fill a dynamic set with `levee set add`"},
	"HMARK":       {What: "HMARK sets a mark", Instead: ""},
	"TCPOPTSTRIP": {What: "TCPOPTSTRIP changes the packet", Instead: ""},
}

// extraTarget finishes rules with targets other than the plain verdicts.
func (p *ipRule) extraTarget() error {
	r := p.Rule
	if c := p.tab.byName[p.target]; c != nil {
		r.Verb, r.Target = importer.DoJump, c
		if p.goes {
			r.Verb = importer.DoGoto
		}
		if c.Base {
			return fmt.Errorf("jump to %s, which is no chain of one's own", match.Quote(p.target))
		}
		p.Rule.CheckFragment()
		return nil
	}
	if p.target == "LOG" || p.target == "NFLOG" || p.target == "ULOG" {
		p.IsLog(p.target)
		return nil
	}
	if q, ok := quiet[p.target]; ok {
		r.Verb, r.Unknown = importer.DoNothing, nil
		r.Remarks = []importer.Remark{r.Origin.Remark(importer.LeftOut,
			q.What+", and decides nothing", q.Instead)}
		return nil
	}
	if p.target == "SYNPROXY" {
		p.AnswersSYNs("SYNPROXY")
		return nil
	}
	if p.target == "TPROXY" {
		r.Verb = importer.DoAccept
		p.Remark(importer.Changed, importer.TproxyText, "")
		p.Rule.CheckFragment()
		return nil
	}
	r.Verb = importer.DoNothing
	switch p.target {
	case "QUEUE", "NFQUEUE":
		p.Unknown(p.target+" lets a program decide", importer.QueueText)
	case "DNAT", "REDIRECT", "NETMAP":
		p.natTo()
		fallthrough
	case "SNAT", "MASQUERADE":
		p.Unknown(p.target+" rewrites addresses or ports, which levee does not do",
			"keep it in the nat table")
	default:
		p.Unknown("there is neither a chain nor a known target "+match.Quote(p.target), "")
	}
	return nil
}
