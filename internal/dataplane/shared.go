package dataplane

import (
	"errors"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/loader"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/filter/state"
	"levee/internal/host/session"
)

// placed is a generation on an interface.
type placed struct {
	key   string
	g     *store.Description
	began map[string]*ebpf.Map // memories that have had what is older read, of all interfaces
}

func (st *staged) placed() placed { return placed{st.key, st.desc, st.plain.Began} }

// shareWith has the policy share what the same command has put, or staged, on other interfaces.
func (u *up) shareWith(ahead []*staged) {
	for _, st := range ahead {
		u.ahead = append(u.ahead, st.placed())
		if st.shadow != nil {
			u.aheadShadows = append(u.aheadShadows, st.shadow.placed())
		}
	}
}

// together returns what interfaces have in common that will have this policy as one.
func (u *up) together() string { return attach.Together(u.dev.Netns, u.Names) }

// indexes returns the indexes of the interfaces that the same command puts the policy on, as one.
func (u *up) indexes() []int {
	if u.group == nil {
		u.group = []int{u.dev.Index}
		for _, dev := range u.devs {
			if d, err := attach.FindDevice(dev); err == nil && u.together() != "" {
				u.group = append(u.group, d.Index)
			}
		}
	}
	return u.group
}

// meet finds the interfaces that have the policy of these names already, and whether the policy
// leaves others behind, which stay together.
func (u *up) meet() (err error) {
	own := u.together()
	if u.siblings, err = generation.Having(u.Store, own, u.key); err != nil || u.at == nil {
		return err
	}
	before := u.at.Together()
	if before == own {
		return nil
	}
	left, err := generation.Having(u.Store, before, u.key)
	for _, a := range left {
		u.leaves = u.leaves || !slices.Contains(u.indexes(), a.Ifindex)
		a.Close()
	}
	return err
}

// joinMaps has the program share the memories of generations on other interfaces.
func (u *up) joinMaps(k *inherited, p *codegen.Program, with []placed) error {
	for _, other := range with {
		for _, use := range p.Maps {
			i := slices.IndexFunc(other.g.Maps,
				func(m codegen.MapUse) bool { return m.Holds == use.Holds })
			if i < 0 || !inspect.IsShared(use) || k.maps[use.Name] != nil ||
				k.copies[use.Name] != nil {
				continue
			}
			m, err := u.OpenPinned(other.key, other.g.Generation, other.g.Maps[i].Name)
			if err != nil {
				return err
			}
			if m == nil {
				continue
			}
			k.opened[other.key+"/"+use.Name] = m
			if p.Spec.Maps[use.Name].Compatible(m) == nil {
				if err := u.leave(use, m, other); err != nil {
					return err
				}
				k.maps[use.Name] = m
				k.adopted[use.Name] = k.adopted[use.Name] || other.began[use.Name] != nil
			}
		}
	}
	return nil
}

// leave notes that an interface leaves what it remembered alone for what others share: a memory
// holds keyed hashes, which are of no use in one with another key.
func (u *up) leave(use codegen.MapUse, next *ebpf.Map, other placed) error {
	row := state.Of(use.Holds.What)
	if u.at == nil || u.beside != nil || row == nil || row.Older == nil {
		return nil
	}
	g := u.at.Current()
	name, had := codegen.MapOf(g.Maps, row.What)
	if !had {
		return nil
	}
	old, err := u.OpenPinned(u.key, g.Generation, name)
	if old == nil || err != nil {
		return err
	}
	defer old.Close()
	id, err := store.MapID(next)
	if err != nil {
		return err
	}
	if same, err := store.HasID(old, uint32(id)); same || err != nil {
		return err
	}
	u.Note("%s remembers with %s from now on: %s", u.Dev, other.g.Dev, row.Older.Left)
	return nil
}

// noteAbove notes interfaces of the policy that are built on this one: they see its packets again.
func (u *up) noteAbove() {
	if len(u.indexes()) < 2 {
		return
	}
	above, err := session.Above(u.Dev)
	if err != nil {
		return // an interface has gone meanwhile, which others tell
	}
	for _, index := range above {
		if l, err := netlink.LinkByIndex(index); err == nil && slices.Contains(u.indexes(), index) {
			u.Note("what comes by %s came by %s before, and is judged, counted and charged to "+
				"limits on both: leave one of them out", l.Attrs().Name, u.Dev)
		}
	}
}

// sets.InForce are the siblings' generations, and that of the interface before of the name.
func (u *up) inForce() (out []placed) {
	if u.waiting != nil {
		out = append(out, u.from)
	}
	for _, a := range u.siblings {
		out = append(out, placed{key: a.Key, g: a.Current()})
	}
	return out
}

// begin decides which memories have to learn what is older: those that are new, and those of others
// that an interface joins.
func (u *up) begin(k *inherited, l *loader.Loaded) error {
	for _, use := range l.Ledger {
		row := state.Of(use.Holds.What)
		switch {
		case row == nil || row.Older == nil, k.maps[use.Name] == nil && k.copies[use.Name] == nil:
			continue
		case k.copies[use.Name] != nil || k.adopted[use.Name]:
			delete(l.Began, use.Name)
			continue
		}
		had, err := u.had(k, use.Holds.What, l.Maps[use.Name])
		if err != nil {
			return err
		}
		if !had {
			l.Began[use.Name] = l.Maps[use.Name]
		}
	}
	return nil
}

// had reports whether the interface has had a memory.
func (u *up) had(k *inherited, what codegen.Contents, memory *ebpf.Map) (bool, error) {
	id, err := store.MapID(memory)
	if err != nil {
		return false, err
	}
	for _, g := range u.continued() {
		name, kept := codegen.MapOf(g.Maps, what)
		if !kept {
			continue
		}
		m, err := u.openOld(k, g, name)
		if err != nil || m == nil {
			return m == nil, err
		}
		if same, err := store.HasID(m, uint32(id)); same || err != nil {
			return same, err
		}
	}
	return false, nil
}

// copyMemories gives a program that leaves others behind what is in the memories that they keep. A
// word is read and written whole, as by any program beside the one that changes it.
func copyMemories(l *loader.Loaded, k *inherited) error {
	for name, old := range k.copies {
		n := int(old.ValueSize())
		from, err := store.MapMemory(old, n)
		if err != nil {
			return err
		}
		to, err := store.MapMemory(l.Maps[name], n)
		if err != nil {
			return errors.Join(err, unix.Munmap(from))
		}
		for at := 0; at+8 <= n; at += 8 {
			word := atomic.LoadUint64((*uint64)(unsafe.Pointer(&from[at])))
			*(*uint64)(unsafe.Pointer(&to[at])) = word
		}
		if err := errors.Join(unix.Munmap(from), unix.Munmap(to)); err != nil {
			return err
		}
	}
	return nil
}
