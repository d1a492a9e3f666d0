package importer_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"levee/internal/filter/oracle"
	"levee/internal/lang/action"
	"levee/internal/lang/importer"
	"levee/internal/lang/importer/pf"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
	"levee/internal/lang/setfile"
	"levee/internal/packet"
)

// pfTerm is a condition on one field: its text, and what it means by pf.conf(5).
type pfTerm struct {
	text string
	is   func(*packet.Spec) bool
}

// pfRuleOf is one rule that a test wrote, or an anchor with rules within.
type pfRuleOf struct {
	pass, quick bool
	terms       []pfTerm
	within      []pfRuleOf     // of an anchor
	to          *translationOf // of a match rule with rdr-to
}

func (r *pfRuleOf) matches(s *packet.Spec) bool {
	return !slices.ContainsFunc(r.terms, func(t pfTerm) bool { return !t.is(s) })
}

// lastMatch returns what pf does with the first packet of a connection: the last rule that matches
// decides, unless one is quick, or stands in an anchor that is. It tells whether one matched, and
// whether it ends the search.
func lastMatch(rules []pfRuleOf, s *packet.Spec) (pass, matched, ends bool) {
	for _, r := range rules {
		switch {
		case !r.matches(s):
		case r.to != nil:
			became := r.to.of(*s)
			s = &became
		case r.within != nil:
			in, hit, over := lastMatch(r.within, s)
			if hit {
				pass, matched = in, true
			}
			if over || hit && r.quick {
				return pass, true, true
			}
		default:
			if pass, matched = r.pass, true; r.quick {
				return pass, true, true
			}
		}
	}
	return pass, matched, false
}

// translationOf is an rdr, a no rdr or a binat that a test wrote.
type translationOf struct {
	word  string // rdr, rdr pass, no rdr, binat
	terms []pfTerm
	to    netip.Addr
	port  int // 0 for one that stays
	// how many ports from port on, of which a packet gets the one as far behind the first as its
	// own is behind base; 0 for one port
	ports, base int
}

// setOf is a pf.conf that a test wrote.
type setOf struct {
	translations []translationOf
	rules        []pfRuleOf
}

// passes tells what pf does with the first packet of a connection: the first rdr or no rdr that
// matches, or the first binat where no rdr does, changes its destination, and the rules judge what
// it has become.
func (set *setOf) passes(s packet.Spec) bool {
	for _, last := range []bool{false, true} {
		i := slices.IndexFunc(set.translations, func(t translationOf) bool {
			r := pfRuleOf{terms: t.terms}
			return (t.word == "binat") == last && r.matches(&s)
		})
		if i < 0 {
			continue
		}
		t := set.translations[i]
		switch t.word {
		case "no rdr":
			continue
		case "rdr pass":
			return true
		}
		s = t.of(s)
		break
	}
	pass, matched, _ := lastMatch(set.rules, &s)
	return pass || !matched
}

// of returns what a translation makes of a packet.
func (t *translationOf) of(s packet.Spec) packet.Spec {
	if t.to.IsValid() {
		s.To = t.to
	}
	if t.ports != 0 {
		s.ToPort = new(uint16(t.port + (int(*s.ToPort)-t.base)%t.ports))
	} else if t.port != 0 {
		s.ToPort = new(uint16(t.port))
	}
	return s
}

// translationPF writes an rdr, or a no rdr or a binat as last says.
func (w *writer) translationPF(last string) (string, translationOf) {
	t := translationOf{word: w.of("rdr", "rdr", "rdr pass", last, last)}
	six := w.one(3)
	family := pfTerm{map[bool]string{false: "inet", true: "inet6"}[six],
		func(s *packet.Spec) bool { return s.From.Is6() == six }}
	on := w.onePF([]pfTerm{{"em0", always}, {"em0", always}, {"em1", never}, {"em", always}})
	n := pick(w.rnd, uint8(6), 17)
	proto := pfTerm{map[uint8]string{6: "tcp", 17: "udp"}[n],
		func(s *packet.Spec) bool { return *s.Proto == n }}
	t.terms = []pfTerm{on, family, proto}
	from := pfTerm{"any", always}
	if w.one(3) {
		from = w.hostPF(func(s *packet.Spec) netip.Addr { return s.From },
			newWriter(w.rnd, six).nets)
	}
	outer, inner := w.of("198.51.100.10", "198.18.0.1"), w.of("198.18.0.5", "192.0.2.77")
	if six {
		outer, inner = w.of("2001:db8:5::10", "2001:db8::1"), "2001:db8:5::77"
	}
	to := pfTerm{"any", always}
	if a := netip.MustParseAddr(outer); w.one(2) || t.word == "binat" {
		to = pfTerm{outer, func(s *packet.Spec) bool { return s.To == a }}
	}
	t.to = netip.MustParseAddr(inner)
	t.terms = append(t.terms, from, to)
	if t.word == "binat" {
		return fmt.Sprintf("binat on %s %s proto %s from %s to %s -> %s", on.text, family.text,
			proto.text, inner, from.text, outer), t
	}
	port := w.portPF(func(s *packet.Spec) int { return portOf(s.ToPort) })
	text := fmt.Sprintf("%s on %s %s proto %s from %s to %s port %s", t.word, on.text,
		family.text, proto.text, from.text, to.text, port.text)
	t.terms = append(t.terms, port)
	if t.word == "no rdr" {
		t.to = netip.Addr{}
		return text, t
	}
	text += " -> " + inner
	var hi int
	if n, _ := fmt.Sscanf(port.text, "%d:%d", &t.base, &hi); n == 2 && w.one(2) {
		t.port, t.ports = min(w.port(), 30000), hi-t.base+1
		if t.port+t.ports > 0x10000 || w.one(2) {
			t.ports = 2 + w.rnd.IntN(300)
			return text + fmt.Sprintf(" port %d:%d", t.port, t.port+t.ports-1), t
		}
		return text + fmt.Sprintf(" port %d:*", t.port), t
	}
	if w.one(2) {
		t.port = w.port()
		text += fmt.Sprintf(" port %d", t.port)
	}
	return text, t
}

// matchPF writes a match rule with rdr-to, to one address or one of several.
func (w *writer) matchPF() (string, pfRuleOf) {
	for {
		text, t := w.translationPF("rdr")
		if t.word != "rdr" {
			continue
		}
		text = strings.Replace(text, "rdr on", "match in on", 1)
		asks, to, _ := strings.Cut(text, " -> ")
		if addr, rest, _ := strings.Cut(to+" ", " "); w.one(4) { // the oracle draws the first
			next := netip.MustParseAddr(addr).Next()
			to = strings.TrimRight(fmt.Sprintf("{ %s %s } %s", addr, next, rest), " ")
		}
		return asks + " rdr-to " + to, pfRuleOf{terms: t.terms, to: &t}
	}
}

// rulesPF writes rules, and anchors with rules.
func (w *writer) rulesPF(n, depth int) (text string, rules []pfRuleOf) {
	for range n {
		if depth < 2 && w.one(8) {
			head, anchor := w.anchorPF()
			within, of := w.rulesPF(1+w.rnd.IntN(3), depth+1)
			text += head + " {\n" + within + "}\n"
			anchor.within = of
			rules = append(rules, anchor)
			continue
		}
		line, r := w.rulePF()
		if !w.one(6) || strings.Contains(line, "{ em0") {
			text += line + "\n"
		} else if at := strings.Index(line, "{ "); at < 0 {
			text += line + "\n"
		} else { // the list is a macro
			end := at + strings.Index(line[at:], "}") + 1
			w.seen++
			name := fmt.Sprintf("list%d", w.seen)
			text += name + " = \"" + line[at:end] + "\"\n" + line[:at] + "$" + name + line[end:] +
				"\n"
		}
		rules = append(rules, r)
	}
	return text, rules
}

// anchorPF writes the head of an anchor.
func (w *writer) anchorPF() (text string, r pfRuleOf) {
	w.seen++
	text = fmt.Sprintf("anchor \"a%d\"", w.seen)
	add := func(before string, t pfTerm) {
		text += before + t.text
		r.terms = append(r.terms, t)
	}
	if w.one(3) {
		text += " in"
	}
	if r.quick = w.one(3); r.quick {
		text += " quick"
	}
	if w.one(3) {
		add(" on ", w.onePF([]pfTerm{{"em0", always}, {"em1", never}, {"! em1", always}}))
	}
	if w.one(3) {
		add(" proto ", pfTerm{"tcp", func(s *packet.Spec) bool { return *s.Proto == 6 }})
	}
	if w.one(3) {
		var all []pfTerm
		for range 1 + w.rnd.IntN(2) {
			all = append(all, w.hostPF(func(s *packet.Spec) netip.Addr { return s.From },
				newWriter(w.rnd, w.one(2)).nets))
		}
		add(" from ", anyOf(all))
	}
	return text, r
}

func always(*packet.Spec) bool { return true }
func never(*packet.Spec) bool  { return false }

// anyOf joins terms as a list in braces does.
func anyOf(terms []pfTerm) pfTerm {
	var texts []string
	for _, t := range terms {
		texts = append(texts, t.text)
	}
	text := texts[0]
	if len(texts) > 1 {
		text = "{ " + strings.Join(texts, " ") + " }"
	}
	return pfTerm{text, func(s *packet.Spec) bool {
		return slices.ContainsFunc(terms, func(t pfTerm) bool { return t.is(s) })
	}}
}

// hostPF is a host of a rule, of the source or the destination.
func (w *writer) hostPF(of func(*packet.Spec) netip.Addr, nets []string) pfTerm {
	if w.one(4) {
		name := w.of("some", "nets")
		not := w.one(3)
		text := map[bool]string{false: "<" + name + ">", true: "! <" + name + ">"}[not]
		return pfTerm{text, func(s *packet.Spec) bool { return inTable(name, of(s)) != not }}
	}
	net := nets[w.rnd.IntN(len(nets))]
	p, err := netip.ParsePrefix(net)
	if err != nil {
		a := netip.MustParseAddr(net)
		p = netip.PrefixFrom(a, a.BitLen())
	}
	if w.one(6) && p.IsSingleIP() && p.Addr().Is4() {
		last := p.Addr().Next().Next()
		return pfTerm{net + " - " + last.String(), func(s *packet.Spec) bool {
			a := of(s)
			return a.Is4() && a.Compare(p.Addr()) >= 0 && a.Compare(last) <= 0
		}}
	}
	if w.one(5) { // of its family
		return pfTerm{"! " + net, func(s *packet.Spec) bool {
			return of(s).BitLen() == p.Addr().BitLen() && !p.Contains(of(s))
		}}
	}
	return pfTerm{net, func(s *packet.Spec) bool { return p.Contains(of(s)) }}
}

const tablesPF = "table <some> { 192.0.2.3 10.1.2.3 2001:db8:aaaa::1 }\n" +
	"table <nets> { 10/8, !10.1/16, 10.1.2/24, 2001:db8::/32, !2001:db8:bbbb::/64, 192.0.2.4 }\n"

// ownPF are the addresses of em0, the one interface with any.
var ownPF = []netip.Addr{netip.MustParseAddr("198.51.100.10"),
	netip.MustParseAddr("2001:db8:5::10")}

// inTable asks a table by the longest prefix.
func inTable(name string, a netip.Addr) bool {
	best, in := -1, false
	for p, is := range map[string]map[string]bool{
		"some": {"192.0.2.3/32": true, "10.1.2.3/32": true, "2001:db8:aaaa::1/128": true},
		"nets": {"10.0.0.0/8": true, "10.1.0.0/16": false, "10.1.2.0/24": true,
			"2001:db8::/32": true, "2001:db8:bbbb::/64": false, "192.0.2.4/32": true},
	}[name] {
		if n := netip.MustParsePrefix(p); n.Contains(a) && n.Bits() > best {
			best, in = n.Bits(), is
		}
	}
	return in
}

// portPF is a port of a rule.
func (w *writer) portPF(of func(*packet.Spec) int) pfTerm {
	a, b := w.port(), w.port()
	lo, hi := min(a, b), max(a, b)+1
	within := func(lo, hi int) func(*packet.Spec) bool {
		return func(s *packet.Spec) bool { return of(s) >= lo && of(s) <= hi }
	}
	for _, c := range []pfTerm{
		{fmt.Sprintf("%d:%d", lo, hi), within(lo, hi)},
		{fmt.Sprintf("%d >< %d", lo, hi), within(lo+1, hi-1)},
		{fmt.Sprintf("%d <> %d", lo, hi),
			func(s *packet.Spec) bool { return of(s) < lo || of(s) > hi }},
		{fmt.Sprintf("!= %d", a), func(s *packet.Spec) bool { return of(s) != a }},
		{fmt.Sprintf("> %d", a), func(s *packet.Spec) bool { return of(s) > a }},
		{fmt.Sprintf("<= %d", a), func(s *packet.Spec) bool { return of(s) <= a }},
		{fmt.Sprintf(":%d", a), never},
	} {
		if w.one(9) && c.text[0] != ':' {
			return c
		}
	}
	return pfTerm{fmt.Sprint(a), func(s *packet.Spec) bool { return of(s) == a }}
}

func portOf(p *uint16) int {
	if p == nil {
		return -1
	}
	return int(*p)
}

// rulePF writes a rule as its text and its meaning.
func (w *writer) rulePF() (string, pfRuleOf) {
	r := pfRuleOf{pass: w.one(2), quick: w.one(4)}
	text := map[bool]string{false: w.of("block", "block drop", "block return"),
		true: "pass"}[r.pass]
	text += w.of(" in", " in", " in", "")
	if w.one(5) {
		text += " log"
	}
	if r.quick {
		text += " quick"
	}
	add := func(before string, t pfTerm) {
		text += before + t.text
		r.terms = append(r.terms, t)
	}
	if w.one(6) {
		add(" on ", w.onePF([]pfTerm{{"em0", always}, {"! em1", always}, {"em", always},
			{"{ em0 em1 }", always}, {"! em0", never}, {"em1", never}, {"! lo0", always}}))
	}
	family := w.of("", "", "inet", "inet6")
	if family != "" {
		add(" ", pfTerm{family, func(s *packet.Spec) bool {
			return s.From.Is4() == (family == "inet")
		}})
	}
	protos := []pfTerm{}
	for i, name := range [...]string{"tcp", "udp"} {
		if n := [...]uint8{6, 17}[i]; w.one(2) {
			protos = append(protos, pfTerm{name,
				func(s *packet.Spec) bool { return *s.Proto == n }})
		}
	}
	ports := len(protos) > 0
	icmp := ""
	if len(protos) == 0 && w.one(3) && family != "" {
		n := map[string]uint8{"inet": 1, "inet6": 58}[family]
		icmp = map[string]string{"inet": "icmp", "inet6": "icmp6"}[family]
		protos = append(protos, pfTerm{icmp, func(s *packet.Spec) bool { return *s.Proto == n }})
	} else if len(protos) == 0 && w.one(4) {
		protos = append(protos, pfTerm{"gre", func(s *packet.Spec) bool { return *s.Proto == 47 }})
	}
	if len(protos) > 0 {
		add(" proto ", anyOf(protos))
	}
	nets := slices.DeleteFunc(slices.Concat(newWriter(w.rnd, false).nets,
		newWriter(w.rnd, true).nets), func(n string) bool {
		return family != "" && strings.Contains(n, ":") != (family == "inet6")
	})
	hosts := func(of func(*packet.Spec) netip.Addr, nets []string) pfTerm {
		var all []pfTerm
		for range 1 + w.rnd.IntN(3) {
			all = append(all, w.hostPF(of, nets))
		}
		return anyOf(all)
	}
	sides := ""
	from := func(s *packet.Spec) netip.Addr { return s.From }
	if w.one(2) {
		sides = "from"
		add(" from ", hosts(from, nets))
	}
	if ports && w.one(5) {
		if sides == "" {
			text += " from any"
		}
		sides = "from"
		add(" port ", w.portPF(func(s *packet.Spec) int { return portOf(s.FromPort) }))
	}
	if w.one(6) {
		to := []string{"198.51.100.10", "198.18.0.0/24", "2001:db8:5::10"}
		if family == "inet" {
			to = to[:2]
		} else if family == "inet6" {
			to = to[2:]
		}
		sides = "to"
		if not := w.of("", "! "); w.one(3) {
			add(" to ", pfTerm{not + w.of("(em0)", "self"), func(s *packet.Spec) bool {
				return slices.Contains(ownPF, s.To) == (not == "")
			}})
		} else {
			add(" to ", hosts(func(s *packet.Spec) netip.Addr { return s.To }, to))
		}
	}
	if ports && w.one(2) {
		if sides != "to" {
			text += " to any"
		}
		sides = "to"
		var all []pfTerm
		for range 1 + w.rnd.IntN(3) {
			all = append(all, w.portPF(func(s *packet.Spec) int { return portOf(s.ToPort) }))
		}
		add(" port ", anyOf(all))
	}
	if sides == "" && len(r.terms) == 0 {
		text += " all"
	}
	if icmp != "" && w.one(2) {
		types := []uint8{0, 3, 8, 11}
		if icmp == "icmp6" {
			types = []uint8{1, 3, 128, 129}
		}
		kind := types[w.rnd.IntN(len(types))]
		code := w.one(3)
		t := fmt.Sprintf(" %s-type %d", icmp, kind)
		if code {
			t += " code 1"
		}
		add("", pfTerm{t, func(s *packet.Spec) bool {
			return s.Type != nil && *s.Type == kind && (!code || s.Code == 1)
		}})
	}
	w.statePF(&r, &text, ports)
	return text, r
}

func (w *writer) onePF(of []pfTerm) pfTerm { return of[w.rnd.IntN(len(of))] }

// statePF adds the flags and the state of a rule. A rule that keeps state is for SYNs.
func (w *writer) statePF(r *pfRuleOf, text *string, ports bool) {
	flags := func(mask, value uint8) func(*packet.Spec) bool {
		return func(s *packet.Spec) bool { return *s.Proto != 6 || *s.Flags&mask == value }
	}
	syn, has := flags(0x12, 0x02), true
	switch n := w.rnd.IntN(8); {
	case n == 0 && ports:
		*text += " flags any"
		has = false
	case n == 1 && strings.Contains(*text, "proto tcp"):
		*text += " flags S/SAFR"
		syn = flags(0x17, 0x02)
	case n == 2 && strings.Contains(*text, "proto tcp"):
		*text += " flags /S"
		syn = flags(0x02, 0)
	case n == 3 && r.pass:
		*text += " no state"
		has = false
	case !r.pass:
		has = false
	case n == 4:
		*text += " keep state"
	case n == 5:
		*text += " modulate state"
	}
	if has {
		r.terms = append(r.terms, pfTerm{"", syn})
	}
}

// setPF writes a pf.conf.
func (w *writer) setPF() (set setOf, text string) {
	text = tablesPF
	if w.one(2) {
		text += "set skip on lo0\n"
	}
	if w.one(2) {
		text += "set block-policy return\nscrub in all\n"
	}
	if w.one(2) {
		last := w.of("no rdr", "binat") // beside both, binat is judged as it arrives, which is said
		for range 1 + w.rnd.IntN(5) {
			line, t := w.translationPF(last)
			set.translations = append(set.translations, t)
			text += line + "\n"
		}
	}
	if w.one(2) {
		text += "block all\n"
		set.rules = append(set.rules, pfRuleOf{})
	}
	if len(set.translations) == 0 && w.one(2) {
		if w.one(3) {
			line, r := w.rulePF()
			set.rules, text = append(set.rules, r), text+line+"\n"
		}
		for range 1 + w.rnd.IntN(3) {
			line, r := w.matchPF()
			set.rules, text = append(set.rules, r), text+line+"\n"
		}
	}
	lines, rules := w.rulesPF(3+w.rnd.IntN(12), 0)
	set.rules = append(set.rules, rules...)
	return set, text + lines
}

// TestGeneratedSetsOfPFMeanTheSame writes random rules of pf, imports them, and compares the
// verdicts on first packets with what the manual says of the rules.
func TestGeneratedSetsOfPFMeanTheSame(t *testing.T) {
	n, seed := generatedSets(t, 30)
	for i := range n {
		rnd := rand.New(rand.NewPCG(seed+i, 7))
		w := newWriter(rnd, false)
		set, text := w.setPF()
		var out bytes.Buffer
		rep, err := pf.Import(importer.Source{Name: "a", R: strings.NewReader(text)}, &out,
			importer.Rulesets{Device: "em0"})
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed+i, err, text)
		}
		checkImported(t, out.Bytes(), rep)
		p, diags := resolve.Parse("imported.levee", out.Bytes(), setfile.None)
		if err := diags.Err(); err != nil {
			t.Fatal(err)
		}
		judge, excuse, slots := oracle.New(p), oracle.New(excused(t, out.String(), rep)), p.Slots()
		// of these the import says that they are judged as they arrive
		named := rep.Fates.LeftOut > 0 || slices.ContainsFunc(rep.Remarks,
			func(m importer.Remark) bool { return strings.Contains(m.Text, "of match changes") })
		near := namedIn(text)
		for _, a := range ownPF { // a set that asks for none has no such set
			e := policy.Element{Prefix: netip.PrefixFrom(a, a.BitLen())}
			_, _ = judge.AddEntry("self", e, time.Time{}), excuse.AddEntry("self", e, time.Time{})
		}
		for range 300 {
			s := packetPF(rnd, near)
			frame := build(t, s)
			res := judge.Eval(frame)
			want, pass := set.passes(s), res.Action == action.Pass
			if want == pass || slots[res.Slot].Reason == policy.ByEssential ||
				pass && excuse.Eval(frame).Action == action.Pass ||
				want && named {
				continue
			}
			t.Fatalf("seed %d: %s: pf passes it: %v, the policy: %v, by line %d\n%s\n%s\n%s",
				seed+i, shown(s), want, pass, slots[res.Slot].Line, text, out.String(), rep.Fates)
		}
	}
}

// packetPF is a packet near rules of pf.
func packetPF(rnd *rand.Rand, near named) packet.Spec {
	s := packet.Spec{From: netip.MustParseAddr(pick(rnd, "192.0.2.3", "10.1.2.3", "10.1.3.3",
		"10.200.0.1", "203.0.113.5")), To: netip.MustParseAddr(pick(rnd, "198.51.100.10",
		"198.18.0.1"))}
	if rnd.IntN(3) == 0 {
		s.From = netip.MustParseAddr(pick(rnd, "2001:db8:aaaa::1", "2001:db8:bbbb::7",
			"2001:db9::1"))
		s.To = netip.MustParseAddr(pick(rnd, "2001:db8:5::10", "2001:db8::1"))
	}
	s.Family = packet.IPv4
	if s.From.Is6() {
		s.Family = packet.IPv6
	}
	s.Proto = new(pick(rnd, uint8(6), 6, 17, 17, 1, 47))
	if s.From.Is6() && *s.Proto == 1 {
		s.Proto = new(uint8(58))
	}
	switch *s.Proto {
	case 6:
		s.Flags = new(pick(rnd, uint8(2), 2, 2, 0x10, 0x12, 4, uint8(rnd.IntN(64))))
	case 1:
		s.Type, s.Code = new(pick(rnd, uint8(0), 3, 8, 11)), uint8(rnd.IntN(2))
	case 58:
		s.Type, s.Code = new(pick(rnd, uint8(1), 3, 128, 129)), uint8(rnd.IntN(2))
	}
	if packet.HasPorts(*s.Proto) {
		s.FromPort, s.ToPort = new(ports[rnd.IntN(len(ports))]), new(ports[rnd.IntN(len(ports))])
	}
	kind, code := s.Type, s.Code
	near.into(rnd, &s)
	s.Type, s.Code = kind, code
	if s.ToPort != nil && rnd.IntN(3) == 0 {
		*s.ToPort += uint16(rnd.IntN(3)) - 1
	}
	return s
}

// shown is a packet in a few words.
func shown(s packet.Spec) string {
	out := fmt.Sprintf("%s to %s proto %d ports %d to %d", s.From, s.To, *s.Proto,
		portOf(s.FromPort), portOf(s.ToPort))
	if s.Flags != nil {
		out += fmt.Sprintf(" flags %#x", *s.Flags)
	}
	if s.Type != nil {
		out += fmt.Sprintf(" type %d/%d", *s.Type, s.Code)
	}
	return out
}
