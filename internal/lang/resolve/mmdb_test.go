package resolve

import (
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/maxmind/mmdbwriter"
	"github.com/maxmind/mmdbwriter/mmdbtype"

	"levee/internal/lang/policy"
	"levee/internal/lang/setfile"
)

// TestNetworksOfADatabaseAreStatic reads sets of a database, beside the policy and from a recording
// of it, when the file has gone.
func TestNetworksOfADatabaseAreStatic(t *testing.T) {
	w, err := mmdbwriter.New(mmdbwriter.Options{DatabaseType: "GeoLite2-Country",
		IncludeReservedNetworks: true})
	if err != nil {
		t.Fatal(err)
	}
	for network, code := range map[string]string{"192.0.2.0/24": "DE", "198.51.100.0/24": "FR",
		"2001:db8::/32": "DE"} {
		_, n, err := net.ParseCIDR(network)
		if err != nil {
			t.Fatal(err)
		}
		err = w.Insert(n, mmdbtype.Map{"country": mmdbtype.Map{"iso_code": mmdbtype.String(code)}})
		if err != nil {
			t.Fatal(err)
		}
	}
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "c.mmdb"), b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	const text = `set de = mmdb("c.mmdb", country DE)
set both = mmdb("c.mmdb", country { de, FR })
drop from de
drop from both
default pass
`
	var r setfile.Recording
	check := func(open func(string) (io.ReadCloser, error)) {
		t.Helper()
		p, ds := Parse("p.levee", []byte(text), open)
		if p == nil {
			t.Fatal(ds)
		}
		for i, want := range []string{"192.0.2.0/24 2001:db8::/32",
			"192.0.2.0/24 198.51.100.0/24 2001:db8::/32"} {
			var got []string
			for _, p := range p.Sets[i].Prefixes {
				got = append(got, p.String())
			}
			s := p.Sets[i]
			if strings.Join(got, " ") != want || s.Kind != policy.File || s.Path != "c.mmdb" {
				t.Errorf("%s: %v", s.Name, got)
			}
		}
	}
	check(r.Through(setfile.In(dir)))
	check(setfile.Recorded(r.Files()))
	whole, err := Whole("p.levee", []byte(text), r.Files())
	if err != nil || !strings.Contains(string(whole), "set de = { 192.0.2.0/24, 2001:db8::/32 }") {
		t.Errorf("%s, %v", whole, err)
	}
	p, ds := Parse("p.levee", []byte(strings.ReplaceAll(text, "FR", "XX")), setfile.In(dir))
	if p != nil || !strings.Contains(ds[0].Message, "it has no network of XX") {
		t.Errorf("%v", ds)
	}
}
