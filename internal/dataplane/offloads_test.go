package dataplane

import (
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/store"
	"levee/internal/host/card"
	"levee/internal/lang/action"
)

// TestOffloadsThatUpEndsAreBackAfterDown: generic XDP has the kernel end LRO, which was off for
// good after `down`. A macvlan has none, and can be asked for it.
func TestOffloadsThatUpEndsAreBackAfterDown(t *testing.T) {
	n := newTestNet(t)
	n.run(t, "macvlan", func(t *testing.T) {
		la := netlink.NewLinkAttrs()
		la.Name, la.ParentIndex = "mv0", must2(netlink.LinkByName("lv0")).Attrs().Index
		if err := netlink.LinkAdd(&netlink.Macvlan{LinkAttrs: la,
			Mode: netlink.MACVLAN_MODE_BRIDGE}); err != nil {
			t.Skipf("needs a macvlan: %v", err)
		}
		wanted := func() bool { return card.Read("mv0").Offloads[card.LRO].Wanted }
		up := func() { bring(t, "mv0", store.XDPGeneric, handPolicy("odd", action.Pass)) }
		down := func() {
			if _, err := Down(t.Context(), "mv0"); err != nil {
				t.Fatal(err)
			}
			runDirIsGone(t)
		}
		up()
		if down(); wanted() {
			t.Fatal("LRO is on, which nobody has asked for")
		}
		if err := card.TurnOn("mv0", []string{card.LRO}); err != nil || !wanted() {
			t.Skipf("a macvlan takes no LRO: %v", err)
		}
		if up(); wanted() {
			t.Skip("this kernel leaves LRO on")
		}
		up() // ends nothing, and forgets nothing
		if down(); !wanted() {
			t.Error("LRO is off for good")
		}
		for kill, killed := 1, true; killed; kill++ {
			up()
			_, killed = inChild(t, order{Do: "down", Dev: "mv0", Kill: kill})
			if len(must(inspect.Status(t.Context(), false))) > 0 {
				down()
			}
			if !wanted() {
				t.Fatalf("LRO is off for good after a down that was killed at step %d", kill)
			}
		}
	})
}

// TestOffloadsOfAnInterfaceThatHasMoved: what the policy had ended stayed off where the interface
// was in another network namespace when it went, and nobody said so.
func TestOffloadsOfAnInterfaceThatHasMoved(t *testing.T) {
	for _, from := range []string{"there", "here"} {
		n := newTestNet(t)
		n.run(t, "down from "+from, func(t *testing.T) {
			la := netlink.NewLinkAttrs()
			la.Name, la.ParentIndex = "mv0", must2(netlink.LinkByName("lv0")).Attrs().Index
			mv := &netlink.Macvlan{LinkAttrs: la, Mode: netlink.MACVLAN_MODE_BRIDGE}
			if err := netlink.LinkAdd(mv); err != nil {
				t.Skipf("needs a macvlan: %v", err)
			}
			if err := card.TurnOn("mv0", []string{card.LRO}); err != nil {
				t.Skipf("a macvlan takes no LRO: %v", err)
			}
			bring(t, "mv0", store.XDPGeneric, handPolicy("odd", action.Pass))
			if err := netlink.LinkSetNsFd(mv, int(n.peer)); err != nil {
				t.Fatal(err)
			}
			at := n.here
			if from == "there" {
				at = n.peer
			}
			notes := in(t, at, func() ([]string, error) { return Down(t.Context(), "mv0") })
			wanted := in(t, n.peer, func() (bool, error) {
				return card.Read("mv0").Offloads[card.LRO].Wanted, nil
			})
			told := strings.Contains(strings.Join(notes, "\n"), "ethtool -K DEV rx-lro on")
			if wanted != (from == "there") || told != (from == "here") {
				t.Errorf("LRO wanted: %t, notes %q", wanted, notes)
			}
			runDirIsGone(t)
		})
	}
}
