package dataplane

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"levee/internal/filter/codegen"
	"levee/internal/kernel"
)

// Members of a group may read the state without any capability: what is in force, its counters, the
// entries of its sets. They take no lock, since who can take one can hold it against root; they
// change nothing, and cannot open a link, which is enough to detach it, or a program, which whoever
// has opened it may run on packets of his own (BPF_PROG_TEST_RUN). Memories of limits, connections,
// cookies, fragments and diversions have keys and numbers to prove in them: of these readers get
// what was counted in them when somebody with the rights last looked (memories.go).

// readers is that group. Where the machine does not have it, only root reads.
var readers = &group{name: "levee"}

type group struct {
	name string
	once sync.Once
	gid  int
}

// id is -1 where there is no such group.
func (g *group) id() int {
	g.once.Do(func() {
		g.gid = -1
		if found, err := user.LookupGroup(g.name); err == nil {
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
	fileMode   = 0o640
	lockMode   = 0o600
	secretMode = 0o600
)

// pinMode is who may open a map: readers those that hold counts, or entries of sets. Where reading
// is as good as writing, root alone.
func pinMode(holds codegen.Contents, writable bool) fs.FileMode {
	switch holds {
	case codegen.Counters, codegen.DynamicSet, codegen.DynamicSets:
		if !writable {
			return fileMode
		}
	}
	return secretMode
}

// readersWrite tells whether who may open a map to read can write it on this machine.
var readersWrite = readingIsWriting

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

// tighten takes from readers the maps of an attachment that were pinned when reading was not yet
// writing.
func (s *store) tighten(key string) {
	if readers.id() < 0 || !readersWrite() {
		return
	}
	_ = filepath.WalkDir(s.bpf(key), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // it has gone
		}
		if info, err := d.Info(); err == nil && info.Mode().Perm() != secretMode {
			_ = os.Chmod(path, secretMode)
		}
		return nil
	})
}

// clockFile is a reading of the kernel's clock, which takes the right to load programs.
const clockFile = "clock.json"

type clockReading struct {
	Ticks uint64        `json:"ticks"`
	HZ    uint64        `json:"hz"`
	Mono  time.Duration `json:"mono"` // CLOCK_MONOTONIC then
}

// noteClock writes a reading for those who cannot take one.
func (s *store) noteClock() error {
	c, err := kernel.JiffiesClock()
	if err != nil {
		return kernel.Refuse(err, "read the clock that leases end by")
	}
	return writeJSON(s.state(clockFile), clockReading{c.Now(), c.HZ(), kernel.Monotonic()})
}

// forReading is the runtime directory for a reader. refused is why this process is no more than
// that, and the error where it is not even that.
func forReading(ctx context.Context, refused error) (*store, error) {
	dir, err := directory()
	if err != nil {
		return nil, err
	}
	s := &store{ctx: ctx, dir: dir, readOnly: true}
	var now clockReading
	if err := readJSON(s.state(clockFile), &now); err != nil {
		return nil, fmt.Errorf("%w; where a policy is in force, members of the group %s may read "+
			"what it does", refused, readers.name)
	}
	s.clock = kernel.ClockFrom(now.Ticks, now.HZ, now.Mono)
	return s, nil
}

// readAgain is how often a reader looks again because a policy or a set was replaced meanwhile.
const readAgain = 50

// steady runs look until no policy was replaced while it did, and it found all that it looked for:
// readers take no lock.
func steady(look func() error) error {
	for again := 0; ; again++ {
		before, err := runStamp()
		if err != nil {
			return err
		}
		failed := look()
		after, err := runStamp()
		if err != nil {
			return err
		}
		moved := before != after || errors.Is(failed, fs.ErrNotExist)
		if !moved || again == readAgain {
			return failed
		}
	}
}

// readStatus is Status for a reader.
func (s *store) readStatus(all bool) (out []Attachment, err error) {
	return out, steady(func() error {
		out = nil
		return s.readEach(all, func(a *attachment) error {
			t, err := s.tell(a)
			if err == nil {
				t.Judging, err = s.tellJudging(a, nil)
			}
			if err == nil {
				out = append(out, *t)
			}
			return err
		})
	})
}

// readSets is SetList for a reader.
func (s *store) readSets(dev, name string) (out []SetContents, err error) {
	var known []string
	err = steady(func() error {
		out, known = nil, nil
		return s.readEach(false, func(a *attachment) error {
			g := a.current()
			for _, info := range g.Sets {
				known = append(known, info.Name)
				if info.Name != name || dev != "" && g.Dev != dev {
					continue
				}
				set, err := s.copyOf(a.key, g, info)
				if err != nil {
					return err
				}
				out = append(out, SetContents{g.Dev, info.EntryType(),
					sortedEntries(set.entries())})
			}
			return nil
		})
	})
	if err == nil && len(out) == 0 {
		err = noSet(dev, name, known)
	}
	return out, err
}

// readEach visits what is in force in this network namespace, or in all.
func (s *store) readEach(all bool, visit func(*attachment) error) error {
	netns, err := netnsCookie()
	if err != nil {
		return err
	}
	keys, err := s.keys()
	if err != nil {
		return err
	}
	for _, key := range keys {
		a, err := s.open(key)
		if err != nil {
			return err
		}
		if g := a.current(); g == nil || !all && g.Netns != netns {
			continue
		}
		if err := visit(a); err != nil {
			return err
		}
	}
	return nil
}

// readRunning finds out which program runs, for a reader, who cannot ask the link: by the
// interface, or, where that does not tell, by the newest description.
func (s *store) readRunning(a *attachment) error {
	gens := a.sorted()
	if len(gens) == 0 {
		return nil
	}
	newest := gens[len(gens)-1]
	a.ifindex = newest.Ifindex
	a.program = newest.Program
	if _, err := os.Stat(filepath.Join(s.pins(a.key, newest.Generation), pinTrial)); err == nil {
		left, err := s.timeLeft(newest.Deadline)
		if err != nil {
			return err
		}
		a.program = newest.Trial
		if left == 0 {
			a.program = 0
			if g := a.gens[newest.Fallback]; g != nil {
				a.program = g.Program
			}
		}
	}
	netns, err := netnsCookie()
	if err != nil || netns != newest.Netns {
		return err
	}
	l, err := netlink.LinkByIndex(newest.Ifindex)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		a.program = 0 // it has vanished
		return nil
	}
	if err != nil {
		return kernel.Refuse(err, "look up interface %d", newest.Ifindex)
	}
	x := l.Attrs().Xdp
	if x == nil || !x.Attached {
		return nil
	}
	runs := func(g *description) bool { return g.Program == x.ProgId }
	if slices.ContainsFunc(gens, runs) {
		a.program = x.ProgId
	}
	return nil
}

// copyOf is a copy of a set, in memory of this process.
func (s *store) copyOf(key string, g *description, info SetInfo) (*set, error) {
	at, err := s.openPlace(key, g, info.Name)
	if err != nil {
		return nil, err
	}
	if at.outer == nil {
		return nil, kernel.Refuse(fs.ErrNotExist, "open the map of dynamic set %q on %s", info.Name,
			g.Dev)
	}
	defer at.outer.Close()
	inner, err := at.memory()
	if err != nil {
		return nil, err
	}
	defer inner.Close()
	mem, err := copyOfMap(inner)
	if err != nil {
		return nil, err
	}
	c := &set{name: info.Name, typ: info.EntryType(), clock: s.clock, mem: mem}
	return c, c.openTable()
}

// copyOfMap is the value of a map that has one. What may only be read cannot be mapped: the kernel
// takes such a mapping for a private one.
func copyOfMap(m *ebpf.Map) ([]byte, error) {
	b, err := m.LookupBytes(uint32(0))
	if err != nil {
		return nil, kernel.Refuse(err, "read %s", m)
	}
	return b, nil
}

// withMemory hands f the value of a map while programs write it. A copy of tens of MB would be made
// by the kernel in one go, and keep packets waiting; who may only read gets one all the same.
func (s *store) withMemory(m *ebpf.Map, f func(memory []byte)) error {
	if s.readOnly {
		b, err := copyOfMap(m)
		if err == nil {
			f(b)
		}
		return err
	}
	b, err := mapMemory(m, int(m.ValueSize()))
	if err != nil {
		return err
	}
	f(b[:m.ValueSize()])
	return unix.Munmap(b)
}

// entries lists the live entries of a set, in no order.
func (s *set) entries() []SetEntry {
	now := s.now()
	s.Expire(now)
	out := make([]SetEntry, 0, s.Len())
	for e, expires := range s.All() {
		out = append(out, SetEntry{e.Prefix, e.Service, s.left(expires)})
	}
	return out
}

// sortedEntries puts entries in order: IPv4 before IPv6, by address, protocol and port.
func sortedEntries(entries []SetEntry) []SetEntry {
	slices.SortFunc(entries, compareEntries)
	return entries
}

func compareEntries(a, b SetEntry) int {
	if c := a.Prefix.Compare(b.Prefix); c != 0 {
		return c
	}
	return a.Service.Compare(b.Service)
}

func (s *store) pinOptions() *ebpf.LoadPinOptions {
	return &ebpf.LoadPinOptions{ReadOnly: s.readOnly}
}

// timeLeft is the time until a deadline in jiffies, 0 after it.
func (s *store) timeLeft(deadline uint64) (time.Duration, error) {
	if s.clock != nil {
		return s.clock.Remaining(deadline), nil
	}
	return timeLeft(deadline)
}

// makeDirs makes a directory, and those above it, for readers too.
func makeDirs(dir string) error {
	err := os.Mkdir(dir, dirMode)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeDirs(filepath.Dir(dir)); err == nil {
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
	gid := readers.id()
	if gid >= 0 && info.Sys().(*syscall.Stat_t).Gid != uint32(gid) {
		_ = os.Chown(path, -1, gid) // where this process may not, root alone reads
	}
	perm := info.Mode().Perm()
	if info.IsDir() && gid >= 0 && os.Chmod(path, mode|os.ModeSetgid) == nil || perm == mode {
		return nil
	}
	return os.Chmod(path, mode)
}
