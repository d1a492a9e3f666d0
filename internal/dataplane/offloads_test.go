package dataplane

import (
	"testing"

	"github.com/vishvananda/netlink"

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
		up := func() { bring(t, "mv0", XDPGeneric, handPolicy("odd", action.Pass)) }
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
			if len(must(Status(t.Context(), false))) > 0 {
				down()
			}
			if !wanted() {
				t.Fatalf("LRO is off for good after a down that was killed at step %d", kill)
			}
		}
	})
}
