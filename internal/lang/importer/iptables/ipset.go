package iptables

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"levee/internal/lang/importer"
	"levee/internal/lang/importer/match"
)

// ipSet is a set of ipset(8), as `ipset save` prints it.
type ipSet struct {
	importer.Origin
	name    string
	kind    string   // hash:ip,port
	dims    []string // ip, port; nil for what no policy has
	netmask int      // of the addresses, 0 for none
	timeout int64    // seconds; -1 for none
	maxelem uint64
	elems   []ipElem
	list    []string // members of a list:set
	mixed   bool     // an element has a timeout of its own, or none
	named   *match.Set
	ports   *importer.NamedSet
	dyn     *match.DynamicSet
}

// ipElem is one element. Sets of addresses only use the first field.
type ipElem struct {
	addr    match.AddressSpan
	nomatch bool
	lease   int64 // seconds that are left; -1 where nothing is said
	more    *ipMore
}

// ipMore holds the dimensions of an element behind its first address.
type ipMore struct {
	proto, port match.Spans // proto nil: no port
	second      *match.AddressSpan
}

// createSet reads `create NAME TYPE OPTIONS`.
func createSet(w []string, at importer.Origin) (*ipSet, error) {
	if len(w) < 3 {
		return nil, fmt.Errorf("create needs a name and a type")
	}
	s := &ipSet{Origin: at, name: w[1], kind: w[2], timeout: -1, maxelem: 65536}
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
				return nil, fmt.Errorf("%s %s is not a number", w[i], match.Quote(w[i+1]))
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
					return fmt.Errorf("timeout %s is not a number", match.Quote(w[i].text))
				}
				e.lease = n
			}
		case "comment", "packets", "bytes", "skbmark", "skbprio", "skbqueue":
			i++ // the value is no option, whatever it says
		default:
			return fmt.Errorf("the element %s has the option %s, which levee does not know",
				match.Quote(w[0].text), match.Quote(w[i].text))
		}
	}
	parts := strings.Split(w[0].text, ",")
	if len(parts) != len(s.dims) {
		return fmt.Errorf("%s is not an element of a %s", match.Quote(w[0].text), s.kind)
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
				match.Quote(w[0].text), match.Quote(w[i].text))
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
		v, err := match.ParseMAC(text)
		e.more.port = match.Just(v)
		return err
	}
	a, err := match.ParseSpan(text)
	if err != nil {
		return err
	}
	if s.netmask > 0 && s.netmask <= a.Lo.BitLen() && a.Lo == a.Hi {
		a = match.PrefixSpan(netip.PrefixFrom(a.Lo, s.netmask))
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
func setPort(text string, bare bool) (proto, port match.Spans, err error) {
	name, p, has := strings.Cut(text, ":")
	if !has {
		p, name = text, "tcp"
	}
	n, err := match.ProtocolNumber(name)
	if err != nil {
		return nil, nil, err
	}
	proto = match.Just(uint64(n))
	if bare {
		proto = match.Spans{{Lo: 6, Hi: 6}, {Lo: 17, Hi: 17}}
	}
	switch n {
	case 6, 17, 132, 136: // those whose ports ip_set_getport.c of the kernel reads
		port, err = match.ParseSpansOf(match.ServicePorts(p), "-", 0xffff)
	case 1, 58:
		if bare {
			break
		}
		if port, err = match.ParseICMPType(p, n == 58); err == nil && len(port) == 1 &&
			port[0].Lo != port[0].Hi {
			// an element has one type and one code, which is 0 where a name has none
			port = match.Just(port[0].Lo)
		}
	}
	if bare && err == nil && port == nil {
		err = fmt.Errorf("%s is not a port", match.Quote(text))
	}
	return proto, port, err
}

// ipSets are the sets of an input, by name.
type ipSets struct {
	byName map[string]*ipSet
	files  map[string]*match.Set // sets that are not in the input, see beside
	out    *importer.Output
}

// policyName makes a name that the language takes, different from all others.
func (t *ipSets) policyName(name string) string { return match.UniqueName(name, t.out.Taken) }

// match returns the packets for which `--match-set NAME DIRS` holds. why, when not nil, names the
// part that no policy can express.
func (t *ipSets) match(name string, dirs []string) (alts []match.Match, about []importer.Filled,
	why *importer.Reason) {
	s := t.byName[name]
	switch {
	case s == nil:
		return t.beside(name, dirs)
	case s.dims == nil:
		return nil, nil,
			&importer.Reason{What: "set " + match.Quote(name) + " is a " + s.kind +
				", which no policy has",
				Instead: ""}
	case s.kind == "list:set":
		for _, member := range s.list {
			m := t.byName[member]
			if m == nil || m.kind == "list:set" {
				return nil, nil,
					&importer.Reason{What: "set " + match.Quote(name) + " has the member " +
						match.Quote(member) +
						", which is not in the input",
						Instead: "give the output of `ipset save` of all sets"}
			}
			a, f, why := t.match(member, dirs)
			if why != nil {
				return nil, nil, why
			}
			alts, about = append(alts, a...), append(about, f...)
		}
		if s.leases() {
			about = append(about, importer.Stays("members of set "+match.Quote(name)))
		}
		return alts, about, nil
	case len(dirs) < len(s.dims):
		return nil, nil,
			&importer.Reason{What: fmt.Sprintf("set %s is a %s and needs %d directions",
				match.Quote(name),
				s.kind, len(s.dims)), Instead: ""}
	}
	switch s.kind {
	case "bitmap:port":
		return t.portMatch(s, dirs[0])
	case "hash:mac":
		if len(s.elems) == 0 {
			return nil, nil, s.emptyReason()
		}
		if s.leases() {
			about = append(about, importer.Stays("entries of set "+match.Quote(name)))
		}
		return s.macMatch(dirs[0]), about, nil
	case "hash:ip", "hash:net", "bitmap:ip":
		a := t.addresses(s)
		switch {
		case a.Dynamic:
			about = append(about, importer.Begins(match.Quote(name), a.Name, len(s.elems)))
		case s.leases():
			about = append(about, importer.Stays("entries of set "+match.Quote(name)))
		}
		var m match.Match
		importer.Side(&m, dirs[0]).In = a
		return []match.Match{m.Settle()}, about, nil
	}
	if d, in := t.endpoints(s, dirs); d != nil {
		return []match.Match{match.Match{}.WithDyn(dirs[0], d)},
			[]importer.Filled{importer.Begins(match.Quote(name), d.Name, in)}, nil
	}
	if len(s.elems) == 0 {
		return nil, nil, s.emptyReason()
	}
	if s.leases() {
		about = append(about, importer.Stays("entries of set "+match.Quote(name)))
	}
	alts, why = s.joined(dirs)
	return alts, about, why
}

// beside is a set that is not in the input: it begins with the addresses of a file, without which
// nothing loads the policy. A set of several fields cannot be told from its name, nor can one of
// ports: it is taken for addresses, and the policy refuses a file that has others.
func (t *ipSets) beside(name string, dirs []string) ([]match.Match, []importer.Filled,
	*importer.Reason) {
	if len(dirs) != 1 {
		return nil, nil, &importer.Reason{What: "set " + match.Quote(name) + " is not in the input",
			Instead: "give the output of `ipset save` too"}
	}
	a := t.files[name]
	if a == nil {
		const room = 65536 // that of ipset
		a = &match.Set{Name: t.policyName(name), Dynamic: true}
		t.files[name] = a
		set := t.out.AddSet(a.Name, fmt.Sprintf("dynamic(max %d, from file(%q))", room,
			a.Name+".txt"))
		set.Comments = append(importer.BesideComment(a.Name, name,
			"ipset save "+name+" | awk '$1 == \"add\" { print $3 }'"),
			"One of ports, of MAC addresses or with `nomatch` has no such file: give `ipset save`.")
	}
	var m match.Match
	importer.Side(&m, dirs[0]).In = a
	return []match.Match{m.Settle()}, []importer.Filled{importer.Beside(
		"set "+match.Quote(name), name, a.Name, ", or give the output of `ipset save` too, which "+
			"a set of ports, of MAC addresses or with `nomatch` needs")}, nil
}

// leases tells whether entries leave by themselves.
func (s *ipSet) leases() bool { return s.timeout >= 0 || s.mixed }

func (s *ipSet) emptyReason() *importer.Reason {
	return &importer.Reason{What: "set " + match.Quote(s.name) + " is an empty " + s.kind +
		", and no policy has a " +
		"dynamic set of that kind", Instead: "fill the set, and import again"}
}

// endpoints is the dynamic set of endpoints for a set of addresses and ports of one side, where
// it is empty or its entries leave by themselves; nil where there is none.
func (t *ipSets) endpoints(s *ipSet, dirs []string) (*match.DynamicSet, int) {
	if s.kind != "hash:ip,port" && s.kind != "hash:net,port" || dirs[0] != dirs[1] ||
		!s.leases() && len(s.elems) > 0 {
		return nil, 0
	}
	if s.dyn != nil {
		return s.dyn, len(s.elems)
	}
	var in []importer.Entry
	for _, e := range s.elems {
		proto := match.ProtoNames[uint8(e.more.proto[0].Lo)]
		if e.nomatch || proto == "" || e.more.proto[0].Lo == 1 || e.more.proto[0].Lo == 58 ||
			e.addr.Lo.Is4In6() {
			return nil, 0
		}
		text := e.addr.String() + " " + proto
		if e.more.port != nil {
			text += "/" + match.NumberText(e.more.port[0])
		}
		in = append(in, importer.Entry{Text: text, Lease: e.lease})
	}
	d := &match.DynamicSet{Name: t.policyName(s.name)}
	set := t.out.AddSet(d.Name, importer.DynamicOf("endpoints", s.room(), s.timeout))
	set.Comments = importer.EntriesComment(d.Name, in)
	s.dyn = d
	return d, len(in)
}

// room returns the largest number of entries that the set may hold.
func (s *ipSet) room() uint64 { return max(s.maxelem, uint64(len(s.elems))) }

// addresses is the set of addresses that a policy has for s, made once. One that is empty, or whose
// entries have timeouts, becomes a dynamic set: what fills it at run time will go on to do so.
func (t *ipSets) addresses(s *ipSet) *match.Set {
	if s.named != nil {
		return s.named
	}
	a := &match.Set{Addresses: s.members()}
	a.TakeMapped()
	s.named = a
	stays := len(s.elems) > 0 && (!s.leases() || slices.ContainsFunc(s.elems,
		func(e ipElem) bool { return e.nomatch }))
	if stays && a.Mapped && len(a.Addresses) == 0 {
		return a
	}
	if a.Name = t.policyName(s.name); stays {
		t.out.AddSet(a.Name, match.AddressesText(a.Addresses))
		return a
	}
	var held []importer.Entry
	for _, e := range s.elems {
		if e.addr.Lo.Is4In6() {
			continue
		}
		held = append(held, importer.Entry{Text: e.addr.String(), Lease: e.lease})
	}
	a.Dynamic, a.Addresses = true, nil
	t.out.AddSet(a.Name, match.DynamicText(s.room(),
		s.timeout)).Comments = importer.EntriesComment(a.Name, held)
	return a
}

// members are the addresses in the set: the longest prefix decides, and `nomatch` takes out.
func (s *ipSet) members() match.AddressSpans {
	var in, out []match.AddressSpan
	for _, e := range s.elems {
		if e.nomatch {
			out = append(out, e.addr)
		} else {
			in = append(in, e.addr)
		}
	}
	return match.Innermost(in, out)
}

func (t *ipSets) portMatch(s *ipSet, dir string) ([]match.Match, []importer.Filled,
	*importer.Reason) {
	tcpUDP := match.Match{}.With(match.Proto, match.Spans{{Lo: 6, Hi: 6}, {Lo: 17, Hi: 17}})
	if s.leases() || len(s.elems) == 0 {
		if s.dyn == nil {
			var in []importer.Entry
			for _, e := range s.elems {
				p := match.NumberText(e.more.port[0])
				in = append(in, importer.Entry{Text: "tcp/" + p, Lease: e.lease},
					importer.Entry{Text: "udp/" + p, Lease: e.lease})
			}
			s.dyn = &match.DynamicSet{Name: t.policyName(s.name), Services: true}
			set := t.out.AddSet(s.dyn.Name, importer.DynamicOf("services", max(2*s.room(), 16),
				s.timeout))
			set.Comments = importer.EntriesComment(s.dyn.Name, in)
		}
		return []match.Match{tcpUDP.WithDyn(dir, s.dyn)},
			[]importer.Filled{importer.Begins(match.Quote(s.name), s.dyn.Name, len(s.elems))}, nil
	}
	var in []match.Span
	for _, e := range s.elems {
		in = append(in, e.more.port...)
	}
	m := tcpUDP.With(importer.PortField(dir), match.JoinSpans(in))
	if !m.Never && len(m.Fields[importer.PortField(dir)]) > 4 {
		if s.ports == nil {
			s.ports = t.out.AddSet(t.policyName(s.name), match.PortsText(match.JoinSpans(in)))
		}
		m.Name[importer.PortField(dir)] = s.ports.Name
	}
	return []match.Match{m.Settle()}, nil, nil
}

func (s *ipSet) macMatch(dir string) []match.Match {
	var in []match.Span
	for _, e := range s.elems {
		in = append(in, e.more.port...)
	}
	f := match.EtherFrom
	if dir == "dst" {
		f = match.EtherTo
	}
	return []match.Match{match.Match{}.With(f, match.JoinSpans(in))}
}

// joined makes a match for each group of elements that differ in their first address only.
func (s *ipSet) joined(dirs []string) ([]match.Match, *importer.Reason) {
	type group struct {
		rest match.Match
		in   []match.AddressSpan
	}
	var order []*group
	groups := map[string]*group{}
	for _, e := range s.elems {
		if e.nomatch {
			return nil,
				&importer.Reason{What: "set " + match.Quote(s.name) +
					" has elements marked nomatch", Instead: ""}
		}
		var m match.Match
		for i, d := range s.dims {
			switch {
			case d == "port":
				m = m.With(match.Proto, e.more.proto)
				switch p := e.more.proto[0].Lo; {
				case p == 1 && e.more.port != nil:
					m = m.With(match.ICMP, e.more.port)
				case p == 58 && e.more.port != nil:
					m = m.With(match.ICMP6, e.more.port)
				case e.more.port != nil:
					m = m.With(importer.PortField(dirs[i]), e.more.port)
				}
			case i > 0:
				a := importer.Side(&m, dirs[i])
				*a = a.And(match.Address{
					In: &match.Set{Addresses: match.AddressSpans{*e.more.second}}})
			}
		}
		key := m.Text()
		g := groups[key]
		if g == nil {
			if len(order) == importer.MaxAlternatives {
				return nil,
					&importer.Reason{What: fmt.Sprintf("set %s would become more than %d rules",
						match.Quote(s.name), importer.MaxAlternatives),
						Instead: "split it by port into sets of addresses"}
			}
			g = &group{rest: m}
			groups[key] = g
			order = append(order, g)
		}
		g.in = append(g.in, e.addr)
	}
	var alts []match.Match
	for _, g := range order {
		in := &match.Set{Addresses: match.JoinAddrs(g.in)}
		in.TakeMapped()
		m := g.rest
		a := importer.Side(&m, dirs[0])
		*a = a.And(match.Address{In: in})
		alts = append(alts, m.Settle())
	}
	return alts, nil
}
