package dataplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"levee/internal/await"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/kernel"
	"levee/internal/lang/policy"
)

// hangs is for what never comes: however busy a machine is, nothing that comes takes as long.
const hangs = time.Minute

// testNet is two network namespaces joined by a veth pair:
//
//	        here (this thread)          peer
//	+--------------------------+   +-----------------+
//	| lv0  <- policies go here |===| lv1  <- sends   |
//	| ifb0 (no native XDP)     |   |                 |
//	+--------------------------+   +-----------------+
//
// Nothing has an address; frames are sent through a packet socket on lv1.
type testNet struct {
	here, peer netns.NsHandle
	tx         int // packet socket on lv1
	txIndex    int
	ports      uint16
}

// newTestNet puts the test's thread into a fresh network namespace, with a runtime directory of
// its own, and takes all of it away at the end.
func newTestNet(t testing.TB) *testNet {
	t.Helper()
	needRoot(t)
	runtime.LockOSThread()
	dir := t.TempDir()
	t.Setenv(store.RunEnv, dir+"/run")
	before, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	n := &testNet{}
	t.Cleanup(func() {
		for _, a := range must(inspect.Status(context.Background(), true)) {
			_, _ = Down(context.Background(), a.Dev)
		}
		_ = unix.Unmount(dir+"/run/bpf", unix.MNT_DETACH) // only if a test failed
		_ = netns.Set(before)
		for _, h := range []netns.NsHandle{before, n.here, n.peer} {
			h.Close()
		}
		unix.Close(n.tx)
		runtime.UnlockOSThread()
	})
	for _, ns := range []*netns.NsHandle{&n.peer, &n.here} {
		if *ns, err = netns.New(); err != nil {
			t.Fatal(err)
		}
		// Else the kernel sends packets of its own for seconds, which the default counts.
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"),
			0); err != nil {
			t.Fatal(err)
		}
	}
	addVeth(t, "lv0", "lv1", n.peer)
	if err := netns.Set(n.peer); err != nil {
		t.Fatal(err)
	}
	l, err := netlink.LinkByName("lv1")
	if err != nil {
		t.Fatal(err)
	}
	n.txIndex = l.Attrs().Index
	if err := netlink.LinkSetUp(l); err != nil {
		t.Fatal(err)
	}
	if n.tx, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		t.Fatal(err)
	}
	if err := netns.Set(n.here); err != nil {
		t.Fatal(err)
	}
	if *joinedNets {
		d := newDispatched(t)
		t.Cleanup(func() { // before the one above
			for _, a := range must(inspect.Status(context.Background(), true)) {
				_, _ = Down(context.Background(), a.Dev)
			}
			if calls := d.calls(t); !slices.Equal(calls, []string{theOther}) {
				t.Errorf("the dispatcher calls %q", calls)
			}
		})
	}
	return n
}

// tcModes are the ways to tc ingress that this kernel has.
func tcModes(t testing.TB) []store.Mode {
	t.Helper()
	if err := kernel.TCX.Check(); err != nil {
		if !errors.Is(err, ebpf.ErrNotSupported) {
			t.Fatal(err)
		}
		return []store.Mode{store.Clsact}
	}
	return []store.Mode{store.TCX, store.Clsact}
}

// allModes are the modes that this kernel has.
func allModes(t testing.TB) []store.Mode {
	t.Helper()
	if *joinedNets {
		return []store.Mode{store.XDPNative}
	}
	return append(tcModes(t), store.XDPNative, store.XDPGeneric)
}

func must(a []inspect.Attachment, _ []string, _ error) []inspect.Attachment { return a }

func addVeth(t testing.TB, name, peerName string, peer netns.NsHandle) {
	t.Helper()
	la := netlink.NewLinkAttrs()
	la.Name = name
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: la, PeerName: peerName,
		PeerNamespace: netlink.NsFd(peer)}); err != nil {
		t.Fatal(err)
	}
	l, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(l); err != nil {
		t.Fatal(err)
	}
}

func addIfb(t testing.TB, name string) {
	t.Helper()
	la := netlink.NewLinkAttrs()
	la.Name = name
	if err := netlink.LinkAdd(&netlink.Ifb{LinkAttrs: la}); err != nil {
		t.Skipf("needs a device without native XDP: %v", err)
	}
}

// run is t.Run on a thread in namespace here; the thread ends with the subtest.
func (n *testNet) run(t *testing.T, name string, fn func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		runtime.LockOSThread()
		if err := netns.Set(n.here); err != nil {
			t.Fatal(err)
		}
		fn(t)
	})
}

// enterHere puts a goroutine's thread into namespace here; the thread ends with it.
func (n *testNet) enterHere(t testing.TB) {
	runtime.LockOSThread()
	if err := netns.Set(n.here); err != nil {
		t.Error(err)
	}
}

// send sends count frames whose payload starts with first.
func (n *testNet) send(t testing.TB, count int, first byte) {
	t.Helper()
	for range count {
		n.sendFrame(t, markedFrame(first))
	}
}

// markedFrame has an EtherType without a listener.
func markedFrame(first byte) []byte {
	f := frame(60, first)
	copy(f, net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0x88, 0xb5})
	return f
}

func (n *testNet) sendFrame(t testing.TB, f []byte) {
	t.Helper()
	var err error
	await.True(t, "there is room for a frame in the ring of lv0", func() bool {
		err = unix.Sendto(n.tx, f, 0, &unix.SockaddrLinklayer{Ifindex: n.txIndex})
		return !errors.Is(err, unix.ENOBUFS)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// compileHand compiles a hand-written program for any target.
func compileHand(p *policy.Policy) CompileFunc {
	return func(t codegen.Target) (*codegen.Program, error) { return handProgram(p, t), nil }
}

// status is the one attachment on lv0 in this namespace.
func status(t testing.TB) inspect.Attachment {
	t.Helper()
	all, notes, err := inspect.Status(context.Background(), false)
	if err != nil {
		t.Fatal(err)
	}
	for _, note := range notes {
		t.Log("note:", note)
	}
	if len(all) != 1 {
		t.Fatalf("%d attachments, want 1", len(all))
	}
	return all[0]
}

// packets returns the packets that the slot of an identity or label has counted, 0 if there is no
// such slot.
func packets(a *inspect.Attachment, id string) uint64 {
	for _, c := range a.Counters {
		if c.ID == id || c.Label == id {
			return c.Packets
		}
	}
	return 0
}

// wantPackets waits until a slot has counted exactly so many packets.
func wantPackets(t testing.TB, id string, want uint64) {
	t.Helper()
	await.OK(t, func() error {
		a := status(t)
		if got := packets(&a, id); got != want {
			return fmt.Errorf("%s counted %d packets, want %d", id, got, want)
		}
		return nil
	})
}

// kernelObjects lists the ids of all programs of these tests, of all maps that they hold, and of
// all links of theirs.
func kernelObjects(t testing.TB) []string {
	t.Helper()
	var out []string
	for id := ebpf.ProgramID(0); ; {
		next, err := ebpf.ProgramGetNextID(id)
		if err != nil {
			break
		}
		id = next
		p, err := ebpf.NewProgramFromID(id)
		if err != nil {
			continue
		}
		info, err := p.Info()
		p.Close()
		if err != nil || info.Name != handName() {
			continue
		}
		out = append(out, fmt.Sprint("program ", id))
		maps, _ := info.MapIDs()
		for _, m := range maps {
			out = append(out, fmt.Sprint("map ", m))
		}
	}
	it := new(link.Iterator)
	defer it.Close()
	for it.Next() {
		info, err := it.Link.Info()
		if err == nil && slices.Contains(out, fmt.Sprint("program ", info.Program)) {
			out = append(out, fmt.Sprint("link ", it.ID))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// nothingAdded is an error if there are objects that were not there before. The kernel lets go of
// programs some time after their links and filters are gone, also of those of an earlier test.
func nothingAdded(t testing.TB, before []string) error {
	t.Helper()
	after := kernelObjects(t)
	for _, object := range after {
		if !slices.Contains(before, object) {
			return fmt.Errorf("before: %v, after: %v", before, after)
		}
	}
	return nil
}

func runDirIsGone(t testing.TB) {
	t.Helper()
	if entries, err := os.ReadDir(os.Getenv(store.RunEnv)); err == nil {
		t.Errorf("the runtime directory is still there, with %v", entries)
	}
}
