package api

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestOfAgentsThatStartAtOnceOneListens: each removed the socket of the other, which then had one
// that nobody found.
func TestOfAgentsThatStartAtOnceOneListens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent", "agent.sock")
	const agents = 8
	for range 100 {
		var begin, end sync.WaitGroup
		begin.Add(agents)
		var releases [agents]func()
		var errs [agents]error
		for i := range agents {
			end.Go(func() {
				begin.Done()
				begin.Wait()
				_, releases[i], errs[i] = Local(path)
			})
		}
		end.Wait()
		var listening []func()
		for i, err := range errs {
			if err == nil {
				listening = append(listening, releases[i])
			} else if !strings.Contains(err.Error(), "another agent runs") {
				t.Error(err)
			}
		}
		if len(listening) != 1 {
			t.Fatalf("%d of %d agents listen", len(listening), agents)
		}
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		listening[0]()
		if _, err := os.Stat(filepath.Dir(path)); !os.IsNotExist(err) {
			t.Fatalf("the directory is left: %v", err)
		}
	}
}

// TestAnAgentTakesTheSocketOfAKilledOne: a killed agent leaves its socket and its directory, and
// the kernel lets its lock go.
func TestAnAgentTakesTheSocketOfAKilledOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	_, release, err := Local(path)
	if err != nil {
		t.Fatal(err)
	}
	release()
}

// TestNobodyElseCanLockOutAnAgent: the unit let a member of the group levee open the directory, and
// so take the lock by which an agent says that it runs, as soon as it was there.
func TestNobodyElseCanLockOutAnAgent(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	_, release, err := Local(filepath.Join(dir, "agent.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode != 0o711 {
		t.Errorf("the directory has mode %v", mode)
	}
}
