package region

import (
	"slices"
	"strings"
	"testing"

	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
)

// TestWhatIsBehindASearchHadNoExample: where a rule in front searches the payload, reads a DNS
// message or answers one, no packet was shown that comes past it, nor one that it finds.
func TestWhatIsBehindASearchHadNoExample(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ front, was, is, hidden string }{
		"a text":        {`drop udp payload contains "boots"`, "pass udp", "drop udp", ""},
		"an expression": {`drop udp payload contains /^[\x00-\x0f]/`, "pass udp", "drop udp", ""},
		"zeros of padding": {`drop udp payload contains /[\x00-\x7f]{5}/`, "pass udp len 900",
			"drop udp", ""},
		"found": {`pass tcp`, `pass udp payload contains "boots" not payload contains /s.?$/`,
			"drop udp", ""},
		"found in a query": {`pass tcp`,
			`pass udp payload contains /^[\xf0-\xff]/ dns query dns name "*.example.com"`, "drop udp", ""},
		"a query": {`drop udp dns query`, "pass udp len 90", "drop udp", ""},
		"a name":  {`drop udp dns name "example.com"`, "pass udp dns type A", "drop udp", ""},
		"a name of bytes": {`drop udp dns name { "example.com", "*.test" }`,
			`pass udp payload at 12 00/f8 payload at 13 0000000000 dns type 27-65534`, "drop udp", ""},
		"another name":    {`pass tcp`, `pass udp not dns name "example.com"`, "drop udp", ""},
		"a malformed one": {`drop udp not dns malformed`, "pass udp dns response", "drop udp", ""},
		"a cookie of DNS": {`cookie dns udp port 53`, "pass udp port 53", "drop udp", ""},
		"all of a cookie": {`cookie dns udp port 53`, "pass udp port 53 dns query dns type A " +
			"not dns malformed dns opcode query", "drop udp", "not answered"},
		"a cookie at work": {`cookie dns udp port 53 above 10/s`, "pass udp port 53", "drop udp", ""},
		"a limit":          {`limit udp rate 10/s`, "pass udp", "drop udp", ""},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := parsed(t, c.front, c.was), parsed(t, c.front, c.is)
			found := Compare(t.Context(), a, b)
			if len(found.Differences) == 0 {
				t.Fatal("no difference")
			}
			hidden := c.hidden == ""
			for _, d := range found.Differences {
				behind := slices.ContainsFunc(d.Parts, func(p Part) bool { return p.Hidden != nil })
				hidden = hidden || behind && strings.HasPrefix(d.Parts[0].Hidden[0], c.hidden)
				if d.Example == nil && (c.hidden == "" || !behind) {
					t.Errorf("%s -> %s: no example of %+v", d.Was, d.Is, d.Parts)
				}
			}
			if !hidden {
				t.Errorf("none is hidden by what is %s", c.hidden)
			}
		})
	}
}

func parsed(t *testing.T, rules ...string) *policy.Policy {
	t.Helper()
	p, ds := resolve.Parse("edge.levee",
		[]byte(strings.Join(rules, "\n")+"\ndefault pass\n"), nil)
	if ds.HasErrors() {
		t.Fatal(ds.Err())
	}
	return p
}

// TestWhatMessagesSayWasNotOfThePacket: of a DNS message that lacks what a rule asks for, neither
// that holds nor its opposite. Differences were told of which no packet is.
func TestWhatMessagesSayWasNotOfThePacket(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ a, b string }{
		"query and response": {"drop udp dns query dns response", ""},
		"no question": {"drop udp dns type >= 0\ndrop udp not dns type A",
			"drop udp dns type >= 0"},
		"type within": {"drop udp dns type 1-9\ndrop udp dns type 3", "drop udp dns type 1-9"},
		"name below": {"drop udp dns name \"org\"\ndrop udp dns name \"a.org\"",
			`drop udp dns name "org"`},
		"name without a type": {`drop udp dns name "org" not dns type 0-65535`, ""},
		"text within a text": {"drop udp payload contains \"oo\"\n" +
			`drop udp payload contains "boot"`, `drop udp payload contains "oo"`},
		"too short":         {"drop udp ipv4 len 30 dns query", ""},
		"too short for it":  {`drop udp ipv4 len 30 payload contains "boot"`, ""},
		"size of an answer": {"drop udp dns response dns edns-size 512", ""},
		"bytes of a query":  {"drop udp payload at 2 80/80 dns query", ""},
		"found in bytes":    {`drop udp payload at 9 626f6f74 not payload contains "oo"`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := parsed(t, strings.Split(c.a, "\n")...), parsed(t, c.b)
			for _, d := range Compare(t.Context(), a, b).Differences {
				t.Errorf("%s -> %s: %+v", d.Was, d.Is, d.Parts)
			}
		})
	}
}
