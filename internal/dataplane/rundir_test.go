package dataplane

import (
	"fmt"
	"os"
	"os/user"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"levee/internal/dataplane/sets"
	"levee/internal/dataplane/store"
)

// TestCommandsAndUnitsShareTheRunDirectory whoever comes first: what root has made by hand does not
// keep the units, which systemd forbids to make anything setgid (RestrictSUIDSGID=), from their
// work, and what either has made is read by the group.
func TestCommandsAndUnitsShareTheRunDirectory(t *testing.T) {
	g, err := user.LookupGroupId("1") // every machine has it, under one name or another
	if err != nil {
		t.Skipf("no group 1: %v", err)
	}
	// as `levee@.service` runs what it runs
	unit := []string{"setpriv", "--regid=" + g.Gid, "--clear-groups", "--no-new-privs",
		"--bounding-set=-all,+bpf,+perfmon,+net_admin"}
	for sequence, umask := range map[string]int{
		"root up, unit keep, unit up, root keep, unit up":   0o022,
		"unit up, root up, unit keep, root up, unit save":   0o077,
		"unit keep, root up, root keep, unit keep, unit up": 0o027,
	} {
		t.Run(fmt.Sprintf("%03o/%s", umask, sequence), func(t *testing.T) {
			t.Setenv(sets.LibEnv, t.TempDir()) // first: the end of the net saves once more
			newTestNet(t)
			makeWay(t, os.Getenv(store.RunEnv))
			s := &store.Store{Dir: os.Getenv(store.RunEnv)}
			if err := os.MkdirAll(s.BPF(), 0o750); err != nil { // as the mount unit does
				t.Fatal(err)
			}
			if err := unix.Mount("bpf", s.BPF(), "bpf", 0, "mode=0750"); err != nil {
				t.Fatal(err)
			}
			defer unix.Umask(unix.Umask(umask))
			for _, step := range strings.Split(sequence, ", ") {
				who, what, _ := strings.Cut(step, " ")
				o := order{Do: what, Dev: "lv0", File: "/etc/test.levee", Text: keptPolicy,
					Readers: g.Name, Unit: who == "unit"}
				wrapper := []string{"env"}
				if o.Unit {
					wrapper = unit
				}
				if out, _ := inChild(t, o, wrapper...); out != "" {
					t.Fatalf("%s: %s", step, out)
				}
				out := string(asReader(t, g.Gid,
					order{Do: "read", Dev: "lv0", Label: "kept", Readers: g.Name}))
				if !strings.HasPrefix(out, "lv0 /etc/test.levee 0\n") {
					t.Errorf("after %s a reader sees %q", step, out)
				}
			}
		})
	}
}

// TestNoReaderTakesPerfEvents, which kernels of Debian and Ubuntu give to CAP_SYS_ADMIN alone: the
// agent as a service saw no flood, and captures and watches were refused.
func TestNoReaderTakesPerfEvents(t *testing.T) {
	newTestNet(t)
	if err := bringPolicy(t, "lv0", "log sample 1/2\ndefault pass\n", 0); err != nil {
		t.Fatal(err)
	}
	for _, reader := range []string{"sample", "capture", "watch", "logs"} {
		if out, _ := inChild(t, order{Do: reader, Dev: "lv0", Unit: true}); out != "" {
			t.Errorf("%s: %s", reader, out)
		}
	}
}

const keptPolicy = `set abusers = dynamic(max 10, keep)
drop from abusers as "kept"
default pass
`

// asUnit forbids this process what systemd, or the kernel of a distribution, forbids the units: to
// make anything setgid, and to open perf events.
func asUnit() error {
	calls := map[uint32]int{ // the argument that is a mode
		unix.SYS_FCHMOD: 1, unix.SYS_FCHMODAT: 2, unix.SYS_MKDIRAT: 2, unix.SYS_MKNODAT: 2,
		unix.SYS_OPENAT: 3,
	}
	const number, args = 0, 16 // of struct seccomp_data
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	var f []unix.SockFilter
	for call, arg := range calls {
		f = append(f, load(number),
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: call, Jf: 3},
			load(uint32(args+8*arg)),
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K,
				K: unix.S_ISGID | unix.S_ISUID, Jf: 1},
			unix.SockFilter{Code: unix.BPF_RET,
				K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)})
	}
	f = append(f, load(number),
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K,
			K: unix.SYS_PERF_EVENT_OPEN, Jf: 1},
		unix.SockFilter{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EACCES)},
		unix.SockFilter{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ALLOW})
	prog := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return errno
	}
	return nil
}
