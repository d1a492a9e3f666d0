package dataplane

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"levee/internal/dataplane/sets"
	"levee/internal/dataplane/store"
)

// Whoever waits for a lock gives up when told to, and says which process has it.
func TestWaitingForALockEndsAndNamesItsHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := store.Flock(over, f); err != nil {
		t.Fatalf("a lock that is free: %v", err)
	}
	again, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := store.Flock(over, again); !errors.Is(err, context.Canceled) ||
		!strings.Contains(err.Error(), path+" is held by ") {
		t.Errorf("held by this process: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}

	other := exec.Command("flock", "-F", path, "sh", "-c", "echo locked; read end")
	if _, err := other.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Skip("needs flock of util-linux: ", err)
	}
	defer func() {
		_ = other.Process.Kill()
		_ = other.Wait()
	}()
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	soon, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err = store.Flock(soon, again)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("process %d (sh)", other.Process.Pid); !strings.Contains(err.Error(),
		want) && !strings.Contains(err.Error(), "another process") {
		t.Errorf("%v, want %q", err, want)
	}
	t.Log(err)
}

// Who waits longer than a second is told for whom, once.
func TestALockThatIsWaitedForIsNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	held, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := store.Flock(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var told []string
	store.OnWait = func(what string) { told = append(told, what) }
	defer func() { store.OnWait = nil }()
	synctest.Test(t, func(t *testing.T) {
		soon, cancel := context.WithTimeout(t.Context(), 3*store.FlockQuiet)
		defer cancel()
		if err := store.Flock(soon, f); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	})
	if len(told) != 1 || !strings.HasPrefix(told[0], "waiting for ") ||
		!strings.HasSuffix(told[0], ", which holds "+path) {
		t.Errorf("%q", told)
	}
}

// A writer of a set waits for another no longer than its context, and leaves the set as it was.
func TestAWriterOfASetGivesUpWithItsContext(t *testing.T) {
	newTestNet(t)
	if err := bringPolicy(t, "lv0", abuserPolicy(10), 0); err != nil {
		t.Fatal(err)
	}
	open := func() *sets.Set {
		s, err := sets.Open(t.Context(), "lv0", "abusers")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	s, holder := open(), open()
	if err := holder.Hold(t.Context()); err != nil {
		t.Fatal(err)
	}
	soon, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := s.Add(soon, hosts("10.0.0.0", 3)...); !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), "wait for another change of the dynamic sets to finish") {
		t.Errorf("add: %v", err)
	}
	if _, err := sets.List(soon, "lv0", "abusers"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("list: %v", err)
	}
	holder.Release()
	if err := s.Add(soon, hosts("10.0.0.0", 2)...); err != nil {
		t.Errorf("add to what nobody holds: %v", err)
	}
	if n := status(t).Sets[0].Entries; n != 2 {
		t.Errorf("%d entries, want 2", n)
	}
}
