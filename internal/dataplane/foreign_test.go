package dataplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/dispatcher"
	"levee/internal/dataplane/store"
	"levee/internal/kernel"
	"levee/internal/lang/action"
)

func TestRefusalNamesTheDispatcherAndWhoHoldsIt(t *testing.T) {
	newTestNet(t)
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: dispatcher.Name, Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, attach.XdpPass), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	lv0 := must2(netlink.LinkByName("lv0"))
	if err := netlink.LinkSetXdpFd(lv0, p.FD()); err != nil {
		t.Fatal(err)
	}
	id, _ := must2(p.Info()).ID()
	refused := func(want ...string) {
		t.Helper()
		_, err := Up(context.Background(), UpOptions{Dev: "lv0"},
			compileHand(handPolicy("one", action.Pass)))
		if !errors.Is(err, kernel.ErrRefused) {
			t.Fatal(err)
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("no %s in %v", w, err)
			}
		}
	}
	refused(fmt.Sprintf(`"xdp_dispatcher" (id %d)`, id), "`xdp-loader status lv0`",
		"`xdp-loader unload lv0 --all`", "--mode tcx")

	holder := exec.Command("sleep", "60")
	fd, err := unix.Dup(p.FD())
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "program")
	defer f.Close()
	holder.ExtraFiles = append(holder.ExtraFiles, f)
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = holder.Process.Kill()
		_ = holder.Wait()
	}()
	refused(fmt.Sprintf(`held by process "sleep" %d)`, holder.Process.Pid))
}

// newNeighbour is a program at TCX as Cilium has it, which counts packets and ends the walk.
func newNeighbour(t *testing.T, at link.Anchor) (id uint32, packets func() uint32) {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "cil_from_netdev", Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{
			asm.LoadMapValue(asm.R1, m.FD(), 0),
			asm.Mov.Imm(asm.R2, 1),
			asm.AddAtomic.Mem(asm.R1, asm.R2, asm.Word, 0),
			asm.Mov.Imm(asm.R0, 0), // TCX_PASS
			asm.Return(),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := link.AttachTCX(link.TCXOptions{Program: p, Attach: ebpf.AttachTCXIngress, Anchor: at,
		Interface: must2(netlink.LinkByName("lv0")).Attrs().Index})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.Close()
		p.Close()
		m.Close()
	})
	of, _ := must2(p.Info()).ID()
	return uint32(of), func() (n uint32) {
		if err := m.Lookup(uint32(0), &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
}

// Whoever is at TCX, by Cilium's anchor or before levee, stays. levee comes first, hands on what it
// passes, and keeps its place when it is replaced.
func TestLeveeComesFirstAtTCXAndKeepsOthers(t *testing.T) {
	if err := kernel.TCX.Check(); err != nil {
		t.Skip(err)
	}
	n := newTestNet(t)
	o := newOthers(t) // a filter of tc, which comes after TCX
	o.qdisc()
	o.add(1)
	index := must2(netlink.LinkByName("lv0")).Attrs().Index
	first, seen := newNeighbour(t, link.Tail())
	order := func(want ...uint32) {
		t.Helper()
		if got := must2(attach.TcxProgramsAt(index, ebpf.AttachTCXIngress)); !slices.Equal(got,
			want) {
			t.Errorf("the order at TCX is %v, want %v", got, want)
		}
	}
	bring(t, "lv0", store.TCX, handPolicy("odd", action.Pass))
	order(status(t).Program.ID, first)
	last, _ := newNeighbour(t, link.Tail())
	for range 2 { // before and after a replace
		before, odd := seen(), status(t)
		n.send(t, 3, 7) // dropped
		n.send(t, 5, 4) // passed on
		wantPackets(t, "odd", packets(&odd, "odd")+3)
		if got := seen() - before; got != 5 {
			t.Errorf("the program behind levee's saw %d packets, want 5", got)
		}
		bring(t, "lv0", store.Auto, handPolicy("odd", action.Pass))
		order(status(t).Program.ID, first, last)
	}
	// Who asks for the first place later has it, and levee sees only what such a program hands on.
	front, _ := newNeighbour(t, link.Head())
	order(front, status(t).Program.ID, first, last)
	if _, err := Down(t.Context(), "lv0"); err != nil {
		t.Fatal(err)
	}
	order(front, first, last)
	if left, qdisc := filters(t); left != 1 || !qdisc {
		t.Errorf("%d filters of tc are left, qdisc %v", left, qdisc)
	}
}
