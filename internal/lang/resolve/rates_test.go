package resolve

import (
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"

	"levee/internal/lang/ast"
	"levee/internal/lang/syntax"
)

// A limit for each customer stood in a rule of its own, and a policy has 32.
func TestRatesByPrefixAreOneLimit(t *testing.T) {
	text := "limit udp rate to {\n    192.0.2.0/24 10kpps, # a\n    192.0.2.128/25 20kpps " +
		"burst 500,\n    2001:db8::/32 5/s\n} as \"customers\"\n" +
		"limit tcp rate from file(\"rates\") by destination\ndefault pass\n"
	files := map[string]string{"rates": "# customers\n198.51.100.0/24 10mbit/s\n" +
		"203.0.113.7 1gbit/s burst 20MB ; one\n"}
	open := func(path string) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(files[path])), nil
	}
	p, ds := Parse("t", []byte(text), open)
	if p == nil {
		t.Fatal(ds)
	}
	f, _ := syntax.Parse("t", []byte(text))
	printed := string(ast.Format(f))
	if again, _ := syntax.Parse("t", []byte(printed)); string(ast.Format(again)) != printed ||
		!strings.Contains(printed, "    192.0.2.0/24 10kpps, # a\n") {
		t.Errorf("printed as\n%s", printed)
	}
	limits := p.Limits()
	if len(limits) != 2 {
		t.Fatalf("%d limits", len(limits))
	}
	for address, rate := range map[string]string{
		"192.0.2.1": "10kpps", "192.0.2.129": "20kpps burst 500", "2001:db8::1": "5/s",
		"192.0.3.0": "none",
	} {
		got := "none"
		if e := limits[0].Limit.Rates.Of(netip.MustParseAddr(address)); e != nil {
			got = e.Rate.Text
		}
		if got != rate {
			t.Errorf("%s has the rate %s, want %s", address, got, rate)
		}
	}
	if all := limits[1].Limit.Rates.Entries; len(all) != 2 || all[1].Burst != 20<<20 {
		t.Errorf("of the file: %v", all)
	}
}

func TestWhatIsWrongWithRatesByPrefixIsSaid(t *testing.T) {
	for text, want := range map[string]string{
		"rate to { 192.0.2.0/24 }":                           "is no prefix with a rate",
		"rate to { 192.0.2.0/24 5 }":                         "the rate 5 has no unit",
		"rate to { 192.0.2.1/24 5/s }":                       "host bits set",
		"rate to { 192.0.2.0/24 5/s, 192.0.2.0/24 6/s }":     "has two rates",
		"rate to { 192.0.2.0/24 5/s, 10.0.0.0/8 1mbit/s }":   "some of the rates are of packets",
		"rate to { 192.0.2.0/24 5/s } burst 7":               "have bursts of their own",
		"rate to { 192.0.2.0/24 10/d, 10.0.0.0/8 900Mpps }":  "are too far apart",
		"rate to { 192.0.2.0/24 5/s } by source x2":          "have no factor",
		"rate to { 192.0.2.0/24 5/s } by source, port, flow": "at most 2 keys beside",
		"rate to 192.0.2.0/24 5/s":                           "expected { ... } or file",
		"from 2001:db8::/32 rate to { 192.0.2.0/24 5/s }":    "no packet that the rule matches",
		"rate to { }":          "there is no prefix with a rate",
		`rate to file("none")`: "cannot read",
		`rate to file("bad")`:  "is no prefix with a rate",
		"rate to { 192.0.2.0/24 5/s burst 1 192.0.2.0/25 6/s": "never closed",
	} {
		open := func(path string) (io.ReadCloser, error) {
			if path == "bad" {
				return io.NopCloser(strings.NewReader("192.0.2.0/24 5/s\n192.0.2.0/25\n")), nil
			}
			return nil, fmt.Errorf("no such file")
		}
		p, ds := Parse("t", []byte("limit udp "+text+"\ndefault pass\n"), open)
		if p != nil && ds.HasErrors() || !strings.Contains(fmt.Sprint(ds.Err()), want) {
			t.Errorf("%s: %v, want %q", text, ds.Err(), want)
		}
	}
}
