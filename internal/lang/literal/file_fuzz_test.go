package literal

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"levee/internal/lang/diag"
)

// FuzzReadPrefixes holds for any set file: no panic; places lie in the file; either bad lines or
// prefixes come back; prefixes are masked, and merging keeps exactly the addresses they cover.
func FuzzReadPrefixes(f *testing.F) {
	for _, s := range []string{
		"192.0.2.0/24\n2001:db8::/32\n", "# comment\n\n10.0.0.1 ; one\n", "10.0.0.0-10.0.0.9\r\n",
		"\uFEFF1.2.3.4",
		"1.2.3.4/33\n01.2.3.4\n1.2.3\n::ffff:1.2.3.4\n", "0.0.0.0/0\n::/0\n",
		"255.255.255.255/32\n0.0.0.1-255.255.255.254\n",
		"::1-ffff::\n", "10.0.0.0/8 x\n\x00\n\xff\n", "1.2.3.4/0\n", "fe80::1%eth0",
		"10.0.0.0/9\n10.128.0.0/9",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		ps, ds := ReadPrefixes(bytes.NewReader(src), "fuzz.txt")
		if (len(ds) > 0) != ds.HasErrors() || ds.HasErrors() && ps != nil {
			t.Fatalf("%d prefixes with %d diagnostics", len(ps), len(ds))
		}
		if len(ds) > maxLineErrors+2 {
			t.Fatalf("%d diagnostics", len(ds))
		}
		for _, d := range ds {
			if int(d.Line) > bytes.Count(src, []byte("\n"))+1 || d.Line > 0 &&
				(d.Col < 1 || d.EndCol <= d.Col) {
				t.Fatalf("place of %+v", d)
			}
		}
		for _, p := range ps {
			if !p.IsValid() || p != p.Masked() || p.Addr().Is4In6() {
				t.Fatalf("prefix %v", p)
			}
		}
		checkMerged(t, ps)
		checkSlowPath(t, src, ps, ds)
	})
}

// checkMerged compares merged prefixes with the originals at the edges of all of them.
func checkMerged(t *testing.T, ps []netip.Prefix) {
	if len(ps) > 200 {
		ps = ps[:200]
	}
	merged := MergePrefixes(append([]netip.Prefix(nil), ps...))
	for i := 1; i < len(merged); i++ {
		if comparePrefixes(merged[i-1], merged[i]) >= 0 || merged[i-1].Overlaps(merged[i]) {
			t.Fatalf("%v before %v", merged[i-1], merged[i])
		}
		if _, ok := joined(merged[i-1], merged[i]); ok {
			t.Fatalf("%v and %v are halves of one", merged[i-1], merged[i])
		}
	}
	in := func(ps []netip.Prefix, a netip.Addr) bool {
		for _, p := range ps {
			if p.Contains(a) {
				return true
			}
		}
		return false
	}
	for _, p := range ps {
		for _, a := range []netip.Addr{p.Addr(), lastAddr(p), p.Addr().Prev(), lastAddr(p).Next()} {
			if a.IsValid() && in(ps, a) != in(merged, a) {
				t.Fatalf("%v is in one of %v and %v", a, ps, merged)
			}
		}
	}
}

// checkSlowPath reads the lines without the fast path and expects the same.
func checkSlowPath(t *testing.T, src []byte, ps []netip.Prefix, ds diag.Diagnostics) {
	var slow []netip.Prefix
	bad := 0
	for i, line := range strings.SplitAfter(string(src), "\n") {
		if i == 0 {
			line = strings.TrimPrefix(line, "\uFEFF")
		}
		line = strings.TrimRight(line, "\r\n")
		if i := strings.IndexAny(line, "#;"); i >= 0 {
			line = line[:i]
		}
		line = strings.Trim(line, " \t")
		if line == "" {
			continue
		}
		var p diag.Problem
		if slow, p = Addresses(slow, line); p.Found() {
			bad++
		}
	}
	if (bad > 0) != ds.HasErrors() && len(src) < maxSetLine {
		t.Fatalf("%d bad lines, %d diagnostics", bad, len(ds))
	}
	if bad == 0 && fmt.Sprint(slow) != fmt.Sprint(ps) && len(src) < maxSetLine {
		t.Fatalf("fast %v, slow %v", ps, slow)
	}
}
