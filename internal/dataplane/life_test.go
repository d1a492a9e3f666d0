package dataplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"levee/internal/await"
	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/store"
	"levee/internal/kernel"
	"levee/internal/lang/action"
)

// Each command is a process of its own, run by `ip netns exec`, with its own mount namespace and
// /sys: what the first attaches, the others must find, replace and remove.
func TestPolicyOutlivesCommandsOfIPNetnsExec(t *testing.T) {
	n := newTestNet(t)
	name := fmt.Sprintf("levee-test-%d", os.Getpid())
	other, err := netns.NewNamed(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := netns.DeleteNamed(name); err != nil {
			t.Error(err)
		}
	}()
	defer other.Close()
	if err := netns.Set(n.here); err != nil {
		t.Fatal(err)
	}
	before := kernelObjects(t)
	lv0, err := netlink.LinkByName("lv0")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetNsFd(lv0, int(other)); err != nil {
		t.Fatal(err)
	}
	exec := []string{"ip", "netns", "exec", name}
	inChild(t, order{Do: "up", Dev: "lv0", File: "a.levee", Label: "one"}, exec...)
	if out, _ := inChild(t, order{Do: "status", Label: "one"}, exec...); out != "lv0 a.levee 0\n" {
		t.Errorf("status: %q", out)
	}
	inChild(t, order{Do: "up", Dev: "lv0", File: "b.levee", Label: "one", Confirm: time.Hour},
		exec...)
	inChild(t, order{Do: "confirm", Dev: "lv0"}, exec...)
	if out, _ := inChild(t, order{Do: "status", Label: "one"}, exec...); out != "lv0 b.levee 0\n" {
		t.Errorf("status: %q", out)
	}
	if out, _ := inChild(t, order{Do: "status"}); out != "" {
		t.Errorf("status in another namespace: %q", out)
	}
	all, _, err := inspect.Status(context.Background(), true)
	if err != nil || len(all) != 1 || all[0].Dev != "lv0" {
		t.Errorf("status of all: %v, %v", all, err)
	}
	inChild(t, order{Do: "down", Dev: "lv0"}, exec...)
	await.OK(t, func() error { return nothingAdded(t, before) })
	runDirIsGone(t)
}

func TestSameNameInTwoNamespacesDoesNotMeet(t *testing.T) {
	n := newTestNet(t)
	bring(t, "lv0", store.Auto, named("here.levee", "one"))
	third, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	defer third.Close()
	addVeth(t, "lv0", "lv9", n.peer)
	bring(t, "lv0", store.Auto, named("there.levee", "one"))
	if a := status(t); a.Policy != "/etc/there.levee" {
		t.Errorf("there: %s", a.Policy)
	}
	if _, err := Down(context.Background(), "lv0"); err != nil {
		t.Error(err)
	}
	if err := netns.Set(n.here); err != nil {
		t.Fatal(err)
	}
	if a := status(t); a.Policy != "/etc/here.levee" {
		t.Errorf("here: %s", a.Policy)
	}
}

func TestForeignXDPIsNeverReplaced(t *testing.T) {
	n := newTestNet(t)
	foreign, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "somebody", Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, attach.XdpPass), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close()
	lv0, err := netlink.LinkByName("lv0")
	if err != nil {
		t.Fatal(err)
	}
	attachments := map[string]func() func(){
		"by link": func() func() {
			l, err := link.AttachXDP(link.XDPOptions{Program: foreign,
				Interface: lv0.Attrs().Index})
			if err != nil {
				t.Fatal(err)
			}
			return func() { l.Close() }
		},
		"by netlink": func() func() {
			if err := netlink.LinkSetXdpFd(lv0, foreign.FD()); err != nil {
				t.Fatal(err)
			}
			return func() { _ = netlink.LinkSetXdpFd(lv0, -1) }
		},
		"generic": func() func() {
			if err := netlink.LinkSetXdpFdWithFlags(lv0, foreign.FD(),
				unix.XDP_FLAGS_SKB_MODE); err != nil {
				t.Fatal(err)
			}
			return func() { _ = netlink.LinkSetXdpFdWithFlags(lv0, -1, unix.XDP_FLAGS_SKB_MODE) }
		},
	}
	off := map[string]string{"by link": "lv0 xdp off`", "by netlink": "lv0 xdp off`",
		"generic": "lv0 xdpgeneric off`"}
	id, _ := must2(foreign.Info()).ID()
	for name, attached := range attachments {
		n.run(t, name, func(t *testing.T) {
			defer attached()()
			for _, mode := range []store.Mode{store.Auto, store.XDPNative, store.XDPGeneric} {
				_, err := Up(context.Background(), UpOptions{Dev: "lv0", Mode: mode},
					compileHand(handPolicy("one", action.Pass)))
				// A child of a test beside this one may hold it, until it runs its command.
				want := fmt.Sprintf(`already runs the XDP program "somebody" (id %d`, id)
				if !errors.Is(err, kernel.ErrRefused) || !strings.Contains(err.Error(), want) ||
					!strings.Contains(err.Error(), off[name]) {
					t.Errorf("%s: %v, want %s and %s", mode, err, want, off[name])
				}
			}
			runDirIsGone(t)
			bring(t, "lv0", must2(attach.TCIngress()), handPolicy("one", action.Pass)) // beside it
			if _, err := Down(context.Background(), "lv0"); err != nil {
				t.Error(err)
			}
			if l := must2(netlink.LinkByName("lv0")); l.Attrs().Xdp == nil ||
				l.Attrs().Xdp.ProgId != uint32(id) {
				t.Error("the foreign program is gone")
			}
		})
	}
}

func must2[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestVanishedInterfaceIsCleanedUp(t *testing.T) {
	n := newTestNet(t)
	for _, c := range []struct {
		name string
		do   func(*testing.T) []string
	}{
		{"status", func(t *testing.T) []string {
			all, notes, err := inspect.Status(context.Background(), false)
			if err != nil || len(all) != 0 {
				t.Errorf("%v %v", all, err)
			}
			return notes
		}},
		{"down", func(t *testing.T) []string {
			notes, err := Down(context.Background(), "gone0")
			if err != nil {
				t.Error(err)
			}
			return notes
		}},
	} {
		n.run(t, c.name, func(t *testing.T) {
			addVeth(t, "gone0", "gone1", n.peer)
			bring(t, "gone0", store.Auto, named("a.levee", "one"))
			if err := netlink.LinkDel(must2(netlink.LinkByName("gone0"))); err != nil {
				t.Fatal(err)
			}
			notes := c.do(t)
			if len(notes) != 1 || !strings.Contains(notes[0], "gone0") ||
				!strings.Contains(notes[0], "vanished") {
				t.Errorf("notes %q", notes)
			}
			await.OK(t, func() error { return nothingAtAll(t, "after "+c.name) })
			runDirIsGone(t)
		})
	}
	_, err := Up(context.Background(), UpOptions{Dev: "gone0"},
		compileHand(handPolicy("one", action.Pass)))
	if !errors.Is(err, kernel.ErrRefused) ||
		!strings.Contains(err.Error(), `there is no interface "gone0"`) {
		t.Errorf("up: %v", err)
	}
	runDirIsGone(t)
}

func TestVanishedNamespaceIsCleanedUpFromAnother(t *testing.T) {
	n := newTestNet(t)
	third := must2(netns.New())
	addVeth(t, "lv0", "lv9", n.peer)
	bring(t, "lv0", store.Auto, named("there.levee", "one"))
	if err := netns.Set(n.here); err != nil {
		t.Fatal(err)
	}
	third.Close() // nothing refers to it any more
	var all []string
	await.OK(t, func() error { // the kernel takes namespaces down in the background
		_, notes, err := inspect.Status(t.Context(), false)
		all = append(all, notes...)
		if err != nil || len(all) == 0 {
			return fmt.Errorf("no note: %v", err)
		}
		return nil
	})
	if len(all) != 1 || !strings.Contains(all[0],
		"interface lv0 has vanished, and its policy /etc/there.levee with it") {
		t.Errorf("notes %q", all)
	}
	runDirIsGone(t)
}

// rename gives an interface another name. Before Linux 6.2 it has to be down for that.
func rename(t *testing.T, from, to string) {
	t.Helper()
	ip(t, "link set "+from+" down", "link set "+from+" name "+to, "link set "+to+" up")
}

func TestRenamedInterfaceKeepsItsPolicy(t *testing.T) {
	n := newTestNet(t)
	addVeth(t, "old0", "old1", n.peer)
	bring(t, "old0", store.Auto, named("a.levee", "one"))
	rename(t, "old0", "new0")
	if a := status(t); a.Dev != "new0" {
		t.Errorf("status tells %q", a.Dev)
	}
	if _, err := Down(context.Background(), "new0"); err != nil {
		t.Error(err)
	}
}

func TestConcurrentUpsSerialise(t *testing.T) {
	n := newTestNet(t)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			inChildNet(t, n, order{Do: "up", Dev: "lv0", File: fmt.Sprintf("%d.levee", i),
				Label: "one"})
		})
	}
	wg.Wait()
	if a := status(t); a.Generation != 8 {
		t.Errorf("generation %d, want 8", a.Generation)
	}
	await.OK(t, func() error { return nothingElse(t, "concurrent ups") })
}

// largeMTU has both ends take frames of 9000 bytes, which XDP sees in several buffers.
func largeMTU(t *testing.T, n *testNet) {
	setMTU := func(ns netns.NsHandle, dev string) {
		if err := netns.Set(ns); err != nil {
			t.Fatal(err)
		}
		if err := netlink.LinkSetMTU(must2(netlink.LinkByName(dev)), 9000); err != nil {
			t.Fatal(err)
		}
	}
	setMTU(n.peer, "lv1")
	setMTU(n.here, "lv0")
}

func TestLargeMTUTakesFragments(t *testing.T) {
	n := newTestNet(t)
	largeMTU(t, n)
	r := bring(t, "lv0", store.Auto, handPolicy("one", action.Pass))
	if a := status(t); r.Mode != store.XDPNative || !a.Program.Frags {
		t.Errorf("mode %s, fragments %v", r.Mode, a.Program.Frags)
	}
	bringOnTrial(t, handPolicy("one", action.Pass), time.Minute)
	if a := status(t); !a.Program.Frags {
		t.Error("the trial lost fragments")
	}
}

// What levee wrote about one interface is unreadable: others are not held up by it, and down works.
func TestUnreadableStateHoldsUpNobodyElse(t *testing.T) {
	n := newTestNet(t)
	addVeth(t, "lv2", "lv3", n.peer)
	bring(t, "lv2", store.Auto, named("a.levee", "one"))
	files := must2(filepath.Glob(filepath.Join(os.Getenv(store.RunEnv), "state", "*", "1.json")))
	if len(files) != 1 {
		t.Fatal(files)
	}
	if err := os.WriteFile(files[0], []byte(`{"generation":`), 0o600); err != nil {
		t.Fatal(err)
	}
	r := bring(t, "lv0", store.Auto, named("b.levee", "one"))
	if len(r.Notes) != 1 || !strings.Contains(r.Notes[0], files[0]+" is damaged") {
		t.Errorf("notes %q", r.Notes)
	}
	all, _, err := inspect.Status(t.Context(), false)
	if len(all) != 1 || all[0].Dev != "lv0" || err == nil ||
		!strings.Contains(err.Error(), "`levee down --dev` with the interface") {
		t.Errorf("%v %v", all, err)
	}
	if _, err := Down(t.Context(), "lv2"); err != nil {
		t.Error(err)
	}
	if _, err := Down(t.Context(), "lv0"); err != nil {
		t.Error(err)
	}
	await.OK(t, func() error { return nothingAtAll(t, "after down") })
}

func TestLinkDetachedBySomebodyElseIsCleanedUp(t *testing.T) {
	newTestNet(t)
	bring(t, "lv0", store.Auto, named("a.levee", "one"))
	pins := must2(filepath.Glob(filepath.Join(os.Getenv(store.RunEnv), "bpf", "*", "link")))
	l := must2(link.LoadPinnedLink(pins[0], nil))
	if err := l.Detach(); err != nil {
		t.Fatal(err)
	}
	l.Close()
	all, notes, err := inspect.Status(t.Context(), false)
	if err != nil || len(all) != 0 || len(notes) != 1 ||
		!strings.Contains(notes[0], "was detached from lv0 by something else") {
		t.Errorf("%v %q %v", all, notes, err)
	}
	await.OK(t, func() error { return nothingAtAll(t, "after the detach") })
}

// A kernel without BTF must run the same program: none is handed to it.
func TestProgramsCarryNoBTF(t *testing.T) {
	newTestNet(t)
	bring(t, "lv0", store.Auto, handPolicy("one", action.Pass))
	p := must2(ebpf.NewProgramFromID(ebpf.ProgramID(status(t).Program.ID)))
	defer p.Close()
	if id, ok := must2(p.Info()).BTFID(); ok {
		t.Errorf("the program has BTF %d", id)
	}
}
