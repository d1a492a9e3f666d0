package pf

import (
	"strconv"
	"strings"

	"levee/internal/lang/importer"
	"levee/internal/lang/importer/match"
)

// on reads interfaces: a policy protects one.
func (r *pfRule) on() {
	not := r.took("!")
	dev, hit, onlyLo := r.p.opts.Device, false, true
	var names []string
	for _, item := range r.list() {
		if item[0].is("!") {
			not, item = true, item[1:]
		}
		if len(item) == 0 {
			continue
		}
		n := item[0].text
		names = append(names, n)
		onlyLo = onlyLo && onInterface("lo", n)
		switch {
		case n == "any":
			hit = true
		case n == "egress":
			hit = true
			r.Remark(importer.Changed,
				"egress, where the default route leads, is taken for the interface "+
					"of the policy", "")
		case dev != "":
			hit = hit || onInterface(n, dev)
		}
	}
	list := importer.Printable(strings.Join(names, ", "), 60)
	switch {
	case onlyLo && !strings.HasPrefix(dev, "lo"):
		if !not {
			r.Rule.Alts = nil
			r.Rule.AboutLoopback()
		}
	case dev == "" && !hit:
		r.Unknown("asks for interface "+match.Quote(list)+", and a policy protects one interface",
			"choose one with --dev "+list)
	case hit == not:
		r.Rule.Alts, r.Rule.Absent, r.p.others = nil, true, true
		if not {
			r.Remark(importer.LeftOut, importer.Others(list, dev), "")
			return
		}
		r.Remark(importer.LeftOut,
			"is about interface "+match.Quote(list)+", by which nothing comes to "+
				match.Quote(dev), "import it with --dev for that interface")
	}
}

func (r *pfRule) proto() {
	var in []match.Span
	for _, item := range r.list() {
		n, err := match.ProtocolNumber(item[len(item)-1].text)
		if err != nil || len(item) != 1 {
			r.Unknown("asks for the protocol "+match.Quote(item[len(item)-1].text),
				"write its number")
			return
		}
		in = append(in, match.Span{Lo: uint64(n), Hi: uint64(n)})
	}
	r.Both(match.Match{}.With(match.Proto, match.JoinSpans(in)).Settle())
}

// side reads hosts and ports of one side.
func (r *pfRule) side(dir string) {
	if !r.peek("port") {
		r.hosts(dir)
	}
	if r.took("port") {
		r.port(dir)
	}
}

// hosts reads addresses, tables and interfaces: each item of a list is a rule of its own in pf.
func (r *pfRule) hosts(dir string) {
	not := r.took("!")
	var plain []match.AddressSpan
	var alts []match.Match
	var lost []importer.Reason // items of which a policy has no words
	nowhere := false
	for _, item := range r.list() {
		no := not
		for len(item) > 0 && item[0].is("!") {
			no, item = !no, item[1:]
		}
		if len(item) == 0 {
			continue
		}
		word := item[0].text
		switch {
		case word == "any":
			if no {
				continue // nowhere
			}
			return
		case item[0].is("<") && len(item) == 3:
			s := r.p.set(item[1].text)
			if s.Dynamic {
				r.fills(item[1].text, s.Name)
			}
			r.lacks(item[1].text, no)
			alts = append(alts, importer.AddressIn(dir, s, no))
			continue
		}
		isRange := len(item) == 3 && item[1].is("-")
		if a, err := parsePFAddr(word); err == nil && (len(item) == 1 || isRange) {
			if !r.rangeOf(&a, item[1:]) {
				return
			}
			if no { // of the same family
				m := importer.AddressIn(dir, &match.Set{Addresses: match.AddressSpans{a}}, true)
				family := match.Only6
				if a.Lo.Is4() {
					family = match.Only4
				}
				alts = append(alts, m.With(match.Ether, family).Settle())
			} else {
				plain = append(plain, a)
			}
			continue
		}
		own, why := r.own(dir, item, no)
		if why != nil {
			lost = append(lost, *why)
		}
		nowhere = nowhere || len(own) == 0 && why == nil
		alts = append(alts, own...)
	}
	if len(alts)+len(plain) == 0 {
		r.noHosts(lost, nowhere)
		return
	}
	for _, why := range lost { // each item is a rule of its own: this one is left out
		if r.Rule.Verb == importer.DoDrop {
			r.Rule.Widen(why.What+": the rule stands without it", why.Instead, []match.Match{{}})
		} else {
			r.Remark(importer.Changed, why.What+": the rule stands without it", why.Instead)
		}
	}
	if len(plain) > 0 {
		alts = append(alts, importer.AddressIn(dir, &match.Set{Addresses: match.JoinAddrs(plain)},
			false))
	}
	r.Both(alts...)
}

// rangeOf reads the end of a range of addresses, a dash and an address, if a begins one. It returns
// false, and the rule is unknown, where no policy can have them.
func (r *pfRule) rangeOf(a *match.AddressSpan, rest []pfToken) bool {
	if len(rest) > 0 {
		hi, err := parsePFAddr(rest[1].text)
		if err != nil || hi.Lo.Less(a.Lo) || hi.Lo.BitLen() != a.Lo.BitLen() {
			r.Unknown("asks for a range of addresses that cannot be read", "")
			return false
		}
		a.Hi = hi.Hi
	}
	if a.Lo.Is4In6() {
		r.Unknown(importer.MappedText, "write it as IPv4")
		return false
	}
	return true
}

// noHosts ends a rule of whose hosts a policy has none. lost says why of those for which it has no
// words; nowhere is that others are no packet's.
func (r *pfRule) noHosts(lost []importer.Reason, nowhere bool) {
	for _, why := range lost {
		r.Unknown(why.What, why.Instead)
	}
	if nowhere && len(lost) == 0 {
		r.Rule.Alts = nil
		r.Remark(importer.Noticed, "asks for addresses of the loopback interface, which no "+
			"packet on a wire has that the kernel takes", "")
	}
}

// lacks says what a rule does not know of the addresses in a table, or outside it.
func (r *pfRule) lacks(table string, outside bool) {
	t := r.p.tables[table]
	tell := func(words []string, why, hint string, widens bool) {
		if len(words) == 0 {
			return
		}
		text := "asks for the table " + match.Quote(table) + ", which lacks " +
			match.Quote(importer.Printable(strings.Join(words, ", "), 60)) + why
		if widens {
			r.Rule.Widen(text, hint, []match.Match{{}})
		} else {
			r.Remark(importer.Changed, text, hint)
		}
	}
	blocks := r.Rule.Verb == importer.DoDrop
	tell(t.lacksIn, "", "write the addresses", blocks != outside)
	tell(t.lacksOut, "", "write the addresses", blocks == outside)
	tell(t.mapped, ": no policy has IPv4-mapped addresses", "", blocks != outside)
}

// fills says what is in a dynamic set that a table becomes.
func (r *pfRule) fills(table, set string) {
	f := importer.Begins(match.Quote(table), set, 0)
	if t := r.p.tables[table]; t.beside {
		f = importer.Beside("table "+match.Quote(table), table, set, ", without the lines that "+
			"begin with !, and write a rule for those before this one")
	} else if t.hasFile() {
		f = importer.Filled{Text: "table " + match.Quote(table) +
			" is read from a file: it becomes the dynamic " +
			"set " + set + ", which begins with what that file has here", Instead: "put the file " +
			"there, without the lines that begin with !", Same: true}
	} else if t.file != "" {
		f = importer.Filled{Text: "table " + match.Quote(table) +
			" is read from a file: it becomes the dynamic " +
			"set " + set + ", which begins empty", Instead: "the command above the set reads the " +
			"file", Begins: true}
	}
	r.Rule.Filled = append(r.Rule.Filled, f)
}

// port reads ports of one side: numbers, names, ranges, and comparisons.
func (r *pfRule) port(dir string) {
	var in []match.Span
	add := func(s match.Spans, err error) bool {
		if err != nil {
			r.Unknown("asks for a port that cannot be read: "+importer.Printable(err.Error(), 80),
				"write its number")
			return false
		}
		in = append(in, s...)
		return true
	}
	one := func() bool {
		op := ""
		for _, o := range [...]string{"=", "!=", "<", "<=", ">", ">="} {
			if r.took(o) {
				op = o
			}
		}
		text := match.ServicePorts(r.next().text)
		for _, o := range [...]string{"><", "<>", ":"} {
			if r.took(o) {
				return add(pfRange(text, o, match.ServicePorts(r.next().text)))
			}
		}
		if lo, hi, isRange := strings.Cut(text, ":"); isRange {
			text = match.ServicePorts(lo) + ":" + match.ServicePorts(hi)
		}
		s, err := match.ParseSpansOf(text, ":", 0xffff)
		switch {
		case err != nil || op == "" || op == "=":
		case op == "!=":
			s = s.Not(0xffff)
		default:
			s = importer.Ordered(op, s, 0xffff)
		}
		return add(s, err)
	}
	if !r.each(one) {
		return
	}
	m := match.Match{}.With(importer.PortField(dir), match.JoinSpans(in))
	for i := range r.Rule.Alts {
		if p := r.Rule.Alts[i].Fields[match.Proto]; p != nil && !p.Within(match.WithPorts) {
			r.Remark(importer.Changed,
				"asks for ports of protocols that have none, which pfctl refuses: "+
					"the rule stands for TCP, UDP and others with ports alone", "write two rules")
			break
		}
	}
	r.Both(m.Settle())
}

// pfRange is `1 >< 5`, which leaves out both ends, `1 <> 5`, which is what is outside, or `1 : 5`.
func pfRange(lo, op, hi string) (match.Spans, error) {
	s, err := match.ParseSpansOf(lo+":"+hi, ":", 0xffff)
	if err != nil {
		return nil, err
	}
	switch a, b := s[0].Lo, s[0].Hi; {
	case op == "<>":
		return match.Between(a, b).Not(0xffff), nil
	case op == ":":
		return s, nil
	case b < a+2:
		return match.Spans{}, nil
	default:
		return match.Between(a+1, b-1), nil
	}
}

// flags reads S/SA, /SFRA or any.
func (r *pfRule) flags(text string) {
	r.flagged = true
	if text == "any" {
		return
	}
	value, mask, has := strings.Cut(text, "/")
	v, okV := pfFlags(value)
	m, okM := pfFlags(mask)
	if !has {
		m, okM = 0xff, true
	}
	if !okV || !okM || v&^m != 0 || m == 0 {
		r.Unknown("asks for the flags "+match.Quote(text), "write `flags`")
		return
	}
	r.Both(match.Match{}.WithFlags(match.Flags{Mask: m, Value: v}).Settle())
}

func pfFlags(s string) (v uint8, ok bool) {
	for i := range len(s) {
		n := strings.IndexByte("FSRPAUEW", s[i])
		if n < 0 {
			return 0, false
		}
		v |= 1 << n
	}
	return v, true
}

// pfICMP are the names that pfctl has for types.
var pfICMP = map[string]string{"echoreq": "8", "echorep": "0", "unreach": "3", "squench": "4",
	"redir": "5", "althost": "6", "routeradv": "9", "routersol": "10", "timex": "11",
	"paramprob": "12", "timereq": "13", "timerep": "14", "inforeq": "15", "inforep": "16",
	"maskreq": "17", "maskrep": "18", "trace": "30", "dataconv": "31", "mobredir": "32",
	"ipv6-where": "33", "ipv6-here": "34", "mobregreq": "35", "mobregrep": "36", "skip": "39",
	"photuris": "40",
}

// pfCodes are those for codes, which no two types share.
var pfCodes = map[string]string{"net-unr": "0", "host-unr": "1", "proto-unr": "2",
	"port-unr": "3", "needfrag": "4", "srcfail": "5", "net-unk": "6", "host-unk": "7",
	"isolate": "8", "net-prohib": "9", "host-prohib": "10", "net-tos": "11", "host-tos": "12",
	"filter-prohib": "13", "host-preced": "14", "cutoff-preced": "15", "redir-net": "0",
	"redir-host": "1", "redir-tos-net": "2", "redir-tos-host": "3", "normal-adv": "0",
	"common-adv": "16", "transit": "0", "reassemb": "1", "badhead": "0", "optmiss": "1",
	"badlen": "2", "unknown-ind": "1", "auth-fail": "2", "decrypt-fail": "3"}

var pfCodes6 = map[string]string{"noroute-unr": "0", "admin-unr": "1", "beyond-unr": "2",
	"notnbr-unr": "2", "addr-unr": "3", "port-unr": "4", "transit": "0", "reassemb": "1",
	"badhead": "0", "nxthdr": "1", "redironlink": "0", "redirrouter": "1"}

var pfICMP6 = map[string]string{"echoreq": "128", "echorep": "129", "unreach": "1", "toobig": "2",
	"timex": "3", "paramprob": "4", "groupqry": "130", "grouprep": "131", "groupterm": "132",
	"routersol": "133", "routeradv": "134", "neighbrsol": "135", "neighbradv": "136",
	"redir": "137", "routrrenum": "138", "fqdnreq": "139", "niqry": "139", "wrureq": "139",
	"fqdnrep": "140", "nirep": "140", "wrurep": "140", "mtraceresp": "200", "mtrace": "201",
	"listqry": "130", "listenrep": "131", "listendone": "132",
	"listenrepv2": "143", "mldqry": "130", "mldrep": "131"}

func (r *pfRule) icmpType(six bool) {
	names, codes, f := pfICMP, pfCodes, match.ICMP
	if six {
		names, codes, f = pfICMP6, pfCodes6, match.ICMP6
	}
	number := func(names map[string]string, s string) string {
		if n, ok := names[s]; ok {
			return n
		}
		return s
	}
	var in []match.Span
	if !r.each(func() bool {
		item := r.item()
		text := number(names, item[len(item)-1].text)
		if r.took("code") {
			text += "/" + number(codes, r.next().text)
		}
		s, err := match.ParseICMPType(text, six)
		if err != nil {
			r.Unknown("asks for the type "+match.Quote(text)+" of ICMP", "write its number")
			return false
		}
		in = append(in, s...)
		return true
	}) {
		return
	}
	r.Both(match.Match{}.With(f, match.JoinSpans(in)).Settle())
}

func (r *pfRule) tos(text string) {
	names := map[string]uint64{"lowdelay": 4, "throughput": 2, "reliability": 1}
	d, ok := names[text]
	if !ok {
		v, err := strconv.ParseUint(text, 0, 8)
		if err == nil && v&3 != 0 {
			r.Unknown("asks for the whole TOS byte, ECN included, and a policy has its DSCP",
				"write dscp with the upper six bits")
			return
		}
		if d = v >> 2; err != nil {
			if d, err = match.ParseDSCP(text); err != nil {
				r.Unknown("asks for the TOS "+match.Quote(text), "write dscp")
				return
			}
		}
	}
	r.Both(match.Match{}.With(match.DSCP, match.Just(d)).Settle())
}
