package literal

import (
	"net/netip"
	"strings"

	"levee/internal/lang/diag"
	"levee/internal/lang/dnsname"
	"levee/internal/lang/field"
	"levee/internal/lang/syntax"
)

// Name reads a name of the DNS, in quotes or, in a file, without.
func Name(text string) (dnsname.Pattern, diag.Problem) {
	if plain := syntax.NameIn(text); plain != text {
		if _, err := netip.ParsePrefix(plain); err == nil {
			return dnsname.Pattern{}, notName(plain)
		}
		text = plain
	}
	if _, err := netip.ParseAddr(text); err == nil {
		return dnsname.Pattern{}, notName(text)
	}
	p, err := dnsname.Parse(text)
	if err != nil {
		return p, diag.Problemf(err.Hint, "%s", err.Message)
	}
	return p, diag.Problem{}
}

func notName(text string) diag.Problem {
	return diag.Problemf("write addresses without quotes, in a set of their own.",
		"%s is an address, not a name", diag.Clip(text))
}

// dnsTypeHint is for a word that is no type.
func dnsTypeHint(text string) string {
	if _, known := field.DNSType.Named(strings.ToUpper(text)); known {
		return diag.DidYouMean(strings.ToUpper(text))
	}
	return "write a type such as A, AAAA or ANY, or its number."
}

// dnsOpcodeHint is for a word that is no opcode.
func dnsOpcodeHint(string) string {
	return "opcodes are query, iquery, status, notify, update and dso, or numbers."
}
