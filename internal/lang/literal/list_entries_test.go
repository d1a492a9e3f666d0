package literal

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"levee/internal/lang/policy"
)

// TestSetFilesReadWhatListsHave: set --from and file() took one address a line alone, where feeds
// read what others publish.
func TestSetFilesReadWhatListsHave(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"ranges with tabs and a length", "45.1.3.0\t45.1.3.255\t24\n", "45.1.3.0/24"},
		{"a network and its mask", "203.0.113.0 255.255.255.0\n", "203.0.113.0/24"},
		{"a range in three words", "192.0.2.1 - 192.0.2.2\n", "192.0.2.1/32 192.0.2.2/32"},
		{"several a line", "192.0.2.1, 192.0.2.9 2001:db8::/32 # all\n192.0.2.1 192.0.2.2\n",
			"192.0.2.1/32 192.0.2.9/32 2001:db8::/32 192.0.2.1/32 192.0.2.2/32"},
		{"lines that end by CR", "192.0.2.1\r192.0.2.2\r\r\n192.0.2.3\r",
			"192.0.2.1/32 192.0.2.2/32 192.0.2.3/32"},
		{"a byte order mark", "\ufeff192.0.2.1\r\n", "192.0.2.1/32"},
		{"a mask as routers have it", "203.0.113.0 0.0.0.255\n", "203.0.113.0/24"},
		{"a length behind a blank", "203.0.113.0 /24\n2001:db8:: / 32\n192.0.2.0 -192.0.2.1\n",
			"203.0.113.0/24 2001:db8::/32 192.0.2.0/31"},
		{"a wrong length behind a blank", "203.0.113.0 /33\n", ""},
		{"comments", "# a\n; b\n// c\n192.0.2.1 // d\n192.0.2.2;e\n", "192.0.2.1/32 192.0.2.2/32"},
		{"ranges of whole /24", "1.0.1.0 1.0.3.255\n2001:db8:: 2001:db8:0:2:ffff:ffff:ffff:ffff\n",
			"1.0.1.0/24 1.0.2.0/23 2001:db8::/63 2001:db8:0:2::/64"},
		{"two addresses before other columns", "192.0.2.4 192.0.2.9 US\n", ""},
		{"a mask behind a slash", "203.0.113.0/255.255.255.0\n", "203.0.113.0/24"},
		{"ranges of lists for P2P", "Some, Ltd:192.0.2.0-192.0.2.3\nX:192.0.2.8-192.0.2.9\n",
			"192.0.2.0/30 192.0.2.8/31"},
		{"ipfilter.dat", "192.000.002.000 - 192.000.002.003 , 000 , Some, 7 of them\n" +
			"192.000.002.008 - 192.000.002.009 , 127 ,\n", "192.0.2.0/30 192.0.2.8/31"},
		{"an address for a name in ipfilter.dat", "192.0.2.0 - 192.0.2.3 , 000 , 192.0.2.9\n", ""},
		{"what may pass in ipfilter.dat", "192.0.2.0 - 192.0.2.3 , 200 , Some\n", ""},
		{"columns are no list", "192.0.2.1 evil\n", ""},
		{"nor is an address behind a word", "evil 192.0.2.1\n", ""},
	} {
		for _, name := range []string{"at once", "a byte at a time"} {
			in := iotest.OneByteReader(strings.NewReader(c.in))
			if name == "at once" {
				in = strings.NewReader(c.in)
			}
			got, ds := ReadPrefixes(in, "list")
			if ds.HasErrors() != (c.want == "") {
				t.Errorf("%s, %s: %v", c.name, name, ds.Err())
			}
			if d := cmp.Diff(c.want, listed(got)); d != "" {
				t.Errorf("%s, %s (-want +got):\n%s", c.name, name, d)
			}
		}
	}
}

func listed(in []netip.Prefix) string {
	var words []string
	for _, p := range in {
		words = append(words, p.String())
	}
	return strings.Join(words, " ")
}

// TestLeasesOfListLines: the lease behind several addresses is of each.
func TestLeasesOfListLines(t *testing.T) {
	got, ds := ReadEntries(strings.NewReader("192.0.2.1\n192.0.2.2 192.0.2.9 lease 10m\n"+
		"45.1.3.0 45.1.3.255 lease forever\n"), "list", policy.Addresses,
		func(e policy.Element, d time.Duration) string { return fmt.Sprint(e.Prefix, " ", d) })
	if err := ds.Err(); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"192.0.2.1/32 0s", "192.0.2.2/32 10m0s", "192.0.2.9/32 10m0s",
		"45.1.3.0/24 -1ns"}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
