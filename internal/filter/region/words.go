package region

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strings"

	"levee/internal/filter/ir"
	"levee/internal/lang/field"
)

// shown is the number of a list's elements that are written out.
const shown = 4

// words returns a match, nearly in the words of the language, for the packets of a box for which
// the unions hold; and the conditions that only run time knows.
func (s *space) words(b box, unions []union) (text string, unknown []string) {
	var out, state []string
	add := func(words string) {
		if words != "" {
			out = append(out, words)
		}
	}
	add(s.addressWords(b, "from", true))
	add(s.addressWords(b, "to", false))
	for i := range s.sides {
		n := &s.sides[i]
		if i >= len(b) || b[i] == nil || relate(n.domain, b[i]) == all {
			continue
		}
		switch n.about {
		case ofNumber:
			if isSender(n.field) {
				state = append(state, s.senderWords(n.field, b[i]))
				continue
			}
			if n.field.Info().Remembered {
				state = append(state, numberWords(n.field, b[i]))
				continue
			}
			add(numberWords(n.field, b[i]))
		case ofMessage:
			add(messageWords(n.field, b[i]))
		case ofLater:
			add([]string{"a first fragment", "a later fragment"}[b[i][0].Lo])
		case ofByte:
			add(fmt.Sprintf("payload byte %d %s", n.at, bytesWords(b[i])))
		case ofUnknown:
			unknown = append(unknown, n.unknownWords(b[i]))
		}
	}
	for _, u := range unions {
		add(s.unionWords(u))
	}
	return strings.Join(append(out, state...), " "), unknown
}

// unknownWords say what has to be so.
func (n *side) unknownWords(values []field.Range) string {
	switch {
	case values[0].Lo == 0:
		return "not " + n.name
	case values[len(values)-1].Hi == nothingWithin && values[0].Lo == 1:
		return n.name + ", or nothing within"
	case values[0].Lo == nothingWithin:
		return "nothing within, of which " + n.name + " is asked"
	}
	return n.name
}

// unionWords returns a union's first parts in words.
func (s *space) unionWords(u union) string {
	var parts []string
	for i, p := range u.parts {
		if i == shown {
			parts = append(parts, fmt.Sprintf("%d in all", len(u.parts)))
			break
		}
		if b, ok := s.within(nil, p); ok {
			words, _ := s.words(b, nil)
			parts = append(parts, words)
		}
	}
	text := "any of { " + strings.Join(parts, "; ") + " }"
	if u.not {
		return "not " + text
	}
	return text
}

// addressWords returns the addresses of a box, "" if it has all.
func (s *space) addressWords(b box, word string, source bool) string {
	upper, low := ofDestination, ofDestinationLow
	if source {
		upper, low = ofSource, ofSourceLow
	}
	find := func(a about) []field.Range {
		i, ok := s.index[sideKey{about: a}]
		if !ok || i >= len(b) || b[i] == nil || relate(s.sides[i].domain, b[i]) == all {
			return nil
		}
		return b[i]
	}
	high, lower := find(upper), find(low)
	switch {
	case high == nil && lower == nil:
		return ""
	case lower == nil:
		return word + " " + listed(s.prefixes(high))
	case len(high) == 1 && high[0].Lo == high[0].Hi:
		return word + " " + listed(prefixesWithin(high[0].Lo, lower))
	case high == nil:
		return word + " suffix " + rangesWords(lower, "%#x")
	}
	return word + " " + listed(s.prefixes(high)) + " " + word + " suffix " +
		rangesWords(lower, "%#x")
}

// prefixes returns the addresses of a side's values, all of them; of IPv6 the values are upper
// halves.
func (s *space) prefixes(values []field.Range) (out []netip.Prefix) {
	width := 64
	if s.class.Family == ir.IPv4 {
		width = 32
	}
	for _, r := range values {
		spread(r, width, func(v uint64, n int) {
			out = append(out, netip.PrefixFrom(s.address(v, 0), n))
		})
	}
	return out
}

// address is one address.
func (s *space) address(high, low uint64) netip.Addr {
	if s.class.Family == ir.IPv4 {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], uint32(high))
		return netip.AddrFrom4(b)
	}
	return address6(high, low)
}

// halves is an address as sides have it: of IPv4 the first holds all.
func halves(a netip.Addr) (high, low uint64) {
	if a.Is4() {
		b := a.As4()
		return uint64(binary.BigEndian.Uint32(b[:])), 1
	}
	b := a.As16()
	return binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
}

func address6(high, low uint64) netip.Addr {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], high)
	binary.BigEndian.PutUint64(b[8:], low)
	return netip.AddrFrom16(b)
}

// prefixesWithin are addresses of IPv6 with one upper half.
func prefixesWithin(high uint64, low []field.Range) (out []netip.Prefix) {
	for _, r := range low {
		spread(r, 64, func(v uint64, n int) {
			out = append(out, netip.PrefixFrom(address6(high, v), 64+n))
		})
	}
	return out
}

// spread parts a range of numbers of so many bits into blocks that begin alike.
func spread(r field.Range, width int, block func(first uint64, length int)) {
	for lo := r.Lo; ; {
		size := min(bits.TrailingZeros64(lo), width)
		for size > 0 && lo|lower(size) > r.Hi {
			size--
		}
		block(lo, width-size)
		last := lo | lower(size)
		if last >= r.Hi {
			return
		}
		lo = last + 1
	}
}

func listed(ps []netip.Prefix) string {
	var words []string
	for i, p := range ps {
		if i == shown && len(ps) > shown+1 {
			words = append(words, fmt.Sprintf("%d in all", len(ps)))
			break
		}
		words = append(words, bare(p))
	}
	if len(words) == 1 {
		return words[0]
	}
	return "{ " + strings.Join(words, ", ") + " }"
}

// bare returns a prefix, or an address without its length.
func bare(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// numberWords are values of a field.
func numberWords(f field.Field, values []field.Range) string {
	word := ""
	if f.Info().Remembered {
		word = f.Word()
	}
	switch {
	case f == field.Local:
		return map[uint64]string{0: "forwarded", 1: "local"}[values[0].Lo]
	case word != "" && values[0].Lo == 0:
		return "not " + word
	case word != "":
		return word
	case f == field.TCPFlags:
		return flagWords(values)
	}
	return (&ir.Cond{Field: f, Ranges: values}).String()
}

// flagWords name flags that are set and not set, where that is all that is asked.
func flagWords(values []field.Range) string {
	set, clear, n := uint8(0xff), uint8(0xff), 0
	for _, r := range values {
		for v := r.Lo; v <= r.Hi; v++ {
			set, clear, n = set&uint8(v), clear&^uint8(v), n+1
		}
	}
	free := 8 - bits.OnesCount8(set|clear)
	if n != 1<<free {
		return fmt.Sprintf("%d of the 256 combinations of flags", n)
	}
	return fmt.Sprintf("flags %s/%s", flagNames(set), flagNames(set|clear))
}

// flagNames are flags as the language lists them.
func flagNames(flags uint8) string {
	var names []string
	for _, n := range field.TCPFlags.Info().Names {
		if flags&uint8(n.Lo) != 0 {
			names = append(names, n.Word)
		}
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ",")
}

func rangesWords(values []field.Range, format string) string {
	var words []string
	for i, r := range values {
		if i == shown {
			words = append(words, fmt.Sprintf("%d in all", len(values)))
			break
		}
		text := fmt.Sprintf(format, r.Lo)
		if r.Hi > r.Lo {
			text += "-" + fmt.Sprintf(format, r.Hi)
		}
		words = append(words, text)
	}
	if len(words) == 1 {
		return words[0]
	}
	return "{ " + strings.Join(words, ", ") + " }"
}

// bytesWords are values of a byte of the payload.
func bytesWords(values []field.Range) string {
	present := field.Intersect(values, []field.Range{{Hi: noByte - 1}})
	if len(present) == 0 {
		return "missing"
	}
	return rangesWords(present, "0x%02x")
}

// kindsOf are classes in words: "IPv4", "IPv4 TCP, UDP fragments". A transport without more said is
// of packets that are fragments and of others.
func kindsOf(classes []ir.Class) string {
	has := map[ir.Class]bool{}
	for _, c := range classes {
		has[c] = true
	}
	if len(has) == ir.NumClasses {
		return "all packets"
	}
	var out []string
	if has[ir.Class{}] {
		out = append(out, "not IP")
	}
	four, six := transports(has, ir.IPv4), transports(has, ir.IPv6)
	switch {
	case four == six && four == every:
		return strings.Join(append(out, "all of IP"), "; ")
	case four == six && four != "":
		return strings.Join(append(out, four), "; ")
	}
	for i, of := range []string{four, six} {
		switch name := [...]string{"IPv4", "IPv6"}[i]; of {
		case every:
			out = append(out, name)
		case "":
		default:
			out = append(out, name+" "+of)
		}
	}
	return strings.Join(out, "; ")
}

// every stands for all transports of a family.
const every = "all"

// transports returns the transports of one family in words.
func transports(has map[ir.Class]bool, f ir.Family) string {
	var of []string
	all := true
	for t := range ir.NumTransports {
		whole, fragment := has[ir.Class{Family: f, Transport: t}],
			has[ir.Class{Family: f, Transport: t, Fragment: true}]
		name := [...]string{"other protocols", "TCP", "UDP", "UDP-Lite", "SCTP", "DCCP", "ICMP"}[t]
		all = all && whole && fragment
		switch {
		case whole && fragment:
			of = append(of, name)
		case whole:
			of = append(of, "whole "+name)
		case fragment:
			of = append(of, name+" fragments")
		}
	}
	if all {
		return every
	}
	return strings.Join(of, ", ")
}

// messageWords returns what is asked of a field of DNS messages.
func messageWords(f field.Field, values []field.Range) string {
	switch f {
	case field.DNSQuery:
		var all [noHeader + 1]bool
		for v := range all {
			all[v] = len(field.Intersect(values, single(uint64(v)))) > 0
		}
		return map[[noHeader + 1]bool]string{
			{true, false, false}: "dns query", {false, true, false}: "dns response",
			{true, true, false}: "a DNS header", {false, false, true}: "no DNS header",
			{true, false, true}: "not dns response", {false, true, true}: "not dns query",
		}[all]
	case field.DNSMalformed:
		return []string{"not dns malformed", "dns malformed"}[values[0].Lo]
	}
	none := values[len(values)-1].Hi == lacking(f)
	there := field.Subtract(values, single(lacking(f)))
	any := relate([]field.Range{{Hi: lacking(f) - 1}}, there) == all
	switch {
	case any:
		return "a " + f.Info().Name
	case len(there) == 0:
		return "no " + f.Info().Name
	}
	text := (&ir.Cond{Field: f, Ranges: there}).String()
	if none {
		text += " or none"
	}
	return text
}

// hidden returns the words for what is so of the packets of a box and of no packet that a test can
// show, beyond what is asked of them anyway.
func (s *space) hidden(asked, b box) (out []string) {
	for _, r := range s.unsaid {
		if rel, _ := s.relateRule(b, r); rel == none {
			continue
		}
		w := r.wants[0]
		if relate(s.values(asked, w.side), w.values) == all {
			continue
		}
		words, unknown := s.words(s.with(nil, w.side, w.values), nil)
		out = append(out, unknown...)
		if words != "" {
			out = append(out, words)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
