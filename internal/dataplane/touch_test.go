package dataplane

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// touch tries what a hostile member of the group would with each file of the runtime directory, and
// with the interface. It prints what can be opened, and fails for what can be changed or run. pinAt
// is a directory of a bpf file system in which anybody may pin, "" for none.
func touch(dir, pinAt, dev string) error {
	var did []error
	fail := func(path, what string) { did = append(did, fmt.Errorf("%s: %s", path, what)) }
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
		touchFile(path, d, fail)
		if !d.IsDir() && strings.HasPrefix(path, filepath.Join(dir, "bpf")) {
			touchPin(path, pinAt, fail)
		}
		return nil
	})
	touchIDs(fail)
	touchProcess(fail)
	touchDevice(dev, fail)
	return errors.Join(append(did, err)...)
}

func touchFile(path string, d fs.DirEntry, fail func(path, what string)) {
	for _, how := range []string{"x", ".x"} {
		if d.IsDir() && (os.WriteFile(filepath.Join(path, how), nil, 0o600) == nil ||
			os.Mkdir(filepath.Join(path, how), 0o700) == nil) {
			fail(path, "a file can be made in it")
		}
	}
	if os.Chmod(path, 0o777) == nil || os.Rename(path, path+".moved") == nil ||
		os.Remove(path) == nil {
		fail(path, "can be removed, or its mode changed")
	}
	if f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0); err == nil {
		f.Close()
		fail(path, "can be written")
	}
}

func touchPin(path, pinAt string, fail func(path, what string)) {
	for _, o := range []ebpf.LoadPinOptions{{}, {ReadOnly: true}, {WriteOnly: true}} {
		if p, err := ebpf.LoadPinnedProgram(path, &o); err == nil {
			p.Close()
			fail(path, "is a program that can be run")
		}
		if l, err := link.LoadPinnedLink(path, &o); err == nil {
			l.Close()
			fail(path, "is a link that can be detached")
		}
		m, err := ebpf.LoadPinnedMap(path, &o)
		if err != nil {
			continue
		}
		if !o.ReadOnly {
			fail(path, "is a map that can be written")
		}
		fmt.Println(path)
		touchMap(path, m, fail)
		if pinAt != "" {
			touchPinned(path, m, pinAt, fail)
		}
		m.Close()
	}
}

// touchPinned opens a map anew by a pin of its own.
func touchPinned(path string, m *ebpf.Map, pinAt string, fail func(path, what string)) {
	again, err := m.Clone() // without its pin
	if err != nil {
		return
	}
	defer again.Close()
	own := filepath.Join(pinAt, filepath.Base(path))
	if again.Pin(own) != nil {
		return
	}
	defer os.Remove(own)
	if w, err := ebpf.LoadPinnedMap(own, nil); err == nil {
		touchMap(path+" by a pin", w, fail)
		w.Close()
	}
}

// touchMap changes a map, if it can.
func touchMap(path string, m *ebpf.Map, fail func(path, what string)) {
	value := make([]byte, m.ValueSize())
	if m.Put(uint32(0), value) == nil || m.Delete(uint32(0)) == nil || m.Freeze() == nil {
		fail(path, "can be changed")
	}
	for _, prot := range []int{unix.PROT_WRITE, unix.PROT_READ | unix.PROT_WRITE} {
		if _, err := unix.Mmap(m.FD(), 0, len(value), prot, unix.MAP_SHARED); err == nil {
			fail(path, "can be mapped to be written")
		}
	}
}

// touchIDs opens programs, maps and links by the numbers that the kernel gives them.
func touchIDs(fail func(path, what string)) {
	for id := range uint32(20_000) {
		if p, err := ebpf.NewProgramFromID(ebpf.ProgramID(id)); err == nil {
			p.Close()
			fail(fmt.Sprintf("program %d", id), "can be opened by its number")
		}
		if m, err := ebpf.NewMapFromID(ebpf.MapID(id)); err == nil {
			m.Close()
			fail(fmt.Sprintf("map %d", id), "can be opened by its number")
		}
		if l, err := link.NewFromID(link.ID(id)); err == nil {
			l.Close()
			fail(fmt.Sprintf("link %d", id), "can be opened by its number")
		}
	}
}

// touchProcess reads, and takes files from, the test that has put a policy in force, as root.
func touchProcess(fail func(path, what string)) {
	if os.Getppid() == 0 { // in a namespace of his own he does not see it
		return
	}
	proc := fmt.Sprintf("/proc/%d", os.Getppid())
	var s unix.Stat_t
	if err := unix.Stat(proc, &s); err != nil || s.Uid != 0 {
		fail(proc, fmt.Sprintf("is not the test: user %d, %v", s.Uid, err))
	}
	for _, secret := range []string{"mem", "environ", "maps", "auxv", "stack", "syscall"} {
		if b, err := os.ReadFile(filepath.Join(proc, secret)); err == nil && len(b) > 0 {
			fail(proc, "its "+secret+" can be read")
		}
	}
	if f, err := os.OpenFile(filepath.Join(proc, "mem"), os.O_RDWR, 0); err == nil {
		f.Close()
		fail(proc, "its memory can be written")
	}
	if _, err := os.ReadDir(filepath.Join(proc, "fd")); err == nil {
		fail(proc, "its files can be listed")
	}
	touchFiles(os.Getppid(), fail)
}

// touchFiles takes each open file of a process by two ways, sends it a signal and traces it.
func touchFiles(pid int, fail func(path, what string)) {
	proc := fmt.Sprintf("/proc/%d", pid)
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		fail(proc, err.Error())
	}
	defer unix.Close(pidfd)
	for fd := range 64 {
		path := filepath.Join(proc, "fd", strconv.Itoa(fd))
		if f, err := os.Open(path); err == nil {
			f.Close()
			fail(path, "can be opened")
		}
		if got, err := unix.PidfdGetfd(pidfd, fd, 0); err == nil {
			unix.Close(got)
			fail(path, "can be taken")
		}
	}
	if unix.Kill(pid, 0) == nil {
		fail(proc, "can be sent signals")
	}
	if unix.PtraceSeize(pid) == nil {
		_ = unix.PtraceDetach(pid)
		fail(proc, "can be traced")
	}
}

// touchDevice takes off the interface what judges its packets, if it can.
func touchDevice(dev string, fail func(path, what string)) {
	l, err := netlink.LinkByName(dev)
	if err != nil {
		return
	}
	if netlink.LinkSetXdpFdWithFlags(l, -1, unix.XDP_FLAGS_SKB_MODE) == nil ||
		netlink.LinkSetXdpFd(l, -1) == nil {
		fail(dev, "XDP can be taken off")
	}
	clsact := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: l.Attrs().Index,
		Parent: netlink.HANDLE_CLSACT}}
	if netlink.QdiscDel(clsact) == nil {
		fail(dev, "filters of tc can be taken off")
	}
	const progDetach, tcxIngress, tcxEgress = 9, 46, 47 // enum bpf_cmd and bpf_attach_type
	for _, at := range []uint32{tcxIngress, tcxEgress} {
		attr := struct{ target, prog, attach, flags, replace, relative uint32 }{
			target: uint32(l.Attrs().Index), attach: at}
		if _, _, errno := unix.Syscall(unix.SYS_BPF, progDetach, uintptr(unsafe.Pointer(&attr)),
			unsafe.Sizeof(attr)); errno == 0 {
			fail(dev, "programs at tcx can be taken off")
		}
	}
}
