package kernel

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

func TestFeaturesOfThisKernel(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		t.Fatal(err)
	}
	var have, need [2]int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(uts.Release[:]), "%d.%d", &have[0],
		&have[1]); err != nil {
		t.Fatal(err)
	}
	for _, f := range []Feature{Frags, TCX} {
		if _, err := fmt.Sscanf(f.Since, "%d.%d", &need[0], &need[1]); err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
		should := have[0] > need[0] || have[0] == need[0] && have[1] >= need[1]
		if err := f.Check(); should != (err == nil) {
			t.Errorf("%s, of Linux %s, on %d.%d: %v", f.Name, f.Since, have[0], have[1], err)
		}
	}
}

func TestMissingFeatureSaysWhichVersionHasIt(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	err := Feature{Name: "TCX", Since: "6.6", probe: func() error { return unix.EINVAL }}.Check()
	if !errors.Is(err, ErrRefused) || !errors.Is(err, ebpf.ErrNotSupported) ||
		!strings.HasPrefix(err.Error(), "this kernel has no TCX (Linux 6.6 or newer)") {
		t.Error(err)
	}
}

func TestVerifierErrorIsOneLineWithTheReason(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	_, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{
			asm.LoadMem(asm.R1, asm.R1, 0, asm.Word),
			asm.LoadMem(asm.R0, asm.R1, 14, asm.Byte), // without a check of the bounds
			asm.Return(),
		}})
	err = LoadError("load program", err)
	var v *Verifier
	if !errors.As(err, &v) || !errors.Is(err, ErrRefused) || !errors.Is(err, unix.EACCES) {
		t.Fatalf("%T: %v", err, err)
	}
	// Linux 7.3 calls the packet a memory range.
	if s := err.Error(); strings.Contains(s, "\n") ||
		!strings.Contains(s, "outside of the packet") &&
			!strings.Contains(s, "outside of the allowed memory range") {
		t.Error(s)
	}
	if log := Log(err); strings.Count(log, "\n") < 3 {
		t.Errorf("log: %q", log)
	}
}

func TestReasonOfVerifierLogs(t *testing.T) {
	for _, c := range []struct{ file, want string }{
		{"testdata/verifier-packet.log", "R1 offset is outside of the packet"},
		{"testdata/verifier-complex.log", "BPF program is too large. Processed 1000001 insn"},
		{"testdata/verifier-unreachable.log", "unreachable insn 3"},
		{"testdata/verifier-7.3.log",
			"R5 unbounded memory access, make sure to bounds check any such access"},
		{"testdata/verifier-empty.log", ""},
	} {
		log, err := os.ReadFile(c.file)
		if err != nil {
			t.Fatal(err)
		}
		if got := reason(strings.Split(strings.TrimSpace(string(log)), "\n")); got != c.want {
			t.Errorf("%s: %q, want %q", c.file, got, c.want)
		}
	}
}

func TestLoadErrorsSayWhatToDo(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{unix.ENOMEM, "not enough memory"},
		{unix.E2BIG, "more rules than the kernel's verifier takes"},
		{unix.EINVAL, "6.1 or newer"},
		{ebpf.ErrNotSupported, "6.1 or newer"},
		{unix.EIO, "load program: input/output error"},
	} {
		err := loadError("load program", fmt.Errorf("x: %w", c.err), "6.1.0-56-amd64")
		if !errors.Is(err, ErrRefused) || !errors.Is(err, c.err) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%v", err)
		}
		if !strings.Contains(strings.Replace(err.Error(), "x: ", "", 1), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
	if LoadError("x", nil) != nil {
		t.Error("an error out of nothing")
	}
}

// On 5.15 policies were said to have more rules than the verifier takes.
func TestRefusalsOfOldKernelsNameTheOldestThatServes(t *testing.T) {
	for _, cause := range []error{
		unix.E2BIG, unix.EINVAL, unix.ENOPROTOOPT, ebpf.ErrNotSupported,
		&ebpf.VerifierError{Cause: unix.EINVAL,
			Log: []string{"0: (bf) r1 = r10", "back-edge from insn 7 to 5"}},
	} {
		err := loadError("load program", cause, "5.15.0-91-generic")
		if want := "this machine runs Linux 5.15, and levee needs 6.1 or newer"; !strings.HasPrefix(
			err.Error(), "load program: "+want) || !errors.Is(err, ErrRefused) {
			t.Errorf("%v, want %s", err, want)
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("more than a line: %v", err)
		}
	}
	for _, cause := range []error{unix.EPERM, unix.ENOMEM} { // of no kernel's age
		if err := loadError("load program", cause, "5.15.0"); strings.Contains(err.Error(),
			Oldest) {
			t.Error(err)
		}
	}
	for release, old := range map[string]bool{"5.10.0-46-cloud-amd64": true, "6.0": true,
		"6.1": false, "6.12.1": false, "7.0-rc1": false, "": false, "x": false} {
		if got := TooOld(release); (got != "") != old {
			t.Errorf("%q: %q", release, got)
		}
	}
}

// TestRightsAreNotReadFromAFile: they were, from one of a thread, which may end meanwhile. A
// command then had no rights for a moment: it failed, or used the mount namespace that it was
// started in.
func TestRightsAreNotReadFromAFile(t *testing.T) {
	before, err := capabilities()
	if err != nil {
		t.Fatal(err)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	now, err := capabilities()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err != nil || now != before {
		t.Errorf("%#x without a file, %#x before: %v", now, before, err)
	}
}

// An error ended in "there is no interface ...: no such device".
func TestARefusalSaidItTwice(t *testing.T) {
	err := RefuseAs(unix.ENODEV, "there is no interface %q", "eth9")
	if got := err.Error(); got != `there is no interface "eth9"` {
		t.Error(got)
	}
	if !errors.Is(err, unix.ENODEV) || !errors.Is(err, ErrRefused) || errors.Is(err, unix.EPERM) {
		t.Errorf("matches something else: %v", errors.Unwrap(err))
	}
	err = Refuse(unix.EPERM, "read %s", "it")
	if got := err.Error(); got != "read it: operation not permitted" ||
		!errors.Is(err, unix.EPERM) {
		t.Error(got)
	}
}
