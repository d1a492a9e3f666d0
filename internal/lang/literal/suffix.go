package literal

import (
	"encoding/binary"
	"net/netip"

	"levee/internal/lang/diag"
	"levee/internal/lang/field"
)

// suffixPrefix is the length of the prefix before a suffix: hosts form the other half of
// their addresses themselves (RFC 4291 section 2.5.1).
const suffixPrefix = 64

// Suffix reads the lower half of an IPv6 address: ::a/64.
func Suffix(text string) (field.Range, diag.Problem) {
	p, err := netip.ParsePrefix(text)
	if err != nil || !p.Addr().Is6() || p.Addr().Is4In6() {
		return field.Range{},
			diag.Problemf("write an IPv6 address without its prefix, and the length "+
				"of that prefix: to suffix ::a/64.", "%q is not an address suffix", diag.Clip(text))
	}
	if p.Bits() != suffixPrefix {
		return field.Range{}, diag.Problemf("a suffix is the lower half of an address: ::a/64.",
			"the prefix in front of a suffix has 64 bits, not %d", p.Bits())
	}
	a := p.Addr().As16()
	if binary.BigEndian.Uint64(a[:8]) != 0 {
		return field.Range{}, diag.Problemf("leave the prefix out, as it may be any: ::a/64.",
			"%q has bits in front of its suffix", diag.Clip(text))
	}
	v := binary.BigEndian.Uint64(a[8:])
	return field.Range{Lo: v, Hi: v}, diag.Problem{}
}
