package store

import (
	"errors"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"levee/internal/filter/codegen"
	"levee/internal/kernel"
)

// Members of a group may read the state without any capability: what is in force, its counters, the
// entries of its sets. They take no lock, since who can take one can hold it against root; they
// change nothing, and cannot open a link, which is enough to detach it, or a program, which whoever
// has opened it may run on packets of his own (BPF_PROG_TEST_RUN). Memories of limits, connections,
// cookies, fragments and diversions have keys and numbers to prove in them: of these readers get
// what was counted in them when somebody with the rights last looked.

// Readers is that group. Where the machine does not have it, only root reads.
var Readers = &Group{Name: "levee"}

type Group struct {
	Name string
	once sync.Once
	gid  int
}

// ID is -1 where there is no such group.
func (g *Group) ID() int {
	g.once.Do(func() {
		g.gid = -1
		if found, err := user.LookupGroup(g.Name); err == nil {
			if gid, err := strconv.Atoi(found.Gid); err == nil {
				g.gid = gid
			}
		}
	})
	return g.gid
}

// Modes of what is made in the runtime directory. Locks, programs, links, memories with keys and
// copies of set files, which may be for root alone where they come from, are for root alone.
const (
	dirMode    = 0o750
	FileMode   = 0o640
	LockMode   = 0o600
	SecretMode = 0o600
)

// PinMode returns who may open a map: readers those that hold counts, or entries of sets. Where
// reading is as good as writing, root alone.
func PinMode(holds codegen.Contents, writable bool) fs.FileMode {
	switch holds {
	case codegen.Counters, codegen.DynamicSet, codegen.DynamicSets:
		if !writable {
			return FileMode
		}
	}
	return SecretMode
}

// ReadersWrite tells whether who may open a map to read can write it on this machine.
var ReadersWrite = readingIsWriting

// readingIsWriting is that where anybody may load a program (kernel.unprivileged_bpf_disabled,
// Documentation/admin-guide/sysctl/kernel.rst; seen on 6.18, the verifier does not ask how a map
// was opened), or may pin a map anew. Where nobody can tell, it is.
func readingIsWriting() bool {
	b, err := os.ReadFile("/proc/sys/kernel/unprivileged_bpf_disabled")
	if err == nil && strings.TrimSpace(string(b)) == "0" {
		return true
	}
	open, err := kernel.OpenBPFDirs()
	return err != nil || len(open) > 0
}

// Tighten takes from readers the maps of an attachment that were pinned when reading was not yet
// writing.
func (s *Store) Tighten(key string) {
	if Readers.ID() < 0 || !ReadersWrite() {
		return
	}
	_ = filepath.WalkDir(s.BPF(key), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // it has gone
		}
		if info, err := d.Info(); err == nil && info.Mode().Perm() != SecretMode {
			_ = os.Chmod(path, SecretMode)
		}
		return nil
	})
}

// Hidden tells whether this process may not read what is in force, though something may be.
func Hidden() bool {
	dir, err := Directory()
	if err == nil {
		_, err = os.ReadDir(filepath.Join(dir, "state"))
	}
	return errors.Is(err, fs.ErrPermission)
}

// MakeDirs makes a directory, and those above it, for readers too.
func MakeDirs(dir string) error {
	err := os.Mkdir(dir, dirMode)
	if errors.Is(err, fs.ErrNotExist) {
		if err = MakeDirs(filepath.Dir(dir)); err == nil {
			err = os.Mkdir(dir, dirMode)
		}
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return share(dir, dirMode)
}

// share lets the readers into what this process, or another one of root, has made, whatever the
// umask is. The units run in their group, so they may give it away; but systemd forbids them to
// make anything setgid. By that, what a command without either right makes in a directory of root's
// is for readers too.
func share(path string, mode fs.FileMode) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	gid := Readers.ID()
	if gid >= 0 && info.Sys().(*syscall.Stat_t).Gid != uint32(gid) {
		_ = os.Chown(path, -1, gid) // where this process may not, root alone reads
	}
	perm := info.Mode().Perm()
	if info.IsDir() && gid >= 0 && os.Chmod(path, mode|os.ModeSetgid) == nil || perm == mode {
		return nil
	}
	return os.Chmod(path, mode)
}
