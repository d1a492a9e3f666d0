package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
	"levee/internal/lang/field"
)

// number is what a numeric field takes.
type number struct {
	what  string                                // "a port", for messages
	low   uint64                                // lowest value that a packet can have
	max   uint64                                // highest value that can be written
	top   uint64                                // upper end of open comparisons, max or above
	names func(string) (field.Range, bool)      // names of values, or nil
	hint  func(string) string                   // for a word that is no value, or nil
	check func(lo, hi uint64, s string) problem // further conditions, or nil
}

// numbers are what the numeric fields take, as the table of fields says.
var numbers = func() (out [field.NumFields]*number) {
	for i := range field.Phrases {
		ph := &field.Phrases[i]
		if ph.Form != field.FormNumber {
			continue
		}
		info := ph.Field.Info()
		n := &number{what: ph.What, max: info.Max, top: info.Values.Highest(),
			hint: hints[ph.Field]}
		if len(info.Names) > 0 {
			n.names = ph.Field.Named
		}
		switch ph.Field {
		case field.EtherType:
			n.check = etherCheck
		case field.VLAN, field.InnerVLAN:
			n.low, n.check = 1, vlanCheck
		}
		out[ph.Field] = n
	}
	return out
}()

// hints are for words that people write for values of a field, and that are none.
var hints = map[field.Field]func(string) string{
	field.SrcPort: portHint, field.DstPort: portHint, field.Proto: protoHint, field.Len: lenHint,
	field.DSCP: dscpHint, field.EtherType: etherHint,
	field.DNSType: dnsTypeHint, field.DNSOpcode: dnsOpcodeHint,
}

var (
	portNumber = numbers[field.DstPort]
	fragNumber = number{what: "a fragment offset", max: 8191} // of packets only
)

// one reads a single value.
func (n *number) one(text string) (field.Range, problem) {
	if n.names != nil {
		if r, ok := n.names(text); ok {
			return r, problem{}
		}
	}
	v, err := parseUint(text)
	if err != nil {
		return field.Range{}, n.notNumber(text, err)
	}
	if v > n.max {
		return field.Range{}, n.tooLarge(text)
	}
	return field.Range{Lo: v, Hi: v}, problem{}
}

func (n *number) tooLarge(text string) problem {
	_, noun, _ := strings.Cut(n.what, " ")
	return problemf(fmt.Sprintf("write %d to %d.", n.low, n.max), "%s is above %d, the highest %s",
		short(text), n.max, noun)
}

var errZeros = fmt.Errorf("leading zeros")

// parseUint reads a decimal number without leading zeros, or a hexadecimal one with 0x.
func parseUint(text string) (uint64, error) {
	if len(text) > 2 && text[:2] == "0x" {
		return strconv.ParseUint(text[2:], 16, 64)
	}
	v, err := strconv.ParseUint(text, 10, 64)
	if err == nil && len(text) > 1 && text[0] == '0' {
		err = errZeros
	}
	return v, err
}

func (n *number) notNumber(text string, err error) problem {
	hint := ""
	switch {
	case err == errZeros:
		hint = "write it without leading zeros: " + strings.TrimLeft(text[:len(text)-1],
			"0") + text[len(text)-1:] + "."
	case strings.Trim(text, "0123456789") == "" && text != "":
		return n.tooLarge(text)
	case strings.Contains(text, ":") && rangeLike(text, ":"):
		hint = didYouMean(strings.Replace(text, ":", "-", 1))
	case rangeLike(text, ".."):
		hint = didYouMean(strings.Replace(text, "..", "-", 1))
	case n.hint != nil:
		hint = n.hint(text)
	}
	return problemf(hint, "%q is not %s", short(text), n.what)
}

// rangeLike tells whether text is two numbers with sep between them.
func rangeLike(text, sep string) bool {
	lo, hi, ok := strings.Cut(text, sep)
	return ok && allDigits(lo) && allDigits(hi)
}

func allDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// plain is the fast path of element: decimal numbers in bounds.
func (n *number) plain(text string) (field.Range, bool) {
	a, rest, ok := decimal(text)
	b := a
	if ok && rest != "" && rest[0] == '-' {
		b, rest, ok = decimal(rest[1:])
	}
	return field.Range{Lo: a, Hi: b}, ok && rest == "" && a <= b && b <= n.max
}

// decimal reads digits at the start of a text, not so many that they could be too large, without
// leading zeros.
func decimal(text string) (v uint64, rest string, ok bool) {
	i := 0
	for ; i < len(text) && text[i] >= '0' && text[i] <= '9'; i++ {
		v = v*10 + uint64(text[i]-'0')
	}
	return v, text[i:], i > 0 && i < 19 && (i == 1 || text[0] != '0')
}

// element reads a value or a range.
func (n *number) element(text string) (field.Range, problem) {
	if r, ok := n.plain(text); ok && n.check == nil {
		return r, problem{}
	}
	r, p := n.one(text)
	if p.found() {
		lo, hi, isRange := strings.Cut(text, "-")
		if !isRange || lo == "" && hi == "" {
			return r, p
		}
		if lo == "" || hi == "" {
			return r, problemf(openRangeHint(lo, hi), "the range %s has only one end", short(text))
		}
		a, pa := n.one(lo)
		b, pb := n.one(hi)
		switch {
		case pa.found() && pb.found() && !allDigits(lo): // a word with a hyphen
			return r, p
		case pa.found():
			return r, pa
		case pb.found():
			return r, pb
		}
		if b.Hi < a.Lo {
			return r, problemf(didYouMean(hi+"-"+lo), "the range %s ends before it begins",
				short(text))
		}
		r = field.Range{Lo: a.Lo, Hi: b.Hi}
	}
	if n.check != nil {
		return r, n.check(r.Lo, r.Hi, text)
	}
	return r, problem{}
}

func openRangeHint(lo, hi string) string {
	if hi == "" {
		return "write a comparison: >= " + short(lo) + "."
	}
	return "write a comparison: <= " + short(hi) + "."
}

// compare turns a comparison into ranges.
func (n *number) compare(op ast.Op, r field.Range) ([]field.Range, problem) {
	rs, p := n.unbounded(op, r)
	if n.low == 0 || p.found() {
		return rs, p
	}
	if rs = field.Intersect(rs, []field.Range{{Lo: n.low, Hi: n.top}}); rs == nil {
		return nil, vlanCheck(0, 0, "")
	}
	return rs, p
}

func (n *number) unbounded(op ast.Op, r field.Range) ([]field.Range, problem) {
	top := n.top
	switch op {
	case ast.Less:
		if r.Lo == 0 {
			return nil, problemf("", "nothing is below 0, so this can never hold")
		}
		return []field.Range{{Lo: 0, Hi: r.Lo - 1}}, problem{}
	case ast.LessEqual:
		return []field.Range{{Lo: 0, Hi: r.Hi}}, problem{}
	case ast.Greater:
		if r.Hi >= top {
			return nil, problemf("", "nothing is above %d, so this can never hold", top)
		}
		return []field.Range{{Lo: r.Hi + 1, Hi: top}}, problem{}
	case ast.GreaterEqual:
		return []field.Range{{Lo: r.Lo, Hi: top}}, problem{}
	case ast.NotEqual:
		var rs []field.Range
		if r.Lo > 0 {
			rs = append(rs, field.Range{Lo: 0, Hi: r.Lo - 1})
		}
		if r.Hi < top {
			rs = append(rs, field.Range{Lo: r.Hi + 1, Hi: top})
		}
		return rs, problem{}
	}
	return []field.Range{r}, problem{}
}

func mergeServices(ss []Service) []Service {
	slices.SortFunc(ss, func(a, b Service) int {
		if a.Proto != b.Proto {
			return int(a.Proto) - int(b.Proto)
		}
		return int(a.Lo) - int(b.Lo)
	})
	out := ss[:0]
	for _, s := range ss {
		if n := len(out); n > 0 && out[n-1].joins(s) {
			out[n-1].Hi = max(out[n-1].Hi, s.Hi)
			continue
		}
		out = append(out, s)
	}
	return slices.Clip(out)
}

// portsHint says of which protocols services are.
const portsHint = "only tcp, udp, udplite, sctp and dccp have ports."

// loneProtocol is what is wrong with the name of a protocol where a service may stand.
func loneProtocol(name string) problem {
	v, ok := protocol(name)
	switch {
	case !ok:
		return problem{}
	case HasPorts(v):
		return problemf("write its ports too: "+name+"/443.",
			"%q is a protocol, not a service", name)
	}
	return problemf("a service is a protocol and its ports: tcp/443; "+portsHint,
		"%q is a protocol, not a service", name)
}

// parseService reads "tcp/80" or "udp/1000-2000".
func parseService(text string) (Service, problem) {
	proto, ports, _ := strings.Cut(text, "/")
	number, ok := portProtocol(proto)
	if !ok {
		if allDigits(proto) || strings.Contains(proto, "-") { // 80/tcp
			if _, ok := portProtocol(ports); ok {
				return Service{}, problemf(didYouMean(ports+"/"+proto),
					"%q is not a service: the protocol comes first", short(text))
			}
		}
		hint := portsHint
		if m := diag.Nearest(proto, []string{"tcp", "udp", "udplite", "sctp", "dccp"}); m != "" {
			hint = didYouMean(m + "/" + short(ports))
		}
		return Service{}, problemf(hint, "%q is not a service", short(text))
	}
	r, p := portNumber.element(ports)
	return Service{number, uint16(r.Lo), uint16(r.Hi)}, p
}
