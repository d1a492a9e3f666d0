package dataplane

import (
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"levee/internal/await"
	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/sets"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/filter/state"
	"levee/internal/lang/resolve"
)

// TestACardOfAnotherDriverHasTheEntriesOfTheOneBefore: a card of another driver came under the name
// of a policy that is kept, could not have the program of the one before at its hook, and got the
// policy anew, with empty sets. Neither fits the interface of the other.
func TestACardOfAnotherDriverHasTheEntriesOfTheOneBefore(t *testing.T) {
	n := newTestNet(t)
	for _, mode := range []store.Mode{store.Auto, store.Clsact} {
		n.run(t, string(mode), func(t *testing.T) {
			p, ds := resolve.Parse("kept.levee", []byte("set bad = dynamic(max 100)\n"+
				"set slow = dynamic(max 8, lease 1h)\ndrop from bad\ndrop from slow\n"+
				"pass established\ndefault drop\n"), nil)
			if ds.HasErrors() {
				t.Fatal(ds.Err())
			}
			if mode == store.Clsact {
				addVeth(t, "lv0", "lv1", n.peer)
			}
			stop, ended := n.keeping(t, UpOptions{Names: []string{"lv0"}, Mode: mode,
				PolicyPath: "/etc/kept.levee"}, Compiler(p))
			first, flows := status(t), flowsOf(t)
			for set, prefix := range map[string]netip.Prefix{
				"bad":  netip.MustParsePrefix("192.0.2.7/32"),
				"slow": netip.MustParsePrefix("192.0.2.0/24"),
			} {
				if _, err := sets.Add(t.Context(), "lv0", set,
					[]sets.Entry{{Prefix: prefix, Lease: sets.Forever}}); err != nil {
					t.Fatal(err)
				}
			}
			if err := netlink.LinkDel(must2(netlink.LinkByName("lv0"))); err != nil {
				t.Fatal(err)
			}
			addIfb(t, "lv0")
			await.True(t, "it has a policy", func() bool {
				return len(must(inspect.Status(t.Context(), false))) > 0
			})
			a := status(t)
			if now := flowsOf(t); now != flows {
				t.Errorf("the memory of connections is map %d, before %d", now, flows)
			}
			if mode == store.Auto && (first.Mode != store.XDPNative || a.Mode == store.XDPNative) {
				t.Errorf("at %s, before at %s", a.Mode, first.Mode)
			}
			for _, s := range a.Sets {
				if s.Entries != 1 {
					t.Errorf("set %s has %d entries, before 1", s.Name, s.Entries)
				}
			}
			stop()
			<-ended
			if _, err := Down(t.Context(), "lv0"); err != nil {
				t.Error(err)
			}
			runDirIsGone(t)
			if err := netlink.LinkDel(must2(netlink.LinkByName("lv0"))); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// flowsOf is the map of connections of the only attachment.
func flowsOf(t *testing.T) (id ebpf.MapID) {
	t.Helper()
	err := store.Transact(t.Context(), func(s *store.Store) error {
		return generation.Sweep(s, "", func(a *attach.Attachment) error {
			name, _ := codegen.MapOf(a.Current().Maps, state.HoldsFlows)
			m, err := s.OpenPinned(a.Key, a.Current().Generation, name)
			if err != nil {
				return err
			}
			defer m.Close()
			id, err = store.MapID(m)
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return id
}
