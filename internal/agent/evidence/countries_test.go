package evidence

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/maxmind/mmdbwriter"
	"github.com/maxmind/mmdbwriter/mmdbtype"

	"levee/internal/agent/part"
	"levee/internal/packet"
)

// TestTheCountriesOfAFlood: the page had none.
func TestTheCountriesOfAFlood(t *testing.T) {
	s := Open(filepath.Join(t.TempDir(), "packets"))
	if err := s.Put("7", "eth0", packet.Ethernet, flood(t, 1000)); err != nil {
		t.Fatal(err)
	}
	say := func(id string, of Facts) *Countries {
		t.Helper()
		c, err := s.countries(id, of)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if c := say("7", Facts{}); c.Why != noAtlas || len(c.Shares) > 0 {
		t.Errorf("without a file: %+v", c)
	}
	register := &part.Register{}
	s.Atlas = &Atlas{Path: filepath.Join(t.TempDir(), "countries.mmdb"),
		Part: register.Begin(part.File, "countries", "")}
	s.Atlas.Try()
	failed := func() string { return register.List()[0].Error }
	if c := say("7", Facts{}); !strings.Contains(c.Why, "no such file") || failed() == "" {
		t.Errorf("a file that is not there: %+v; %q", c, failed())
	}
	w, err := mmdbwriter.New(mmdbwriter.Options{DatabaseType: "GeoLite2-Country",
		IncludeReservedNetworks: true})
	if err != nil {
		t.Fatal(err)
	}
	for network, code := range map[string]string{"203.0.0.0/24": "DE", "203.0.1.0/24": "FR"} {
		_, n, err := net.ParseCIDR(network)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Insert(n, mmdbtype.Map{"country": mmdbtype.Map{
			"iso_code": mmdbtype.String(code)}}); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Create(s.Atlas.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := w.WriteTo(f); err != nil {
		t.Fatal(err)
	}
	c := say("7", Facts{Forged: true})
	near := func(a, b float64) bool { return a > b-1e-9 && a < b+1e-9 }
	if c.Why != "" || c.Packets != 1000 || !near(c.Shares["DE"], 0.256) || !c.Forged ||
		!near(c.Shares["FR"], 0.256) || len(c.Shares) != 2 || !near(c.Unknown, 0.488) ||
		c.File != "GeoLite2-Country" || c.Built.IsZero() || failed() != "" {
		t.Errorf("%+v; %q", c, failed())
	}
	other := Facts{Target: netip.MustParsePrefix("192.0.2.9/32")}
	if c := say("7", other); c.Packets != 0 || c.Unknown != 0 {
		t.Errorf("to another host: %+v", c)
	}
	if c := say("8", Facts{}); c.Why != ErrNone.Error() {
		t.Errorf("of another incident: %+v", c)
	}
	if err := os.WriteFile(s.Atlas.Path, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c := say("7", Facts{}); !strings.Contains(c.Why, "no MaxMind DB file") || failed() == "" {
		t.Errorf("a damaged file: %+v; %q", c, failed())
	}
}
