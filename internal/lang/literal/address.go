// Package literal reads the texts of single values and of the lists of them that files hold:
// addresses, ports, services, endpoints, names of the DNS, flags, numbers, leases.
//
// In goes the text of one value, out comes the value, or a diag.Problem with the hint what to write
// instead. Files are read as streams, within bounds on their lines and on what they hold. The
// package must never know statements, open a file or ask the machine.
package literal

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"levee/internal/lang/diag"
)

// Addresses reads an address, a prefix or a range and appends its prefixes to dst.
func Addresses(dst []netip.Prefix, text string) ([]netip.Prefix, diag.Problem) {
	if p, ok := PlainIPv4(text); ok {
		return append(dst, p), diag.Problem{}
	}
	if s, isRange, p := parseSpan(text); p.Found() {
		return dst, p
	} else if isRange {
		return appendRange(dst, s.lo, s.hi), diag.Problem{}
	}
	pfx, p := Prefix(text)
	if p.Found() {
		return dst, p
	}
	return append(dst, pfx), diag.Problem{}
}

// Prefix reads an address or a prefix without host bits.
func Prefix(text string) (netip.Prefix, diag.Problem) {
	addr, length, slash := strings.Cut(text, "/")
	if !slash {
		a, p := Address(text)
		if p.Found() {
			return netip.Prefix{}, p
		}
		return netip.PrefixFrom(a, a.BitLen()), diag.Problem{}
	}
	a, p := Address(addr)
	n, ok := prefixLength(length)
	if p.Found() {
		if m, err := netip.ParseAddr(addr); err == nil && m.Is4In6() && ok && n >= 96 {
			p.Hint = diag.DidYouMean(netip.PrefixFrom(m.Unmap(), n-96).Masked())
		} else if short := strings.Count(addr, "."); short < 3 && ok && n <= 32 &&
			dottedDigits(addr) {
			p.Hint = fmt.Sprintf("write all four numbers: %s%s/%d.", addr,
				strings.Repeat(".0", 3-short), n)
		}
		return netip.Prefix{}, p
	}
	if !ok {
		if n, ok := maskLength(length); ok && a.Is4() {
			return netip.Prefix{}, diag.Problemf(diag.DidYouMean(netip.PrefixFrom(a, n).Masked()),
				"a prefix length is a number of bits, not the mask %s", length)
		}
		if length == "" {
			return netip.Prefix{},
				diag.Problemf("write a number of bits, such as /24, or leave the "+
					"slash out.", "the prefix length is missing after %s", a)
		}
		return netip.Prefix{}, diag.Problemf(fmt.Sprintf("for %s it is a number from 0 to %d.",
			family(a), a.BitLen()), "%q is not a prefix length", diag.Clip(length))
	}
	if n > a.BitLen() {
		return netip.Prefix{}, diag.Problemf(fmt.Sprintf("write %s alone for the one address.", a),
			"a prefix length of %s is 0 to %d, not %d", family(a), a.BitLen(), n)
	}
	pfx := netip.PrefixFrom(a, n)
	if m := pfx.Masked(); m != pfx {
		return netip.Prefix{}, diag.Problemf(fmt.Sprintf("did you mean \"%s\", or the one address "+
			"\"%s\"?", m, a),
			"%s has host bits set", diag.Clip(text))
	}
	return pfx, diag.Problem{}
}

func family(a netip.Addr) string {
	if a.Is4() {
		return "IPv4"
	}
	return "IPv6"
}

// prefixLength reads a plain decimal number up to 128 or a little above.
func prefixLength(s string) (int, bool) {
	if s == "" || len(s) > 3 || len(s) > 1 && s[0] == '0' || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(s)
	return n, err == nil
}

// maskLength returns the prefix length of a dotted mask, such as 255.255.255.0, or of its
// complement.
func maskLength(s string) (int, bool) {
	m, err := netip.ParseAddr(s)
	if err != nil || !m.Is4() {
		return 0, false
	}
	b := m.As4()
	v := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	if v>>31 == 0 && v != 0 {
		v = ^v
	}
	n := 0
	for ; n < 32 && v&(1<<(31-n)) != 0; n++ {
	}
	return n, v<<n == 0
}

// Address reads one address and says what is wrong with what people write instead of one.
func Address(text string) (netip.Addr, diag.Problem) {
	a, err := netip.ParseAddr(text)
	if err == nil && a.Zone() == "" {
		if a.Is4In6() {
			return a, diag.Problemf(diag.DidYouMean(a.Unmap()),
				"%s is an IPv4 address written as IPv6; packets carry the IPv4 form", a)
		}
		return a, diag.Problem{}
	}
	return a, addressProblem(text, a, err)
}

// PartOfAddress tells why no address, in the form of RFC 5952, is the text, or begins, ends with or
// contains it, as how says.
func PartOfAddress(text, how string, anyCase bool) diag.Problem {
	const hint = "addresses are compared as 192.0.2.1 and 2001:db8::1."
	if how == "is" {
		if _, err := netip.ParseAddr(text); err != nil {
			return diag.Problemf(hint, "%q is no address", diag.Clip(text))
		}
		return diag.Problem{}
	}
	part := text
	if anyCase {
		part = strings.ToLower(part)
	}
	never := strings.Trim(part, "0123456789abcdef.:") != ""
	groups := strings.Split(part, ":")
	for i, g := range groups {
		whole := i > 0 || how == "begins"
		never = never || len(groups) > 1 && whole && len(g) > 1 && g[0] == '0'
	}
	if never {
		return diag.Problemf(hint, "no address %s %q", how, diag.Clip(text))
	}
	return diag.Problem{}
}

func addressProblem(text string, a netip.Addr, err error) diag.Problem {
	not := func(hint string, args ...any) diag.Problem {
		return diag.Problemf(fmt.Sprintf(hint, args...), "%q is not an address", diag.Clip(text))
	}
	host, port, colon := strings.Cut(text, ":")
	switch {
	case err == nil:
		return diag.Problemf(fmt.Sprintf("leave the zone out: %s.", a.WithZone("")),
			"an address in a packet has no zone such as %%%s", diag.Clip(a.Zone()))
	case text == "":
		return diag.Problemf("a range is 192.0.2.1-192.0.2.9.", "an address is missing")
	case strings.HasPrefix(text, "["):
		return not("write IPv6 addresses without brackets: 2001:db8::1.")
	case strings.HasPrefix(text, "@"), strings.HasPrefix(text, "$"), strings.HasPrefix(text, "<"):
		return not("a set is named without %s.", text[:1])
	case strings.HasPrefix(text, "!"):
		return not("did you mean \"not\"?")
	case colon && isIPv4(host) && strings.Trim(port, "0123456789") == "":
		return not("a port is a term of its own: %s port %s.", host, port)
	case strings.HasSuffix(text, ".*"):
		n := strings.Count(strings.TrimRight(text, ".*"), ".") + 1
		base := strings.TrimRight(text, ".*") + strings.Repeat(".0", max(0, 4-n))
		if isIPv4(base) {
			return not("did you mean \"%s/%d\"?", base, n*8)
		}
	case strings.Contains(text, "*"):
		return not("write any for all addresses, or a prefix such as 192.0.2.0/24.")
	case dottedDigits(text):
		return dottedProblem(text, not)
	case strings.Contains(text, ":"):
		return not("an IPv6 address has eight groups of up to four hex digits, or \"::\" once: " +
			"2001:db8::1.")
	case strings.Contains(text, "."):
		return not("write the address; a set has those of a name: set partners = names(%q).",
			diag.Clip(text))
	}
	return not("write 192.0.2.1, 192.0.2.0/24, 192.0.2.1-192.0.2.9 or 2001:db8::/32.")
}

// dottedProblem is for what consists of numbers and dots only.
func dottedProblem(text string, not func(string, ...any) diag.Problem) diag.Problem {
	parts := strings.Split(text, ".")
	for i, s := range parts {
		if len(s) > 1 && s[0] == '0' {
			parts[i] = strings.TrimLeft(s, "0")
			if parts[i] == "" {
				parts[i] = "0"
			}
		}
	}
	plain := strings.Join(parts, ".")
	switch {
	case plain != text && isIPv4(plain):
		return not("write the numbers without leading zeros: %s.", plain)
	case len(parts) < 4 && !slices.Contains(parts, ""):
		return not("an IPv4 address has four numbers; as a prefix write %s/%d.",
			plain+strings.Repeat(".0", 4-len(parts)), 8*len(parts))
	case len(parts) == 4:
		return not("each of the four numbers is 0 to 255.")
	}
	return not("an IPv4 address has four numbers: 192.0.2.1.")
}

func isIPv4(s string) bool {
	a, err := netip.ParseAddr(s)
	return err == nil && a.Is4()
}

// dottedDigits tells whether s has digits and dots only.
func dottedDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789.") == "" }

// rangeProblem improves on p, the problem with one end of the range lo-hi.
func rangeProblem(lo, hi string, p diag.Problem) diag.Problem {
	if strings.Contains(lo, "/") || strings.Contains(hi, "/") {
		return diag.Problemf("write the first and the last address, or a list of prefixes.",
			"a range goes from address to address, not from prefix to prefix")
	}
	if isIPv4(lo) && strings.Trim(hi, "0123456789") == "" && hi != "" {
		full := lo[:strings.LastIndexByte(lo, '.')+1] + hi
		if isIPv4(full) {
			p.Hint = fmt.Sprintf("write the whole last address: %s-%s.", lo, full)
		}
	}
	return p
}

// appendRange appends the fewest prefixes that cover lo to hi, both of one family, lo not above
// hi. There are at most 62 for IPv4 and 254 for IPv6.
func appendRange(dst []netip.Prefix, lo, hi netip.Addr) []netip.Prefix {
	width := lo.BitLen()
	for {
		// The largest block starts where lo is aligned to, and has no more addresses than are left.
		n := min(trailingZeros(lo), leftBits(lo, hi))
		p := netip.PrefixFrom(lo, width-n)
		dst = append(dst, p)
		last := lastAddr(p)
		if last == hi {
			return dst
		}
		lo = last.Next()
	}
}

// halves returns the upper and lower 64 bits of an address; of IPv4 all is in the lower.
func halves(a netip.Addr) (hi, lo uint64) {
	if a.Is4() {
		b := a.As4()
		return 0, uint64(binary.BigEndian.Uint32(b[:]))
	}
	b := a.As16()
	return binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
}

// trailingZeros returns the number of zero bits at the end of an address.
func trailingZeros(a netip.Addr) int {
	hi, lo := halves(a)
	if lo == 0 {
		return min(64+bits.TrailingZeros64(hi), a.BitLen())
	}
	return bits.TrailingZeros64(lo)
}

// leftBits returns the largest n for which 2^n addresses are left from lo to hi.
func leftBits(lo, hi netip.Addr) int {
	h1, l1 := halves(lo)
	h2, l2 := halves(hi)
	l, borrow := bits.Sub64(l2, l1, 0)
	h, _ := bits.Sub64(h2, h1, borrow)
	if l++; l == 0 { // as many as addresses between them, and one
		if h++; h == 0 {
			return 128
		}
	}
	if h != 0 {
		return 127 - bits.LeadingZeros64(h)
	}
	return 63 - bits.LeadingZeros64(l)
}

// lastAddr returns the highest address of a prefix.
func lastAddr(p netip.Prefix) netip.Addr {
	if p.Addr().Is4() {
		b := p.Addr().As4()
		setBits(b[:], p.Bits())
		return netip.AddrFrom4(b)
	}
	b := p.Addr().As16()
	setBits(b[:], p.Bits())
	return netip.AddrFrom16(b)
}

// setBits sets all bits of b from bit n on.
func setBits(b []byte, n int) {
	for i := n / 8; i < len(b); i++ {
		if i == n/8 {
			b[i] |= 0xff >> (n % 8)
		} else {
			b[i] = 0xff
		}
	}
}

// MergePrefixes sorts masked prefixes (IPv4 before IPv6), drops those inside others and joins
// halves. It works in place.
func MergePrefixes(ps []netip.Prefix) []netip.Prefix {
	if !slices.IsSortedFunc(ps, comparePrefixes) {
		slices.SortFunc(ps, comparePrefixes)
	}
	out := ps[:0]
	for _, p := range ps {
		if n := len(out); n > 0 && out[n-1].Overlaps(p) { // sorted: then it holds p
			continue
		}
		for len(out) > 0 {
			parent, ok := joined(out[len(out)-1], p)
			if !ok {
				break
			}
			p, out = parent, out[:len(out)-1]
		}
		out = append(out, p)
	}
	return slices.Clip(out)
}

func comparePrefixes(a, b netip.Prefix) int {
	if c := a.Addr().Compare(b.Addr()); c != 0 { // shorter addresses first
		return c
	}
	return a.Bits() - b.Bits()
}

// joined returns the prefix whose two halves are a and b, a below b.
func joined(a, b netip.Prefix) (netip.Prefix, bool) {
	n := a.Bits()
	if n == 0 || n != b.Bits() || a.Addr().Is4() != b.Addr().Is4() {
		return netip.Prefix{}, false
	}
	parent := netip.PrefixFrom(a.Addr(), n-1)
	return parent, parent.Masked() == parent && parent.Contains(b.Addr())
}
