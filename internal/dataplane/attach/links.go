package attach

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/filter/state"
	"levee/internal/kernel"
)

// An attachment has one link whose program judges packets. It is pinned with the attachment, and a
// replace changes its program. All other links belong to a generation and are pinned with it. They
// are attached before its program may judge a packet, and taken away when it cannot judge any more.
// So no two links have to change at once: whichever generation judges, its other programs have been
// there since before it did (docs/explanation/decisions/0032-links.md).

// AttachOther attaches a program of a generation other than the one that judges what arrives.
func AttachOther(d *Device, l codegen.Link, g *store.Description, p *ebpf.Program) (Hold, error) {
	at := l.At
	if at == state.SocketLookup {
		return attachLookup(p)
	}
	if at != codegen.Egress {
		return nil, fmt.Errorf("attach to %s: levee knows no point %q", d.Name, at)
	}
	if g.EgressFilter {
		f := &Filter{Index: d.Index, Generation: g.Generation, made: g.MadeQdisc,
			judges: l.Program == state.LeavingProgram, Nth: state.Nth(l.Program)}
		lk, err := attachFilter(d, f, p)
		if err != nil {
			return nil, kernel.Refuse(err, "attach to %s of %s by tc", at, d.Name)
		}
		return lk, nil
	}
	// What judges comes first. What notes comes behind all others: it sees what they let go.
	anchor := link.Tail()
	if l.Program == state.LeavingProgram {
		anchor = link.Head()
	}
	lk, err := link.AttachTCX(link.TCXOptions{Interface: d.Index, Program: p,
		Attach: ebpf.AttachTCXEgress, Anchor: anchor})
	if err != nil {
		return nil, kernel.Refuse(err, "attach to %s of %s", at, d.Name)
	}
	return lk, nil
}

// LeaveAgain attaches the programs at egress of a generation to an interface that has come back:
// those that it had on the interface before have gone with that one. What is asked for sockets does
// not depend on an interface. It reports false where that cannot be.
func LeaveAgain(s *store.Store, key string, d *Device, g *store.Description) (bool, error) {
	links := filepath.Join(s.Pins(key, g.Generation), store.PinLinks)
	programs := filepath.Join(s.Pins(key, g.Generation), store.PinLeave)
	before, err := names(links)
	if err != nil {
		return false, err
	}
	kept, err := names(programs)
	if err != nil {
		return false, err
	}
	for _, link := range before {
		if state.At(link) != state.SocketLookup && !slices.Contains(kept, link) {
			return false, nil
		}
	}
	if len(kept) == 0 {
		return !g.EgressFilter, nil
	}
	g.Ifindex = d.Index
	if g.EgressFilter {
		if g.MadeQdisc, err = d.LacksQdisc(); err != nil {
			return false, err
		}
	}
	if err := store.WriteJSON(s.DescriptionPath(key, g.Generation), g); err != nil {
		return false, err
	}
	for _, name := range kept {
		if err := linkAgain(s, d, g, programs, links, name); err != nil {
			return false, err
		}
	}
	return true, nil
}

// linkAgain attaches a pinned program at egress, and pins the link in the place of the one before.
func linkAgain(s *store.Store, d *Device, g *store.Description, programs, links,
	name string) error {
	pin := filepath.Join(links, name)
	p, err := s.OpenProgram(filepath.Join(programs, name))
	if err != nil {
		return err
	}
	defer p.Close()
	lk, err := AttachOther(d, codegen.Link{Program: name, At: codegen.Egress}, g, p)
	if err != nil {
		return err
	}
	defer lk.Close()
	if err := os.Remove(pin); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return kernel.Refuse(err, "remove the pinned link %s", pin)
	}
	if err := lk.Pin(pin); err != nil {
		return kernel.Refuse(err, "pin the link %s", pin)
	}
	return nil
}

// names lists the entries of a directory, none if it does not exist.
func names(dir string) (out []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, kernel.Refuse(err, "list %s", dir)
	}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out, nil
}

// Unlink removes the links of all generations except those of stay. Call it before the last reading
// of their maps. All are the descriptions of the generations (Described), by number.
func Unlink(s *store.Store, key string, all []*store.Description, stay []int) error {
	if err := unlinkFilters(s, all, stay); err != nil {
		return err
	}
	numbers, err := s.Pinned(key)
	if err != nil {
		return err
	}
	for _, n := range numbers {
		if slices.Contains(stay, n) {
			continue
		}
		dir := filepath.Join(s.Pins(key, n), store.PinLinks)
		entries, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return kernel.Refuse(err, "list the links of a replaced generation")
		}
		if err := s.Step("unlink"); err != nil {
			return err
		}
		for _, e := range entries {
			if err := RemoveLink(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
		if err := os.Remove(dir); err != nil {
			return kernel.Refuse(err, "remove the links of a replaced generation")
		}
	}
	return nil
}

// Described reads the descriptions of the generations of a key, by number, as far as they are not
// damaged: for who takes away what they tell of, whatever is left of them.
func Described(s *store.Store, key string) (all []*store.Description, err error) {
	files, err := filepath.Glob(s.State(key, "*.json"))
	if err != nil {
		return nil, fmt.Errorf("list generations of %s: %w", key, err)
	}
	for _, file := range files {
		g := &store.Description{}
		if store.ReadJSON(file, g) == nil && g.Generation != 0 {
			all = append(all, g)
		}
	}
	slices.SortFunc(all, func(x, y *store.Description) int { return x.Generation - y.Generation })
	return all, nil
}

// unlinkFilters is unlink for filters at egress. They have no pins: the interface itself is asked
// for them, and descriptions, which stay until they are gone, tell which interface that is.
func unlinkFilters(s *store.Store, all []*store.Description, stay []int) error {
	some, made := false, false
	for _, g := range all {
		some = some || g.EgressFilter && !slices.Contains(stay, g.Generation)
		made = made || g.MadeQdisc
	}
	if len(all) == 0 {
		return nil
	}
	on := all[len(all)-1]
	f, err := EgressFilterOf(on, 0)
	if errors.Is(err, errNoEntry) && !some {
		return nil
	}
	if err != nil {
		return kernel.Refuse(err, "look for tc filters at egress of %s", on.Dev)
	}
	defer f.Close()
	if f.gone {
		return nil
	}
	return f.in(func() error {
		filters, err := EgressFilters(on.Ifindex)
		if err != nil {
			return err
		}
		for _, e := range filters {
			if slices.Contains(stay, e.Generation) {
				continue
			}
			if err := s.Step("unlink filter"); err != nil {
				return err
			}
			if err := e.Detach(); err != nil {
				return kernel.Refuse(err, "remove the tc filter at egress of %s", on.Dev)
			}
		}
		f := &Filter{Index: on.Ifindex, made: made}
		return f.RemoveQdisc()
	})
}

// NoteDeaf notes for the user which filters at egress somebody else has deleted. Without such a
// filter connections are not noted any more, or what leaves is not judged.
func NoteDeaf(s *store.Store, a *Attachment) {
	g := a.Current()
	if g == nil || !g.EgressFilter {
		return
	}
	kept, err := names(filepath.Join(s.Pins(a.Key, g.Generation), store.PinLeave))
	if err != nil {
		return
	}
	for _, program := range kept {
		f, err := EgressFilterOf(g, g.Generation)
		if err != nil {
			return
		}
		f.judges, f.Nth = program == state.LeavingProgram, state.Nth(program)
		_, name, err := f.Running()
		f.Close()
		if err == nil && name != filterName {
			s.Note("%s: the tc filter at egress of %s is gone, and %s: `levee up` brings it back",
				g.Policy, g.Dev, state.Lost(program))
		}
	}
}

// RemoveLink detaches at once what would be detached some time after its pin is gone.
func RemoveLink(path string) error {
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		return kernel.Refuse(err, "open the pinned link %s", path)
	}
	defer l.Close()
	_ = l.Detach() // fails where the interface is gone
	if err := os.Remove(path); err != nil {
		return kernel.Refuse(err, "remove the pinned link %s", path)
	}
	return nil
}

// attachLookup attaches a program that chooses the sockets of new connections in this network
// namespace (BPF_SK_LOOKUP).
func attachLookup(p *ebpf.Program) (Hold, error) {
	ns, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("open the network namespace: %w", err)
	}
	defer ns.Close()
	lk, err := link.AttachNetNs(int(ns.Fd()), p)
	if err != nil {
		return nil, kernel.Refuse(err, "attach to the look-up of sockets")
	}
	return lk, nil
}
