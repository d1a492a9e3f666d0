package importer_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"levee/internal/lang/importer"
	"levee/internal/lang/importer/iptables"
	"levee/internal/lang/importer/nft"
	"levee/internal/lang/importer/pf"
)

// FuzzIPTables holds the importer to its promise for any bytes: a policy without mistakes in the
// layout of `levee fmt`, or an error and nothing written.
func FuzzIPTables(f *testing.F) {
	for _, name := range []string{"v4.save", "v6.save", "ipset.save"} {
		b, err := os.ReadFile("testdata/netfilter/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, "", false)
	}
	f.Add([]byte(save("DROP", ":c - [0:0]", "-j c", "-A c -p tcp ! --syn -j RETURN", "-A c -g c")),
		"eth0", true)
	f.Add([]byte("create a hash:net,port\nadd a 10.0.0.0/8,tcp:80\n"+save("ACCEPT",
		"-m set --match-set a src,dst -j DROP", "-f -j DROP")), "", false)
	f.Add([]byte("-P INPUT DROP\n-N x\n-A INPUT -s ::ffff:1.2.3.4/128 -j x\n-A x -j RETURN\n"),
		"lo", true)
	f.Fuzz(func(t *testing.T, in []byte, dev string, strict bool) {
		opts := importer.Rulesets{Device: device(dev), Strict: strict}
		var out bytes.Buffer
		rep, err := iptables.Import([]importer.Source{{Name: "a", R: bytes.NewReader(in)}}, &out,
			opts)
		checkOutcome(t, &out, rep, err)
	})
}

func FuzzNFT(f *testing.F) {
	for _, name := range []string{"ruleset.json", "matches.json"} {
		b, err := os.ReadFile("testdata/netfilter/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, "", false)
	}
	for _, rule := range nftRules {
		f.Add([]byte(nftInput(rule.expr)), "eth0", true)
	}
	f.Fuzz(func(t *testing.T, in []byte, dev string, strict bool) {
		opts := importer.Rulesets{Device: device(dev), Strict: strict}
		var out bytes.Buffer
		rep, err := nft.Import(importer.Source{Name: "a", R: bytes.NewReader(in)}, &out, opts)
		checkOutcome(t, &out, rep, err)
	})
}

func FuzzPF(f *testing.F) {
	b, err := os.ReadFile("testdata/sources/pf.conf")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b, "em0", false)
	for _, text := range []string{
		"a = \"{ b b }\"\nc = { $a $a $a }\npass in from $c to $c port $c\n",
		"block all\npass in proto tcp to port { 1:5, 7 >< 9, > 3, != 4 } flags S/SA\n",
		"anchor x on em0 {\n anchor {\n pass quick from <t>\n}\n}\n",
		"table <t> { 10/8 !10.1/16 ::1 }\nblock in quick from ! <t> to self\n",
		"pass in inet6 proto icmp6 icmp6-type { 1 code 4, echoreq } \\\n no state label \"x\"\n",
	} {
		f.Add([]byte(text), "", true)
	}
	f.Fuzz(func(t *testing.T, in []byte, dev string, strict bool) {
		opts := importer.Rulesets{Strict: strict, Device: device(dev)}
		var out bytes.Buffer
		rep, err := pf.Import(importer.Source{Name: "a", R: bytes.NewReader(in)}, &out, opts)
		checkOutcome(t, &out, rep, err)
	})
}

// device is a name that `levee import` lets through.
func device(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') &&
			(r < '0' || r > '9')
	}) {
		return ""
	}
	return s[:min(len(s), 15)]
}

func checkOutcome(t *testing.T, out *bytes.Buffer, rep importer.Imported, err error) {
	t.Helper()
	if err == nil {
		checkImported(t, out.Bytes(), rep)
		return
	}
	if out.Len() > 0 {
		t.Errorf("wrote %q with error %v", out.Bytes(), err)
	}
	if strings.Contains(err.Error(), "should not happen") {
		t.Error(err)
	}
}
