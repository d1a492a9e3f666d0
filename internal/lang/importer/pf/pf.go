// Package pf reads the rules of pf as policies.
//
// In goes a pf.conf of OpenBSD, FreeBSD or macOS, out comes a policy with remarks. It must never
// take a word that it does not know for one that says nothing.
package pf

import (
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"levee/internal/lang/importer"
	"levee/internal/lang/importer/match"
	"levee/internal/lang/importer/state"
	"levee/internal/quantity"
)

// Import reads a pf.conf(5) of OpenBSD, FreeBSD or macOS and writes a policy that judges arriving
// packets as its rules do. In pf the last rule that matches decides, unless one says quick: so the
// quick rules come first, in their order, and behind them the others in the opposite order.
//
// anchors are the files from which `load anchor` brings rules into anchors, as it names them.
//
// It returns *importer.Errors when the input is no pf.conf, and has then written nothing.
func Import(in importer.Source, w io.Writer, opts importer.Rulesets,
	anchors ...importer.Source) (importer.Imported, error) {
	out := importer.NewOutput(importer.SourceNames([]importer.Source{in}), "pf", opts)
	p := &pf{opts: opts, out: out, tables: map[string]*pfTable{},
		bodies: map[string][]pfStatement{}, beside: map[string]*match.Set{},
		reader: pfReader{name: in.Title(), macros: map[string][]pfToken{}}}
	if err := in.Belongs("pf"); err != nil {
		return importer.Imported{}, err
	}
	if err := p.reader.read(in.R); err != nil {
		return importer.Imported{}, err
	}
	statements, err := p.reader.statements(0)
	if err != nil {
		return importer.Imported{}, err
	}
	p.findTables(statements, "")
	for _, a := range anchors {
		if err := p.readAnchor(a, statements); err != nil {
			return importer.Imported{}, err
		}
	}
	p.others = opts.Device != "" && namesOthers(statements, opts.Device)
	for _, body := range p.bodies {
		p.others = p.others || opts.Device != "" && namesOthers(body, opts.Device)
	}
	p.listed = len(p.tables) == 0 && len(p.reader.macros) == 0 &&
		!slices.ContainsFunc(statements, func(s pfStatement) bool { return s.tokens[0].is("set") })
	if err := p.take(statements, []match.Match{{}}); err != nil {
		return importer.Imported{}, err
	}
	if len(p.first)+len(p.last) == 0 && !p.seen {
		return importer.Imported{}, p.reader.fail(1, "no rules: this is not a pf.conf")
	}
	p.tellOwn()
	base := p.chain()
	if rules := slices.Concat(p.rdr[:p.rdrs], p.binat); !p.skips { // what stays behind all does
		out.Nats = []*importer.Chain{{Name: "rdr", Base: true, Family: base.Family, Rules: rules,
			Origin: importer.Origin{File: p.reader.name, Text: "rdr, no rdr and binat"}}}
	}
	return out.Policy(w, []*importer.Chain{base}, len(base.Rules), opts, p.leaving, p.remarkOnRest)
}

// pf is a pf.conf that was read.
type pf struct {
	reader  pfReader
	opts    importer.Rulesets
	out     *importer.Output
	tables  map[string]*pfTable
	first   []*importer.ChainRule // quick
	last    []*importer.ChainRule // the others
	number  int
	seen    bool // something of pf
	states  bool // a rule keeps state
	skips   bool // the interface is not filtered
	leaves  bool // the rules are about packets that leave
	outs    []pfLeaving
	carried int                      // of them
	loads   []string                 // anchors that files not given are loaded into
	bodies  map[string][]pfStatement // what is loaded into anchors
	at      string                   // the anchor that is read
	ways    bool                     // packets are sent out by ways that rules name
	listed  bool                     // it is what pfctl -sr prints, without tables and options
	others  bool                     // a rule names another interface than the policy's
	own     []ownRule
	beside  map[string]*match.Set // of what stands in files beside the policy
	rdr     []*importer.ChainRule // with what is not redirected, and
	binat   []*importer.ChainRule // behind them
	// a translation, or an anchor of them, was read that is not carried over
	unsaid  bool
	stays   bool // there is a no rdr
	mixed   bool // there is an rdr or a binat
	rdrs    int  // of rdr, with its last that redirects
	matched []matchRule
}

// pfTable is a table; its addresses are in a set of the policy.
type pfTable struct {
	in    []match.AddressSpan
	out   []match.AddressSpan // with an exclamation mark
	file  string
	named *match.Set
	// what it holds stands in a file beside the policy: the input is what pfctl -sr prints, or
	// there are more files than one
	beside bool
	files  []string

	lacksIn, lacksOut []string // elements that could not be read
	mapped            []string // IPv4 in IPv6, within the table or out of it
}

// chain is the rules in the order in which a first match decides.
func (p *pf) chain() *importer.Chain {
	c := &importer.Chain{Name: "pf", Base: true,
		Family: match.Match{}.With(match.Ether, match.BothIP),
		Origin: importer.Origin{File: p.reader.name}}
	if p.skips {
		p.out.Report.Add(importer.Remark{File: p.reader.name, Kind: importer.Noticed,
			Text: "`set skip` leaves the " +
				"interface " + match.Quote(p.opts.Device) + " alone: all of it passes"})
		return c
	}
	rules := slices.Clone(p.first)
	back := slices.Clone(p.last)
	slices.Reverse(back)
	rules = append(rules, back...)
	if p.states {
		rules = slices.Insert(rules, 0, &importer.ChainRule{
			Origin: importer.Origin{File: p.reader.name, Text: "keep state"}, Label: "keep state",
			Named: true, Implied: true, Alts: []match.Match{{}}, Verb: importer.DoAccept,
			States: []string{state.Established, state.Related}})
	}
	c.Rules = rules
	return c
}

// findTables reads the tables, which rules may name before they are defined, and whether anchors
// come from files; they stand in the anchor that is named. It looks for a no rdr, too, which keeps
// no packet from any binat.
func (p *pf) findTables(in []pfStatement, anchor string) {
	for _, s := range in {
		p.findTables(s.body, within(anchor, anchorName(s)))
		t := s.tokens
		if name, _ := loadsAnchor(t); name != "" {
			p.loads = append(p.loads, within(anchor, name))
		}
		p.stays = p.stays || t[0].is("no") && len(t) > 1 && t[1].is("rdr")
		p.mixed = p.mixed || t[0].is("rdr") || t[0].is("binat")
		p.ways = p.ways || slices.ContainsFunc(t, func(w pfToken) bool {
			return w.is("route-to") || w.is("reply-to") || w.is("rtable")
		})
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
				tab.file, tab.files = t[i].text, append(tab.files, t[i].text)
				tab.beside = len(tab.files) > 1
			case w.is("persist"), w.is("const"), w.is("counters"), w.is("{"), w.is("}"), w.is(","):
			case w.is("!"):
				not = true
			default:
				a, err := parsePFAddr(w.text)
				switch {
				case isMapped(w.text):
					tab.mapped = append(tab.mapped, w.text)
				case err != nil:
					p.out.Report.Add(importer.Remark{File: p.reader.name, Line: w.line,
						Rule: s.text,
						Kind: importer.LeftOut,
						Text: "the element " + match.Quote(w.text) + " of a table is " +
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
func parsePFAddr(s string) (match.AddressSpan, error) {
	addr, bits, has := strings.Cut(s, "/")
	if has && !strings.Contains(addr, ":") {
		for strings.Count(addr, ".") < 3 {
			addr += ".0"
		}
		s = addr + "/" + bits
	}
	a, _, err := match.ParseMaskedAddr(s)
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
	return t.file != "" && len(t.file) < 200 && importer.Printable(t.file, len(t.file)) == t.file &&
		!strings.ContainsAny(t.file, "\"\\")
}

// set is the set of a table. One without addresses is filled at run time, or from its file.
func (p *pf) set(name string) *match.Set {
	t := p.tables[name]
	if t == nil { // pf makes an empty one, and pfctl -sr prints none
		t = &pfTable{beside: p.listed}
		p.tables[name] = t
	}
	if t.named != nil {
		return t.named
	}
	t.named = &match.Set{Name: match.UniqueName(name, p.out.Taken),
		Addresses: match.Innermost(t.in, t.out)}
	if len(t.named.Addresses) > 0 && t.file == "" {
		p.out.AddSet(t.named.Name, match.AddressesText(t.named.Addresses))
		return t.named
	}
	var held []importer.Entry
	for _, a := range t.named.Addresses {
		held = append(held, importer.Entry{Text: a.String(), Lease: -1})
	}
	t.named.Dynamic, t.named.Addresses = true, nil
	const room = 200_000 // pf's own limit
	s := p.out.AddSet(t.named.Name, match.DynamicText(max(room, uint64(len(held))), 0))
	s.Comments = importer.EntriesComment(t.named.Name, held)
	if t.beside {
		s.Text = strings.TrimSuffix(s.Text, ")") + ", from file(\"" + t.named.Name + ".txt\"))"
		of, command := name, "pfctl -t "+name+" -T show"
		if len(t.files) > 0 {
			of = strings.ReplaceAll(strings.Join(t.files, ""), "/", "")
			command = "cat " + strings.Join(t.files, " ")
		}
		s.Comments = append(s.Comments, importer.BesideComment(t.named.Name, of, command)...)
	} else if t.hasFile() {
		s.Text = strings.TrimSuffix(s.Text, ")") + ", from file(\"" + t.file + "\"))"
	} else if t.file != "" {
		s.Comments = append(s.Comments,
			importer.Printable("Its file: levee set replace "+t.named.Name+
				" --from "+t.file, 100))
	}
	return t.named
}

// take reads statements; those of an anchor are for packets of under.
func (p *pf) take(in []pfStatement, under []match.Match) error {
	for _, s := range in {
		if p.number++; p.number > importer.MaxRules {
			return p.reader.fail(s.line, "more than %d rules", importer.MaxRules)
		}
		at := importer.Origin{File: s.file, Line: s.line, Text: s.text}
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
			p.translate(at, s, under)
		case "state", "source":
			if len(s.tokens) < 2 || !s.tokens[1].is("limiter") {
				return p.reader.fail(s.line, "%s is no statement of pf.conf that is known here",
					match.Quote(word))
			}
			p.out.Report.Add(at.Remark(importer.Noticed, "a limiter decides nothing of itself: "+
				"the rules that name it say what becomes of it", ""))
		case "load": // see anchor
			if _, ok := p.bodies[within(p.at, anchorLoaded(s))]; !ok {
				p.out.Report.Add(at.Remark(importer.LeftOut,
					"load decides nothing of itself, and the file is not given", ""))
			}
		case "no":
			if len(s.tokens) > 1 && s.tokens[1].is("rdr") {
				p.translate(at, s, under)
				continue
			}
			fallthrough
		case "match", "scrub", "nat", "altq", "queue", "dummynet", "include",
			"nat-anchor", "rdr-anchor", "binat-anchor", "dummynet-anchor", "scrub-anchor",
			"ether", "oldqueue":
			if word == "match" && p.matchTranslates(at, s, under) {
				continue
			}
			k := importer.Noticed
			p.unsaid = p.unsaid || word == "rdr-anchor"
			if word == "include" || strings.HasPrefix(word, "rdr-") {
				k = importer.LeftOut
			}
			p.out.Report.Add(at.Remark(k,
				word+" decides nothing of itself, and is not carried over",
				""))
		default:
			return p.reader.fail(s.line, "%s is no statement of pf.conf that is known here",
				match.Quote(word))
		}
	}
	return nil
}

// antispoof reads `antispoof quick for { lo em0 }`: what comes from the networks of an interface
// has to come in by it, and nothing from its own addresses. Those are `self`. The networks of
// the interface of the policy are where they belong; what belongs to others the kernel's routes
// lead out by these.
func (p *pf) antispoof(at importer.Origin, s pfStatement, under []match.Match) {
	r := p.newRule(at, s, under)
	r.Rule.Verb = importer.DoDrop
	family, lo, onLo, other, lost := match.Match{}, match.Loopback, false, false, []string(nil)
	for len(r.t) > 0 {
		switch t := r.next(); t.text {
		case "log":
			r.parens()
			r.logs = true
		case "quick":
			r.quick = true
		case "label", "ridentifier":
			if v := r.next(); t.text == "label" {
				r.label = v.text
			}
		case "inet":
			family, lo = family.With(match.Ether, match.Only4), match.Loopback[:1]
		case "inet6":
			family, lo = family.With(match.Ether, match.Only6), match.Loopback[1:]
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
	var alts []match.Match
	if onLo {
		alts = append(alts, importer.AddressIn("src", &match.Set{Addresses: match.JoinAddrs(lo)},
			false))
	}
	if other {
		alts = append(alts, importer.AddressIn("src", match.Self, false))
	}
	if len(lost) > 0 {
		alts = append(alts, p.fromOthers(r, importer.Printable(strings.Join(lost, ", "), 60))...)
	}
	r.Both(family)
	r.Both(alts...)
	p.add(r)
}

// fromOthers are the packets that antispoof drops for the networks of interfaces that are not the
// policy's: those whose way back is by another one. Where packets come and go by several ways, the
// routes do not tell.
func (p *pf) fromOthers(r *pfRule, names string) []match.Match {
	const hint = "write `drop from NETWORK` of the other interfaces' networks"
	text := "antispoof asks for the networks of " + match.Quote(names)
	if p.opts.Device == "" || p.ways {
		r.Rule.Widen(text+": of them the rule has the addresses of the machine (self)", hint,
			[]match.Match{{}})
		return nil
	}
	r.Remark(importer.Changed, text+": what has its way back by another interface than this one "+
		"is dropped, from networks behind those too; `reverse-path` asks the kernel's routes for "+
		"it, on a machine that forwards, and on others it neither holds nor fails, which `levee "+
		"up` says", hint)
	return match.Settled([]match.Match{match.Match{}.With(match.Loose,
		match.Just(1)).With(match.Strict, match.Just(0))})
}

// option reads `set`; of the options only `skip on` decides about packets, and `limit states` says
// how many connections are known.
func (p *pf) option(s pfStatement) {
	t := s.tokens
	switch {
	case len(t) > 2 && t[1].is("block-policy") && t[2].is("return"):
		p.out.Report.Add(importer.Remark{File: s.file, Line: s.line, Rule: s.text,
			Kind: importer.Changed, Text: "block becomes a drop: levee sends no answer",
			Instead: "clients wait for a timeout; let the packets pass to the kernel where they " +
				"should be refused"})
	case len(t) < 4:
	case t[1].is("skip"):
		for _, w := range t[3:] {
			p.skips = p.skips || p.opts.Device != "" && onInterface(w.text, p.opts.Device)
		}
	case t[1].is("limit"):
		for i := range t[:len(t)-1] {
			if n, err := strconv.ParseUint(t[i+1].text, 10, 32); t[i].is("states") && err == nil {
				p.out.MaxConnections = n
			}
		}
	}
}

// onInterface tells whether a name in pf is that of the interface, or of a group it is in by its
// driver.
func onInterface(name, dev string) bool {
	rest, ok := strings.CutPrefix(dev, name)
	return ok && name != "" && strings.Trim(rest, "0123456789") == "" &&
		(rest == "" || strings.Trim(name, "0123456789") == name)
}

// namesOthers tells whether a statement is about an interface besides dev and the loopback, or has
// its addresses or networks.
func namesOthers(in []pfStatement, dev string) bool {
	return slices.ContainsFunc(in, func(s pfStatement) bool {
		t := s.tokens
		if t[0].is("table") || t[0].is("load") {
			return false
		}
		for i := range len(t) - 1 {
			name, of, _ := strings.Cut(t[i+1].text, ":")
			var names bool
			switch word := t[i].text; {
			case t[i].quoted:
			case word == "on", word == "for" && t[0].is("antispoof"):
				names = othersIn(t[i+1:], dev)
			case word == "from", word == "to", word == "!", of == "network", of == "broadcast",
				word == "(" && !t[i-min(i, 1)].is("queue"):
				names = isInterface(name) && othersIn([]pfToken{{text: name}}, dev)
			}
			if names {
				return true
			}
		}
		return namesOthers(s.body, dev)
	})
}

// othersIn tells whether the list that tokens begin with has another interface than dev.
func othersIn(t []pfToken, dev string) bool {
	depth, not := 0, false
	for _, w := range t {
		switch {
		case w.is("{"), w.is("("):
			depth++
			continue
		case w.is("}"), w.is(")"):
			depth--
		case w.is(","):
			continue
		case w.is("!"):
			not = true
			continue
		case w.text == "any" || onInterface("lo", w.text):
			not = false
		default:
			if not || w.text != "egress" && !onInterface(w.text, dev) {
				return true
			}
		}
		if depth <= 0 {
			return false
		}
	}
	return false
}

// add puts a rule where it belongs.
func (p *pf) add(r *pfRule) {
	p.seen = true
	r.Rule.Label = importer.Printable("pf:"+strconv.Itoa(r.Rule.Line), 64)
	if r.label != "" {
		r.Rule.Label, r.Rule.Named = r.label, true
	}
	if r.logs && len(r.Rule.Unknown) == 0 {
		r.Logged("log")
	}
	if r.quick {
		p.first = append(p.first, r.Rule)
	} else {
		p.last = append(p.last, r.Rule)
	}
}

// remarkOnRest says what else is in the input.
func (p *pf) remarkOnRest([]*importer.Chain) {
	n, f := -p.carried, &p.out.Report.Leaving
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
		p.out.Report.Add(importer.Remark{File: p.reader.name, Kind: importer.Noticed,
			Text: quantity.Plural(n, "rule") +
				" about packets that leave: an import has those that block by `quick`, in front " +
				"of all that pass, and say whereto, as `out` knows no states",
			Instead: importer.LeavesHint})
	}
	for _, c := range p.out.Nats {
		if !c.Met && len(c.Rules) > 0 { // they would become too many rules
			p.out.Translates(c, "not imported, "+quantity.Plural(len(c.Rules), "rule")+": ")
		}
	}
	if p.opts.Device != "" {
		p.out.Report.Add(importer.Remark{File: p.reader.name, Kind: importer.Noticed,
			Text: "the interface has the " +
				"name that pf knows, which Linux may not",
			Instead: "write the name that `ip link` shows"})
	}
	p.out.Report.Add(importer.Remark{File: p.reader.name, Kind: importer.Changed,
		Text: "pf puts fragments together before its rules look at them (scrub, set reassemble); " +
			"levee judges each fragment, and one that is not the first has no ports, flags or " +
			"ICMP type"})
}
