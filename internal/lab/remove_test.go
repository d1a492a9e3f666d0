package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"levee/internal/await"
)

// childEnv makes the test binary the owner of a lab, instead of running tests.
const childEnv = "LEVEE_LAB_CHILD"

func TestMain(m *testing.M) {
	if path := os.Getenv(jitChild); path != "" {
		fmt.Fprintln(os.Stderr, interpretAndWait(path))
		os.Exit(1)
	}
	if os.Getenv(takeChild) != "" {
		fmt.Fprintln(os.Stderr, takeAndWait())
		os.Exit(1)
	}
	if os.Getenv(childEnv) != "" {
		if err := own(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// own makes a lab with a process in it, says so, and waits for a signal.
func own() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	l, err := New(ctx, Standard())
	if err != nil {
		return err
	}
	cmd := l.Host(Server).Command(context.Background(), "sleep", "300")
	if err := cmd.Start(); err != nil {
		return err
	}
	for ino := uint64(0); ino != l.Host(Server).Inode; { // nsenter is on its way
		if ino, err = inode(fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid)); err != nil {
			return err
		}
	}
	fmt.Println(l.Name, cmd.Process.Pid)
	<-ctx.Done()
	return l.Close()
}

// startOwner starts such a process and returns it with its lab and the process in there.
func startOwner(t *testing.T) (owner *exec.Cmd, l *Lab, inside int) {
	t.Helper()
	needRoot(t)
	owner = exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), childEnv+"=1")
	owner.Stderr = os.Stderr
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		owner.Process.Kill()
		owner.Wait()
		if err := Sweep(context.Background()); err != nil {
			t.Error(err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the owner said %q, %v", line, err)
	}
	name, pid, _ := strings.Cut(strings.TrimSpace(line), " ")
	if inside, err = strconv.Atoi(pid); err != nil {
		t.Fatal(err)
	}
	if l, err = opened(name); err != nil {
		t.Fatal(err)
	}
	if n := countThere(l); n != 2 {
		t.Fatalf("%d of 2 namespaces are there", n)
	}
	return owner, l, inside
}

// countThere counts the namespaces of a lab that still have their names.
func countThere(l *Lab) int {
	n := 0
	for _, h := range l.Hosts {
		if _, err := os.Lstat(filepath.Join(netnsDir, h.Namespace)); err == nil {
			n++
		}
	}
	return n
}

// gone waits for a process to end; one that was killed ends soon.
func gone(pid int) bool {
	return await.Until(func() bool {
		_, err := startTime(pid)
		return err != nil
	})
}

func TestSignalsRemoveTheLab(t *testing.T) {
	for _, sig := range []syscall.Signal{unix.SIGINT, unix.SIGTERM} {
		owner, l, inside := startOwner(t)
		if err := owner.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if err := owner.Wait(); err != nil {
			t.Errorf("%v: owner ended with %v", sig, err)
		}
		if n := countThere(l); n != 0 || !gone(inside) {
			t.Errorf("%v: %d namespaces are left, process gone: %v", sig, n, gone(inside))
		}
	}
}

func TestWhatAKilledOwnerLeftIsSwept(t *testing.T) {
	// Records of its own, so that nobody else sweeps first.
	t.Setenv("LEVEE_RUN", t.TempDir())
	for name, sweep := range map[string]func() error{
		"by Sweep": func() error { return Sweep(t.Context()) },
		"by the next lab": func() error {
			next, err := New(t.Context(), Standard())
			if err != nil {
				return err
			}
			return next.Close()
		},
		"by Down of another": func() error {
			if err := Down(t.Context(), "other"); !errors.Is(err, ErrNoLab) {
				return fmt.Errorf("Down of a lab that is not there: %v", err)
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			owner, l, inside := startOwner(t)
			if err := Sweep(t.Context()); err != nil || countThere(l) != 2 {
				t.Fatalf("a living owner's lab was swept, or %v", err)
			}
			if err := owner.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			owner.Wait()
			if n := countThere(l); n != 2 {
				t.Fatalf("%d namespaces outlived SIGKILL, want 2: nothing to sweep", n)
			}
			if infos, _, err := List(); err != nil || len(infos) != 0 {
				t.Errorf("List of dead owners' labs: %v, %v", infos, err)
			}
			if err := sweep(); err != nil {
				t.Fatal(err)
			}
			if n := countThere(l); n != 0 || !gone(inside) {
				t.Errorf("%d namespaces are left, process gone: %v", n, gone(inside))
			}
			if _, err := opened(l.Name); !errors.Is(err, ErrNoLab) {
				t.Errorf("Open: %v", err)
			}
		})
	}
}

func TestPersistentLabsStayUntilDown(t *testing.T) {
	needRoot(t)
	t.Setenv("LEVEE_RUN", t.TempDir())
	top := Standard()
	top.Name, top.Persistent = fmt.Sprintf("p%d", os.Getpid()), true
	ctx, cancel := context.WithCancel(t.Context())
	l, err := New(ctx, top)
	if err != nil {
		t.Fatal(err)
	}
	defer Down(context.Background(), top.Name)
	cancel()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Sweep(t.Context()); err != nil || countThere(l) != 2 {
		t.Fatalf("a persistent lab was swept, or %v", err)
	}
	if _, err := New(t.Context(), top); !errors.Is(err, ErrExists) {
		t.Errorf("a second lab of that name: %v", err)
	}
	infos, _, err := List()
	if err != nil || len(infos) != 1 || infos[0].Name != top.Name || !infos[0].Persistent {
		t.Errorf("List: %+v, %v", infos, err)
	}
	again, err := opened(top.Name)
	if err != nil || again.Host(Server).Do(func() error {
		_,
			err := Owned("eth0")
		return err
	}) != nil {
		t.Errorf("Open: %v", err)
	}
	if err := Down(t.Context(), top.Name); err != nil || countThere(l) != 0 {
		t.Errorf("Down: %v, %d namespaces left", err, countThere(l))
	}
}

func TestNamespacesOfOthersAreLeftAlone(t *testing.T) {
	needRoot(t)
	t.Setenv("LEVEE_RUN", t.TempDir())
	if err := shareNetnsDir(); err != nil {
		t.Fatal(err)
	}
	top := Standard()
	top.Name = fmt.Sprintf("f%d", os.Getpid())
	foreign := prefix + top.Name + "-" + World
	var ino uint64
	err := makeNetns(foreign, func(n uint64) error { ino = n; return nil },
		func() error { return nil })
	defer dropNetns(foreign, ino)
	if err != nil {
		t.Fatal(err)
	}
	if l, err := New(t.Context(), top); err == nil {
		l.Close()
		t.Fatal("a lab took over a namespace that it did not make")
	}
	if _, err := os.Lstat(filepath.Join(netnsDir, prefix+top.Name+"-"+Server)); err == nil {
		t.Error("a half-made lab was left")
	}
	// Neither does a record help that names it with another inode.
	rec := &record{Name: top.Name, Owner: 1 << 30,
		Hosts: []*Host{{Namespace: foreign, Inode: ino + 1}}}
	if err := errors.Join(rec.save(), Sweep(t.Context())); err != nil {
		t.Fatal(err)
	}
	if got, err := inode(filepath.Join(netnsDir, foreign)); err != nil || got != ino {
		t.Errorf("the foreign namespace is gone: %d, %v", got, err)
	}
}

func TestACrashHalfwayIsSwept(t *testing.T) {
	needRoot(t)
	t.Setenv("LEVEE_RUN", t.TempDir())
	if err := errors.Join(os.MkdirAll(dir(), 0o755), shareNetnsDir()); err != nil {
		t.Fatal(err)
	}
	// The file was made, the namespace not yet mounted over it.
	name := fmt.Sprintf("%sh%d-server", prefix, os.Getpid())
	if err := os.WriteFile(filepath.Join(netnsDir, name), nil, 0o444); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(filepath.Join(netnsDir, name))
	rec := &record{Name: "half", Owner: 1 << 30, Hosts: []*Host{{Namespace: name, Inode: 1}}}
	if err := errors.Join(rec.save(), Sweep(t.Context())); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(netnsDir, name)); err == nil {
		t.Error("the empty file is still there")
	}
}

func TestOnlyLabDevicesAreOwned(t *testing.T) {
	l := newLab(t, Standard())
	if _, err := Owned("lo"); !errors.Is(err, ErrForeign) {
		t.Errorf("lo outside of the lab: %v", err)
	}
	if _, err := Owned("nowhere0"); !errors.Is(err, ErrNoDevice) || errors.Is(err, ErrForeign) {
		t.Errorf("a device that there is not: %v", err)
	}
	if err := Inside("levee-nowhere", func() error { return nil }); !errors.Is(err,
		errNoNamespace) {
		t.Errorf("a namespace that there is not: %v", err)
	}
	err := l.Host(World).Do(func() error {
		if d, err := Owned("eth0"); err != nil || d.Peer.Host != Server {
			t.Errorf("eth0 of the lab: %+v, %v", d, err)
		}
		if _, err := Owned("lo"); !errors.Is(err, ErrForeign) {
			t.Errorf("lo of the lab: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestDamagedRecordsAreSkipped(t *testing.T) {
	needRoot(t)
	t.Setenv("LEVEE_RUN", t.TempDir())
	if err := os.MkdirAll(dir(), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"a": "", "b": "{", "c": `{"Name":"d"}`, "e": `[1]`,
		"f": `{"Name":"f","Owner":1073741824,"Hosts":[null]}`,
		"g": `{"Name":"g","Owner":1073741824,"Hosts":[{"Namespace":"levee-/../../etc/passwd"}]}`} {
		if err := os.WriteFile(recordPath(name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := opened("b"); err == nil {
		t.Error("a damaged record was opened")
	}
}

func TestTopologiesThatMakeNoSenseAreRefused(t *testing.T) {
	ok := []Pair{{Inner: "a", Outer: "b"}}
	for name, top := range map[string]Topology{
		"no link":          {},
		"bad lab name":     {Name: "../x", Pairs: ok},
		"long lab name":    {Name: strings.Repeat("x", 21), Pairs: ok},
		"bad host name":    {Pairs: []Pair{{Inner: "a/b", Outer: "c"}}},
		"link to itself":   {Pairs: []Pair{{Inner: "a", Outer: "a"}}},
		"too many clients": {Pairs: []Pair{{Inner: "a", Outer: "b", Clients: 201}}},
		"unknown router":   {Pairs: ok, Forward: []string{"c"}},
		"small MTU":        {Pairs: ok, MTU: 576},
		"large MTU":        {Pairs: ok, MTU: 65535},
	} {
		if err := top.complete(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
