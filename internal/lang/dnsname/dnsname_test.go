package dnsname

import (
	"slices"
	"strings"
	"testing"
)

func parse(t *testing.T, text string) Pattern {
	t.Helper()
	p, err := Parse(text)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return p
}

func TestNamesAreReadAndWritten(t *testing.T) {
	long := strings.Repeat("x", 63)
	for text, want := range map[string]string{
		"example.com": "\x07example\x03com", "WWW.Example.COM.": "\x03www\x07example\x03com",
		".": "", `a\.b.c`: "\x03a.b\x01c", `\065\000\255.x`: "\x03a\x00\xff\x01x",
		`\*.x`: "\x01*\x01x", "_sip._udp.x": "\x04_sip\x04_udp\x01x",
		strings.Join([]string{long, long, long, long[:61]}, "."): "\x3f" + long + "\x3f" + long +
			"\x3f" + long + "\x3d" + long[:61],
	} {
		p := parse(t, text)
		if string(p.Name) != want || p.Below {
			t.Errorf("%q is %q, want %q", text, p.Name, want)
		}
		if again := parse(t, p.String()); again != p {
			t.Errorf("%q is written %q, which is %q", text, p, again.Name)
		}
	}
	if p := parse(t, "*.x"); p.Name != "\x01x" || !p.Below || p.String() != "*.x" {
		t.Errorf("*.x is %+v", p)
	}
	if p := parse(t, "*."); p.Name != "" || !p.Below || p.String() != "*." {
		t.Errorf("*. is %+v", p)
	}
}

func TestWhatIsNoNameIsRefused(t *testing.T) {
	long := strings.Repeat("x", 63)
	for _, text := range []string{"", "a..b", ".a", "a.*.b", "*", "x" + long, `a\`, `a\25.b`, `\256`,
		"bücher.example", "a b", strings.Join([]string{long, long, long, long[:62]}, "."),
		strings.Repeat("a.", 127) + "a"} {
		if p, err := Parse(text); err == nil {
			t.Errorf("%q is read as %q", text, p)
		} else if err.Hint == "" || err.Message == "" {
			t.Errorf("%q: %+v", text, err)
		}
	}
}

func TestOfNamesThatOthersStandForNoneIsLeft(t *testing.T) {
	var all, want []Pattern
	for _, text := range []string{"b.a", "c.b.a", "*.b.a", "*.x", "x", "*.y", "*.z.y", "w.y", "y.q",
		"y.q", "*.v", "*.v"} {
		all = append(all, parse(t, text))
	}
	for _, text := range []string{"b.a", "x", "*.y", "y.q", "*.v"} {
		want = append(want, parse(t, text))
	}
	got := Merge(all)
	if len(got) != len(want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	for _, p := range want {
		if !slices.Contains(got, p) {
			t.Errorf("%v is not in %v", p, got)
		}
	}
}

func TestPartsOfNames(t *testing.T) {
	n := parse(t, "a.b.c").Name
	if n.Labels() != 3 || n.Parent() != parse(t, "b.c").Name || n.Last(1) != parse(t, "c").Name ||
		n.Last(9) != n || Name("").Parent() != "" || Name("").Labels() != 0 {
		t.Errorf("%q: %d labels, parent %q, last %q", n, n.Labels(), n.Parent(), n.Last(1))
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"example.com", `*.\065\..x`, ".", "*.", "a..b"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse(text)
		if err != nil {
			return
		}
		if len(p.Name)+1 > MaxName || p.Name.Labels() > MaxLabels {
			t.Errorf("%q is a name of %d bytes", text, len(p.Name))
		}
		if again, err := Parse(p.String()); err != nil || again != p {
			t.Errorf("%q is written %q, which is %q: %v", text, p, again, err)
		}
	})
}

func TestNamesOfMany(t *testing.T) {
	for text, want := range map[string][2]bool{".": {true, true}, "com": {true, true},
		"intranet": {true, true}, "co.uk": {true, true}, "github.io": {false, true},
		"example.co.uk": {}, "user.github.io": {}, "a.b.c.d.e.f.com": {}, `co\.uk`: {true, true},
		`a\.co.uk`: {}, "s3.dualstack.cn-north-1.amazonaws.com.cn": {false, true},
		"x.airflow.cn-north-1.on.amazonwebservices.com.cn": {false, true}} {
		if n := parse(t, text).Name; n.Registry() != want[0] || n.Shared() != want[1] {
			t.Errorf("%s: of a registry %v, of many %v", text, n.Registry(), n.Shared())
		}
	}
}
