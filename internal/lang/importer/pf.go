package importer

import (
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"levee/internal/quantity"
)

// PF reads a pf.conf(5) of OpenBSD, FreeBSD or macOS and writes a policy that judges arriving
// packets as its rules do. In pf the last rule that matches decides, unless one says quick: so the
// quick rules come first, in their order, and behind them the others in the opposite order.
//
// It returns *Errors when the input is no pf.conf, and has then written nothing.
func PF(in Source, w io.Writer, opts Rulesets) (Imported, error) {
	out := newOutput(sourceNames([]Source{in}), "pf", opts)
	p := &pf{opts: opts, out: out, tables: map[string]*pfTable{},
		reader: pfReader{name: heading(in.Name), macros: map[string][]pfToken{}}}
	if p.reader.name == "" {
		p.reader.name = "input"
	}
	if err := p.reader.read(in.R); err != nil {
		return Imported{}, err
	}
	statements, err := p.reader.statements(0)
	if err != nil {
		return Imported{}, err
	}
	p.findTables(statements)
	if err := p.take(statements, match{}); err != nil {
		return Imported{}, err
	}
	if len(p.first)+len(p.last) == 0 && !p.seen {
		return Imported{}, p.reader.fail(1, "no rules: this is not a pf.conf")
	}
	p.tellOwn()
	base := p.chain()
	return out.policy(w, []*chain{base}, len(base.rules), opts, p.leaving, p.remarkOnRest)
}

// pf is a pf.conf that was read.
type pf struct {
	reader  pfReader
	opts    Rulesets
	out     *output
	tables  map[string]*pfTable
	first   []*chainRule // quick
	last    []*chainRule // the others
	number  int
	seen    bool // something of pf
	states  bool // a rule keeps state
	skips   bool // the interface is not filtered
	leaves  bool // the rules are about packets that leave
	outs    []pfLeaving
	carried int  // of them
	loads   bool // anchors are loaded from files
	others  bool // a rule names another interface than the policy's
	own     []ownRule
}

// pfTable is a table; its addresses are in a set of the policy.
type pfTable struct {
	in    []addrSpan
	out   []addrSpan // with an exclamation mark
	file  string
	named *addrSet

	lacksIn, lacksOut []string // elements that could not be read
	mapped            []string // IPv4 in IPv6, within the table or out of it
}

// chain is the rules in the order in which a first match decides.
func (p *pf) chain() *chain {
	c := &chain{name: "pf", base: true, family: match{}.with(fEther, bothIP),
		origin: origin{file: p.reader.name}}
	if p.skips {
		p.out.rep.add(Remark{File: p.reader.name, Kind: Noticed, Text: "`set skip` leaves the " +
			"interface " + quote(p.opts.Device) + " alone: all of it passes"})
		return c
	}
	rules := slices.Clone(p.first)
	back := slices.Clone(p.last)
	slices.Reverse(back)
	rules = append(rules, back...)
	if p.states {
		n := 0 // blocks of sources stand in front: nobody there has a connection
		for n < len(rules) && rules[n].verb == doDrop && (len(rules[n].unknown) > 0 ||
			!slices.ContainsFunc(rules[n].alts, func(m match) bool { return m.from.pos == nil })) {
			n++
		}
		rules = slices.Insert(rules, n, &chainRule{
			origin: origin{file: p.reader.name, text: "keep state"}, label: "keep state",
			named: true, implied: true, alts: []match{{}}, verb: doAccept,
			states: []string{stEstablished, stRelated}})
	}
	c.rules = rules
	return c
}

// findTables reads the tables, which rules may name before they are defined, and whether anchors
// come from files.
func (p *pf) findTables(in []pfStatement) {
	for _, s := range in {
		p.findTables(s.body)
		t := s.tokens
		p.loads = p.loads || t[0].is("load")
		if !t[0].is("table") || len(t) < 4 || !t[1].is("<") || !t[3].is(">") {
			continue
		}
		tab := &pfTable{}
		p.tables[t[2].text] = tab
		not := false
		for i := 4; i < len(t); i++ {
			switch w := t[i]; {
			case w.is("file") && i+1 < len(t):
				i++
				tab.file = t[i].text
			case w.is("persist"), w.is("const"), w.is("counters"), w.is("{"), w.is("}"), w.is(","):
			case w.is("!"):
				not = true
			default:
				a, err := parsePFAddr(w.text)
				switch {
				case isMapped(w.text):
					tab.mapped = append(tab.mapped, w.text)
				case err != nil:
					p.out.rep.add(Remark{File: p.reader.name, Line: w.line, Rule: s.text,
						Kind: LeftOut, Text: "the element " + quote(w.text) + " of a table is " +
							"not an address", Instead: "write the addresses"})
					if not {
						tab.lacksOut = append(tab.lacksOut, w.text)
					} else {
						tab.lacksIn = append(tab.lacksIn, w.text)
					}
				case not:
					tab.out = append(tab.out, a)
				default:
					tab.in = append(tab.in, a)
				}
				not = false
			}
		}
	}
}

// parsePFAddr reads an address or a prefix; pf fills up short ones with zeros (10/8).
func parsePFAddr(s string) (addrSpan, error) {
	addr, bits, has := strings.Cut(s, "/")
	if has && !strings.Contains(addr, ":") {
		for strings.Count(addr, ".") < 3 {
			addr += ".0"
		}
		s = addr + "/" + bits
	}
	a, _, err := parseMaskedAddr(s)
	return a, err
}

// isMapped reports whether an address or a prefix has IPv4-mapped addresses alone. Go has no such
// prefixes.
func isMapped(s string) bool {
	addr, bits, has := strings.Cut(s, "/")
	a, err := netip.ParseAddr(addr)
	n, errBits := strconv.Atoi(bits)
	return err == nil && a.Is4In6() && (!has || errBits == nil && n >= 96 && n <= 128)
}

// hasFile reports whether the table is read from a file that a policy can name.
func (t *pfTable) hasFile() bool {
	return t.file != "" && len(t.file) < 200 && printable(t.file, len(t.file)) == t.file &&
		!strings.ContainsAny(t.file, "\"\\")
}

// set is the set of a table. One without addresses is filled at run time, or from its file.
func (p *pf) set(name string) *addrSet {
	t := p.tables[name]
	if t == nil { // pf makes an empty one
		t = &pfTable{}
		p.tables[name] = t
	}
	if t.named != nil {
		return t.named
	}
	t.named = &addrSet{name: uniqueName(name, p.out.taken),
		addrs: joinAddrs(t.in).minus(joinAddrs(t.out))}
	if len(t.named.addrs) > 0 && t.file == "" {
		p.out.addSet(t.named.name, addressesText(t.named.addrs))
		return t.named
	}
	var held []entry
	for _, a := range t.named.addrs {
		held = append(held, entry{a.String(), -1})
	}
	t.named.dynamic, t.named.addrs = true, nil
	const room = 200_000 // pf's own limit
	s := p.out.addSet(t.named.name, dynamicText(max(room, uint64(len(held))), 0))
	s.comments = entriesComment(t.named.name, held)
	if t.hasFile() {
		s.text = strings.TrimSuffix(s.text, ")") + ", from file(\"" + t.file + "\"))"
	} else if t.file != "" {
		s.comments = append(s.comments, printable("Its file: levee set replace "+t.named.name+
			" --from "+t.file, 100))
	}
	return t.named
}

// take reads statements; those of an anchor are for packets of under.
func (p *pf) take(in []pfStatement, under match) error {
	for _, s := range in {
		if p.number++; p.number > MaxRules {
			return p.reader.fail(s.line, "more than %d rules", MaxRules)
		}
		at := origin{file: p.reader.name, line: s.line, text: s.text}
		word := s.tokens[0].text
		switch word {
		case "pass", "block":
			p.rule(at, s, under)
		case "anchor":
			if err := p.anchor(at, s, under); err != nil {
				return err
			}
		case "set":
			p.seen = true
			p.option(s)
		case "table":
			p.seen = true
		case "antispoof":
			p.antispoof(at, s, under)
		case "rdr", "binat":
			p.out.rep.add(at.remark(Changed, word+" rewrites destinations before pf's rules look "+
				"at packets, and levee sees them as they arrive",
				"write rules with the addresses and ports before the rewriting"))
		case "match", "scrub", "nat", "altq", "queue", "no", "dummynet", "load", "include",
			"nat-anchor", "rdr-anchor", "binat-anchor", "dummynet-anchor", "scrub-anchor",
			"ether", "oldqueue":
			k := Noticed
			if word == "load" || word == "include" || strings.HasPrefix(word, "rdr-") {
				k = LeftOut
			}
			p.out.rep.add(at.remark(k, word+" decides nothing of itself, and is not carried over",
				""))
		default:
			return p.reader.fail(s.line, "%s is no statement of pf.conf that is known here",
				quote(word))
		}
	}
	return nil
}

// antispoof reads `antispoof quick for { lo em0 }`: what comes from the networks of an interface
// has to come in by it, and nothing from its own addresses. Those are `self`. The networks of
// the interface of the policy are where they belong; those of others only pf knows.
func (p *pf) antispoof(at origin, s pfStatement, under match) {
	r := &pfRule{p: p, r: &chainRule{origin: at, verb: doDrop, alts: []match{under}},
		t: s.tokens[1:]}
	family, lo, onLo, other, lost := match{}, loopback, false, false, []string(nil)
	for len(r.t) > 0 {
		switch t := r.next(); t.text {
		case "log":
			r.parens()
		case "quick":
			r.quick = true
		case "label", "ridentifier":
			r.next()
		case "inet":
			family, lo = family.with(fEther, only4), loopback[:1]
		case "inet6":
			family, lo = family.with(fEther, only6), loopback[1:]
		case "for":
			for _, item := range r.list() {
				name := item[len(item)-1].text
				if item[0].is("(") && len(item) > 1 {
					name = item[1].text
				}
				switch {
				case onInterface("lo", name) && !onInterface("lo", p.opts.Device):
					onLo = true
				case p.opts.Device != "" && (name == "egress" || onInterface(name, p.opts.Device)):
					other = true
				default:
					other, p.others = true, true
					lost = append(lost, name)
				}
			}
		}
	}
	const hint = "write `drop from NETWORK` of the other interfaces' networks"
	if len(lost) > 0 {
		r.r.widen("antispoof asks for the networks of "+quote(printable(strings.Join(lost, ", "),
			60))+": of them the rule has the addresses of the machine (self)", hint, []match{{}})
	}
	var alts []match
	if onLo {
		alts = append(alts, addressIn("src", &addrSet{addrs: joinAddrs(lo)}, false))
	}
	if other {
		alts = append(alts, addressIn("src", self, false))
	}
	r.both(family)
	r.both(alts...)
	p.add(r)
}

// loopback is what has no business on a wire, of IPv4 and of IPv6.
var loopback = []addrSpan{prefixSpan(netip.MustParsePrefix("127.0.0.0/8")),
	prefixSpan(netip.MustParsePrefix("::1/128"))}

// option reads `set`; of the options only `skip on` decides about packets.
func (p *pf) option(s pfStatement) {
	t := s.tokens
	if len(t) < 4 || !t[1].is("skip") {
		return
	}
	for _, w := range t[3:] {
		p.skips = p.skips || p.opts.Device != "" && onInterface(w.text, p.opts.Device)
	}
}

// onInterface tells whether a name in pf is that of the interface, or of a group it is in by its
// driver.
func onInterface(name, dev string) bool {
	rest, ok := strings.CutPrefix(dev, name)
	return ok && name != "" && strings.Trim(rest, "0123456789") == "" &&
		(rest == "" || strings.Trim(name, "0123456789") == name)
}

// anchor reads rules between braces; those from elsewhere are not in the input.
func (p *pf) anchor(at origin, s pfStatement, under match) error {
	r := &pfRule{p: p, r: &chainRule{origin: at, alts: []match{under}}, t: s.tokens[1:]}
	r.r.verb = doJump // so that nothing of its states is asked for
	r.read()
	if r.out {
		return nil
	}
	if s.inline && len(r.r.unknown) == 0 && len(r.r.alts) == 1 && !r.quick {
		return p.take(s.body, r.r.alts[0])
	}
	if s.inline && len(r.r.alts) == 0 {
		return nil
	}
	r.r.verb = doNothing
	const hint = "give the rules of the anchor in their place: pfctl -a NAME -sr"
	if !s.inline && !p.loads { // pf begins it empty
		p.seen = true
		p.out.rep.add(at.remark(Changed, "the anchor is empty in the source: what a program, such "+
			"as ftp-proxy or relayd, puts into it while pf runs is not in the policy", hint))
		return nil
	}
	r.unknown("the rules of the anchor are not known here", hint)
	p.add(r)
	return nil
}

// add puts a rule where it belongs.
func (p *pf) add(r *pfRule) {
	p.seen = true
	r.r.label = printable("pf:"+itoa(r.r.line), 64)
	if r.label != "" {
		r.r.label, r.r.named = r.label, true
	}
	if r.logs && len(r.r.unknown) == 0 {
		(&ruleReader{p.out, r.r}).logged("log")
	}
	if r.quick {
		p.first = append(p.first, r.r)
	} else {
		p.last = append(p.last, r.r)
	}
}

// remarkOnRest says what else is in the input.
func (p *pf) remarkOnRest([]*chain) {
	n, f := -p.carried, &p.out.rep.Leaving
	for _, l := range p.outs {
		if l.only {
			n++
			if l.s.tokens[0].is("block") {
				f.Widened++
			}
		}
	}
	if n > 0 {
		f.Given, f.LeftOut, f.Widened = f.Given+n, f.LeftOut+n, max(0, f.Widened-p.carried)
		p.out.rep.add(Remark{File: p.reader.name, Kind: Noticed, Text: quantity.Plural(n, "rule") +
			" about packets that leave: an import has those that block by `quick`, in front of " +
			"all that pass, and say whereto, as `out` knows no states", Instead: leavesHint})
	}
	if p.opts.Device != "" {
		p.out.rep.add(Remark{File: p.reader.name, Kind: Noticed, Text: "the interface has the " +
			"name that pf knows, which Linux may not",
			Instead: "write the name that `ip link` shows"})
	}
	p.out.rep.add(Remark{File: p.reader.name, Kind: Changed, Text: "pf puts fragments together " +
		"before its rules look at them (scrub, set reassemble); levee judges each fragment, and " +
		"one that is not the first has no ports, flags or ICMP type"})
}
