package importer_test

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"levee/internal/lang/importer"
	"levee/internal/lang/importer/nft"
)

// nftInput is a ruleset with one rule in an input chain of family inet, and a few sets.
func nftInput(expr string) string {
	return `{"nftables": [
{"metainfo": {"version": "1.0.6", "json_schema_version": 1}},
{"table": {"family": "inet", "name": "f", "handle": 1}},
{"set": {"family": "inet", "name": "s", "table": "f", "type": "ipv4_addr", "handle": 2}},
{"element": {"family": "inet", "table": "f", "name": "s", "elem": ["192.0.2.1", {"elem": {"val": "192.0.2.2", "comment": "x"}}]}},
{"chain": {"family": "inet", "table": "f", "name": "c", "handle": 3}},
{"chain": {"family": "inet", "table": "f", "name": "input", "handle": 4, "type": "filter", "hook": "input", "prio": 0, "policy": "accept"}},
{"rule": {"family": "inet", "table": "f", "chain": "c", "handle": 5, "expr": [{"accept": null}]}},
{"rule": {"family": "inet", "table": "f", "chain": "input", "handle": 6, "expr": [` + expr + `]}}
]}`
}

func match(op, left, right string) string {
	return `{"match": {"op": "` + op + `", "left": ` + left + `, "right": ` + right + `}}`
}

func payload(proto, field string) string {
	return `{"payload": {"protocol": "` + proto + `", "field": "` + field + `"}}`
}

const dropped = `, {"drop": null}`

// nftRules lists rules as other versions of nft print them, and hostile input;
// testdata/netfilter/matches.nft has the output of ours.
var nftRules = []struct{ name, expr, want, remark string }{
	{"flags as numbers", match("==", `{"&": [`+payload("tcp", "flags")+`, 18]}`, "2") + dropped,
		"drop tcp flags syn/syn,ack", ""},
	{"flags as a list", match("in", payload("tcp", "flags"), `["syn", "ack"]`) + dropped,
		"drop tcp not flags none/syn,ack", ""},
	{"flags or'ed", match("==", `{"&": [`+payload("tcp", "flags")+`, {"|": ["syn", "ack"]}]}`,
		`"syn"`) + dropped, "drop tcp flags syn/syn,ack", ""},
	{"flags that cannot be", match("==", `{"&": [`+payload("tcp", "flags")+`, "syn"]}`,
		`"ack"`) + dropped, "", ""},
	{"flags not set", match("!", payload("tcp", "flags"), `"syn"`) + dropped,
		"drop tcp flags none/syn", ""},
	{"no mask at all", match("==", `{"&": [`+payload("tcp", "flags")+`, 0]}`, `0`) + dropped,
		"drop tcp port 0-65535", ""},
	{"code alone", match("==", payload("icmp", "code"), `{"range": [4, 4]}`) + `,` + match("==",
		payload("icmp", "type"), `3`) + dropped, "drop icmp type 3/4", ""},
	{"elements apart from their set", match("==", payload("ip", "saddr"), `"@s"`) + dropped,
		"set s = { 192.0.2.1-192.0.2.2 }\ndrop from s", ""},
	{"no such set", match("==", payload("ip", "saddr"), `"@none"`) + dropped, "# left out",
		`left out|handle 6|set "none", which is not in the input`},
	{"a priority tag", match("==", payload("vlan", "id"), "0") + dropped, "# left out",
		"left out, widens|tags with id 0 too"},
	{"any tag but one", match("!=", payload("vlan", "id"), "5") + dropped, "# left out",
		"left out, widens|tags with id 0 too"},
	{"any tag", match("==", payload("ether", "type"), `"8021q"`) + dropped, "# left out",
		"left out, widens|tags with id 0 too"},
	{"any tag, and IPv4", match("==", payload("ether", "type"), `{"set": ["ip", "8021q"]}`) +
		dropped, "# left out", "left out, widens|tags with id 0 too"},
	{"any VLAN", match("!=", payload("vlan", "id"), "0") + dropped,
		"drop vlan 1-4095 from any", ""},
	{"a field of no header", match("==", payload("ip", "smell"), "1") + dropped, "# left out",
		"left out|ip smell"},
	{"an operation that is not known", match("~", payload("ip", "ttl"), "1") + dropped,
		"# left out", `compares with "~"`},
	{"a port that is none", match("==", payload("tcp", "dport"), `"ssh"`) + dropped, "# left out",
		`"ssh" is not a number`},
	{"a port above all", match("==", payload("tcp", "dport"), `70000`) + dropped, "# left out",
		"cannot have"},
	{"an address that is none", match("==", payload("ip", "saddr"), `"192.0.2.300"`) + dropped,
		"# left out", "is not an address"},
	{"a statement that is not known", `{"teleport": null}`, "# left out",
		`has the statement "teleport"`},
	{"of iptables", `{"xt": {"type": "match", "name": "recent"}}` + dropped, "# left out",
		"levee import iptables"},
	{"queue", `{"queue": {"num": 1}}`, "# left out", "everything behind it is uncertain"},
	{"a set in a set", match("==", payload("ip", "saddr"),
		strings.Repeat(`{"set": [`, 20)+`"192.0.2.1"`+strings.Repeat("]}", 20)) + dropped,
		"# left out", "nested too deep"},
	{"a mapped address", match("==", payload("ip6", "saddr"), `"::ffff:192.0.2.1"`) + dropped,
		"# left out", "IPv4-mapped"},
	{"a jump to nowhere", `{"jump": {"target": "nowhere"}}`, "# left out",
		`left out, widens|jump to the chain "nowhere"`},
	{"a jump to a base chain", `{"jump": {"target": "input"}}`, "# left out", "to the base chain"},
	{"a match without sides", `{"match": {"op": "=="}}` + dropped, "# left out", "is not a match"},
	{"a rule of text", `"drop"`, "# left out", "has no JSON"},
	{"nothing at all", ``, "", "decides nothing"},
	{"continue", `{"continue": null}`, "", ""},
	{"a map of states",
		`{"vmap": {"key": {"ct": {"key": "state"}}, "data": {"set": [["established", {"accept": null}], ["invalid", {"drop": null}], ["new", {"jump": {"target": "c"}}]]}}}`, "fragments track\n" +
			"pass tcp established\npass udp established\n" +
			"pass not icmp type { 3, 8, 11-13, 15, 17 } established\n" +
			"pass not icmp6 type { 1-4, 128, 130-137, 139, 143 } established\n" +
			"drop tcp not syn not flags ack/fin,syn,rst,ack not established\n" +
			"drop not icmp type { 3/4, 8, 13, 15, 17 } not established\n" +
			"drop not icmp6 type { 2, 128, 130-137, 139, 143 } not established\n" +
			"pass tcp syn\npass tcp flags ack/fin,syn,rst,ack not established\n" +
			"pass udp not established\npass icmp type { 8, 13, 15, 17 }\n" +
			"pass icmp6 type { 128, 139 }\npass not proto { icmp, tcp, udp, icmp6 }",
		"changed: |does not look at checksums"},
	{"a map of the usual states",
		`{"vmap": {"key": {"ct": {"key": "state"}}, "data": {"set": [["established", {"accept": null}], ["related", {"accept": null}], ["invalid", {"drop": null}]]}}}`,
		"fragments track\npass established\n" +
			"drop tcp not syn not flags ack/fin,syn,rst,ack\n" +
			"drop not icmp type { 3/4, 8, 13, 15, 17 }\n" +
			"drop not icmp6 type { 2, 128, 130-137, 139, 143 }", ""},

	{"a set that limits a rate", `{"set": {"op": "add", "elem": ` + payload("ip",
		"saddr") + `, "set": "@s", "stmt": [{"limit": {"rate": 5, "per": "second", "inv": true}}]}}` + dropped,
		"limit ipv4 rate 5/s burst 5 by source", ""},
	{"a set that counts connections",
		`{"set": {"op": "update", "elem": {"elem": {"val": ` + payload("ip6",
			"saddr") + `, "timeout": 60}}, "set": "@s", "stmt": [{"counter": null}, {"ct count": {"val": 9, "inv": true}}]}}` + dropped, "# left out", `left out, widens|ct count for each element`},
	{"a set of what only IPv4 has", `{"set": {"op": "add", "elem": ` + payload("ip",
		"saddr") + `, "set": "@s"}}` + dropped, "drop ipv4", "note|add @s { ip saddr }"},
	{"a set of several fields",
		`{"set": {"op": "add", "elem": {"concat": [{"meta": {"key": "iifname"}}, ` + payload("ip",
			"saddr") + `, ` + payload("udp", "dport") + `]}, "set": "@s"}}` + dropped,
		"drop ipv4 udp port 0-65535", ""},
	{"a set of what a policy has no word for",
		`{"set": {"op": "add", "elem": {"ct": {"key": "mark"}}, "set": "@s"}}` + dropped,
		"# left out", "left out|ct mark"},
	{"a set that is filled and decides nothing",
		`{"set": {"op": "add", "elem": {"ct": {"key": "mark"}}, "set": "@s", "stmt": [{"limit": {"rate": 5}}]}}`, "", "note|add @s"},
	{"a map that is filled from another",
		`{"map": {"op": "add", "elem": ` + payload("ip",
			"saddr") + `, "data": {"map": {"key": ` + payload("ip",
			"daddr") + `, "data": "@s"}}, "map": "@s"}}` + dropped, "# left out",
		"left out|the value it writes"},
	{"a mark from a map",
		`{"mangle": {"key": {"meta": {"key": "mark"}}, "value": {"map": {"key": ` + payload("ip",
			"daddr") + `, "data": "@s"}}}}, {"accept": null}`, "# left out",
		"left out|the value it writes"},
	{"a mark of the connection",
		`{"mangle": {"key": {"meta": {"key": "mark"}}, "value": {"ct": {"key": "mark"}}}}, {"accept": null}`, "# left out", "left out|ct mark"},
	{"a mark that is a number",
		`{"mangle": {"key": {"meta": {"key": "mark"}}, "value": {"|": [{"meta": {"key": "mark"}}, 16]}}}, {"accept": null}`, "pass from any", "note|meta mark set"},
	{"a header field that is written",
		`{"mangle": {"key": ` + payload("ip", "dscp") + `, "value": "cs1"}}` + dropped,
		"drop ipv4 dscp 0-63", "note|ip dscp set cs1"},
	{"an option that is written",
		`{"mangle": {"key": {"tcp option": {"name": "maxseg", "field": "size"}}, "value": 1000}}` +
			dropped, "# left out", "left out|what it writes"},
	{"a flowtable", `{"flow": {"op": "add", "flowtable": "@f"}}, {"accept": null}`, "# left out",
		"left out|flow"},
	{"a map behind a set", `{"set": {"op": "add", "elem": ` + payload("ip",
		"saddr") + `, "set": "@s", "stmt": [{"limit": {"rate": 5}}]}}, {"vmap": {"key": ` +
		payload("tcp",
			"dport") + `, "data": {"set": [[22, {"accept": null}], [23, {"drop": null}]]}}}`,
		"pass ipv4 tcp port 22\n# left out", `left out, widens|limit for each element`},
	{"a map that goes on", `{"vmap": {"key": ` + payload("tcp",
		"dport") + `, "data": {"set": [[22, {"continue": null}], [23, {"drop": null}], ["*", {"continue": null}]]}}}`, "drop tcp port 23", ""},
	{"a map to a program", `{"vmap": {"key": ` + payload("tcp",
		"dport") + `, "data": {"set": [[22, {"queue": {"num": 1}}], [23, {"drop": null}]]}}}`,
		"# left out\ndrop tcp port 23", "left out|lets a program decide"},
	{"an empty map", `{"vmap": {"key": ` + payload("tcp", "dport") + `, "data": {"set": []}}}`, "",
		"map is empty"},
	{"a map with a catch-all", `{"vmap": {"key": ` + payload("tcp",
		"dport") + `, "data": {"set": [[22, {"accept": null}], ["*", {"drop": null}]]}}}`,
		"pass tcp port 22\n# left out", "element *"},
}

func TestNFTRules(t *testing.T) {
	for _, c := range nftRules {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			rep, err := nft.Import(importer.Source{Name: "a",
				R: strings.NewReader(nftInput(c.expr))}, &out, importer.Rulesets{})
			if err != nil {
				t.Fatal(err)
			}
			checkImported(t, out.Bytes(), rep)
			var lines []string
			for line := range strings.Lines(rulesOf(out.String())) {
				line = strings.TrimSpace(line)
				if strings.HasPrefix(line, "#   nearest") || line == "default pass" {
					continue
				}
				if line, _, _ = strings.Cut(line, ":"); strings.HasPrefix(line, "# left out") &&
					len(lines) > 0 && lines[len(lines)-1] == "# left out" {
					continue
				}
				lines = append(lines, line)
			}
			if d := cmp.Diff(c.want, strings.Join(lines, "\n")); d != "" {
				t.Errorf("(-want +got):\n%s\n%s", d, out.String())
			}
			if c.remark != "" {
				remarksHave(t, rep, c.remark)
			}
		})
	}
}

func TestNFTRefuses(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"nothing", "", "a:1: this is not JSON: give the output of `nft -j list ruleset`"},
		{"the text form", "table inet filter {\n}\n", "nft -j list ruleset"},
		{"other JSON", `{"rules": []}`, "a:1: this is not a ruleset of nft"},
		{"a cut file", "{\"nftables\": [\n{\"table\": {\"family\": \"ip\"",
			"a:2: reading an object"},
		{"cut behind an object", "{\"nftables\": [\n{\"metainfo\": {}}", "a:2: "},
		{"two rulesets", `{"nftables": []} {"nftables": []}`, "something stands behind"},
		{"no chains", `{"nftables": []}`, "no chains"},
		{"no chain at input",
			`{"nftables": [{"table":{"family":"ip","name":"t"}},{"chain":{"family":"ip","table":"t","name":"f","type":"filter","hook":"forward","prio":0,"policy":"drop"}}]}`, "choose with --chain from: ip/t/f"},
		{"a dormant table", strings.Replace(nftInput(`{"drop": null}`), `"name": "f", "handle": 1`,
			`"name": "f", "flags": ["dormant"]`, 1), "no filter chain that sees what arrives"},
		{"frames of a bridge", `{"nftables": [{"table":{"family":"bridge","name":"t"}},{"chain":{"family":"bridge","table":"t","name":"f","type":"filter","hook":"input","prio":0,"policy":"drop"}}]}`,
			"bridge and arp tables"},
		{"a chain of no table", "{\"nftables\": " +
			"[\n\n{\"chain\":{\"family\":\"ip\",\"table\":\"t\",\"name\":\"f\"}}]}",
			`a:3: there is no table "ip t"`},
		{"a rule of no chain",
			`{"nftables": [{"table":{"family":"ip","name":"t"}},{"rule":{"family":"ip","table":"t","chain":"f","expr":[]}}]}`, `a:1: there is no chain "f"`},
		{"a command that takes away",
			`{"nftables": [{"delete": {"table":{"family":"ip","name":"t"}}}]}`,
			`a:1: the command "delete" changes a ruleset`},
		{"a command that inserts",
			`{"nftables": [{"add": {"table":{"family":"ip","name":"t"}}},{"insert": {"rule":{"family":"ip","table":"t","chain":"f","expr":[]}}}]}`, `nft -j -f FILE; nft -j list ruleset`},
		{"a flush in the middle",
			`{"nftables": [{"add": {"table":{"family":"ip","name":"t"}}},{"flush": {"ruleset":null}}]}`, `the command "flush"`},
		{"a rule behind another",
			`{"nftables": [{"add": {"table":{"family":"ip","name":"t"}}},{"add": {"chain":{"family":"ip","table":"t","name":"f"}}},{"add": {"rule":{"family":"ip","table":"t","chain":"f","index":0,"expr":[]}}}]}`, `with an index`},
		{"two things in one object",
			`{"nftables": [{"table":{"family":"ip","name":"t"},"chain":{}}]}`,
			"an object of several parts"},
		{"a number for a name", `{"nftables": [{"table":{"family":1}}]}`, "a:1: reading an object"},
		{"deep nesting", nftInput(match("==", strings.Repeat("[", 20_000), "1")), "a:"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			_, err := nft.Import(importer.Source{Name: "a", R: strings.NewReader(c.in)}, &out,
				importer.Rulesets{})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
			if out.Len() > 0 {
				t.Errorf("wrote %q", out.String())
			}
		})
	}
}

// TestBaseChainsFollowOneAnother shows that what one base chain accepts goes on to the next one.
func TestBaseChainsFollowOneAnother(t *testing.T) {
	in := strings.Replace(nftInput(match("==", payload("tcp", "dport"), "22")+`, {"accept": null}`),
		`
]}`, `,
{"chain": {"family": "inet", "table": "f", "name": "late", "handle": 7, "type": "filter", "hook": "input", "prio": 10, "policy": "drop"}},
{"rule": {"family": "inet", "table": "f", "chain": "late", "handle": 8, "expr": [`+match("==",
			payload("ip", "saddr"), `"192.0.2.1"`)+`, {"accept": null}]}}
]}`, 1)
	var out bytes.Buffer
	rep, err := nft.Import(importer.Source{Name: "a", R: strings.NewReader(in)}, &out,
		importer.Rulesets{})
	if err != nil {
		t.Fatal(err)
	}
	checkImported(t, out.Bytes(), rep)
	want := "pass tcp from 192.0.2.1 port 22\ndrop tcp port 22\npass from 192.0.2.1\ndefault drop"
	if d := cmp.Diff(want, rulesOf(out.String())); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestNFTCommandsThatAdd shows that the commands of a file for nft -j -f are not passed over: those
// that add are read.
func TestNFTCommandsThatAdd(t *testing.T) {
	in := `{"nftables": [{"metainfo": {"json_schema_version": 1}}, {"flush": {"ruleset": null}}, {"add": {"table": {"family": "ip", "name": "t"}}}, {"add": {"table": {"family": "ip", "name": "t"}}},
{"create": {"chain": {"family": "ip", "table": "t", "name": "in", "type": "filter", "hook": "input", "prio": 0, "policy": "drop"}}}, {"add": {"flowtable": {"name": "x"}}}, {"novelty": {}},
{"add": {"rule": {"family": "ip", "table": "t", "chain": "in", "expr": [` + match("==",
		payload("tcp", "dport"), "22") + `, {"accept": null}]}}}]}`
	var out bytes.Buffer
	rep, err := nft.Import(importer.Source{Name: "a", R: strings.NewReader(in)}, &out,
		importer.Rulesets{})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff("pass ipv4 tcp port 22\ndrop ipv4\ndefault pass",
		rulesOf(out.String())); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	remarksHave(t, rep, `note|a:2|an object "novelty"`)
}

// TestSetsThatLimitsShareAreNoLimits: the second rule that puts addresses into a set counts in the
// limits of the first.
func TestSetsThatLimitsShareAreNoLimits(t *testing.T) {
	rule := func(dport string) string {
		return match("==", payload("udp", "dport"), dport) + `, {"set": {"op": "add", "elem": ` +
			payload("ip", "saddr") + `, "set": "@s", "stmt": [{"limit": {"rate": 5, "burst": 9, ` +
			`"per": "minute", "inv": true}}]}}` + dropped
	}
	text, rep := nftImport(t, nftInput(rule("53")+`]}}, {"rule": {"family": "inet", "table": "f", `+
		`"chain": "input", "expr": [`+rule("54")), importer.Rulesets{})
	if strings.Contains(text, "\nlimit ") || rep.Fates.Widened != 2 {
		t.Errorf("%+v\n%s", rep.Fates, text)
	}
}

// TestChainsInARowAreWalkedOnce: with a chain of all families in front of two of IPv4, the rules of
// the last stood in the policy twice, once for each chain that hands packets on to it.
func TestChainsInARowAreWalkedOnce(t *testing.T) {
	base := func(family, table, name, policy string) string {
		return fmt.Sprintf(`{"chain": {"family": %q, "table": %q, "name": %q, "type": "filter", `+
			`"hook": "input", "prio": 0, "policy": %q}},`, family, table, name, policy)
	}
	text, _ := nftImport(t, `{"nftables": [{"table": {"family": "inet", "name": "track"}},`+
		`{"table": {"family": "ip", "name": "filter"}},`+base("inet", "track", "in", "accept")+
		base("ip", "filter", "INPUT", "accept")+base("ip", "filter", "input", "drop")+
		`{"rule": {"family": "ip", "table": "filter", "chain": "input", "expr": [`+
		match("==", `{"payload": {"protocol": "udp", "field": "dport"}}`, "9002")+
		`, {"limit": {"rate": 5, "burst": 7, "per": "hour", "inv": true}}, {"drop": null}]}},`+
		`{"rule": {"family": "ip", "table": "filter", "chain": "input", "expr": [`+
		match("==", `{"payload": {"protocol": "udp", "field": "dport"}}`, "9002")+
		`, {"accept": null}]}},{"rule": {"family": "ip", "table": "filter", "chain": "input", `+
		`"expr": [`+match("==", `{"payload": {"protocol": "udp", "field": "dport"}}`, "9003")+
		`, {"limit": {"rate": 5, "burst": 7, "per": "hour"}}, {"accept": null}]}}]}`, importer.Rulesets{})
	if n := strings.Count(text, "port 9002"); n != 2 {
		t.Errorf("%d statements of two rules:\n%s", n, text)
	}
	for _, port := range []string{"9002", "9003"} { // what is above the second goes on to the end
		if !strings.Contains(text, "\nlimit ipv4 udp port "+port+" rate 5/h burst 7 as ") {
			t.Errorf("no limit of port %s:\n%s", port, text)
		}
	}
}

// TestSetsThatRulesFillWiden: a drop of what a set holds was said to be as in the source, though
// the set was empty when it was listed and rules of the source fill it.
func TestSetsThatRulesFillWiden(t *testing.T) {
	drop := match("==", payload("ip", "saddr"), `"@s"`) + dropped
	empty := strings.Replace(nftInput(drop), `"elem": ["192.0.2.1", `+
		`{"elem": {"val": "192.0.2.2", "comment": "x"}}]`, `"elem": []`, 1)
	if _, rep := nftImport(t, empty, importer.Rulesets{}); rep.Fates.Widened != 0 {
		t.Errorf("nothing fills it: %+v", rep.Fates)
	}
	fills := strings.TrimSuffix(empty, "\n]}") + `, {"rule": {"family": "inet", "table": "f", ` +
		`"chain": "input", "expr": [{"set": {"op": "add", "elem": ` + payload("ip", "saddr") +
		`, "set": "@s"}}, {"accept": null}]}}]}`
	_, rep := nftImport(t, fills, importer.Rulesets{})
	if rep.Fates.Widened != 1 {
		t.Errorf("%+v", rep.Fates)
	}
	remarksHave(t, rep, "changed, widens|and rules of the source fill it")
}

// TestInterfacesBesideOtherFields: an element with an interface had its rule left out, so that a
// firewall which says what it serves as `iifname . meta l4proto . th dport @services` served
// nothing.
func TestInterfacesBesideOtherFields(t *testing.T) {
	served := match("==", `{"concat": [{"meta": {"key": "iifname"}}, `+
		`{"meta": {"key": "l4proto"}}, `+payload("th", "dport")+`]}`,
		`{"set": [{"concat": ["eth0", "tcp", 22]}, {"concat": `+
			`["eth1", "udp", 53]}, {"concat": ["w*", "tcp", 80]}, {"concat": ["lo", "udp", 9]}]}`)
	others := match("!=", `{"concat": [{"meta": {"key": "iifname"}}, `+payload("ip", "daddr")+`]}`,
		`{"set": [{"concat": ["eth0", "192.0.2.1"]}, {"concat": ["eth1", "192.0.2.2"]}]}`)
	verdicts := `{"vmap": {"key": {"concat": [{"meta": {"key": "iifname"}}, ` +
		payload("tcp", "dport") + `]}, "data": {"set": [[{"concat": ["eth0", 22]}, {"accept": ` +
		`null}], [{"concat": ["eth1", 22]}, {"drop": null}]]}}}`
	for _, c := range []struct{ dev, expr, want string }{
		{"eth0", served + `, {"accept": null}`, "pass tcp port 22"},
		{"eth1", served + `, {"accept": null}`, "pass udp port 53"},
		{"wg0", served + `, {"accept": null}`, "pass tcp port 80"},
		{"eth2", served + `, {"accept": null}`, ""},
		{"eth0.7", served + `, {"accept": null}`, ""},
		{"", served + `, {"accept": null}`, "# left out: inet f input handle 6: meta iifname . " +
			"meta l4proto . th dport { eth0 . tcp . 22, eth1 . udp . 53, w* . tcp . 80, lo . udp " +
			". 9 } accept"},
		{"eth0", others + dropped, "drop ipv4 not to 192.0.2.1"},
		{"eth2", others + dropped, "drop ipv4"},
		{"eth0", verdicts, "pass tcp port 22"},
		{"eth1", verdicts, "drop tcp port 22"},
		{"eth2", verdicts, ""},
	} {
		text, rep := nftImport(t, nftInput(c.expr), importer.Rulesets{Device: c.dev})
		got := strings.TrimSuffix(rulesOf(text), "\ndefault pass")
		want := "interface " + c.dev + "\n" + c.want
		if c.dev == "" {
			want = c.want
		}
		if strings.TrimSpace(got) != strings.TrimSpace(want) {
			t.Errorf("--dev %q, %.60s: %q, not %q", c.dev, c.expr, got, want)
		}
		if c.dev == "eth2" && c.want == "" && rep.Fates.Elsewhere != rep.Fates.Given {
			t.Errorf("--dev %q, %.60s: %s", c.dev, c.expr, rep.Fates)
		}
	}
}

// TestRulesetsWithoutAChainAtInput: a ruleset about what leaves, or about what a proxy takes, was
// refused, as no chain is at the hook input.
func TestRulesetsWithoutAChainAtInput(t *testing.T) {
	chain := func(hook, expr string) string {
		return `{"nftables": [{"table": {"family": "inet", "name": "t"}}, {"chain": {"family": ` +
			`"inet", "table": "t", "name": "c", "type": "filter", "hook": "` + hook +
			`", "prio": -150, "policy": "accept"}}, {"rule": {"family": "inet", "table": "t", ` +
			`"chain": "c", "expr": [` + expr + `]}}]}`
	}
	for in, want := range map[string]string{
		chain("output", match("==", payload("tcp", "dport"), "25")+`, {"drop": null}`): "out drop " +
			"tcp port 25\ndefault pass",
		chain("prerouting", `{"accept": null}`): "default pass",
	} {
		text, rep := nftImport(t, in, importer.Rulesets{})
		if got := rulesOf(text); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
		remarksHave(t, rep, "note|no filter chain is at the hook input")
	}
	// of another interface, it would have been a policy that passes all
	in := strings.Replace(chain("ingress", `{"drop": null}`), `"prio"`, `"dev": "ens3", "prio"`, 1)
	_, err := nft.Import(importer.Source{Name: "a", R: strings.NewReader(in)}, io.Discard,
		importer.Rulesets{})
	if err == nil || !strings.Contains(err.Error(), "choose with --chain from: inet/t/c") {
		t.Error(err)
	}
}

// TestChainsOfBridgesSayWhatTheyAreAbout: chains of bridge and arp tables, which judge frames that
// arrive, were said to be about none that do; of the time and of TCP's window an import said that
// there is no word.
func TestChainsOfBridgesSayWhatTheyAreAbout(t *testing.T) {
	var others strings.Builder
	for _, family := range []string{"bridge", "arp"} {
		fmt.Fprintf(&others, `{"table": {"family": %[1]q, "name": "o"}}, {"chain": {"family": `+
			`%[1]q, "table": "o", "name": "c", "type": "filter", "hook": "input", "prio": 0, `+
			`"policy": "drop"}}, `, family)
	}
	set := strings.Replace(nftInput(`{"match": {"op": "==", "left": {"meta": {"key": "hour"}}, `+
		`"right": "08:00"}}, {"match": {"op": "==", "left": {"payload": {"protocol": "tcp", `+
		`"field": "window"}}, "right": 0}}, {"drop": null}`), `{"table":`, others.String()+
		`{"table":`, 1)
	_, rep := nftImport(t, set, importer.Rulesets{})
	for _, want := range []string{
		"left out|it is about frames that a bridge passes on; put levee onto its ports",
		"left out|it is about ARP; write rules with `arp`",
		"left out|asks for the time (meta hour)",
		"write `window` with its values",
	} {
		remarksHave(t, rep, want)
	}
}
