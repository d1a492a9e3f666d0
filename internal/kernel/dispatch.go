package kernel

import (
	"fmt"
	"runtime"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// HoldDispatched keeps a program in the kernel's XDP dispatcher until release. Otherwise each
// test run puts it in and takes it out again, and waits for an RCU grace period both times
// (bpf_prog_change_xdp in net/bpf/test_run.c): tens of ms. It takes CAP_SYS_ADMIN.
//
// A program is in the dispatcher as long as it is attached somewhere: here to a veth, which
// is down, in a namespace of its own that ends with its thread, also when the process is killed.
func HoldDispatched(prog *ebpf.Program) (release func(), err error) {
	attached := make(chan error, 1)
	end := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		runtime.LockOSThread() // never unlocked
		defer close(ended)
		l, err := attachAside(prog)
		attached <- err
		if err == nil {
			<-end
			l.Close()
		}
	}()
	if err := <-attached; err != nil {
		return nil, err
	}
	return func() { close(end); <-ended }, nil
}

// attachAside moves the calling thread into a new network namespace and attaches the program
// there.
func attachAside(prog *ebpf.Program) (link.Link, error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("making a network namespace: %w", err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "aside"
	veth := netlink.NewVeth(attrs)
	veth.PeerName = "peer"
	if err := netlink.LinkAdd(veth); err != nil {
		return nil, fmt.Errorf("making a veth pair: %w", err)
	}
	dev, err := netlink.LinkByName(attrs.Name)
	if err != nil {
		return nil, fmt.Errorf("finding the veth: %w", err)
	}
	return link.AttachXDP(link.XDPOptions{Program: prog, Interface: dev.Attrs().Index,
		Flags: link.XDPDriverMode})
}
