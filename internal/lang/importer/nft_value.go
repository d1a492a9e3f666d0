package importer

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// dim is one thing that an expression of nft looks at, as a field of a policy.
type dim struct {
	num   numField
	dir   string // src or dst: an address, and num is not used
	iface bool   // the name of the incoming interface
	state bool   // of the connection
	dep   match  // what must hold for the field to be there
	parse func(string) (spans, error)
	after func(spans) spans // values as the policy has them, or nil
	why   *reason           // nothing that a policy has words for
}

// value is a set of values of one dim.
type value struct {
	nums  spans
	addrs addrSpans
	text  []string // of interfaces and states
	any   bool     // `*`, what no other element of the set is
}

func (v *value) add(o value) {
	v.nums = append(v.nums, o.nums...)
	v.addrs = append(v.addrs, o.addrs...)
	v.text = append(v.text, o.text...)
	v.any = v.any || o.any
}

// object is the one key of a JSON object with one key, and what stands behind it.
func object(raw json.RawMessage) (key string, inner json.RawMessage) {
	var m map[string]json.RawMessage
	if len(raw) == 0 || raw[0] != '{' || json.Unmarshal(raw, &m) != nil || len(m) != 1 {
		return "", nil
	}
	for key, inner = range m {
	}
	return key, inner
}

// array is the elements of a JSON array.
func array(raw json.RawMessage) (out []json.RawMessage) {
	if len(raw) > 0 && raw[0] == '[' {
		_ = json.Unmarshal(raw, &out)
	}
	return out
}

// scalar is the text of a JSON string, number or truth value.
func scalar(raw json.RawMessage) (string, bool) {
	var s string
	if len(raw) == 0 || raw[0] == '{' || raw[0] == '[' {
		return "", false
	}
	if json.Unmarshal(raw, &s) == nil {
		return s, true
	}
	return string(raw), true
}

const maxNested = 8 // sets in elements in sets of one value

// value reads the right side of a match, or an element of a set.
func (d *dim) value(raw json.RawMessage, depth int) (value, error) {
	if depth > maxNested {
		return value{}, fmt.Errorf("values are nested too deep")
	}
	if s, ok := scalar(raw); ok {
		return d.scalar(s)
	}
	list := array(raw)
	key, inner := object(raw)
	switch key {
	case "set":
		list = array(inner)
	case "elem":
		var e struct{ Val json.RawMessage }
		if err := json.Unmarshal(inner, &e); err != nil {
			return value{}, fmt.Errorf("an element without a value")
		}
		return d.value(e.Val, depth+1)
	case "prefix":
		return d.prefix(inner)
	case "range":
		return d.span(array(inner), depth)
	}
	if list == nil {
		return value{}, fmt.Errorf("%s is not a value that is known here", quote(string(raw)))
	}
	var v value
	for _, e := range list {
		one, err := d.value(e, depth+1)
		if err != nil {
			return v, err
		}
		v.add(one)
	}
	return v, nil
}

func (d *dim) scalar(s string) (value, error) {
	switch {
	case s == "*":
		return value{any: true}, nil
	case d.iface || d.state:
		return value{text: []string{s}}, nil
	case d.dir != "":
		a, err := parseSpan(s)
		return value{addrs: addrSpans{a}}, err
	}
	n, err := d.number(s)
	if err != nil {
		return value{}, err
	}
	return value{nums: d.adapt(n)}, nil
}

func (d *dim) adapt(s spans) spans {
	if d.after != nil {
		return d.after(s)
	}
	return s
}

// number reads a name or a number.
func (d *dim) number(s string) (spans, error) {
	if v, err := strconv.ParseUint(s, 0, 64); err == nil {
		return just(v), nil
	}
	if d.parse == nil {
		return nil, fmt.Errorf("%s is not a number", quote(s))
	}
	return d.parse(s)
}

func (d *dim) prefix(raw json.RawMessage) (value, error) {
	var p struct {
		Addr string
		Len  int
	}
	if json.Unmarshal(raw, &p) != nil || d.dir == "" {
		return value{}, fmt.Errorf("%s is not a prefix of addresses", quote(string(raw)))
	}
	a, err := netip.ParseAddr(p.Addr)
	if err != nil || p.Len < 0 || p.Len > a.BitLen() || a.Zone() != "" {
		return value{}, fmt.Errorf("%s is not a prefix", quote(string(raw)))
	}
	return value{addrs: addrSpans{prefixSpan(netip.PrefixFrom(a, p.Len))}}, nil
}

func (d *dim) span(ends []json.RawMessage, depth int) (value, error) {
	if len(ends) != 2 || d.iface || d.state {
		return value{}, fmt.Errorf("a range has two ends")
	}
	lo, okLo := scalar(ends[0])
	hi, okHi := scalar(ends[1])
	if !okLo || !okHi {
		return value{}, fmt.Errorf("a range has two ends")
	}
	if d.dir != "" {
		a, err := parseSpan(lo + "-" + hi)
		return value{addrs: addrSpans{a}}, err
	}
	a, err := d.number(lo)
	if err != nil {
		return value{}, err
	}
	b, err := d.number(hi)
	if err != nil {
		return value{}, err
	}
	if a[0].Lo > b[0].Hi {
		return value{}, fmt.Errorf("the range %s-%s runs backwards", quote(lo), quote(hi))
	}
	return value{nums: d.adapt(between(a[0].Lo, b[0].Hi))}, nil
}

func parseProtocolName(s string) (spans, error) {
	n, err := protocolNumber(s)
	return just(uint64(n)), err
}

var etherNames = map[string]uint64{"ip": etherIPv4, "ipv4": etherIPv4, "ip6": etherIPv6,
	"ipv6": etherIPv6, "arp": etherARP, "lldp": 0x88cc,
	"8021q": 0x8100, "8021ad": 0x88a8, "vlan": 0x8100}

func parseEtherName(s string) (spans, error) {
	if v, ok := etherNames[strings.ToLower(s)]; ok {
		return just(v), nil
	}
	return nil, fmt.Errorf("%s is not an EtherType that is known here", quote(s))
}

func parseDSCPName(s string) (spans, error) {
	v, err := parseDSCP(s)
	return just(v), err
}

func parseMACName(s string) (spans, error) {
	v, err := parseMAC(s)
	return just(v), err
}

// icmpName reads the type alone: the field of nft has no code.
func icmpName(six bool) func(string) (spans, error) {
	return func(s string) (spans, error) {
		t, err := parseICMPType(s, six)
		if err != nil {
			return nil, err
		}
		return just(t[0].Lo >> 8), nil
	}
}

// typesOf turns types into types with any code.
func typesOf(s spans) (out spans) {
	for _, r := range s {
		if r.Hi <= 255 {
			out = append(out, span{Lo: r.Lo << 8, Hi: r.Hi<<8 | 0xff})
		}
	}
	return out
}

// codesOf turns codes into any type with these codes.
func codesOf(s spans) (out spans) {
	for _, r := range s {
		for t := range uint64(256) {
			if r.Hi <= 255 {
				out = append(out, span{Lo: t<<8 | r.Lo, Hi: t<<8 | r.Hi})
			}
		}
	}
	return joinSpans(out)
}

// payloadOf turns lengths of the payload of IPv6 into those of the packet.
func payloadOf(s spans) (out spans) {
	for _, r := range s {
		if r.Hi <= 0xffff {
			out = append(out, span{Lo: r.Lo + 40, Hi: r.Hi + 40})
		}
	}
	return out
}
