package literal

import (
	"strings"

	"levee/internal/lang/diag"
	"levee/internal/lang/field"
)

// Flags reads "syn,ack" or "none".
func Flags(text string) (bits uint8, none bool, p diag.Problem) {
	if text == "none" {
		return 0, true, diag.Problem{}
	}
	for name := range strings.SplitSeq(text, ",") {
		b, ok := field.TCPFlags.Named(name)
		if !ok {
			return 0, false, flagProblem(name)
		}
		bits |= uint8(b.Lo)
	}
	return bits, false, diag.Problem{}
}

func flagProblem(name string) diag.Problem {
	if name == "none" {
		return diag.Problemf("\"none\" stands alone: flags none/syn,ack.",
			"\"none\" cannot be combined with other flags")
	}
	hint := "flags are fin, syn, rst, psh, ack, urg, ece, cwr and none."
	lower := strings.ToLower(name)
	if _, ok := field.TCPFlags.Named(lower); ok {
		hint = diag.DidYouMean(lower)
	} else if long, ok := map[string]string{"push": "psh", "reset": "rst",
		"urgent": "urg"}[lower]; ok {
		hint = diag.DidYouMean(long)
	}
	return diag.Problemf(hint, "%q is not a TCP flag", diag.Clip(name))
}

// ICMP reads a type, a range of types, a name, or either with a code: 8, 3/4, echo-request.
func ICMP(text string, f field.Field) (field.Range, diag.Problem) {
	types := Number{What: "an ICMP type", Max: 255,
		hint: func(s string) string { return icmpHint(s, f) }, names: f.Named}
	typ, code, slash := strings.Cut(text, "/")
	rg, p := types.Element(typ)
	if p.Found() {
		return rg, p
	}
	if !slash {
		return field.Range{Lo: rg.Lo << 8, Hi: rg.Hi<<8 | 255}, diag.Problem{}
	}
	if rg.Lo != rg.Hi {
		return rg, diag.Problemf("write each type with its code: { 3/4, 11/0 }.",
			"a code belongs to one type, not to a range")
	}
	codes := Number{What: "an ICMP code", Max: 255}
	c, p := codes.Element(code)
	return field.Range{Lo: rg.Lo<<8 | c.Lo, Hi: rg.Lo<<8 | c.Hi}, p
}

// MAC reads six pairs of hex digits with colons between them.
func MAC(text string) (uint64, diag.Problem) {
	const form = "write six pairs of hex digits: 02:00:00:00:00:01."
	parts := strings.Split(text, ":")
	var v uint64
	if len(parts) == 6 {
		for i, s := range parts {
			n, err := Uint("0x" + s)
			if len(s) != 2 || err != nil {
				break
			}
			if v = v<<8 | n; i == 5 {
				return v, diag.Problem{}
			}
		}
	}
	hint := form
	if strings.Count(text, "-") == 5 && len(text) == 17 {
		hint = diag.DidYouMean(strings.ReplaceAll(text, "-", ":"))
	}
	return 0, diag.Problemf(hint, "%q is not an Ethernet address", diag.Clip(text))
}
