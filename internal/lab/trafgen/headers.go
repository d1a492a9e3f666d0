package trafgen

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// said are the fields of a header by the words of a template, as text.
type said struct {
	name string
	line int
	text map[string]string
	nums map[string]uint64 // of those that the header puts together, which may not vary
}

// read reads the fields of a header.
func (h *header) read() (*said, error) {
	s := &said{name: h.text, line: h.line, text: map[string]string{}, nums: map[string]uint64{}}
	for _, f := range h.fields {
		r, ok := rows[h.text][f.text]
		if !ok {
			return nil, wrong(f.line, f.text, "this field of %s() cannot be imported", h.text)
		}
		together := strings.HasPrefix(r.word, "=")
		text, v, err := f.read(r)
		if err != nil {
			return nil, err
		}
		if together && v == nil {
			return nil, wrong(f.line, f.text, "it cannot vary")
		}
		if together {
			s.nums[r.word] = *v
			continue
		}
		s.text[r.word] = text
	}
	return s, nil
}

// read returns the value as text of a template; the number too, if it is one that does not vary.
func (f *field) read(r row) (text string, v *uint64, err error) {
	if len(f.value) == 0 {
		if r.form != aFlag {
			return "", nil, wrong(f.line, f.text, "it has no value")
		}
		one := uint64(1)
		return "1", &one, nil
	}
	first := f.value[0]
	if len(f.value) > 1 && f.value[1].text == "(" && first.kind == aWord {
		text, err = f.varying(r)
		return text, nil, err
	}
	whole := ""
	for _, t := range f.value {
		whole += t.text
	}
	bad := func(what string) error { return wrong(f.line, f.text, "%q is no %s", whole, what) }
	switch r.form {
	case aMAC:
		a, err := net.ParseMAC(whole)
		if err != nil || len(a) != 6 {
			return "", nil, bad("Ethernet address")
		}
		return a.String(), nil, nil
	case anAddress4, anAddress6:
		a, err := netip.ParseAddr(whole)
		if err != nil || a.Is4() != (r.form == anAddress4) || a.Zone() != "" {
			return "", nil, bad("address of this family")
		}
		return a.String(), nil, nil
	}
	p := parser{tokens: f.value}
	n, err := p.expression()
	if err != nil {
		return "", nil, err
	}
	if p.at < len(f.value) || n > r.most {
		return "", nil, bad(fmt.Sprintf("number up to %d", r.most))
	}
	return fmt.Sprint(n), &n, nil
}

// varying reads dinc(...) and drnd(...).
func (f *field) varying(r row) (string, error) {
	name := f.value[0].text
	p := parser{tokens: f.value, at: 2}
	var args []uint64
	for !p.sign(")") {
		if p.sign(",") {
			continue
		}
		v, err := p.expression()
		if err != nil {
			return "", err
		}
		args = append(args, v)
	}
	most := map[string]int{"dinc": 3, "drnd": 2}[name]
	if most == 0 || len(args) == 1 || len(args) > most || p.at < len(f.value) {
		return "", wrong(f.line, f.text, "%s: it varies by dinc(), dinc(MIN, MAX), dinc(MIN, MAX, "+
			"STEP), drnd() or drnd(MIN, MAX)", name)
	}
	order := map[string]string{"dinc": "counting", "drnd": "random"}[name]
	all := map[form]string{aMAC: "00:00:00:00:00:00-ff:ff:ff:ff:ff:ff", anAddress4: "0.0.0.0/0",
		anAddress6: "::/0"}[r.form]
	switch {
	case r.form == aFlag:
		return "", wrong(f.line, f.text, "a flag cannot vary")
	case len(args) == 0 && name == "dinc" && r.form != aNumber:
		return "", wrong(f.line, f.text, "dinc() of an address: write the range, dinc(MIN, MAX)")
	case len(args) == 0:
		return strings.TrimSpace(all + " " + order), nil
	case r.form == aMAC || r.form == anAddress6:
		return "", wrong(f.line, f.text, "a range of numbers for an address of this kind")
	}
	limit := r.most
	if r.form == anAddress4 {
		limit = bits32
	}
	if args[0] > args[1] || args[1] > limit || len(args) == 3 && args[2] == 0 {
		return "", wrong(f.line, f.text, "from %d to %d: the least comes first, and the most is %d",
			args[0], args[1], limit)
	}
	text := func(v uint64) string {
		if r.form == anAddress4 {
			return netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8),
				byte(v)}).String()
		}
		return fmt.Sprint(v)
	}
	out := text(args[0]) + "-" + text(args[1]) + " " + order
	if len(args) == 3 && args[2] > 1 {
		out += fmt.Sprintf(" step %d", args[2])
	}
	return out, nil
}

// usual are fields as trafgen has them where nothing is said, where templates have them otherwise.
var usual = map[string][][2]string{
	"ipv4": {{"id", "0"}, {"df", "0"}, {"ttl", "0"}},
	"ipv6": {{"ttl", "0"}},
	"udp":  {{"from port", "0"}, {"port", "0"}},
	"tcp": {{"from port", "0"}, {"port", "0"}, {"seq", "0"}, {"ack-number", "0"}, {"window", "0"},
		{"urgent", "0"}},
}

// levels are the places of headers; one of a level has to have one of the level below.
var levels = map[string]int{"eth": 0, "vlan": 1, "arp": 2, "ipv4": 2, "ipv6": 2, "icmp4": 3,
	"icmp6": 3, "udp": 3, "tcp": 3}

// byHeaders returns a packet of functions, and bytes as its payload.
func (p *frame) byHeaders() (out []string, err error) {
	var all []*said
	level, tags := -1, 0
	for _, h := range p.headers {
		s, err := h.read()
		if err != nil {
			return nil, err
		}
		l := levels[h.text]
		if l < level || l == level && h.text != "vlan" {
			return nil, wrong(h.line, h.text, "this header cannot stand behind that one")
		}
		if level = l; l == 1 {
			if tags++; tags > 2 {
				return nil, wrong(h.line, h.text, "more than two VLAN tags")
			}
		}
		all = append(all, s)
	}
	network := ""
	for i, s := range all {
		if levels[s.name] == 3 && network == "" {
			network = "ipv4"
			if s.name == "icmp6" {
				network = "ipv6"
			}
			words, err := (&said{name: network, line: s.line, text: map[string]string{}}).words(
				network, false, 0)
			if err != nil {
				return nil, err
			}
			out = append(out, words...)
		}
		if levels[s.name] == 2 {
			network = s.name
		}
		last := i == len(all)-1
		words, err := s.words(network, last, tagOf(all[:i]))
		if err != nil {
			return nil, err
		}
		out = append(out, words...)
	}
	d := &decoder{frame: p}
	if len(p.bytes) > 0 {
		if network == "arp" {
			d.payload(-1)
		} else if p.bytes[0].kind != fixed {
			return nil, wrong(p.bytes[0].line, p.bytes[0].text, "a payload that varies: write the "+
				"packet in bytes")
		} else {
			d.payload(0)
		}
	}
	return append(out, d.out...), d.err
}

// tagOf returns how many VLAN tags are among headers.
func tagOf(before []*said) (n int) {
	for _, s := range before {
		if s.name == "vlan" {
			n++
		}
	}
	return n
}

// words returns the words of one header.
func (s *said) words(network string, last bool, tags int) (out []string, err error) {
	name := s.name
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	switch name {
	case "eth":
		if v, ok := s.num("type"); last {
			say("ether %d", v)
		} else if ok && v < 0x600 {
			return nil, wrong(s.line, name, "the type %d is a length", v)
		}
	case "vlan":
		if s.tag(tags == 1); last {
			return nil, wrong(s.line, name, "nothing stands behind the tag")
		}
	case "arp":
		op := uint64(1)
		if v, ok := s.num("op"); ok {
			op = v
		}
		if v, ok := s.num("reply"); ok && v == 1 {
			op = 2
		}
		say("arp op %d", op)
	case "ipv4", "ipv6":
		s.ip(say, last)
	case "icmp4", "icmp6":
		if (name == "icmp4") != (network == "ipv4") {
			return nil, wrong(s.line, name, "it stands in %s", network)
		}
		request, reply := uint64(8), uint64(0)
		if name == "icmp6" {
			request, reply = 128, 129
		}
		typ := s.nums["=type"]
		if s.nums["=echorequest"] == 1 {
			typ = request
		} else if s.nums["=echoreply"] == 1 {
			typ = reply
		}
		say("%s type %d", map[string]string{"icmp4": "icmp", "icmp6": "icmp6"}[name], typ)
	case "tcp":
		flags := uint64(0)
		for i, f := range []string{"fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"} {
			flags |= s.nums["="+f] << i
		}
		say("tcp tcp-flags %d", flags)
	default:
		say("%s", name)
	}
	for _, u := range usual[name] {
		if s.text[u[0]] == "" {
			s.text[u[0]] = u[1]
		}
	}
	for _, word := range slices.Sorted(maps.Keys(s.text)) {
		say("%s %s", word, s.text[word])
	}
	return out, nil
}

// num returns the number that a header's text gives a field, false if it gives none.
func (s *said) num(word string) (uint64, bool) { v, ok := s.nums["="+word]; return v, ok }

// tag translates the fields of a VLAN tag, which is the inner of two or the only one.
func (s *said) tag(inner bool) {
	if v, ok := s.num("tci"); ok {
		s.text["vlan"], s.text["pcp"], s.text["dei"] = fmt.Sprint(v&0xfff), fmt.Sprint(v>>13),
			fmt.Sprint(v>>12&1)
	}
	if v, ok := s.num("1ad"); ok && v == 1 {
		s.text["tpid"] = fmt.Sprint(0x88a8)
	}
	if s.text["vlan"] == "" {
		s.text["vlan"] = "0"
	}
	if !inner {
		return
	}
	text := map[string]string{}
	for word, v := range s.text {
		text["inner-"+word] = v
	}
	s.text = text
}

// ip says what a header of IP has; last is that nothing stands behind it.
func (s *said) ip(say func(format string, args ...any), last bool) {
	say("%s", s.name)
	if v, ok := s.num("tos"); ok {
		say("dscp %d ecn %d", v>>2, v&3)
	}
	if v, ok := s.num("flags"); ok {
		say("reserved %d", v>>2)
		s.text["df"], s.text["mf"] = fmt.Sprint(v>>1&1), fmt.Sprint(v&1)
	}
	if v, ok := s.num("proto"); last {
		say("proto %d", v)
	} else if ok {
		say("ip-proto %d", v)
	}
}
