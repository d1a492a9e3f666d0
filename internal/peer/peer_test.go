package peer

import (
	"errors"
	"os"
	"testing"

	"levee/examples"
	"levee/internal/lab"
)

func newSite(t *testing.T) (Site, *lab.Lab) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes network namespaces")
	}
	l, err := lab.New(t.Context(), lab.Standard())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return Site{Host: l.Host(lab.Server), Device: "eth0"}, l
}

func defences() []Defence {
	return []Defence{XDPDrop(), Levee(examples.DemoName, examples.Demo), XDPFilter(), NFT(), IPTables()}
}

func TestEachDefenceIsInstalledTwiceAndLeavesNothing(t *testing.T) {
	s, _ := newSite(t)
	for _, d := range defences() {
		t.Run(d.Name(), func(t *testing.T) {
			for range 2 {
				err := d.Install(t.Context(), s)
				if errors.Is(err, ErrMissing) {
					t.Skip(err)
				}
				if err != nil {
					t.Fatal(err)
				}
				n, err := d.Dropped(t.Context())
				if err != nil || n > 10 { // the lab's own packets, of IPv6 for instance
					t.Errorf("dropped %d, %v before any flood", n, err)
				}
				if err := d.Remove(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
