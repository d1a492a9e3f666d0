package dataplane

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/sets"
	"levee/internal/dataplane/store"
	"levee/internal/kernel"
)

// moveTo hands an interface to another network namespace, which takes it down, brings it up there
// and enters that namespace.
func moveTo(t *testing.T, dev string, ns netns.NsHandle) {
	t.Helper()
	if err := netlink.LinkSetNsFd(must2(netlink.LinkByName(dev)), int(ns)); err != nil {
		t.Fatal(err)
	}
	if err := netns.Set(ns); err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(must2(netlink.LinkByName(dev))); err != nil {
		t.Fatal(err)
	}
}

// third is a network namespace with other indices than the test's, so that an interface that comes
// there gets a new one or keeps its own, as the kernel likes.
func third(t *testing.T, n *testNet) netns.NsHandle {
	t.Helper()
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	if err := netns.Set(n.here); err != nil {
		t.Fatal(err)
	}
	return ns
}

// An interface that is handed to a container keeps its program. Who has the interface then has the
// policy: shows it, replaces it with its counters, changes its sets, takes it off.
func TestMovedInterfaceIsManagedWhereItIs(t *testing.T) {
	n := newTestNet(t)
	ctx := context.Background()
	for _, mode := range allModes(t) {
		if mode == store.Clsact { // see TestFilterIsGoneWhereItsInterfaceMoves
			continue
		}
		n.run(t, string(mode), func(t *testing.T) {
			addVeth(t, "mv0", "mv1", n.peer)
			bring(t, "mv0", mode, named("a.levee", "one"))
			there := third(t, n)
			defer there.Close()
			moveTo(t, "mv0", there)

			if a := status(t); a.Dev != "mv0" || a.Policy != "/etc/a.levee" {
				t.Errorf("status there: %s on %s", a.Policy, a.Dev)
			}
			r := bring(t, "mv0", store.Auto, named("b.levee", "one"))
			if r.Replaced != "/etc/a.levee" || r.Generation != 2 {
				t.Errorf("replaced %q, generation %d", r.Replaced, r.Generation)
			}
			if err := netns.Set(n.here); err != nil {
				t.Fatal(err)
			}
			if all, _, err := inspect.Status(ctx, false); err != nil || len(all) != 0 {
				t.Errorf("status where it was: %v, %v", all, err)
			}
			if err := netns.Set(there); err != nil {
				t.Fatal(err)
			}
			if _, err := Down(ctx, "mv0"); err != nil {
				t.Error(err)
			}
			runDirIsGone(t)
			_ = netlink.LinkDel(must2(netlink.LinkByName("mv0")))
			n.enterHere(t)
		})
	}
}

func TestDownWhereTheInterfaceWasTakesThePolicyOff(t *testing.T) {
	n := newTestNet(t)
	ctx := context.Background()
	bring(t, "lv0", store.Auto, named("a.levee", "one"))
	there := third(t, n)
	defer there.Close()
	moveTo(t, "lv0", there)
	n.enterHere(t)
	all, notes, err := inspect.Status(ctx, false)
	if err != nil || len(all) != 0 || len(notes) != 1 ||
		!strings.Contains(notes[0], "lv0 is in another network namespace now") {
		t.Errorf("status: %v, notes %q, %v", all, notes, err)
	}
	notes, err = Down(ctx, "lv0")
	if err != nil || len(notes) != 1 || !strings.Contains(notes[0], "another network namespace") {
		t.Errorf("down: notes %q, %v", notes, err)
	}
	if err := netns.Set(there); err != nil {
		t.Fatal(err)
	}
	if x := must2(netlink.LinkByName("lv0")).Attrs().Xdp; x != nil && x.Attached {
		t.Error("the program is still on the interface")
	}
	runDirIsGone(t)
	n.enterHere(t)
}

// A new interface that gets the index of one that moved away is another interface.
func TestIndexOfAMovedInterfaceUsedAgain(t *testing.T) {
	n := newTestNet(t)
	ctx := context.Background()
	first := bring(t, "lv0", store.Auto, named("moved.levee", "one"))
	there := third(t, n)
	defer there.Close()
	moveTo(t, "lv0", there)
	n.enterHere(t)
	again := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "lv0", Index: first.Ifindex},
		PeerName: "lv8"}
	if err := netlink.LinkAdd(again); err != nil {
		t.Fatal(err)
	}
	r := bring(t, "lv0", store.Auto, named("new.levee", "one"))
	if r.Ifindex != first.Ifindex || r.Replaced != "" || r.Generation != 1 {
		t.Errorf("index %d after %d, replaced %q, generation %d", r.Ifindex, first.Ifindex,
			r.Replaced, r.Generation)
	}
	if a := status(t); a.Policy != "/etc/new.levee" {
		t.Errorf("here: %s", a.Policy)
	}
	if _, err := Down(ctx, "lv0"); err != nil {
		t.Error(err)
	}
	if err := netns.Set(there); err != nil {
		t.Fatal(err)
	}
	if a := status(t); a.Policy != "/etc/moved.levee" {
		t.Errorf("there: %s", a.Policy)
	}
	if _, err := Down(ctx, "lv0"); err != nil {
		t.Error(err)
	}
	runDirIsGone(t)
	n.enterHere(t)
}

func TestSetOfARenamedInterfaceSaysItsName(t *testing.T) {
	newTestNet(t)
	if err := bringPolicy(t, "lv0", abuserPolicy(100), 0); err != nil {
		t.Fatal(err)
	}
	rename(t, "lv0", "wan0")
	sets, err := sets.List(context.Background(), "", "abusers")
	if err != nil || len(sets) != 1 || sets[0].Dev != "wan0" {
		t.Errorf("%v, %v", sets, err)
	}
}

// TestAnErrorOfTheKernelDoesNotMeanThatNothingIsThere: a policy at tc was taken for one of another
// namespace when the kernel could not be asked for a moment. There was "no such dynamic set" then,
// and a withdrawal from it counted as done.
func TestAnErrorOfTheKernelDoesNotMeanThatNothingIsThere(t *testing.T) {
	if err := kernel.TCX.Check(); err != nil {
		t.Skip(err)
	}
	newTestNet(t)
	ctx := t.Context()
	if err := bringPolicyAt(t, "lv0", store.TCX, abuserPolicy(10), 0); err != nil {
		t.Fatal(err)
	}
	ask := attach.QueryPrograms
	t.Cleanup(func() { attach.QueryPrograms = ask })
	failing := func(cause error, times int) {
		attach.QueryPrograms = func(o link.QueryOptions) (*link.QueryResult, error) {
			if times--; times >= 0 {
				return nil, fmt.Errorf("query programs: %w", cause)
			}
			return ask(o)
		}
	}
	for _, cause := range []error{unix.ENOMEM, unix.EPERM} {
		failing(cause, 1000)
		if _, err := sets.OpenAll(ctx, "abusers"); !errors.Is(err, cause) ||
			errors.Is(err, sets.ErrNoSet) {
			t.Errorf("%v: open sets: %v", cause, err)
		}
		if all, err := sets.InForceHere(ctx); !errors.Is(err, cause) {
			t.Errorf("%v: in force %v: %v", cause, all, err)
		}
		if _, err := Down(ctx, "lv0"); !errors.Is(err, cause) {
			t.Errorf("%v: down: %v", cause, err)
		}
	}
	failing(unix.ENOSPC, 3) // programs came between two questions
	if all, err := sets.InForceHere(ctx); len(all) != 1 || err != nil {
		t.Errorf("in force %v: %v", all, err)
	}
	failing(unix.EINVAL, 1000) // a kernel without TCX
	if all, err := sets.InForceHere(ctx); len(all) != 0 || err != nil {
		t.Errorf("in force %v: %v", all, err)
	}
	attach.QueryPrograms = ask
	if _, err := Down(ctx, "lv0"); err != nil {
		t.Error(err)
	}
}
