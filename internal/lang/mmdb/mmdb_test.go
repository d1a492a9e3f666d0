package mmdb

import (
	"bytes"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/maxmind/mmdbwriter"
	"github.com/maxmind/mmdbwriter/mmdbtype"
)

// file is a database that has these records, as GeoLite2 has them.
func file(t testing.TB, kind string, records map[string]mmdbtype.DataType) []byte {
	t.Helper()
	w, err := mmdbwriter.New(mmdbwriter.Options{DatabaseType: kind, IncludeReservedNetworks: true})
	if err != nil {
		t.Fatal(err)
	}
	for network, record := range records {
		_, n, err := net.ParseCIDR(network)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Insert(n, record); err != nil {
			t.Fatal(err)
		}
	}
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func country(code string) mmdbtype.DataType {
	return mmdbtype.Map{"country": mmdbtype.Map{"iso_code": mmdbtype.String(code)}}
}

func countries(t testing.TB) []byte {
	return file(t, "GeoLite2-Country", map[string]mmdbtype.DataType{
		"192.0.2.0/24": country("DE"), "198.51.100.0/25": country("FR"),
		"198.51.100.128/25": country("DE"), "2001:db8::/32": country("DE"),
		"203.0.113.0/24": mmdbtype.Map{"continent": mmdbtype.Map{}}})
}

func systems(t testing.TB) []byte {
	return file(t, "GeoLite2-ASN", map[string]mmdbtype.DataType{
		"192.0.2.0/24":  mmdbtype.Map{"autonomous_system_number": mmdbtype.Uint32(64500)},
		"2001:db8::/32": mmdbtype.Map{"autonomous_system_number": mmdbtype.Uint32(64501)}})
}

func TestCountriesOfAddresses(t *testing.T) {
	var addrs []netip.Addr
	for _, a := range []string{"192.0.2.7", "198.51.100.1", "198.51.100.200", "2001:db8::1",
		"203.0.113.1", "10.0.0.1", "::ffff:192.0.2.9"} {
		addrs = append(addrs, netip.MustParseAddr(a))
	}
	all := countries(t)
	c, err := CountriesOf(bytes.NewReader(all), addrs)
	if got := strings.Join(c.Of, " "); err != nil || got != "DE FR DE DE   DE" ||
		c.Type != "GeoLite2-Country" || time.Since(c.Built) > time.Hour {
		t.Errorf("%q, %+v, %v", got, c, err)
	}
	if _, err := CountriesOf(strings.NewReader("no file"), addrs); err == nil {
		t.Error("a text is a file")
	}
	rnd := rand.New(rand.NewPCG(1, 39))
	for range 2000 { // whatever it is: no crash
		bad := bytes.Clone(all)
		for range 1 + rnd.IntN(4) {
			bad[rnd.IntN(len(bad))] ^= byte(1 << rnd.IntN(8))
		}
		_, _ = CountriesOf(bytes.NewReader(bad), addrs)
	}
}

func TestNetworks(t *testing.T) {
	flat := file(t, "ipinfo", map[string]mmdbtype.DataType{"192.0.2.0/24": mmdbtype.Map{
		"asn": mmdbtype.String("AS64500"), "country_code": mmdbtype.String("DE")}})
	for _, test := range []struct {
		name    string
		file    []byte
		country bool
		values  string
		want    string
		fails   string
	}{
		{"a country", countries(t), true, "DE", "192.0.2.0/24 198.51.100.128/25 2001:db8::/32", ""},
		{"two", countries(t), true, "DE FR", "192.0.2.0/24 198.51.100.0/25 198.51.100.128/25 " +
			"2001:db8::/32", ""},
		{"one that is not in it", countries(t), true, "DE XX", "", "no network of XX"},
		{"a system", systems(t), false, "64500", "192.0.2.0/24", ""},
		{"flat fields", flat, false, "64500", "192.0.2.0/24", ""},
		{"a flat country", flat, true, "DE", "192.0.2.0/24", ""},
		{"another file", countries(t), false, "64500", "",
			`have no as: it is a "GeoLite2-Country"`},
		{"none", []byte("192.0.2.0/24\n"), true, "DE", "", "no MaxMind DB file"},
	} {
		q := Query{Country: test.country, Values: strings.Fields(test.values)}
		text, err := Networks(bytes.NewReader(test.file), q, 10)
		if got := strings.Join(strings.Fields(text), " "); got != test.want ||
			(err == nil) != (test.fails == "") ||
			err != nil && !strings.Contains(err.Error(), test.fails) {
			t.Errorf("%s: %q, %v", test.name, got, err)
		}
	}
	q := Query{true, []string{"DE"}}
	if _, err := Networks(bytes.NewReader(countries(t)), q, 2); err == nil {
		t.Error("more networks than there may be")
	}
}

func FuzzNetworks(f *testing.F) {
	f.Add(countries(f))
	f.Add(systems(f))
	f.Fuzz(func(_ *testing.T, file []byte) {
		for _, is := range []bool{true, false} {
			_, _ = Networks(bytes.NewReader(file), Query{is, []string{"DE", "64500"}}, 100)
		}
	})
}
