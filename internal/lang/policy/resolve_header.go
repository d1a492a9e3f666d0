package policy

import (
	"fmt"
	"strings"

	"levee/internal/lang/ast"
	"levee/internal/lang/field"
)

// flags resolves `flags F` and `flags F/M`.
func (r *resolver) flags(t *Term, s *ast.Term) bool {
	e := &s.Value.Elems[0]
	set, mask, slash := strings.Cut(e.Text, "/")
	if m := pfFlags(set); m != "" {
		if slash {
			m += "/" + pfFlags(mask)
		}
		r.c.Errorf(e.Pos, fmt.Sprintf("did you mean \"flags %s\"?", m),
			"%q are not TCP flags of levee", short(e.Text))
		return false
	}
	value, none, p := parseFlags(set)
	if !p.found() && slash {
		var noMask bool
		t.Mask, noMask, p = parseFlags(mask)
		switch {
		case p.found():
		case noMask:
			p = problemf("after the slash stand the flags that are looked at.",
				"\"none\" cannot stand after the slash")
		case value&^t.Mask != 0:
			p = problemf("name before the slash only flags that stand after it too.",
				"%q can never hold: it wants a flag set that it does not look at", short(e.Text))
		}
	} else if !p.found() {
		t.Mask = value
		if none {
			p = problemf("say which flags must be clear: flags none/fin,syn,rst,psh,ack,urg.",
				"\"flags none\" looks at no flag")
		}
	}
	if p.found() {
		r.problem(e.Pos, p)
		return false
	}
	t.Value = value
	return true
}

// pfFlags translates the flag letters of pf and tcpdump, or returns "".
func pfFlags(letters string) string {
	var names []string
	for _, c := range letters {
		name, ok := map[rune]string{'F': "fin", 'S': "syn", 'R': "rst", 'P': "psh", 'A': "ack",
			'U': "urg", 'E': "ece", 'W': "cwr"}[c]
		if !ok || len(letters) > 8 || letters == "PUSH" {
			return ""
		}
		names = append(names, name)
	}
	return strings.Join(names, ",")
}

// parseFlags reads "syn,ack" or "none".
func parseFlags(text string) (bits uint8, none bool, p problem) {
	if text == "none" {
		return 0, true, problem{}
	}
	for name := range strings.SplitSeq(text, ",") {
		b, ok := field.TCPFlags.Named(name)
		if !ok {
			return 0, false, flagProblem(name)
		}
		bits |= uint8(b.Lo)
	}
	return bits, false, problem{}
}

func flagProblem(name string) problem {
	if name == "none" {
		return problemf("\"none\" stands alone: flags none/syn,ack.",
			"\"none\" cannot be combined with other flags")
	}
	hint := "flags are fin, syn, rst, psh, ack, urg, ece, cwr and none."
	lower := strings.ToLower(name)
	if _, ok := field.TCPFlags.Named(lower); ok {
		hint = didYouMean(lower)
	} else if long, ok := map[string]string{"push": "psh", "reset": "rst",
		"urgent": "urg"}[lower]; ok {
		hint = didYouMean(long)
	}
	return problemf(hint, "%q is not a TCP flag", short(name))
}

// parseICMP reads a type, a range of types, a name, or either with a code: 8, 3/4, echo-request.
func parseICMP(text string, f field.Field) (field.Range, problem) {
	types := number{what: "an ICMP type", max: 255,
		hint: func(s string) string { return icmpHint(s, f) }, names: f.Named}
	typ, code, slash := strings.Cut(text, "/")
	rg, p := types.element(typ)
	if p.found() {
		return rg, p
	}
	if !slash {
		return field.Range{Lo: rg.Lo << 8, Hi: rg.Hi<<8 | 255}, problem{}
	}
	if rg.Lo != rg.Hi {
		return rg, problemf("write each type with its code: { 3/4, 11/0 }.",
			"a code belongs to one type, not to a range")
	}
	codes := number{what: "an ICMP code", max: 255}
	c, p := codes.element(code)
	return field.Range{Lo: rg.Lo<<8 | c.Lo, Hi: rg.Lo<<8 | c.Hi}, p
}

// parseMAC reads six pairs of hex digits with colons between them.
func parseMAC(text string) (uint64, problem) {
	const form = "write six pairs of hex digits: 02:00:00:00:00:01."
	parts := strings.Split(text, ":")
	var v uint64
	if len(parts) == 6 {
		for i, s := range parts {
			n, err := parseUint("0x" + s)
			if len(s) != 2 || err != nil {
				break
			}
			if v = v<<8 | n; i == 5 {
				return v, problem{}
			}
		}
	}
	hint := form
	if strings.Count(text, "-") == 5 && len(text) == 17 {
		hint = didYouMean(strings.ReplaceAll(text, "-", ":"))
	}
	return 0, problemf(hint, "%q is not an Ethernet address", short(text))
}
