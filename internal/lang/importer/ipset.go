package importer

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// ipSet is a set of ipset(8), as `ipset save` prints it.
type ipSet struct {
	origin
	name    string
	kind    string   // hash:ip,port
	dims    []string // ip, port; nil for what no policy has
	netmask int      // of the addresses, 0 for none
	timeout int64    // seconds; -1 for none
	maxelem uint64
	elems   []ipElem
	list    []string // members of a list:set
	mixed   bool     // an element has a timeout of its own, or none
	named   *addrSet
	ports   *namedSet
	dyn     *dynSet
}

// ipElem is one element. Sets of addresses only use the first field.
type ipElem struct {
	addr    addrSpan
	nomatch bool
	lease   int64 // seconds that are left; -1 where nothing is said
	more    *ipMore
}

// ipMore is what elements of several dimensions have besides their first address.
type ipMore struct {
	proto, port spans // proto nil: no port
	second      *addrSpan
}

// createSet reads `create NAME TYPE OPTIONS`.
func createSet(w []string, at origin) (*ipSet, error) {
	if len(w) < 3 {
		return nil, fmt.Errorf("create needs a name and a type")
	}
	s := &ipSet{origin: at, name: w[1], kind: w[2], timeout: -1, maxelem: 65536}
	_, dims, _ := strings.Cut(w[2], ":")
	switch w[2] {
	case "hash:ip", "hash:net", "hash:ip,port", "hash:net,port", "hash:net,net", "hash:ip,port,ip",
		"hash:ip,port,net",
		"hash:net,port,net", "bitmap:ip", "bitmap:port", "hash:mac", "list:set":
		s.dims = strings.Split(dims, ",")
	}
	for i := 3; i+1 < len(w); i++ {
		n, err := strconv.ParseInt(w[i+1], 10, 64)
		switch w[i] {
		case "netmask", "timeout", "maxelem":
			if err != nil || n < 0 {
				return nil, fmt.Errorf("%s %s is not a number", w[i], quote(w[i+1]))
			}
		case "bitmask":
			s.dims = nil
		}
		switch w[i] {
		case "netmask":
			if n > 128 {
				return nil, fmt.Errorf("netmask %d is above 128", n)
			}
			s.netmask = int(n)
		case "timeout":
			s.timeout = n
		case "maxelem":
			s.maxelem = uint64(n)
		}
	}
	return s, nil
}

// add reads what stands behind `add NAME`.
func (s *ipSet) add(w []word) error {
	if s.dims == nil {
		return nil // nothing of it can be carried over; the rules that use it say so
	}
	if s.kind == "list:set" {
		return s.member(w)
	}
	e := ipElem{lease: -1}
	for i := 1; i < len(w); i++ {
		switch w[i].text {
		case "nomatch":
			e.nomatch = true
		case "timeout":
			s.mixed = true
			if i++; i < len(w) {
				n, err := strconv.ParseInt(w[i].text, 10, 64)
				if err != nil || n < 0 {
					return fmt.Errorf("timeout %s is not a number", quote(w[i].text))
				}
				e.lease = n
			}
		case "comment", "packets", "bytes", "skbmark", "skbprio", "skbqueue":
			i++ // the value is no option, whatever it says
		default:
			return fmt.Errorf("the element %s has the option %s, which levee does not know",
				quote(w[0].text), quote(w[i].text))
		}
	}
	parts := strings.Split(w[0].text, ",")
	if len(parts) != len(s.dims) {
		return fmt.Errorf("%s is not an element of a %s", quote(w[0].text), s.kind)
	}
	if len(s.dims) > 1 || s.dims[0] == "port" || s.dims[0] == "mac" {
		e.more = &ipMore{}
	}
	for i, p := range parts {
		if err := s.dim(&e, i, p); err != nil {
			return err
		}
	}
	s.elems = append(s.elems, e)
	return nil
}

// member reads an element of a list:set. Before and after only say where it stands: a packet is in
// the list if it is in any member.
func (s *ipSet) member(w []word) error {
	s.list = append(s.list, w[0].text)
	for i := 1; i < len(w); i++ {
		switch w[i].text {
		case "timeout":
			s.mixed = true
			i++
		case "comment", "packets", "bytes", "skbmark", "skbprio", "skbqueue", "before", "after":
			i++
		default:
			return fmt.Errorf("the member %s has the option %s, which levee does not know",
				quote(w[0].text), quote(w[i].text))
		}
	}
	return nil
}

// dim reads one dimension of an element.
func (s *ipSet) dim(e *ipElem, i int, text string) (err error) {
	switch s.dims[i] {
	case "port":
		e.more.proto, e.more.port, err = setPort(text, s.kind == "bitmap:port")
		return err
	case "mac":
		v, err := parseMAC(text)
		e.more.port = just(v)
		return err
	}
	a, err := parseSpan(text)
	if err != nil {
		return err
	}
	if s.netmask > 0 && s.netmask <= a.lo.BitLen() && a.lo == a.hi {
		a = prefixSpan(netip.PrefixFrom(a.lo, s.netmask))
	}
	if i == 0 {
		e.addr = a
	} else {
		e.more.second = &a
	}
	return nil
}

// setPort reads "tcp:80", "80", "udp:1000-2000", "icmp:8/0" or, for a protocol without ports,
// "gre:0".
func setPort(text string, bare bool) (proto, port spans, err error) {
	name, p, has := strings.Cut(text, ":")
	if !has {
		p, name = text, "tcp"
	}
	n, err := protocolNumber(name)
	if err != nil {
		return nil, nil, err
	}
	proto = just(uint64(n))
	if bare {
		proto = spans{{Lo: 6, Hi: 6}, {Lo: 17, Hi: 17}}
	}
	switch n {
	case 6, 17, 132, 136: // those whose ports ip_set_getport.c of the kernel reads
		port, err = parseSpansOf(servicePorts(p), "-", 0xffff)
	case 1, 58:
		if port, err = parseICMPType(p, n == 58); err == nil && len(port) == 1 &&
			port[0].Lo != port[0].Hi {
			// an element has one type and one code, which is 0 where a name has none
			port = just(port[0].Lo)
		}
	}
	return proto, port, err
}

// ipSets are the sets of an input, by name.
type ipSets struct {
	byName map[string]*ipSet
	files  map[string]*addrSet // sets that are not in the input, see beside
	out    *output
}

// policyName makes a name that the language takes, different from all others.
func (t *ipSets) policyName(name string) string { return uniqueName(name, t.out.taken) }

// match is what `--match-set NAME DIRS` holds for. why, when not nil, says what cannot be said in a
// policy.
func (t *ipSets) match(name string, dirs []string) (alts []match, about []filled, why *reason) {
	s := t.byName[name]
	switch {
	case s == nil:
		return t.beside(name, dirs)
	case s.dims == nil:
		return nil, nil, &reason{"set " + quote(name) + " is a " + s.kind + ", which no policy has",
			""}
	case s.kind == "list:set":
		for _, member := range s.list {
			m := t.byName[member]
			if m == nil || m.kind == "list:set" {
				return nil, nil, &reason{"set " + quote(name) + " has the member " + quote(member) +
					", which is not in the input", "give the output of `ipset save` of all sets"}
			}
			a, f, why := t.match(member, dirs)
			if why != nil {
				return nil, nil, why
			}
			alts, about = append(alts, a...), append(about, f...)
		}
		if s.leases() {
			about = append(about, stays("members of set "+quote(name)))
		}
		return alts, about, nil
	case len(dirs) < len(s.dims):
		return nil, nil, &reason{fmt.Sprintf("set %s is a %s and needs %d directions", quote(name),
			s.kind, len(s.dims)), ""}
	}
	switch s.kind {
	case "bitmap:port":
		return t.portMatch(s, dirs[0])
	case "hash:mac":
		if len(s.elems) == 0 {
			return nil, nil, s.emptyReason()
		}
		if s.leases() {
			about = append(about, stays("entries of set "+quote(name)))
		}
		return s.macMatch(dirs[0]), about, nil
	case "hash:ip", "hash:net", "bitmap:ip":
		a := t.addresses(s)
		if a == nil {
			return nil, nil, &reason{"set " + quote(name) +
				" has IPv4-mapped IPv6 addresses, which no policy has", "give them as IPv4"}
		}
		switch {
		case a.dynamic:
			about = append(about, begins(quote(name), a.name, len(s.elems)))
		case s.leases():
			about = append(about, stays("entries of set "+quote(name)))
		}
		var m match
		side(&m, dirs[0]).pos = a
		return []match{m.settle()}, about, nil
	}
	if d, in := t.endpoints(s, dirs); d != nil {
		return []match{match{}.withDyn(dirs[0], d)},
			[]filled{begins(quote(name), d.name, in)}, nil
	}
	if len(s.elems) == 0 {
		return nil, nil, s.emptyReason()
	}
	if s.leases() {
		about = append(about, stays("entries of set "+quote(name)))
	}
	alts, why = s.joined(dirs)
	return alts, about, why
}

// beside is a set that is not in the input: it begins with the addresses of a file, without which
// nothing loads the policy. A set of several fields cannot be told from its name.
func (t *ipSets) beside(name string, dirs []string) ([]match, []filled, *reason) {
	if len(dirs) != 1 {
		return nil, nil, &reason{"set " + quote(name) + " is not in the input",
			"give the output of `ipset save` too"}
	}
	a := t.files[name]
	if a == nil {
		const room = 65536 // that of ipset
		a = &addrSet{name: t.policyName(name), dynamic: true}
		t.files[name] = a
		set := t.out.addSet(a.name, fmt.Sprintf("dynamic(max %d, from file(%q))", room,
			a.name+".txt"))
		set.comments = []string{"Not in the input: its addresses are in " + a.name + ".txt, " +
			"one a line."}
		if strings.Trim(name, setNameChars) == "" {
			set.comments = append(set.comments, "  ipset save "+name+
				" | awk '$1 == \"add\" { print $3 }' > "+a.name+".txt")
		}
	}
	var m match
	side(&m, dirs[0]).pos = a
	return []match{m.settle()}, []filled{{text: "set " + quote(name) + " is not in the input: it " +
		"becomes the dynamic set " + a.name + ", which begins with the addresses in " + a.name +
		".txt", instead: "make that file by the command above the set, or give the output of " +
		"`ipset save` too", same: true}}, nil
}

// setNameChars are those of names that a shell takes as they are.
const setNameChars = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"

// leases tells whether entries leave by themselves.
func (s *ipSet) leases() bool { return s.timeout >= 0 || s.mixed }

func (s *ipSet) emptyReason() *reason {
	return &reason{"set " + quote(s.name) + " is an empty " + s.kind + ", and no policy has a " +
		"dynamic set of that kind", "fill the set, and import again"}
}

// begins says that a set becomes a dynamic one, which begins empty.
func begins(set, name string, held int) filled {
	text := "set " + set + " is empty: it becomes the dynamic set " + name
	if held > 0 {
		text = fmt.Sprintf("set %s, with entries that leave by themselves, becomes the dynamic "+
			"set %s, which begins empty", set, name)
	}
	return filled{text: text, instead: fillHint, begins: true, empty: held == 0, set: set}
}

// stays says that what was in a set stays in the policy.
func stays(what string) filled {
	return filled{text: what + " have timeouts, which are not carried over: what is in it now " +
		"stays", instead: "change the policy when they end"}
}

// endpoints is the dynamic set of endpoints for a set of addresses and ports of one side, where
// it is empty or its entries leave by themselves; nil where there is none.
func (t *ipSets) endpoints(s *ipSet, dirs []string) (*dynSet, int) {
	if s.kind != "hash:ip,port" && s.kind != "hash:net,port" || dirs[0] != dirs[1] ||
		!s.leases() && len(s.elems) > 0 {
		return nil, 0
	}
	if s.dyn != nil {
		return s.dyn, len(s.elems)
	}
	var in []entry
	for _, e := range s.elems {
		proto := protoNames[uint8(e.more.proto[0].Lo)]
		if e.nomatch || proto == "" || e.more.proto[0].Lo == 1 || e.more.proto[0].Lo == 58 ||
			e.addr.lo.Is4In6() {
			return nil, 0
		}
		text := e.addr.String() + " " + proto
		if e.more.port != nil {
			text += "/" + numberText(e.more.port[0])
		}
		in = append(in, entry{text, e.lease})
	}
	d := &dynSet{name: t.policyName(s.name)}
	set := t.out.addSet(d.name, dynamicOf("endpoints", s.room(), s.timeout))
	set.comments = entriesComment(d.name, in)
	s.dyn = d
	return d, len(in)
}

// room is how many entries the set may hold.
func (s *ipSet) room() uint64 { return max(s.maxelem, uint64(len(s.elems))) }

// side is the address that a direction of a set means.
func side(m *match, dir string) *addrMatch {
	if dir == "dst" {
		return &m.to
	}
	return &m.from
}

func portField(dir string) numField {
	if dir == "dst" {
		return fPort
	}
	return fFromPort
}

// addresses is the set of addresses that a policy has for s, made once. One that is empty, or whose
// entries have timeouts, becomes a dynamic set: what fills it at run time will go on to do so.
func (t *ipSets) addresses(s *ipSet) *addrSet {
	if s.named != nil {
		return s.named
	}
	in := s.members()
	if in.mapped() {
		return nil
	}
	a := &addrSet{name: t.policyName(s.name), addrs: in}
	s.named = a
	if len(s.elems) > 0 && (!s.leases() || slices.ContainsFunc(s.elems,
		func(e ipElem) bool { return e.nomatch })) {
		t.out.addSet(a.name, addressesText(in))
		return a
	}
	var held []entry
	for _, e := range s.elems {
		held = append(held, entry{e.addr.String(), e.lease})
	}
	a.dynamic, a.addrs = true, nil
	t.out.addSet(a.name, dynamicText(s.room(), s.timeout)).comments = entriesComment(a.name, held)
	return a
}

// members are the addresses in the set: the longest prefix decides, and `nomatch` takes out.
func (s *ipSet) members() addrSpans {
	nomatch := false
	in := make([]addrSpan, 0, len(s.elems))
	for _, e := range s.elems {
		nomatch = nomatch || e.nomatch
		in = append(in, e.addr)
	}
	if !nomatch {
		return joinAddrs(in)
	}
	order := slices.Clone(s.elems)
	slices.SortStableFunc(order, func(a, b ipElem) int { return width(b.addr) - width(a.addr) })
	// Elements of one length do not overlap, so each length is one step.
	out := addrSpans{}
	for i := 0; i < len(order); {
		var yes, no []addrSpan
		w := width(order[i].addr)
		for ; i < len(order) && width(order[i].addr) == w; i++ {
			if order[i].nomatch {
				no = append(no, order[i].addr)
			} else {
				yes = append(yes, order[i].addr)
			}
		}
		out = joinAddrs(append(out, yes...)).minus(joinAddrs(no))
	}
	return out
}

// width is the number of bits that differ within a range that is a prefix.
func width(a addrSpan) int {
	lo, hi := a.lo.AsSlice(), a.hi.AsSlice()
	for i := range lo {
		if d := lo[i] ^ hi[i]; d != 0 {
			n := (len(lo) - i - 1) * 8
			for ; d != 0; d >>= 1 {
				n++
			}
			return n
		}
	}
	return 0
}

func (t *ipSets) portMatch(s *ipSet, dir string) ([]match, []filled, *reason) {
	tcpUDP := match{}.with(fProto, spans{{Lo: 6, Hi: 6}, {Lo: 17, Hi: 17}})
	if s.leases() || len(s.elems) == 0 {
		if s.dyn == nil {
			var in []entry
			for _, e := range s.elems {
				p := numberText(e.more.port[0])
				in = append(in, entry{"tcp/" + p, e.lease}, entry{"udp/" + p, e.lease})
			}
			s.dyn = &dynSet{name: t.policyName(s.name), services: true}
			set := t.out.addSet(s.dyn.name, dynamicOf("services", max(2*s.room(), 16), s.timeout))
			set.comments = entriesComment(s.dyn.name, in)
		}
		return []match{tcpUDP.withDyn(dir, s.dyn)},
			[]filled{begins(quote(s.name), s.dyn.name, len(s.elems))}, nil
	}
	var in []span
	for _, e := range s.elems {
		in = append(in, e.more.port...)
	}
	m := tcpUDP.with(portField(dir), joinSpans(in))
	if !m.never && len(m.f[portField(dir)]) > 4 {
		if s.ports == nil {
			s.ports = t.out.addSet(t.policyName(s.name), portsText(joinSpans(in)))
		}
		m.name[portField(dir)] = s.ports.name
	}
	return []match{m.settle()}, nil, nil
}

func (s *ipSet) macMatch(dir string) []match {
	var in []span
	for _, e := range s.elems {
		in = append(in, e.more.port...)
	}
	f := fEtherFrom
	if dir == "dst" {
		f = fEtherTo
	}
	return []match{match{}.with(f, joinSpans(in))}
}

// maxAlternatives bounds the rules that one rule becomes.
const maxAlternatives = 4096

// joined makes a match for each group of elements that differ in their first address only.
func (s *ipSet) joined(dirs []string) ([]match, *reason) {
	type group struct {
		rest match
		in   []addrSpan
	}
	var order []*group
	groups := map[string]*group{}
	for _, e := range s.elems {
		if e.nomatch {
			return nil, &reason{"set " + quote(s.name) + " has elements marked nomatch", ""}
		}
		var m match
		for i, d := range s.dims {
			switch {
			case d == "port":
				m = m.with(fProto, e.more.proto)
				switch p := e.more.proto[0].Lo; {
				case p == 1 && e.more.port != nil:
					m = m.with(fICMP, e.more.port)
				case p == 58 && e.more.port != nil:
					m = m.with(fICMP6, e.more.port)
				case e.more.port != nil:
					m = m.with(portField(dirs[i]), e.more.port)
				}
			case i > 0:
				a := side(&m, dirs[i])
				*a = a.and(addrMatch{pos: &addrSet{addrs: addrSpans{*e.more.second}}})
			}
		}
		key := m.text()
		g := groups[key]
		if g == nil {
			if len(order) == maxAlternatives {
				return nil, &reason{fmt.Sprintf("set %s would become more than %d rules",
					quote(s.name), maxAlternatives), "split it by port into sets of addresses"}
			}
			g = &group{rest: m}
			groups[key] = g
			order = append(order, g)
		}
		g.in = append(g.in, e.addr)
	}
	var alts []match
	for _, g := range order {
		in := joinAddrs(g.in)
		if in.mapped() {
			return nil, &reason{"set " + quote(s.name) +
				" has IPv4-mapped IPv6 addresses, which no policy has", ""}
		}
		m := g.rest
		a := side(&m, dirs[0])
		*a = a.and(addrMatch{pos: &addrSet{addrs: in}})
		alts = append(alts, m.settle())
	}
	return alts, nil
}
