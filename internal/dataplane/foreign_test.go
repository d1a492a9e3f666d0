package dataplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"levee/internal/kernel"
	"levee/internal/lang/action"
)

func TestRefusalNamesTheDispatcherAndWhoHoldsIt(t *testing.T) {
	newTestNet(t)
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: dispatcher, Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpPass), asm.Return()},
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
