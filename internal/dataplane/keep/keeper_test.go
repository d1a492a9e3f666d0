package keep

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/sets"
	"levee/internal/dataplane/store"
	"levee/internal/filter/sender"
	"levee/internal/host/local"
)

// asked notes the interfaces that get a policy.
type asked struct{ put []string }

func (a *asked) Put(_ context.Context, devs []string) ([]bool, error) {
	a.put = append(a.put, devs...)
	return make([]bool, len(devs)), nil
}

func (a *asked) Adopt(*store.Store, string) (bool, error)                 { return false, nil }
func (a *asked) Anew(string) error                                        { return nil }
func (a *asked) Move(context.Context, string, string) (r bool, err error) { return false, nil }

// TestLostMessagesPutAnOlderPolicyInForce: where the kernel could not tell of all that had changed,
// the keeper began anew, and put what it had read once over what was put in force since.
func TestLostMessagesPutAnOlderPolicyInForce(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes a network namespace")
	}
	t.Setenv(store.RunEnv, filepath.Join(t.TempDir(), "run"))
	t.Setenv(sets.LibEnv, t.TempDir())
	runtime.LockOSThread() // never unlocked: the thread ends with this test
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	add := func(name string) {
		t.Helper()
		la := netlink.NewLinkAttrs()
		la.Name = name
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: la, PeerName: "p-" + name}); err != nil {
			t.Fatal(err)
		}
	}
	add("kept0")
	add("kept1")
	cookie, err := attach.NetnsCookie()
	if err != nil {
		t.Fatal(err)
	}
	p := &asked{}
	k := &keeper[bool]{policy: p, seen: map[int]string{}, own: map[int]*local.Own{},
		ways: map[int][]byte{}, senders: map[int]*sender.Names{},
		unlike: map[int]bool{}, past: map[string]time.Time{},
		record: store.Record{Netns: cookie, Names: []string{"kept*"}}}
	lock, err := k.begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := k.first(t.Context()); err != nil {
		t.Fatal(err)
	}
	l, err := netlink.LinkByName("kept0")
	if err == nil {
		err = netlink.LinkDel(l)
	}
	if err != nil {
		t.Fatal(err)
	}
	add("kept2")
	add("other")
	if err := k.again(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := []string{"kept0", "kept1", "kept2"}; !slices.Equal(p.put, want) {
		t.Errorf("the policy was put on %q, want %q", p.put, want)
	}
	if len(k.seen) != 2 {
		t.Errorf("looked after: %v", k.seen)
	}
}
