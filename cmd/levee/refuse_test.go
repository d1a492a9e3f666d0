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

// refusable are the system calls that refuse can refuse: their numbers, and of some only those with
// a first argument.
var refusable = map[string]struct{ nr, first uint32 }{
	"bpf_map_update": {unix.SYS_BPF, unix.BPF_MAP_UPDATE_ELEM}, "mkdirat": {unix.SYS_MKDIRAT, any1},
}

const any1 = ^uint32(0) // any first argument

// refuse is the command `refuse CALL COMMAND...` of the stories: COMMAND runs in a sandbox as that
// of a service whose filter lacks a system call. The kernel answers it with EPERM.
func refuse() {
	call, known := refusable[os.Args[1]]
	path, err := exec.LookPath(os.Args[2])
	if err == nil && !known {
		err = fmt.Errorf("refuse: no system call %s", os.Args[1])
	}
	if err == nil {
		runtime.LockOSThread() // that which becomes the command
		const load, equals, answer = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS,
			unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
		filter := []unix.SockFilter{{Code: load}, {Code: equals, K: call.nr, Jf: 1}}
		if call.first != any1 {
			filter[1].Jf = 3
			filter = append(filter, unix.SockFilter{Code: load, K: 16}, // of struct seccomp_data
				unix.SockFilter{Code: equals, K: call.first, Jf: 1})
		}
		filter = append(filter, []unix.SockFilter{
			{Code: answer, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
			{Code: answer, K: unix.SECCOMP_RET_ALLOW},
		}...)
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
