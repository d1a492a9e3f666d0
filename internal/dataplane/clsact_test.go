package dataplane

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"levee/internal/await"
	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/sets"
	"levee/internal/dataplane/store"
	"levee/internal/kernel"
	"levee/internal/lang/action"
)

// Which way to tc ingress is taken is decided by one probe, and either is among the ways of any
// kernel.
func TestAutoTakesTheWayToTCIngressThatTheKernelHas(t *testing.T) {
	for _, tc := range []store.Mode{store.TCX, store.Clsact} {
		want := []attach.Try{{Mode: store.XDPNative, Frags: false},
			{Mode: store.XDPNative, Frags: true}, {Mode: tc, Frags: false},
			{Mode: store.XDPGeneric, Frags: false},
			{Mode: store.XDPGeneric, Frags: true}}
		if got := attach.Tries(store.Auto, &attach.Device{MTU: 1500}, tc); !slices.Equal(got,
			want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	needRoot(t)
	want := store.TCX
	if errors.Is(kernel.TCX.Check(), ebpf.ErrNotSupported) {
		want = store.Clsact
	}
	if got, err := attach.TCIngress(); got != want || err != nil {
		t.Errorf("tc ingress by %q (%v), want %s", got, err, want)
	}
}

// others are filters of somebody else at ingress of lv0.
type others struct {
	*testing.T
	prog *ebpf.Program
	seen *ebpf.Map
}

// newOthers loads a program that counts packets and accepts them, which ends the list of filters.
func newOthers(t *testing.T) *others {
	t.Helper()
	o := &others{T: t}
	var err error
	o.seen, err = ebpf.NewMap(&ebpf.MapSpec{Name: "somebody", Type: ebpf.Array, KeySize: 4,
		ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	o.prog, err = ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "somebody", Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{
			asm.LoadMapValue(asm.R1, o.seen.FD(), 0),
			asm.Mov.Imm(asm.R2, 1),
			asm.StoreXAdd(asm.R1, asm.R2, asm.DWord),
			asm.Mov.Imm(asm.R0, 0), // TC_ACT_OK
			asm.Return(),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		o.prog.Close()
		o.seen.Close()
	})
	return o
}

func (o *others) qdisc() {
	o.Helper()
	f := &attach.Filter{Index: must2(netlink.LinkByName("lv0")).Attrs().Index}
	if err := netlink.QdiscAdd(f.Qdisc()); err != nil {
		o.Fatal(err)
	}
}

func (o *others) add(priority uint16) {
	o.Helper()
	b := (&attach.Filter{Index: must2(netlink.LinkByName("lv0")).Attrs().Index}).Filter()
	b.Name, b.Handle, b.Priority, b.Fd = "somebody", 1, priority, o.prog.FD()
	if err := netlink.FilterAdd(b); err != nil {
		o.Fatal(err)
	}
}

func (o *others) packets() (n uint64) {
	o.Helper()
	if err := o.seen.Lookup(uint32(0), &n); err != nil {
		o.Fatal(err)
	}
	return n
}

// filters returns the number of filters that lv0 has at ingress, and whether it has the qdisc for
// them.
func filters(t *testing.T) (n int, qdisc bool) {
	t.Helper()
	l := must2(netlink.LinkByName("lv0"))
	for _, q := range must2(netlink.QdiscList(l)) {
		qdisc = qdisc || q.Type() == "clsact"
	}
	return len(must2(netlink.FilterList(l, netlink.HANDLE_MIN_INGRESS))), qdisc
}

// Whatever priority somebody else's filters have, levee's comes first, hands on what it passes,
// and leaves them where they are.
func TestFiltersOfOthersAreKeptAndComeAfterLevees(t *testing.T) {
	for _, priority := range []uint16{attach.FilterPriority, 2, 49152} {
		n := newTestNet(t)
		o := newOthers(t)
		o.qdisc()
		o.add(priority)
		bring(t, "lv0", store.Clsact, handPolicy("odd", action.Pass))
		for range 2 { // before and after a replace
			before := o.packets()
			odd := status(t)
			n.send(t, 3, 7) // dropped
			n.send(t, 5, 4) // passed on
			wantPackets(t, "odd", packets(&odd, "odd")+3)
			if got := o.packets() - before; got != 5 {
				t.Errorf("priority %d: the filter behind levee's saw %d packets, want 5", priority,
					got)
			}
			bring(t, "lv0", store.Auto, handPolicy("odd", action.Pass))
		}
		if _, err := Down(t.Context(), "lv0"); err != nil {
			t.Fatal(err)
		}
		if left, qdisc := filters(t); left != 1 || !qdisc {
			t.Errorf("priority %d: %d filters are left, qdisc %v", priority, left, qdisc)
		}
		before := o.packets()
		n.send(t, 3, 7)
		if got := o.packets() - before; got != 3 {
			t.Errorf("priority %d: the filter sees %d of 3 packets afterwards", priority, got)
		}
	}
}

// Of priority 1 all filters are of one kind and for one protocol: where others are not like
// levee's, its own could not come first.
func TestFilterThatCouldNotComeFirstIsRefused(t *testing.T) {
	n := newTestNet(t)
	o := newOthers(t)
	addIfb(t, "ifb0")
	for _, c := range []struct {
		name string
		add  func(index int) error
	}{
		{"another kind", func(index int) error {
			return netlink.FilterAdd(&netlink.U32{FilterAttrs: netlink.FilterAttrs{
				LinkIndex: index, Parent: netlink.HANDLE_MIN_INGRESS, Priority: 1,
				Protocol: unix.ETH_P_ALL}})
		}},
		{"another protocol", func(index int) error {
			b := (&attach.Filter{Index: index}).Filter()
			b.Name, b.Handle, b.Protocol, b.Fd = "somebody", 1, unix.ETH_P_IP, o.prog.FD()
			return netlink.FilterAdd(b)
		}},
	} {
		n.run(t, c.name, func(t *testing.T) {
			index := must2(netlink.LinkByName("ifb0")).Attrs().Index
			q := (&attach.Filter{Index: index}).Qdisc()
			if err := errors.Join(netlink.QdiscAdd(q), c.add(index)); err != nil {
				t.Fatal(err)
			}
			_, err := Up(t.Context(), UpOptions{Dev: "ifb0", Mode: store.Clsact},
				compileHand(handPolicy("odd", action.Pass)))
			const saying = "somebody else has priority 1, which levee's needs to come first; " +
				"`tc filter show dev ifb0 ingress` shows it"
			if !errors.Is(err, kernel.ErrRefused) || !strings.Contains(err.Error(), saying) {
				t.Errorf("refused with %v", err)
			}
			runDirIsGone(t)
			if err := netlink.QdiscDel(q); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestQdiscIsTakenAwayOnlyIfLeveeMadeItAndNobodyNeedsIt(t *testing.T) {
	for _, c := range []struct {
		name                string
		before, after, gone bool // was there, got another filter
	}{
		{name: "levee's", gone: true},
		{name: "there before", before: true},
		{name: "needed by now", after: true},
	} {
		newTestNet(t)
		o := newOthers(t)
		if c.before {
			o.qdisc()
		}
		bring(t, "lv0", store.Clsact, handPolicy("odd", action.Pass))
		bring(t, "lv0", store.Auto, handPolicy("odd", action.Pass))
		if c.after {
			o.add(3)
		}
		if _, err := Down(t.Context(), "lv0"); err != nil {
			t.Fatal(err)
		}
		if _, qdisc := filters(t); qdisc == c.gone {
			t.Errorf("%s: qdisc %v", c.name, qdisc)
		}
	}
}

// A filter has no owner: whoever may change the network takes it away. The next command says so,
// and what was kept is removed.
func TestFilterThatSomebodyTakesAwayIsMissed(t *testing.T) {
	n := newTestNet(t)
	own := &attach.Filter{Index: must2(netlink.LinkByName("lv0")).Attrs().Index}
	for name, take := range map[string]func() error{
		"filter": func() error { return netlink.FilterDel(own.Filter()) },
		"qdisc":  func() error { return netlink.QdiscDel(own.Qdisc()) },
	} {
		n.run(t, name, func(t *testing.T) {
			before := kernelObjects(t)
			bring(t, "lv0", store.Clsact, handPolicy("odd", action.Pass))
			if err := take(); err != nil {
				t.Fatal(err)
			}
			all, notes, err := inspect.Status(t.Context(), false)
			const saying = "is not in force on lv0, because its tc filter is not there"
			if err != nil || len(all) != 0 || len(notes) != 1 ||
				!strings.Contains(notes[0], saying) {
				t.Errorf("%v, notes %q, %v", all, notes, err)
			}
			if _, qdisc := filters(t); qdisc {
				t.Error("the qdisc is left")
			}
			await.OK(t, func() error { return nothingAdded(t, before) })
			runDirIsGone(t)
		})
	}
}

// A filter is no object of the bpf file system: it is there when nothing of levee's is. Down takes
// it away, up continues with it.
func TestFilterWithoutRecordsIsTakenOverOrAway(t *testing.T) {
	n := newTestNet(t)
	lose := func() {
		bring(t, "lv0", store.Clsact, handPolicy("odd", action.Pass))
		run := os.Getenv(store.RunEnv)
		if err := store.OnHost(func() error {
			return errors.Join(unix.Unmount(run+"/bpf", 0), os.RemoveAll(run))
		}); err != nil {
			t.Fatal(err)
		}
	}
	lose()
	notes, err := Down(t.Context(), "lv0")
	const saying = "a tc filter of levee's that nothing was kept for"
	if err != nil || len(notes) != 1 || !strings.Contains(notes[0], saying) {
		t.Errorf("down: %q, %v", notes, err)
	}
	if left, _ := filters(t); left != 0 {
		t.Errorf("%d filters are left", left)
	}
	lose()
	bring(t, "lv0", store.Clsact, handPolicy("odd", action.Pass))
	n.send(t, 3, 7)
	wantPackets(t, "odd", 3)
	if left, _ := filters(t); left != 1 {
		t.Errorf("%d filters", left)
	}
	if _, err := Down(t.Context(), "lv0"); err != nil {
		t.Error(err)
	}
	runDirIsGone(t)
}

// Filters of other network namespaces are found there, and are gone with them.
func TestFilterInAnotherNamespace(t *testing.T) {
	n := newTestNet(t)
	there := third(t, n)
	if err := netns.Set(there); err != nil {
		t.Fatal(err)
	}
	addVeth(t, "cl0", "cl1", n.peer)
	bring(t, "cl0", store.Clsact, named("there.levee", "one"))
	somebody := exec.Command("sleep", "60") // a file descriptor alone is not looked for
	if err := somebody.Start(); err != nil {
		t.Fatal(err)
	}
	n.enterHere(t)
	all := must(inspect.Status(t.Context(), true))
	if len(all) != 1 || all[0].Dev != "cl0" || all[0].Mode != store.Clsact {
		t.Errorf("status of all: %+v", all)
	}
	if all := must(inspect.Status(t.Context(), false)); len(all) != 0 {
		t.Errorf("status here: %+v", all)
	}
	bring(t, "lv0", store.Clsact, named("here.levee", "one")) // sweeps all others
	if all := must(inspect.Status(t.Context(), true)); len(all) != 2 {
		t.Errorf("status of all: %+v", all)
	}
	if _, err := Down(t.Context(), "lv0"); err != nil {
		t.Error(err)
	}
	_ = somebody.Process.Kill()
	_ = somebody.Wait() // killed
	there.Close()
	await.OK(t, func() error {
		_, _, err := inspect.Status(t.Context(), true)
		if _, there := os.Stat(os.Getenv(store.RunEnv)); there == nil {
			err = errors.Join(err, errors.New("the runtime directory is still there"))
		}
		return err
	})
}

// TestWhoMayNotLookTakesNothingAway: a process without CAP_SYS_ADMIN, such as the agent, cannot
// enter another network namespace. It took the filter there for gone, and removed what was kept for
// it.
func TestWhoMayNotLookTakesNothingAway(t *testing.T) {
	n := newTestNet(t)
	there := third(t, n)
	defer there.Close()
	if err := netns.Set(there); err != nil {
		t.Fatal(err)
	}
	addVeth(t, "cl0", "cl1", n.peer)
	bring(t, "cl0", store.Clsact, named("there.levee", "one"))
	n.enterHere(t)
	before := kept(t)
	without(t, unix.CAP_SYS_ADMIN, func() {
		if all, err := sets.InForceHere(t.Context()); len(all) != 0 || err != nil {
			t.Errorf("in force here: %v, %v", all, err)
		}
	})
	if after := kept(t); after != before {
		t.Errorf("kept %s, before %s", after, before)
	}
	if err := netns.Set(there); err != nil {
		t.Fatal(err)
	}
	if a := status(t); a.Policy != "/etc/there.levee" {
		t.Errorf("there: %s", a.Policy)
	}
	if _, err := Down(t.Context(), "cl0"); err != nil {
		t.Error(err)
	}
	n.enterHere(t)
}

// without runs f without a capability of this thread, which the test has for itself.
func without(t *testing.T, capability uint, f func()) {
	t.Helper()
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var all [2]unix.CapUserData
	if err := unix.Capget(&hdr, &all[0]); err != nil {
		t.Fatal(err)
	}
	less := all
	less[capability/32].Effective &^= 1 << (capability % 32)
	if err := unix.Capset(&hdr, &less[0]); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Capset(&hdr, &all[0]); err != nil {
			t.Fatal(err)
		}
	}()
	f()
}

// The kernel takes qdiscs off an interface that goes to another network namespace.
func TestFilterIsGoneWhereItsInterfaceMoves(t *testing.T) {
	n := newTestNet(t)
	addVeth(t, "mv0", "mv1", n.peer)
	bring(t, "mv0", store.Clsact, named("a.levee", "one"))
	there := third(t, n)
	defer there.Close()
	moveTo(t, "mv0", there)
	bring(t, "mv0", store.Clsact, named("b.levee", "one"))
	if a := status(t); a.Policy != "/etc/b.levee" || a.Generation != 1 {
		t.Errorf("there: %s, generation %d", a.Policy, a.Generation)
	}
	if _, err := Down(t.Context(), "mv0"); err != nil {
		t.Error(err)
	}
	n.enterHere(t)
	runDirIsGone(t)
}

// Other tools may call the qdisc by its older name, which has filters at ingress alone.
func TestFilterUnderTheOlderQdisc(t *testing.T) {
	newTestNet(t)
	add := exec.Command("tc", "qdisc", "add", "dev", "lv0", "ingress")
	if out, err := add.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	bring(t, "lv0", store.Clsact, handPolicy("odd", action.Pass))
	show := exec.Command("tc", "filter", "show", "dev", "lv0", "ingress")
	out, err := show.CombinedOutput()
	if err != nil || !strings.Contains(string(out),
		"bpf chain 0 handle 0x1e7ee levee direct-action") {
		t.Errorf("%v: %s", err, out)
	}
	if _, err := Down(context.Background(), "lv0"); err != nil {
		t.Error(err)
	}
	runDirIsGone(t)
}
