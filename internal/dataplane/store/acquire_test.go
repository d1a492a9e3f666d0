package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestCommandsMeetADirectoryThatIsJustRemoved: the last of several commands removes the runtime
// directory. One that began at that moment ended with "create the runtime directory: no such file".
func TestCommandsMeetADirectoryThatIsJustRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "levee")
	var commands sync.WaitGroup
	for range 8 {
		commands.Go(func() {
			for range 100 {
				s := &Store{Ctx: t.Context(), Dir: dir}
				if err := s.acquire(); err != nil {
					t.Error(err)
					return
				}
				err := errors.Join(s.tidy(), s.lock.Close())
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	commands.Wait()
}

// TestALinkThatLeadsNowhereIsToldOf: every command looked for the lock behind it for ever, also
// when it was told to end.
func TestALinkThatLeadsNowhereIsToldOf(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "levee")
	if err := os.Symlink("nowhere/run", dir); err != nil {
		t.Fatal(err)
	}
	s := &Store{Ctx: t.Context(), Dir: dir}
	err := s.acquire()
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), `a link to "nowhere/run"`) {
		t.Fatalf("acquire said %v", err)
	}
}
