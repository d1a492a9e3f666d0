package dataplane

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"levee/internal/await"
	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/dispatcher"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/store"
	"levee/internal/kernel"
	"levee/internal/lang/action"
)

var joinedNets = flag.Bool("joined", false, "lv0 has a dispatcher of libxdp, which levee joins")

// dispatched is an interface with a dispatcher of libxdp, made by xdp-loader. It calls a program
// that passes packets.
//
//	lv0: xdp_dispatcher --> levee, once it joins --> xdp_pass
type dispatched struct {
	on     dispatcher.Interface
	pins   string
	object string // has the program
}

const theOther = "xdp_pass"

// newDispatched gives lv0 a dispatcher. At the end it has to be as it was, or gone.
func newDispatched(t testing.TB) *dispatched {
	t.Helper()
	if err := dispatcher.Check(); err != nil {
		t.Skipf("the kernel at hand lets no program replace a function: %v", err)
	}
	objects, _ := filepath.Glob("/usr/lib/*/bpf/xdp-dispatcher.o")
	if _, err := exec.LookPath("xdp-loader"); err != nil || len(objects) == 0 {
		t.Skip("needs xdp-loader and libxdp")
	}
	bpffs := t.TempDir()
	t.Setenv(dispatcher.BPFFSEnv, bpffs)
	if err := unix.Mount("test", bpffs, "bpf", 0, ""); err != nil {
		t.Fatal(err)
	}
	d := &dispatched{pins: bpffs + "/xdp", object: objects[0]}
	d.on = dispatcher.Interface{Index: must2(netlink.LinkByName("lv0")).Attrs().Index,
		In: func(fn func() error) error { return fn() }}
	t.Cleanup(func() { _ = unix.Unmount(bpffs, unix.MNT_DETACH) })
	d.load(t, "native")
	return d
}

func (d *dispatched) load(t testing.TB, mode string) {
	t.Helper()
	xdpLoader(t, "load", "--mode", mode, "lv0", d.object, "--prog-name", theOther)
}

// xdpLoader runs xdp-loader.
func xdpLoader(t testing.TB, args ...string) {
	t.Helper()
	if out, err := exec.Command("xdp-loader", args...).CombinedOutput(); err != nil {
		t.Fatalf("xdp-loader %v: %v\n%s", args, err, out)
	}
}

// newJoinedNet is newTestNet whose lv0 has a dispatcher.
func newJoinedNet(t testing.TB) (*testNet, *dispatched) {
	t.Helper()
	if *joinedNets {
		t.Skip("has a dispatcher anyway")
	}
	n := newTestNet(t)
	return n, newDispatched(t)
}

// calls lists the names of the programs that the dispatcher calls, none without one, and looks
// whether there are pins of it alone.
func (d *dispatched) calls(t testing.TB) (names []string) {
	t.Helper()
	there, err := dispatcher.Read(d.on)
	pins := 0
	switch {
	case err == nil:
		pins = 1
		defer there.Close()
		for _, p := range there.Programs {
			names = append(names, p.Name)
		}
	case !errors.Is(err, dispatcher.ErrNone):
		t.Fatal(err)
	}
	if dirs := must2(os.ReadDir(d.pins)); len(dirs) != pins {
		t.Errorf("%d directories of pins, want %d: %v", len(dirs), pins, dirs)
	}
	return names
}

// id is that of the program on lv0.
func (d *dispatched) id(t testing.TB) uint32 {
	t.Helper()
	id, _, err := dispatcher.Running(d.on)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func (d *dispatched) want(t testing.TB, names ...string) {
	t.Helper()
	if got := d.calls(t); !slices.Equal(got, names) {
		t.Errorf("the dispatcher calls %q, want %q", got, names)
	}
}

// change changes the programs of the dispatcher as another tool does.
func (d *dispatched) change(t testing.TB,
	programs func([]dispatcher.Program) []dispatcher.Program) {
	t.Helper()
	nothing := func(string) error { return nil }
	c := dispatcher.Change{On: d.on, Note: func(...uint32) error { return nil }, Step: nothing,
		Wait: func() error { return nil },
		Programs: func(d *dispatcher.Dispatcher) []dispatcher.Program {
			return programs(slices.Clone(d.Programs))
		}}
	if err := c.Do(); err != nil {
		t.Fatal(err)
	}
}

// add adds programs that pass packets.
func (d *dispatched) add(t testing.TB, names ...string) {
	t.Helper()
	var more []dispatcher.Program
	for _, name := range names {
		jumps := must2(dispatcher.NewJumpTable())
		defer jumps.Close()
		p := must2(dispatcher.NewCaller(name, jumps, false))
		defer p.Close()
		more = append(more, dispatcher.Program{Program: p, Name: name, Actions: 1 << attach.XdpPass,
			Priority: 60})
	}
	d.change(t, func(all []dispatcher.Program) []dispatcher.Program { return append(all, more...) })
}

func (d *dispatched) remove(t testing.TB, name string) {
	t.Helper()
	d.change(t, func(all []dispatcher.Program) []dispatcher.Program {
		return slices.DeleteFunc(all, func(p dispatcher.Program) bool { return p.Name == name })
	})
}

// levee is called first, stays in force whatever other tools do to the dispatcher, and is replaced
// without another one.
func TestJoinedPolicyStaysWhileOthersComeAndGo(t *testing.T) {
	n, d := newJoinedNet(t)
	r := bring(t, "lv0", store.Auto, handPolicy("odd", action.Pass))
	if r.Mode != store.XDPNative || !strings.Contains(r.Reason, "dispatcher of libxdp") {
		t.Errorf("report %+v", r)
	}
	d.want(t, attach.CallerName, theOther)
	odd := uint64(0)
	still := func() {
		t.Helper()
		for range 2 { // before and after a replace
			n.send(t, 3, 7)
			n.send(t, 2, 4)
			odd += 3
			wantPackets(t, "odd", odd)
			before := d.id(t)
			bring(t, "lv0", store.Auto, handPolicy("odd", action.Pass))
			if d.id(t) != before {
				t.Error("a replace built another dispatcher")
			}
		}
	}
	still()
	d.add(t, "second", "third")
	d.want(t, attach.CallerName, theOther, "second", "third")
	still()
	d.remove(t, theOther)
	d.remove(t, "second")
	still()
	d.remove(t, "third")
	d.want(t, attach.CallerName) // in the place of the dispatcher itself
	still()
	d.add(t, "fourth")
	still()
	d.remove(t, "fourth")
	if _, err := Down(t.Context(), "lv0"); err != nil {
		t.Fatal(err)
	}
	d.want(t)
	runDirIsGone(t)
}

// What another tool takes out with everything else is told, and can be put in force again.
func TestJoinedPolicyIsTakenOut(t *testing.T) {
	n, d := newJoinedNet(t)
	bring(t, "lv0", store.Auto, handPolicy("odd", action.Pass))
	xdpLoader(t, "unload", "lv0", "--all")
	all, notes, err := inspect.Status(t.Context(), false)
	if err != nil || len(all) != 0 || len(notes) != 1 ||
		!strings.Contains(notes[0], "was detached from lv0 by something else than levee") {
		t.Errorf("%v, %q, %v", all, notes, err)
	}
	runDirIsGone(t)
	d.load(t, "native")
	bring(t, "lv0", store.Auto, handPolicy("odd", action.Pass))
	xdpLoader(t, "unload", "lv0", "--all")
	r := bring(t, "lv0", store.Auto, handPolicy("odd", action.Pass))
	if strings.Contains(r.Reason, "dispatcher") {
		t.Errorf("reason %q without a dispatcher", r.Reason)
	}
	n.send(t, 3, 7)
	wantPackets(t, "odd", 3)
	d.pins = t.TempDir() // what is on lv0 now is no dispatcher
	d.want(t)
}

// A dispatcher in the network stack is joined there.
func TestJoinInTheNetworkStack(t *testing.T) {
	n, d := newJoinedNet(t)
	xdpLoader(t, "unload", "lv0", "--all")
	d.load(t, "skb")
	if r := bring(t, "lv0", store.Auto, handPolicy("odd",
		action.Pass)); r.Mode != store.XDPGeneric {
		t.Errorf("report %+v", r)
	}
	d.want(t, attach.CallerName, theOther)
	n.send(t, 3, 7)
	wantPackets(t, "odd", 3)
	if _, err := Down(t.Context(), "lv0"); err != nil {
		t.Fatal(err)
	}
	d.want(t, theOther)
}

// What cannot be joined is named, and stays.
func TestJoinIsRefused(t *testing.T) {
	_, d := newJoinedNet(t)
	refused := func(mode store.Mode, want string) {
		t.Helper()
		_, err := Up(t.Context(), UpOptions{Dev: "lv0", Mode: mode},
			compileHand(handPolicy("odd", action.Pass)))
		if !errors.Is(err, kernel.ErrRefused) || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%v, want %q", err, want)
		}
		runDirIsGone(t)
	}
	refused(store.XDPGeneric, "takes no program at xdp-generic beside it")
	others := []string{"b", "c", "d", "e", "f", "g", "h", "i", "j"}
	d.add(t, others...)
	refused(store.Auto, "it has 10 programs already")
	d.want(t, append([]string{theOther}, others...)...)
}

// A command that is killed at any step leaves the others in the dispatcher, and levee in it whole
// or not at all.
func TestJoinAndLeaveKilledAtEachStep(t *testing.T) {
	n, d := newJoinedNet(t)
	before := kernelObjects(t)
	for _, do := range []string{"up", "down"} {
		for kill, killed := 1, true; killed; kill++ {
			if do == "down" {
				inChild(t, order{Do: "up", Dev: "lv0", File: "a.levee", Label: "odd"})
			}
			_, killed = inChild(t, order{Do: do, Dev: "lv0", File: "a.levee", Label: "odd",
				Kill: kill})
			all, _, err := inspect.Status(t.Context(), false)
			if err != nil {
				t.Fatalf("%s, killed at step %d: %v", do, kill, err)
			}
			want := []string{theOther}
			if len(all) == 1 {
				want = []string{attach.CallerName, theOther}
				n.send(t, 3, 7)
				wantPackets(t, "odd", 3)
			}
			if d.want(t, want...); t.Failed() {
				t.Fatalf("%s, killed at step %d", do, kill)
			}
			if len(all) == 1 {
				inChild(t, order{Do: "down", Dev: "lv0"})
			}
			d.want(t, theOther)
			runDirIsGone(t)
			await.OK(t, func() error { return nothingAdded(t, before) })
		}
	}
}

// Without what is kept of it, levee's place passes packets, and `down` gives it up.
func TestJoinedPolicyWhoseRecordsAreGone(t *testing.T) {
	_, d := newJoinedNet(t)
	bring(t, "lv0", store.Auto, handPolicy("odd", action.Pass))
	if err := unix.Unmount(os.Getenv(store.RunEnv)+"/bpf", unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	if all := must(inspect.Status(t.Context(), false)); len(all) != 0 {
		t.Errorf("in force: %v", all)
	}
	d.want(t, attach.CallerName, theOther)
	notes, err := Down(t.Context(), "lv0")
	if err != nil || len(notes) != 1 || !strings.Contains(notes[0], "nothing was kept for") {
		t.Errorf("%q, %v", notes, err)
	}
	d.want(t, theOther)
	runDirIsGone(t)
}
