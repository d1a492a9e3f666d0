package dataplane

import (
	"errors"
	"os"
	"runtime"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// holdXDP has the kernel keep programs in its XDP dispatcher until they are let go. It keeps those
// that are attached; for another, each run of BPF_PROG_RUN waits for the grace periods in which it
// is entered and removed (bpf_prog_change_xdp, kernel/bpf/dispatcher.c). Each program is attached
// to the loopback device of a network namespace of its own, in which there is no traffic. Without
// the right to make namespaces nothing is held, and runs take longer.
func holdXDP(progs ...*ebpf.Program) (release func()) {
	var held []func() error
	for _, p := range progs {
		done := make(chan func() error)
		go func() {
			runtime.LockOSThread() // the thread ends with the goroutine
			done <- holdOne(p)
		}()
		if free := <-done; free != nil {
			held = append(held, free)
		}
	}
	return func() {
		for _, free := range held {
			_ = free() // the namespace ends, and what is attached there with it
		}
	}
}

// holdOne attaches a program in a network namespace that the thread of the caller begins.
func holdOne(p *ebpf.Program) (free func() error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil
	}
	ns, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil
	}
	const loopback = 1
	l, err := link.AttachXDP(link.XDPOptions{Program: p, Interface: loopback,
		Flags: link.XDPGenericMode})
	if err != nil {
		ns.Close()
		return nil
	}
	return func() error { return errors.Join(l.Close(), ns.Close()) }
}
