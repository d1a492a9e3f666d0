package importer_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"levee/internal/lang/importer"
	"levee/internal/lang/importer/pf"
)

// fromAnchors imports a pf.conf with the files that it loads into anchors, by their names.
func fromAnchors(t *testing.T, conf string, files map[string]string) (string, importer.Imported,
	error) {
	t.Helper()
	var out bytes.Buffer
	var in []importer.Source
	for name, text := range files {
		in = append(in, importer.Source{Name: name, R: strings.NewReader(text)})
	}
	rep, err := pf.Import(importer.Source{Name: "pf.conf", R: strings.NewReader(conf)}, &out,
		importer.Rulesets{Device: "em0"}, in...)
	return strings.TrimPrefix(rulesOf(out.String()), "interface em0\n"), rep, err
}

// What a pf.conf loads into its anchors was never in the policy, whatever files were at hand.
func TestAnchorsAreReadFromTheirFiles(t *testing.T) {
	for _, c := range []struct {
		name, conf, file, want string
		widened                int
	}{
		{"rules under the anchor's conditions", "block in\nanchor a in proto udp\n",
			"pass in to port $p no state\n", "pass udp port 53\ndefault drop", 0},
		{"within it alone", "block in\nanchor \"a/*\"\n", "pass in quick no state\n",
			"default drop", 0},
		{"anchors within it", "block in\nanchor \"a/*\"\n",
			"anchor b {\n pass in no state\n}\n", "# left out: anchor a/*\ndefault drop", 1},
		{"as macOS has it", "anchor \"a/*\"\nblock in\n",
			"anchor \"200.AirDrop/*\"\nanchor \"250.ApplicationFirewall/*\"\n", "default drop", 0},
		{"tables", "anchor a\n", "table <bad> persist\nblock in quick from <bad>\n",
			"set bad = dynamic(max 200000)\ndrop from bad", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, rep, err := fromAnchors(t, c.conf+"load anchor a from \"/etc/pf/x\"\n",
				map[string]string{"x": "p = 53\n" + c.file})
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, strings.TrimSuffix(got, "\ndefault pass")); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if rep.Fates.Widened != c.widened {
				t.Errorf("%d widen, not %d", rep.Fates.Widened, c.widened)
			}
		})
	}
	for name, want := range map[string]string{"y": "names this file", "x": "is in another file"} {
		_, _, err := fromAnchors(t, "table <t> { 10/8 }\nanchor a\nload anchor a from \"/etc/x\"\n",
			map[string]string{name: "table <t> { 192.168/16 }\nblock in from <t>\n"})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Names within an anchor are of anchors in it: a file that names its own anchor was read without an
// end. What is loaded last is what an anchor has.
func TestAnchorsWithinAnchors(t *testing.T) {
	const load = "block in\nanchor a\nload anchor a from \"/etc/x\"\n"
	files := map[string]string{"x": "anchor a\npass in proto udp to port 53 no state\n",
		"y": "pass in proto udp to port 54 no state\n"}
	for _, c := range []struct{ name, conf, want string }{
		{"itself", load, "pass udp port 53"},
		{"the last one", load + "load anchor a from \"/etc/y\"\n", "pass udp port 54"},
		{"in it", load + "load anchor a/a from \"/etc/y\"\n",
			"pass udp port 53\npass udp port 54"},
		{"in braces", "block in\nanchor \"b\" {\n anchor a\n}\n" +
			"load anchor a from \"/etc/x\"\nload anchor b/a from \"/etc/y\"\n", "pass udp port 54"},
	} {
		t.Run(c.name, func(t *testing.T) {
			given := map[string]string{}
			for name, text := range files {
				if strings.Contains(c.conf, "/etc/"+name) {
					given[name] = text
				}
			}
			got, _, err := fromAnchors(t, c.conf, given)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want+"\ndefault drop", got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
	_, _, err := fromAnchors(t, load+"load anchor b from \"/opt/x\"\n",
		map[string]string{"x": files["x"]})
	if err == nil || !strings.Contains(err.Error(), "files of one name") {
		t.Errorf("two files of one name: %v", err)
	}
}

// The addresses of another interface were `self`, too, where it was named by an anchor's file, by
// nat or by its networks. Those of lo1, of jails and anycast, were nobody's.
func TestOthersAreNamedAnywhere(t *testing.T) {
	const conf = "block in\npass in proto udp to (em0) port 53 no state\n"
	for more, elsewhere := range map[string]bool{
		"": false, "nat on em0 inet from ! (em0) to any -> (em0)\n": false,
		"set skip on lo0\npass out on em0 queue (q1, q2)\n": false,
		"nat on em0 from em1:network to any -> (em0)\n":     true,
		"nat on em1 from any to any -> (em1)\n":             true,
		"block in from (em1)\n":                             true,
		"anchor a\nload anchor a from \"/x\"\n":             true,
	} {
		files := map[string]string{}
		if strings.HasPrefix(more, "anchor") {
			files["x"] = "pass in on em1\n"
		}
		got, _, err := fromAnchors(t, conf+more, files)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(got, "self not to elsewhere") != elsewhere {
			t.Errorf("%q:\n%s", more, got)
		}
	}
	got, _, err := fromAnchors(t, "block in\npass in proto udp to lo1 port 53 no state\n", nil)
	if err != nil || !strings.Contains(got, "pass udp to lo1 port 53") {
		t.Errorf("lo1: %v\n%s", err, got)
	}
}

// A comment ended with its line, and a word took up the backslash behind it: two sets were refused.
func TestLinesOfPFGoOn(t *testing.T) {
	got, _ := fromPF(t, "block in proto tcp \\\n to port 23 # \\\n pass in\n"+
		"block in proto\\\n udp\n", importer.Rulesets{})
	if d := cmp.Diff("drop udp\ndrop tcp port 23", got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// The command above the set of what is no address of the interface finds that.
func TestTheCommandFindsWhatIsElsewhere(t *testing.T) {
	if _, err := exec.LookPath("awk"); err != nil {
		t.Skip("awk is not at hand")
	}
	dir := t.TempDir()
	const ip = "#!/bin/sh\n[ $1 = -6 ] && { echo 'local fe80::1 dev em0 metric 0'; echo 'local " +
		"fe80::1 dev em1 metric 0'; echo 'multicast ff00::/8 dev em1 metric 256'; exit; }\n" +
		"echo 'local 192.0.2.1 dev em0 scope host'; echo 'broadcast 192.0.2.255 dev em0'\n" +
		"echo 'local 10.0.0.1 dev em1 scope host'; echo 'local 127.0.0.0/8 dev lo scope host'\n"
	if err := os.WriteFile(filepath.Join(dir, "ip"), []byte(ip), 0o700); err != nil {
		t.Fatal(err)
	}
	lines := importer.ElsewhereComment("elsewhere", "em0")[2:]
	cmd := exec.CommandContext(t.Context(), "sh", "-c", strings.Join(lines, "\n"))
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got, err := os.ReadFile(filepath.Join(dir, "elsewhere.txt"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"10.0.0.1", "127.0.0.0/8", "192.0.2.255", "255.255.255.255"}
	if d := cmp.Diff(want, slices.Sorted(slices.Values(strings.Fields(string(got))))); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if n := len(importer.ElsewhereComment("elsewhere", "$(id)")); n != 2 {
		t.Errorf("%d lines for a name that a shell changes", n)
	}
}

// nft 1.0.6 does not print whose ingress a chain is at: all of its drops were lost.
func TestAnIngressWithoutAnInterface(t *testing.T) {
	const in = `{"nftables": [{"table": {"family": "netdev", "name": "n"}},
{"chain": {"family": "netdev", "table": "n", "name": "in", "type": "filter", "hook": "ingress",
 "prio": -500, "policy": "accept"}},
{"rule": {"family": "netdev", "table": "n", "chain": "in", "handle": 2, "expr": [{"match": {"op":
 "==", "left": {"payload": {"protocol": "ip", "field": "saddr"}}, "right": "192.0.2.1"}},
 {"drop": null}]}},
{"table": {"family": "inet", "name": "f"}},
{"chain": {"family": "inet", "table": "f", "name": "in", "type": "filter", "hook": "input",
 "prio": 0, "policy": "accept"}}, {"rule": {"family": "inet", "table": "f", "chain": "in",
 "handle": 3, "expr": [{"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right":
 "eth0"}}, {"match": {"op": "==", "left": {"meta": {"key": "l4proto"}}, "right": "sctp"}},
 {"drop": null}]}}]}`
	for dev, widened := range map[string]int{"eth0": 0, "eth1": 1, "": 2} {
		_, rep := nftImport(t, in, importer.Rulesets{Device: dev})
		if rep.Fates.Widened != widened {
			t.Errorf("for %q %d widen, not %d", dev, rep.Fates.Widened, widened)
		}
	}
	_, rep := nftImport(t, in, importer.Rulesets{Device: "eth0"})
	remarksHave(t, rep, "changed|does not say whose ingress this is")
}
