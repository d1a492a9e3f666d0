package dataplane

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/user"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"levee/internal/await"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/keep"
	"levee/internal/dataplane/sets"
	"levee/internal/dataplane/store"
)

const selfText = "set kept = dynamic(max 10, keep)\npass tcp to self port 22\ndrop from kept\n" +
	"default pass\n"

// inSelf waits until `self` of the policy on an interface has an address.
func inSelf(t *testing.T, dev, addr string) {
	t.Helper()
	await.OK(t, func() error {
		all, err := sets.List(t.Context(), dev, "self")
		if err != nil {
			return err
		}
		for _, e := range all[0].Entries {
			if e.Prefix.Addr() == netip.MustParseAddr(addr) {
				return nil
			}
		}
		return fmt.Errorf("`self` of %s has no %s", dev, addr)
	})
}

// policies lists the interfaces that have one, with its generation.
func policies(t *testing.T) string {
	t.Helper()
	all, _, err := inspect.Status(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, a := range all {
		out = append(out, fmt.Sprint(a.Dev, " ", a.Generation))
	}
	return strings.Join(out, ", ")
}

// TestARenamedInterfaceHadAPolicyWithoutAKeeper: `self` was not brought up to date any more.
// `levee down` by the name that is kept ended the keeper, said that there was no policy, and left
// it there.
func TestARenamedInterfaceHadAPolicyWithoutAKeeper(t *testing.T) {
	n := newTestNet(t)
	t.Setenv(sets.LibEnv, t.TempDir())
	o := UpOptions{Names: []string{"lv0"}, PolicyPath: "/etc/kept.levee", Source: []byte(selfText)}
	for _, c := range []struct {
		name string
		// between the change of the name and down; says when it is looked after again
		then func(t *testing.T)
		down []string // names that it is called by
		note string   // of the first
		ends bool     // the keeper does, before
	}{
		{"down by the name before", nil, []string{"lv0"}, "lv0 is called lan0 now", false},
		{"down by the name now", nil, []string{"lan0"}, "", false},
		{"another keeper follows", func(t *testing.T) {
			stop, ended := n.keeping(t, o, compileText(selfText))
			ip(t, "addr add 192.0.2.78/32 dev lan0")
			inSelf(t, "lan0", "192.0.2.78")
			stop()
			<-ended
		}, []string{"lv0"}, "lv0 is called lan0 now", true},
		{"another interface takes the name", func(t *testing.T) {
			addVeth(t, "lv0", "lv8", n.peer)
			await.True(t, "it has the policy",
				func() bool { return generation.Has(t.Context(), "lv0") })
		}, []string{"lv0", "lan0"}, "lv0 is kept together with lan0", false},
		{"one without a policy has the name, no keeper", func(t *testing.T) {
			addVeth(t, "lv0", "lv8", n.peer)
			if _, err := Down(t.Context(), "lv0"); err == nil || !strings.Contains(err.Error(),
				"is called lan0 now") {
				t.Errorf("down: %v", err)
			}
		}, []string{"lan0"}, "", true},
		{"rules of the agent and another hook", func(t *testing.T) {
			a := status(t)
			if _, err := Live(t.Context(), LiveOptions{Dev: "lan0", Lease: time.Hour,
				Rules: []inspect.LiveRule{{Rule: "drop udp"}}, Over: sets.PolicyState{Dev: "lan0",
					Generation: a.Generation, Program: a.Program.ID}},
				compileText("drop udp\n"+selfText)); err != nil {
				t.Fatal(err)
			}
			if _, err := MoveOn(t.Context(), "lan0", "it stands still"); err != nil {
				t.Fatal(err)
			}
		}, []string{"lv0"}, "lv0 is called lan0 now", false},
	} {
		n.run(t, c.name, func(t *testing.T) {
			t.Cleanup(func() { // the next one begins as this one
				for _, dev := range []string{"lan0", "lv0"} {
					if l, err := netlink.LinkByName(dev); err == nil {
						_ = netlink.LinkDel(l)
					}
				}
				addVeth(t, "lv0", "lv1", n.peer)
			})
			stop, ended := n.keeping(t, o, compileText(selfText))
			rename(t, "lv0", "lan0")
			ip(t, "addr add 192.0.2.77/32 dev lan0")
			inSelf(t, "lan0", "192.0.2.77")
			if c.ends {
				stop()
				<-ended
			}
			if c.then != nil {
				c.then(t)
			}
			for i, dev := range c.down {
				notes, err := Down(t.Context(), dev)
				if err != nil || i == 0 && !strings.Contains(strings.Join(notes, "\n"), c.note) {
					t.Errorf("down %s: %v, notes %q", dev, err, notes)
				}
			}
			if !c.ends {
				if err := <-ended; !errors.Is(err, keep.ErrUnkept) {
					t.Errorf("the keeper ended with %v", err)
				}
			}
			if left := policies(t); left != "" {
				t.Errorf("%s has a policy still", left)
			}
			runDirIsGone(t)
		})
	}
}

// TestARenamedInterfaceThatFitsIsNotGivenItsPolicyAnew: another name that fits had the keeper put
// in force what it had read once, over what somebody had put in force since. So did an interface
// that left a bridge, which the kernel tells as if it had gone.
func TestARenamedInterfaceThatFitsIsNotGivenItsPolicyAnew(t *testing.T) {
	n := newTestNet(t)
	t.Setenv(sets.LibEnv, t.TempDir())
	_, ended := n.keeping(t, UpOptions{Names: []string{"lv*"}, PolicyPath: "/etc/kept.levee",
		Source: []byte(selfText)}, compileText(selfText))
	if err := bringPolicy(t, "lv0", "drop udp\n"+selfText, 0); err != nil {
		t.Fatal(err)
	}
	rename(t, "lv0", "lv9")
	ip(t, "link add br0 type bridge", "link set lv9 master br0", "link set lv9 nomaster")
	addVeth(t, "lv5", "lv6", n.peer) // after what has happened to the other
	await.True(t, "it has the policy", func() bool { return generation.Has(t.Context(), "lv5") })
	if got := policies(t); got != "lv9 2, lv5 1" {
		t.Errorf("policies: %s", got)
	}
	for _, dev := range []string{"lv9", "lv5"} {
		if _, err := Down(t.Context(), dev, "lv5"); err != nil {
			t.Error(err)
		}
	}
	<-ended
	runDirIsGone(t)
}

// TestCommandsSayWhatAnInterfaceIsCalledNow.
func TestCommandsSayWhatAnInterfaceIsCalledNow(t *testing.T) {
	newTestNet(t)
	if err := bringPolicy(t, "lv0", abuserPolicy(10), time.Hour); err != nil {
		t.Fatal(err)
	}
	rename(t, "lv0", "lan0")
	for name, ask := range map[string]func(context.Context) error{
		"confirm": func(ctx context.Context) error { _, err := Confirm(ctx, "lv0"); return err },
		"renew":   func(ctx context.Context) error { return LiveRenew(ctx, "lv0", time.Hour) },
		"move":    func(ctx context.Context) error { _, err := MoveOn(ctx, "lv0", ""); return err },
		"set": func(ctx context.Context) error {
			_, err := sets.Open(ctx, "lv0", "abusers")
			return err
		},
		"save": func(ctx context.Context) error {
			_, err := sets.Save(ctx, "lv0", "")
			return err
		},
		"show": func(ctx context.Context) error {
			_, _, err := inspect.Show(ctx, "lv0")
			return err
		},
	} {
		if err := ask(t.Context()); err == nil ||
			!strings.Contains(err.Error(), "is called lan0 now") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAReaderSawTheNameThatAnInterfaceHadBefore, as did what compares what is received with what is
// judged, which took the packets of another interface of the name for those of this one.
func TestAReaderSawTheNameThatAnInterfaceHadBefore(t *testing.T) {
	n := newTestNet(t)
	g, err := user.LookupGroupId("1")
	if err != nil {
		t.Skipf("no group 1: %v", err)
	}
	was := store.Readers
	store.Readers = &store.Group{Name: g.Name}
	defer func() { store.Readers = was }()
	makeWay(t, os.Getenv(store.RunEnv))
	if err := bringPolicy(t, "lv0", abuserPolicy(10), 0); err != nil {
		t.Fatal(err)
	}
	var w inspect.Watcher
	defer w.Close()
	look := func(want string) {
		t.Helper()
		all, err := w.Look(t.Context())
		if err != nil || len(all) != 1 || all[0].Dev != want ||
			all[0].Ifindex != must2(netlink.LinkByName(want)).Attrs().Index {
			t.Errorf("%+v, %v, want one of %s", all, err, want)
		}
	}
	look("lv0")
	rename(t, "lv0", "lan0")
	addVeth(t, "lv0", "lv8", n.peer)
	look("lan0")
	out := string(asReader(t, g.Gid, order{Do: "read", Dev: "", Label: "abuser"}))
	if !strings.HasPrefix(out, "lan0 /etc/test.levee") {
		t.Errorf("a reader sees %q", out)
	}
}
