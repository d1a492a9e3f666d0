package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
)

// crashed runs a program without a limit for core dumps, gives it more than a pipe takes, so that
// it has begun, and says whether its end by SIGABRT left a core.
func crashed(t *testing.T, program string, args ...string) bool {
	t.Helper()
	// The words of a policy file are in the memory of its reader.
	text := bytes.Repeat([]byte("# a secret of this process\n"), 1<<13)
	c := exec.Command("sh", append([]string{"-c", `ulimit -c unlimited && exec "$@"`, "sh",
		program}, args...)...)
	c.Dir = t.TempDir()
	c.Env = append(os.Environ(), "GOTRACEBACK=crash")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := c.Process.Signal(syscall.SIGABRT); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait() // it was ended
	is, ok := c.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || is.Signal() != syscall.SIGABRT {
		t.Fatalf("%s %q: %v", program, args, c.ProcessState)
	}
	left, err := filepath.Glob(filepath.Join(c.Dir, "*core*"))
	if err != nil {
		t.Fatal(err)
	}
	return is.CoreDump() || len(left) > 0
}

// TestACrashLeavesNoCore: the tokens of an agent, the keys of its webhooks and the addresses of
// clients were in the core of a process that was told to leave one.
func TestACrashLeavesNoCore(t *testing.T) {
	t.Parallel()
	if !crashed(t, "tail", "-n", "1") {
		t.Skip("this machine takes no core dumps")
	}
	if crashed(t, "levee", "fmt", "-") {
		t.Error("levee left a core")
	}
}

// TestUnitsTakeNoCores of whatever a unit starts, and what they write to the journal is levee's: a
// unit that a shell begins wrote as sh.
func TestUnitsTakeNoCores(t *testing.T) {
	all, err := filepath.Glob(systemdUnits + "*.service")
	if err != nil || len(all) < 4 {
		t.Fatal(all, err)
	}
	for _, unit := range all {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		if !regexp.MustCompile(`(?m)^LimitCORE=0$`).Match(text) {
			t.Errorf("%s: no LimitCORE=0", filepath.Base(unit))
		}
		if !regexp.MustCompile(`(?m)^(ExecStart=/usr/sbin/|SyslogIdentifier=)levee\b`).Match(text) {
			t.Errorf("%s does not write as levee", filepath.Base(unit))
		}
	}
}
