package literal

import (
	"fmt"
	"strconv"
	"strings"

	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
)

// Number describes the values of a numeric field.
type Number struct {
	What  string                                     // "a port", for messages
	low   uint64                                     // lowest value that a packet can have
	Max   uint64                                     // highest value that can be written
	top   uint64                                     // upper end of open comparisons, max or above
	names func(string) (field.Range, bool)           // names of values, or nil
	hint  func(string) string                        // for a word that is no value, or nil
	check func(lo, hi uint64, s string) diag.Problem // further conditions, or nil
}

// Numbers describes the values of all numeric fields, from the table of fields.
var Numbers = func() (out [field.NumFields]*Number) {
	for i := range field.Phrases {
		ph := &field.Phrases[i]
		if ph.Form != field.FormNumber {
			continue
		}
		info := ph.Field.Info()
		n := &Number{What: ph.What, Max: info.Max, top: info.Values.Highest(),
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
	field.SrcPort: PortHint, field.DstPort: PortHint, field.Proto: protoHint, field.Len: lenHint,
	field.DSCP: dscpHint, field.EtherType: etherHint,
	field.DNSType: dnsTypeHint, field.DNSOpcode: dnsOpcodeHint, field.UID: nameHint("user"),
	field.GID: nameHint("group"),
}

var (
	portNumber     = Numbers[field.DstPort]
	FragmentNumber = Number{What: "a fragment offset", Max: 8191} // of packets only
)

// One reads a single value.
func (n *Number) One(text string) (field.Range, diag.Problem) {
	if n.names != nil {
		if r, ok := n.names(text); ok {
			return r, diag.Problem{}
		}
	}
	v, err := Uint(text)
	if err != nil {
		return field.Range{}, n.notNumber(text, err)
	}
	if v > n.Max {
		return field.Range{}, n.tooLarge(text)
	}
	return field.Range{Lo: v, Hi: v}, diag.Problem{}
}

func (n *Number) tooLarge(text string) diag.Problem {
	_, noun, _ := strings.Cut(n.What, " ")
	return diag.Problemf(fmt.Sprintf("write %d to %d.", n.low, n.Max),
		"%s is above %d, the highest %s",
		diag.Clip(text), n.Max, noun)
}

var errZeros = fmt.Errorf("leading zeros")

// Uint reads a decimal number without leading zeros, or a hexadecimal one with 0x.
func Uint(text string) (uint64, error) {
	if len(text) > 2 && text[:2] == "0x" {
		return strconv.ParseUint(text[2:], 16, 64)
	}
	v, err := strconv.ParseUint(text, 10, 64)
	if err == nil && len(text) > 1 && text[0] == '0' {
		err = errZeros
	}
	return v, err
}

func (n *Number) notNumber(text string, err error) diag.Problem {
	hint := ""
	switch {
	case err == errZeros:
		hint = "write it without leading zeros: " + strings.TrimLeft(text[:len(text)-1],
			"0") + text[len(text)-1:] + "."
	case strings.Trim(text, "0123456789") == "" && text != "":
		return n.tooLarge(text)
	case strings.Contains(text, ":") && rangeLike(text, ":"):
		hint = diag.DidYouMean(strings.Replace(text, ":", "-", 1))
	case rangeLike(text, ".."):
		hint = diag.DidYouMean(strings.Replace(text, "..", "-", 1))
	case n.hint != nil:
		hint = n.hint(text)
	}
	return diag.Problemf(hint, "%q is not %s", diag.Clip(text), n.What)
}

// rangeLike tells whether text is two numbers with sep between them.
func rangeLike(text, sep string) bool {
	lo, hi, ok := strings.Cut(text, sep)
	return ok && AllDigits(lo) && AllDigits(hi)
}

// AllDigits reports whether a text has digits, and nothing else.
func AllDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// plain returns the fast path of Element: decimal numbers in bounds.
func (n *Number) plain(text string) (field.Range, bool) {
	a, rest, ok := decimal(text)
	b := a
	if ok && rest != "" && rest[0] == '-' {
		b, rest, ok = decimal(rest[1:])
	}
	return field.Range{Lo: a, Hi: b}, ok && rest == "" && a <= b && b <= n.Max
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

// Element reads a value or a range.
func (n *Number) Element(text string) (field.Range, diag.Problem) {
	if r, ok := n.plain(text); ok && n.check == nil {
		return r, diag.Problem{}
	}
	r, p := n.One(text)
	if p.Found() {
		lo, hi, isRange := strings.Cut(text, "-")
		if !isRange || lo == "" && hi == "" {
			return r, p
		}
		if lo == "" || hi == "" {
			return r, diag.Problemf(openRangeHint(lo, hi), "the range %s has only one end",
				diag.Clip(text))
		}
		a, pa := n.One(lo)
		b, pb := n.One(hi)
		switch {
		case pa.Found() && pb.Found() && !AllDigits(lo): // a word with a hyphen
			return r, p
		case pa.Found():
			return r, pa
		case pb.Found():
			return r, pb
		}
		if b.Hi < a.Lo {
			return r, diag.Problemf(diag.DidYouMean(hi+"-"+lo),
				"the range %s ends before it begins",
				diag.Clip(text))
		}
		r = field.Range{Lo: a.Lo, Hi: b.Hi}
	}
	if n.check != nil {
		return r, n.check(r.Lo, r.Hi, text)
	}
	return r, diag.Problem{}
}

func openRangeHint(lo, hi string) string {
	if hi == "" {
		return "write a comparison: >= " + diag.Clip(lo) + "."
	}
	return "write a comparison: <= " + diag.Clip(hi) + "."
}

// Compare turns a comparison into ranges.
func (n *Number) Compare(op ast.Op, r field.Range) ([]field.Range, diag.Problem) {
	rs, p := n.unbounded(op, r)
	if n.low == 0 || p.Found() {
		return rs, p
	}
	if rs = field.Intersect(rs, []field.Range{{Lo: n.low, Hi: n.top}}); rs == nil {
		return nil, vlanCheck(0, 0, "")
	}
	return rs, p
}

func (n *Number) unbounded(op ast.Op, r field.Range) ([]field.Range, diag.Problem) {
	top := n.top
	switch op {
	case ast.Less:
		if r.Lo == 0 {
			return nil, diag.Problemf("", "nothing is below 0, so this can never hold")
		}
		return []field.Range{{Lo: 0, Hi: r.Lo - 1}}, diag.Problem{}
	case ast.LessEqual:
		return []field.Range{{Lo: 0, Hi: r.Hi}}, diag.Problem{}
	case ast.Greater:
		if r.Hi >= top {
			return nil, diag.Problemf("", "nothing is above %d, so this can never hold", top)
		}
		return []field.Range{{Lo: r.Hi + 1, Hi: top}}, diag.Problem{}
	case ast.GreaterEqual:
		return []field.Range{{Lo: r.Lo, Hi: top}}, diag.Problem{}
	case ast.NotEqual:
		var rs []field.Range
		if r.Lo > 0 {
			rs = append(rs, field.Range{Lo: 0, Hi: r.Lo - 1})
		}
		if r.Hi < top {
			rs = append(rs, field.Range{Lo: r.Hi + 1, Hi: top})
		}
		return rs, diag.Problem{}
	}
	return []field.Range{r}, diag.Problem{}
}

// portsHint says of which protocols services are.
const portsHint = "only tcp, udp, udplite, sctp and dccp have ports."

// LoneProtocol returns what is wrong with the name of a protocol where a service may stand.
func LoneProtocol(name string) diag.Problem {
	v, ok := Protocol(name)
	switch {
	case !ok:
		return diag.Problem{}
	case policy.HasPorts(v):
		return diag.Problemf("write its ports too: "+name+"/443.",
			"%q is a protocol, not a service", name)
	}
	return diag.Problemf("a service is a protocol and its ports: tcp/443; "+portsHint,
		"%q is a protocol, not a service", name)
}

// Service reads "tcp/80" or "udp/1000-2000".
func Service(text string) (policy.Service, diag.Problem) {
	proto, ports, _ := strings.Cut(text, "/")
	number, ok := portProtocol(proto)
	if !ok {
		if AllDigits(proto) || strings.Contains(proto, "-") { // 80/tcp
			if _, ok := portProtocol(ports); ok {
				return policy.Service{}, diag.Problemf(diag.DidYouMean(ports+"/"+proto),
					"%q is not a service: the protocol comes first", diag.Clip(text))
			}
		}
		hint := portsHint
		if m := diag.Nearest(proto, []string{"tcp", "udp", "udplite", "sctp", "dccp"}); m != "" {
			hint = diag.DidYouMean(m + "/" + diag.Clip(ports))
		}
		return policy.Service{}, diag.Problemf(hint, "%q is not a service", diag.Clip(text))
	}
	r, p := portNumber.Element(ports)
	return policy.Service{Proto: number, Lo: uint16(r.Lo), Hi: uint16(r.Hi)}, p
}
