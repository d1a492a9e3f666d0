package gen

import (
	"net/netip"
	"os"
	"testing"
	"time"

	"levee/internal/lab"
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes network namespaces")
	}
}

func newLab(t *testing.T) *lab.Lab {
	t.Helper()
	needRoot(t)
	l, err := lab.New(t.Context(), lab.Standard())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func prefixes(s ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range s {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

func TestCounts(t *testing.T) {
	l := newLab(t)
	for _, to := range []string{"198.18.0.1", "2001:db8::1"} {
		src := prefixes("10.0.0.0/8")
		if netip.MustParseAddr(to).Is6() {
			src = prefixes("2001:db8:5::/48")
		}
		for _, k := range []Kind{UDP, SYN} {
			r, err := Run(t.Context(), Config{
				Namespace: l.Host(lab.World).Namespace, Device: "eth0",
				Flood:    &Flood{Kind: k, Sources: src, To: netip.MustParseAddr(to)},
				Count:    1e6,
				Duration: 5 * time.Second,
			})
			t.Logf("%+v %v", r, err)
			r, err = Run(t.Context(), Config{
				Namespace: l.Host(lab.World).Namespace, Device: "eth0",
				Flood:    &Flood{Kind: k, Sources: src, To: netip.MustParseAddr(to)},
				Duration: 1 * time.Second,
				Rate:     500000,
			})
			t.Logf("%+v %v", r, err)
		}
	}
}
