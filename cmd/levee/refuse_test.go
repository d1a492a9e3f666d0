package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

func init() { programs["refuse"] = refuse }

// refusable are the system calls that refuse can refuse.
var refusable = map[string]uint32{"perf_event_open": unix.SYS_PERF_EVENT_OPEN,
	"mkdirat": unix.SYS_MKDIRAT}

// refuse is the command `refuse CALL COMMAND...` of the stories: COMMAND runs in a sandbox as that
// of a service whose filter lacks a system call. The kernel answers it with EPERM.
func refuse() {
	nr, known := refusable[os.Args[1]]
	path, err := exec.LookPath(os.Args[2])
	if err == nil && !known {
		err = fmt.Errorf("refuse: no system call %s", os.Args[1])
	}
	if err == nil {
		runtime.LockOSThread() // that which becomes the command
		const load, equals, answer = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS,
			unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
		filter := []unix.SockFilter{{Code: load}, {Code: equals, K: nr, Jf: 1},
			{Code: answer, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
			{Code: answer, K: unix.SECCOMP_RET_ALLOW}}
		prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
		if err = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err == nil {
			err = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER,
				uintptr(unsafe.Pointer(&prog)), 0, 0)
		}
	}
	if err == nil {
		err = unix.Exec(path, os.Args[2:], os.Environ())
	}
	fmt.Fprintln(os.Stderr, "refuse:", err)
	os.Exit(1)
}
