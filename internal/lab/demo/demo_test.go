package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"levee/internal/await"
	"levee/internal/lab"
	"levee/internal/lab/labtest"
)

// TestMain lets the test's own binary play the roles of the demo, and the demo itself.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "role":
			exit(Role(context.Background(), os.Args[2:], os.Stdin, os.Stdout))
		case "demo":
			exit(Run(context.Background(), testOptions(os.Stdout)))
		}
	}
	os.Exit(m.Run())
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// testOptions are of a demo that is as short as it can be.
func testOptions(out io.Writer) Options {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return Options{Self: []string{self, "role"}, Out: out, Rate: LowestRate,
		pace: pace{100 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond,
			time.Hour}}
}

// That the demo ran is all that its exit status says: on a busy machine it failed.
func TestDemoRunsWhateverIsHeld(t *testing.T) {
	labtest.NeedRoot(t)
	var out bytes.Buffer
	if err := Run(t.Context(), testOptions(&out)); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{"Without a flood: p50 ", "held up to, packets/s ",
		"Held up to packets/s: levee ", ", no defence "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// watcher is an output that closes seen once it holds a text.
type watcher struct {
	mu   sync.Mutex
	b    bytes.Buffer
	want string
	seen chan struct{}
	once sync.Once
}

func watch(want string) *watcher { return &watcher{want: want, seen: make(chan struct{})} }

func (w *watcher) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.b.Write(p)
	if strings.Contains(w.b.String(), w.want) {
		w.once.Do(func() { close(w.seen) })
	}
	return len(p), nil
}

func (w *watcher) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

// labsOf lists the namespaces of labs that a process owned.
func labsOf(t *testing.T, pid int) []string {
	t.Helper()
	names, err := filepath.Glob(fmt.Sprintf("/run/netns/levee-%d-*", pid))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// rolesOf lists the processes that still play a role of this test's binary.
func rolesOf(t *testing.T, role string) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		args, err := os.ReadFile(f)
		if err == nil && bytes.HasPrefix(args, []byte(self+"\x00role\x00"+role+"\x00")) {
			out = append(out, f)
		}
	}
	return out
}

func TestAnInterruptedDemoLeavesNothing(t *testing.T) {
	labtest.NeedRoot(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := watch("no defence ")
	done := make(chan error, 1)
	go func() { done <- Run(ctx, testOptions(out)) }()
	select {
	case <-out.seen:
	case err := <-done:
		t.Fatalf("ended early: %v\n%s", err, out)
	case <-time.After(3 * time.Minute):
		t.Errorf("no second act:\n%s", out)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that it was interrupted", err)
	}
	if left := labsOf(t, os.Getpid()); len(left) > 0 {
		t.Errorf("left namespaces %q", left)
	}
	for _, role := range []string{roleService, roleVisitors} {
		if left := rolesOf(t, role); len(left) > 0 {
			t.Errorf("left processes %q", left)
		}
	}
}

func TestWhatAKilledDemoLeftIsSweptByTheNextLab(t *testing.T) {
	labtest.NeedRoot(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out := watch("no defence ")
	cmd := exec.Command(self, "demo")
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-out.seen:
	case <-time.After(3 * time.Minute):
		t.Errorf("no second act:\n%s", out)
	}
	pid := cmd.Process.Pid
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	// Its processes end by themselves, for their input has ended.
	await.OK(t, func() error {
		run := append(rolesOf(t, roleService), rolesOf(t, roleVisitors)...)
		if len(run) > 0 {
			return fmt.Errorf("processes of a killed demo run on: %q", run)
		}
		return nil
	})
	if err := lab.Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	if left := labsOf(t, pid); len(left) > 0 {
		t.Errorf("left namespaces %q", left)
	}
}
