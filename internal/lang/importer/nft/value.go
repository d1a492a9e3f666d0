package nft

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"levee/internal/lang/importer"
	"levee/internal/lang/importer/match"
)

// dim is one thing that an expression of nft looks at, as a field of a policy.
type dim struct {
	num   match.Field
	dir   string      // src or dst: an address, and num is not used
	iface bool        // the name of the incoming interface
	came  bool        // the VLANs that it stands for; nil is any
	state bool        // of the connection
	dep   match.Match // what must hold for the field to be there
	parse func(string) (match.Spans, error)
	after func(match.Spans) match.Spans // values as the policy has them, or nil
	why   *importer.Reason              // nothing that a policy has words for
}

// value is a set of values of one dim.
type value struct {
	nums  match.Spans
	addrs match.AddressSpans
	text  []string // of interfaces and states
	any   bool     // `*`, what no other element of the set is
}

func (v *value) add(o value) {
	v.nums = append(v.nums, o.nums...)
	v.addrs = append(v.addrs, o.addrs...)
	v.text = append(v.text, o.text...)
	v.any = v.any || o.any
}

// object returns the one key of a JSON object with one key, and what stands behind it.
func object(raw json.RawMessage) (key string, inner json.RawMessage) {
	var m map[string]json.RawMessage
	if len(raw) == 0 || raw[0] != '{' || json.Unmarshal(raw, &m) != nil || len(m) != 1 {
		return "", nil
	}
	for key, inner = range m {
	}
	return key, inner
}

// array returns the elements of a JSON array.
func array(raw json.RawMessage) (out []json.RawMessage) {
	if len(raw) > 0 && raw[0] == '[' {
		_ = json.Unmarshal(raw, &out)
	}
	return out
}

// scalar returns the text of a JSON string, number or truth value.
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
		return value{}, fmt.Errorf("%s is not a value that is known here", match.Quote(string(raw)))
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
		a, err := match.ParseSpan(s)
		return value{addrs: match.AddressSpans{a}}, err
	}
	n, err := d.number(s)
	if err != nil {
		return value{}, err
	}
	return value{nums: d.adapt(n)}, nil
}

func (d *dim) adapt(s match.Spans) match.Spans {
	if d.after != nil {
		return d.after(s)
	}
	return s
}

// number reads a name or a number.
func (d *dim) number(s string) (match.Spans, error) {
	if v, err := strconv.ParseUint(s, 0, 64); err == nil {
		return match.Just(v), nil
	}
	if d.parse == nil {
		return nil, fmt.Errorf("%s is not a number", match.Quote(s))
	}
	return d.parse(s)
}

func (d *dim) prefix(raw json.RawMessage) (value, error) {
	var p struct {
		Addr string
		Len  int
	}
	if json.Unmarshal(raw, &p) != nil || d.dir == "" {
		return value{}, fmt.Errorf("%s is not a prefix of addresses", match.Quote(string(raw)))
	}
	a, err := netip.ParseAddr(p.Addr)
	if err != nil || p.Len < 0 || p.Len > a.BitLen() || a.Zone() != "" {
		return value{}, fmt.Errorf("%s is not a prefix", match.Quote(string(raw)))
	}
	return value{addrs: match.AddressSpans{match.PrefixSpan(netip.PrefixFrom(a, p.Len))}}, nil
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
		a, err := match.ParseSpan(lo + "-" + hi)
		return value{addrs: match.AddressSpans{a}}, err
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
		return value{}, fmt.Errorf("the range %s-%s runs backwards", match.Quote(lo),
			match.Quote(hi))
	}
	return value{nums: d.adapt(match.Between(a[0].Lo, b[0].Hi))}, nil
}

func parseProtocolName(s string) (match.Spans, error) {
	n, err := match.ProtocolNumber(s)
	return match.Just(uint64(n)), err
}

var etherNames = map[string]uint64{"ip": match.EtherIPv4, "ipv4": match.EtherIPv4,
	"ip6":  match.EtherIPv6,
	"ipv6": match.EtherIPv6, "arp": match.EtherARP, "lldp": 0x88cc,
	"8021q": 0x8100, "8021ad": 0x88a8, "vlan": 0x8100}

func parseEtherName(s string) (match.Spans, error) {
	if v, ok := etherNames[strings.ToLower(s)]; ok {
		return match.Just(v), nil
	}
	return nil, fmt.Errorf("%s is not an EtherType that is known here", match.Quote(s))
}

func parseDSCPName(s string) (match.Spans, error) {
	v, err := match.ParseDSCP(s)
	return match.Just(v), err
}

func parseMACName(s string) (match.Spans, error) {
	v, err := match.ParseMAC(s)
	return match.Just(v), err
}

// icmpName reads the type alone: the field of nft has no code.
func icmpName(six bool) func(string) (match.Spans, error) {
	return func(s string) (match.Spans, error) {
		t, err := match.ParseICMPType(s, six)
		if err != nil {
			return nil, err
		}
		return match.Just(t[0].Lo >> 8), nil
	}
}

// typesOf turns types into types with any code.
func typesOf(s match.Spans) (out match.Spans) {
	for _, r := range s {
		if r.Hi <= 255 {
			out = append(out, match.Span{Lo: r.Lo << 8, Hi: r.Hi<<8 | 0xff})
		}
	}
	return out
}

// codesOf turns codes into any type with these codes.
func codesOf(s match.Spans) (out match.Spans) {
	for _, r := range s {
		for t := range uint64(256) {
			if r.Hi <= 255 {
				out = append(out, match.Span{Lo: t<<8 | r.Lo, Hi: t<<8 | r.Hi})
			}
		}
	}
	return match.JoinSpans(out)
}

// payloadOf turns lengths of the payload of IPv6 into those of the packet.
func payloadOf(s match.Spans) (out match.Spans) {
	for _, r := range s {
		if r.Hi <= 0xffff {
			out = append(out, match.Span{Lo: r.Lo + 40, Hi: r.Hi + 40})
		}
	}
	return out
}

// versionOf turns versions of IP into EtherTypes.
func versionOf(s match.Spans) (out match.Spans) {
	for v, ether := range map[uint64]match.Spans{4: match.Only4, 6: match.Only6} {
		if len(s.And(match.Just(v))) > 0 {
			out = append(out, ether...)
		}
	}
	return match.JoinSpans(out)
}
