package store

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"levee/internal/kernel"
)

// OnHost runs fn in the mount namespace of the host.
//
// `ip netns exec` gives each command a mount namespace of its own, and a pin in a bpffs mounted
// there is gone with the command, and the attached program with it. So every path that levee keeps
// is used from the host's mount namespace. A thread that has changed its mount namespace cannot
// serve other goroutines any more: fn then runs on a thread that is thrown away afterwards. The
// network namespace stays the caller's. fn must not start goroutines that touch files.
//
// Without the capabilities for that, the bpffs has to be mounted already, where this process sees
// it.
func OnHost(fn func() error) error {
	if !kernel.Holds(kernel.SysAdmin) || !kernel.Holds(kernel.SysChroot) {
		return fn()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	host, own := hostMountNamespace()
	if own {
		return fn()
	}
	mnt, err := os.Open(host)
	if err != nil {
		return kernel.Refuse(err, "open the host's mount namespace")
	}
	defer mnt.Close()
	net, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return kernel.Refuse(err, "open this network namespace")
	}
	defer net.Close()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		if err := enter(mnt, net); err != nil {
			done <- err
			return
		}
		done <- fn()
	}()
	return <-done
}

func enter(mnt, net *os.File) error {
	if err := unix.Setns(int(net.Fd()), unix.CLONE_NEWNET); err != nil {
		return kernel.Refuse(err, "enter this network namespace on another thread")
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return kernel.Refuse(err, "leave the shared root and working directory")
	}
	if err := unix.Setns(int(mnt.Fd()), unix.CLONE_NEWNS); err != nil {
		return kernel.Refuse(err,
			"enter the host's mount namespace (needs CAP_SYS_ADMIN and CAP_SYS_CHROOT)")
	}
	return nil
}

// hostMountNamespace returns the path of the host's mount namespace, and whether this thread is in
// it. That is the namespace of process 1; where a security module hides it, that of kthreadd, which
// never leaves the first one, or of the oldest ancestor of this process that can be asked.
func hostMountNamespace() (path string, own bool) {
	self, err := inode("/proc/thread-self/ns/mnt")
	if err != nil {
		return "", true
	}
	candidates := []int{1}
	if comm, err := os.ReadFile("/proc/2/comm"); err == nil && string(comm) == "kthreadd\n" {
		candidates = append(candidates, 2)
	}
	for _, pid := range append(candidates, ancestors()...) {
		path := fmt.Sprintf("/proc/%d/ns/mnt", pid)
		if ino, err := inode(path); err == nil {
			return path, ino == self
		}
	}
	return "", true
}

func inode(path string) (uint64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return info.Sys().(*syscall.Stat_t).Ino, nil
}

// ancestors lists the ancestors of this process, the oldest first.
func ancestors() []int {
	var pids []int
	for pid := os.Getppid(); pid > 1; pid = parent(pid) {
		pids = append([]int{pid}, pids...)
	}
	return pids
}

// parent returns the parent of a process, 0 if it has ended.
func parent(pid int) int {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name, in parentheses, may contain anything.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 2 {
		return 0
	}
	ppid, _ := strconv.Atoi(fields[1])
	return ppid
}
