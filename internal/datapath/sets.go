package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"levee/internal/codegen"
	"levee/internal/kernel"
	"levee/internal/policy"
	"levee/internal/prefix"
)

// Forever is the lease of an entry that stays until it is deleted.
const Forever time.Duration = -1

// SetEntry is a prefix in a dynamic set.
type SetEntry struct {
	Prefix netip.Prefix
	Lease  time.Duration // to add: 0 is the set's own, Forever none; listed: what is left, Forever none
}

// set is a dynamic set in this process's memory.
type set struct {
	name  string
	lease time.Duration // default; 0: until deleted
	clock *kernel.Clock
	mem   []byte
	*prefix.Dynamic
}

// openSet gives access to the map of a set that was formatted before. The map may be closed then.
func openSet(m *ebpf.Map, name string, lease time.Duration) (*set, error) {
	mem, err := mapMemory(m, int(m.ValueSize()))
	if err != nil {
		return nil, err
	}
	s := &set{name: name, lease: lease, mem: mem}
	if s.clock, err = kernel.JiffiesClock(); err == nil {
		s.Dynamic, err = prefix.Open(mem, s.clock.Now)
	}
	if err != nil {
		return nil, errors.Join(kernel.Refuse(err, "open dynamic set %q", name), s.Close())
	}
	return s, nil
}

func (s *set) Close() error { return unix.Munmap(s.mem) }

// expires is the end of a lease in jiffies, 0 for never.
func (s *set) expires(lease time.Duration) uint64 {
	if lease == 0 {
		lease = s.lease
	}
	if lease <= 0 {
		return 0
	}
	return s.clock.Expiry(lease)
}

// left is the time until jiffies, Forever for 0.
func (s *set) left(expires uint64) time.Duration {
	if expires == 0 {
		return Forever
	}
	return s.clock.Remaining(expires)
}

// formatSets makes the sets of a program that are not shared with another usable.
func formatSets(p *codegen.Program, l *loaded, shared map[string]*ebpf.Map) error {
	for _, ps := range p.Dynamic {
		name := codegen.SetPrefix + ps.Name
		m := l.maps[name]
		if m == nil {
			return fmt.Errorf("load program: it has no map for dynamic set %q", ps.Name)
		}
		if shared[name] != nil {
			continue
		}
		mem, err := mapMemory(m, int(m.ValueSize()))
		if err != nil {
			return err
		}
		if err := errors.Join(prefix.Format(mem, ps.Max), unix.Munmap(mem)); err != nil {
			return fmt.Errorf("make dynamic set %q: %w", ps.Name, err)
		}
	}
	return nil
}

// loadOverSets loads a program over the dynamic sets of the policy in force: a set of the same name and
// shape stays the map it is; of another shape, it gets the old entries.
func (u *up) loadOverSets(p *codegen.Program) (*loaded, error) {
	if err := step("load"); err != nil {
		return nil, err
	}
	kept, other := map[string]*ebpf.Map{}, map[*policy.Set]*ebpf.Map{}
	defer func() {
		for _, m := range kept {
			m.Close()
		}
		for _, m := range other {
			m.Close()
		}
	}()
	for _, ps := range p.Dynamic {
		name := codegen.SetPrefix + ps.Name
		m, err := u.setInForce(name)
		switch {
		case err != nil:
			return nil, err
		case m == nil:
		case p.Spec.Maps[name].Compatible(m) == nil:
			kept[name] = m
		default:
			other[ps] = m
		}
	}
	l, err := load(p, kept)
	if err != nil {
		return nil, err
	}
	if err := step("sets"); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	for ps, old := range other {
		if err := copySet(ps, old, l.maps[codegen.SetPrefix+ps.Name]); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	return l, nil
}

// setInForce opens a dynamic set of the policy in force, nil if it has none of that name.
func (u *up) setInForce(name string) (*ebpf.Map, error) {
	if u.at == nil {
		return nil, nil
	}
	return u.openPinned(u.at.key, u.at.current().Generation, name)
}

// openPinned opens a map of a generation, nil if it has none of that name.
func (s *store) openPinned(key string, generation int, name string) (*ebpf.Map, error) {
	m, err := ebpf.LoadPinnedMap(filepath.Join(s.pins(key, generation), name), nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, kernel.Refuse(err, "open the pinned map %s", name)
	}
	return m, nil
}

// copySet copies all entries, with what is left of their leases. The caller holds the lock of writers
// until the new set is in force.
func copySet(ps *policy.Set, from, to *ebpf.Map) error {
	old, err := openSet(from, ps.Name, ps.Lease)
	if err != nil {
		return err
	}
	defer old.Close()
	next, err := openSet(to, ps.Name, ps.Lease)
	if err != nil {
		return err
	}
	defer next.Close()
	for e := range old.All() {
		if err := next.Add(e.Prefix, e.Expires); err != nil {
			return fmt.Errorf("dynamic set %q holds %d entries, which do not fit into the new policy's max %d; delete some or raise max: %w", ps.Name, old.Len(), ps.Max, err)
		}
	}
	return nil
}

// writers is the lock of those who change the dynamic sets of one attachment. Its file grows by a
// byte whenever other maps may take the place of those that a writer has open.
type writers struct{ f *os.File }

func (s *store) openWriters(key string) (*writers, error) {
	f, err := os.OpenFile(s.state(key, "sets"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, kernel.Refuse(err, "open the lock of dynamic sets")
	}
	return &writers{f}, nil
}

func (w *writers) lock() error {
	for {
		err := unix.Flock(int(w.f.Fd()), unix.LOCK_EX)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return kernel.Refuse(err, "lock the dynamic sets")
		}
	}
}

func (w *writers) unlock() { _ = unix.Flock(int(w.f.Fd()), unix.LOCK_UN) }

// serial tells generations of open maps apart; it is negative when the attachment is gone.
func (w *writers) serial() int64 {
	var st unix.Stat_t
	if unix.Fstat(int(w.f.Fd()), &st) != nil || st.Nlink == 0 {
		return -1
	}
	return st.Size
}

// bump makes every writer open its maps anew. It comes before they change: whoever is killed in
// between has only cost the writers a look.
func (w *writers) bump() error {
	if err := w.f.Truncate(w.serial() + 1); err != nil {
		return kernel.Refuse(err, "tell writers of dynamic sets of the change")
	}
	return nil
}

// exclude keeps writers out of an attachment's sets until the file is closed; nil when it has none
// and next has none either.
func (s *store) exclude(key string, next bool) (*os.File, error) {
	_, err := os.Stat(s.state(key, "sets"))
	if err != nil && !next {
		return nil, nil
	}
	if err := os.MkdirAll(s.state(key), 0o700); err != nil {
		return nil, kernel.Refuse(err, "create the runtime directory")
	}
	w, err := s.openWriters(key)
	if err != nil {
		return nil, err
	}
	if err = w.lock(); err == nil {
		err = w.bump()
	}
	if err != nil {
		return nil, errors.Join(err, w.f.Close())
	}
	return w.f, nil
}
