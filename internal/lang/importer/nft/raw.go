package nft

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"slices"

	"levee/internal/lang/importer/match"
)

// rawField is `@BASE,OFFSET,LEN`, perhaps with a mask: bits counted from where a header begins.
type rawField struct {
	base        string // ll, nh, th or ih
	offset, len int
	mask        *big.Int // nil for all bits
}

// maxRaw bounds the bits that are compared at once: nft takes no more.
const maxRaw = 128

// rawOf tells whether a left side is about bytes by their place.
func rawOf(l json.RawMessage) (r rawField, ok bool) {
	key, inner := object(l)
	if parts := array(inner); key == "&" && len(parts) == 2 {
		if r, ok = rawOf(parts[0]); !ok || r.mask != nil {
			return r, false
		}
		r.mask, ok = bigOf(parts[1])
		return r, ok
	}
	var p struct {
		Base        string
		Offset, Len int
	}
	if key != "payload" || json.Unmarshal(inner, &p) != nil || p.Base == "" {
		return r, false
	}
	return rawField{base: p.Base, offset: p.Offset, len: p.Len}, true
}

// bigOf reads a number, which may have more than 64 bits.
func bigOf(raw json.RawMessage) (*big.Int, bool) {
	s, ok := scalar(raw)
	if !ok || len(s) > maxRaw {
		return nil, false
	}
	v, ok := new(big.Int).SetString(s, 0)
	return v, ok && v.Sign() >= 0
}

// rawNames are fields of headers by base, and place and number of bits, as nft names them.
var rawNames = map[string]map[[2]int]string{
	"ll": {{0, 48}: "ether daddr", {48, 48}: "ether saddr", {96, 16}: "ether type"},
	"ip": {{0, 4}: "ip version", {8, 6}: "ip dscp", {16, 16}: "ip length", {64, 8}: "ip ttl",
		{72, 8}: "ip protocol", {96, 32}: "ip saddr", {128, 32}: "ip daddr"},
	"ip6": {{0, 4}: "ip6 version", {32, 16}: "ip6 length", {48, 8}: "ip6 nexthdr",
		{56, 8}: "ip6 hoplimit", {64, 128}: "ip6 saddr", {192, 128}: "ip6 daddr"},
	"th": {{0, 16}: "sport", {16, 16}: "dport"},
}

// raw is a match on bytes by their place: a field of a header, or bytes behind that of UDP.
func (p *nftRule) raw(r rawField, op string, right json.RawMessage) error {
	header, hint := r.base, "name the field of the header"
	switch r.base {
	case "nh":
		header, hint = p.rawFamily(), "write `meta nfproto ipv4` or `ipv6` in front of it"
	case "th":
		hint = "write `meta l4proto udp` in front of it: `payload at` looks behind that header"
		if r.offset >= 64 && p.onlyUDP() {
			return p.rawBytes(r, r.offset-64, op, right)
		}
		if p.proto() == "" {
			header = ""
		}
	case "ih":
		hint = "`payload at` looks behind the header of UDP alone: write `meta l4proto udp` in " +
			"front of it"
		if p.onlyUDP() {
			return p.rawBytes(r, r.offset, op, right)
		}
	}
	if name := rawNames[header][[2]int{r.offset, r.len}]; name != "" && r.mask == nil {
		if header == "th" {
			name = p.proto() + " " + name
		}
		return p.rawNamed(name, op, right)
	}
	p.Unknown("looks at bytes by their offset", hint)
	return nil
}

// proto returns the one protocol with ports that the rule is about, as nft names it, or "".
func (p *nftRule) proto() string {
	for name, n := range map[string]uint64{"tcp": 6, "udp": 17, "dccp": 33, "sctp": 132,
		"udplite": 136} {
		if p.all(match.Proto, match.Just(n)) {
			return name
		}
	}
	return ""
}

func (p *nftRule) onlyUDP() bool { return p.all(match.Proto, match.Just(17)) }

// all tells whether the rule is so far about packets alone whose field has a value of s.
func (p *nftRule) all(f match.Field, s match.Spans) bool {
	return !slices.ContainsFunc(p.Rule.Alts, func(m match.Match) bool {
		return m.Fields[f] == nil || !m.Fields[f].Within(s)
	})
}

// rawFamily returns the IP header that the rule is about.
func (p *nftRule) rawFamily() string {
	for family, ether := range map[string]match.Spans{"ip": match.Only4, "ip6": match.Only6} {
		if p.c.table.family == family || p.all(match.Ether, ether) {
			return family
		}
	}
	return ""
}

// rawNamed is a match on a field that nft has a name for, with values as numbers.
func (p *nftRule) rawNamed(name, op string, right json.RawMessage) error {
	var proto, field string
	_, _ = fmt.Sscan(name, &proto, &field)
	d := payload(proto, field)
	if d.why != nil {
		p.Unknown(d.why.What, d.why.Instead)
		return nil
	}
	if d.dir != "" {
		var err error
		if right, err = rawAddresses(right, proto == "ip6"); err != nil {
			return p.soften(err)
		}
	}
	alts, err := p.compare(p.Rule, &d, op, right)
	if err != nil {
		return p.soften(err)
	}
	if alts != nil {
		p.Both(alts...)
	}
	return nil
}

// rawAddresses are numbers as addresses.
func rawAddresses(right json.RawMessage, six bool) (json.RawMessage, error) {
	list, err := rawValues(right)
	if err != nil {
		return nil, err
	}
	n := 4
	if six {
		n = 16
	}
	var set []any
	for _, v := range list {
		if v.hi.BitLen() > 8*n {
			return nil, errors.New("asks for a value that the field cannot have")
		}
		lo, hi := addrOf(v.lo, n), addrOf(v.hi, n)
		set = append(set, map[string]any{"range": []string{lo, hi}})
	}
	return json.Marshal(map[string]any{"set": set})
}

// rawSpan is a value, or a range of them.
type rawSpan struct{ lo, hi *big.Int }

// rawValues reads what a raw field is compared with.
func rawValues(right json.RawMessage) (out []rawSpan, err error) {
	list := []json.RawMessage{right}
	if key, inner := object(right); key == "set" {
		list = array(inner)
	}
	for _, e := range list {
		if key, inner := object(e); key == "elem" {
			var of struct{ Val json.RawMessage }
			_ = json.Unmarshal(inner, &of)
			e = of.Val
		}
		ends := []json.RawMessage{e, e}
		if key, inner := object(e); key == "range" {
			ends = array(inner)
		}
		if len(ends) != 2 {
			return nil, errors.New("a range has two ends")
		}
		lo, okLo := bigOf(ends[0])
		hi, okHi := bigOf(ends[1])
		if !okLo || !okHi || lo.Cmp(hi) > 0 {
			return nil, fmt.Errorf("%s is not a number", match.Quote(string(e)))
		}
		out = append(out, rawSpan{lo, hi})
	}
	return out, nil
}

// rawBytes is a match on bytes of the payload of UDP that begin with bit from.
func (p *nftRule) rawBytes(r rawField, from int, op string, right json.RawMessage) error {
	if r.len <= 0 || r.len > maxRaw || from < 0 || from > 1<<20 {
		return p.soften(errors.New("looks at bytes by their offset"))
	}
	spans, err := rawValues(right)
	if err != nil {
		return p.soften(err)
	}
	all := new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), uint(r.len)), big.NewInt(1))
	mask := all
	if r.mask != nil {
		mask = r.mask
	}
	if len(spans) == 1 && (op == "<" || op == "<=" || op == ">" || op == ">=") {
		spans, err = ordered(op, spans[0], all)
		op = "=="
	}
	not := op == "!="
	switch {
	case err != nil:
	case op != "==" && op != "in" && op != "" && !not:
		err = fmt.Errorf("compares with %s", match.Quote(op))
	case mask.Cmp(all) > 0 || mask.Sign() == 0:
		err = errors.New("has a mask that is not of the field")
	}
	if err != nil {
		return p.soften(err)
	}
	alts, both := []match.Match{}, match.UdpOnly
	for _, s := range spans {
		blocks, err := s.blocks(mask, all)
		if err != nil {
			return p.soften(err)
		}
		for _, b := range blocks {
			term, ok := bytesAt(from, r.len, b).Term(not)
			if !ok {
				return p.soften(errors.New("looks at bytes of the payload further behind, or " +
					"at more of them, than `payload at` does"))
			}
			one := match.Match{Finds: []string{term}}.Settle()
			if alts = append(alts, one); not {
				both = both.And(&one)
			}
			if most := maxBlocks >> match.Int(not); len(alts) > most {
				return p.soften(fmt.Errorf("asks for more than %d values of bytes", most))
			}
		}
	}
	if not {
		alts = []match.Match{both}
	}
	p.Both(alts...)
	return nil
}

// ordered returns what is below or above a value, up to the greatest.
func ordered(op string, s rawSpan, top *big.Int) ([]rawSpan, error) {
	one := big.NewInt(1)
	out := rawSpan{big.NewInt(0), top}
	switch op {
	case "<":
		out.hi = new(big.Int).Sub(s.lo, one)
	case "<=":
		out.hi = s.hi
	case ">":
		out.lo = new(big.Int).Add(s.hi, one)
	case ">=":
		out.lo = s.lo
	}
	if out.lo.Cmp(out.hi) > 0 || out.hi.Cmp(top) > 0 {
		return nil, errors.New("asks for a value that the field cannot have")
	}
	return []rawSpan{out}, nil
}

// block is a value with the bits that count.
type block struct{ value, mask *big.Int }

// maxBlocks bounds the rules that a range of bytes becomes.
const maxBlocks = 32

// blocks returns the values of a span as values with masks. all has every bit of the field.
func (s rawSpan) blocks(mask, all *big.Int) (out []block, err error) {
	switch {
	case s.hi.Cmp(all) > 0:
		return nil, errors.New("asks for a value that the field cannot have")
	case s.lo.Cmp(s.hi) == 0:
		if new(big.Int).AndNot(s.lo, mask).Sign() != 0 {
			return nil, errors.New("asks for bits that its mask takes away")
		}
		return []block{{s.lo, mask}}, nil
	case mask.Cmp(all) != 0:
		return nil, errors.New("asks for a range of masked bytes")
	}
	one := big.NewInt(1)
	for lo := new(big.Int).Set(s.lo); lo.Cmp(s.hi) <= 0; {
		// the largest block that begins at lo and ends within the span
		bits := uint(all.BitLen())
		if lo.Sign() != 0 {
			bits = lo.TrailingZeroBits()
		}
		size := new(big.Int).Lsh(one, bits)
		end := new(big.Int)
		for ; end.Sub(end.Add(lo, size), one).Cmp(s.hi) > 0; size.Rsh(size, 1) {
		}
		if len(out) == maxBlocks {
			return nil, fmt.Errorf("asks for a range of bytes that would become more than %d rules",
				maxBlocks)
		}
		low := new(big.Int).Sub(size, one)
		out = append(out, block{new(big.Int).Set(lo), new(big.Int).AndNot(all, low)})
		lo.Add(lo, size)
	}
	return out, nil
}

// bytesAt returns a block of n bits that begin with a bit of the payload, as bytes.
func bytesAt(from, n int, b block) match.BytesAt {
	first, behind := from/8, (from+n+7)/8
	shift := uint(behind*8 - from - n)
	size := behind - first
	out := match.BytesAt{At: first, Value: make([]byte, size), Mask: make([]byte, size)}
	new(big.Int).Lsh(b.value, shift).FillBytes(out.Value)
	new(big.Int).Lsh(b.mask, shift).FillBytes(out.Mask)
	return out
}

// addrOf returns a number of n bytes as an address.
func addrOf(v *big.Int, n int) string {
	a, _ := netip.AddrFromSlice(v.FillBytes(make([]byte, n)))
	return a.String()
}
