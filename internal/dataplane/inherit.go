package dataplane

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"levee/internal/dataplane/around"
	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/loader"
	"levee/internal/dataplane/sets"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/filter/names"
	"levee/internal/filter/shadow"
	"levee/internal/filter/state"
	"levee/internal/kernel"
	"levee/internal/lang/policy"
)

// inherited holds the maps of the generation in force that the next one continues. Close gives back
// opened and memories.
type inherited struct {
	maps     map[string]*ebpf.Map // by name in the new program: they stay the maps they are
	memories map[string]*ebpf.Map // by name of the set: its shape stays, so its memory does
	copied   map[*policy.Set]sets.Place
	copies   map[string]*ebpf.Map // by name in the new program: it begins with what is in them
	adopted  map[string]bool      // by name in the new program: it knows what is older, of all
	idle     []idleMap            // of the interface, and not of the new program
	opened   map[string]*ebpf.Map // maps of the generation in force
}

// idleMap is a map that a program does not use.
type idleMap struct {
	codegen.MapUse
	m *ebpf.Map
}

func (k *inherited) Close() {
	for _, maps := range []map[string]*ebpf.Map{k.opened, k.memories} {
		for _, m := range maps {
			m.Close()
		}
	}
}

// loadOver loads a program over what the policy in force has in maps that the program continues. A
// map of the same identity and shape stays the map it is. A dynamic set of another shape gets the
// entries; anything else of another shape begins empty.
func (u *up) loadOver(p *codegen.Program) (*loader.Loaded, error) {
	if err := u.Step("load"); err != nil {
		return nil, attach.Unable(err)
	}
	k := &inherited{
		maps: map[string]*ebpf.Map{}, memories: map[string]*ebpf.Map{},
		copied: map[*policy.Set]sets.Place{}, opened: map[string]*ebpf.Map{},
		copies: map[string]*ebpf.Map{}, adopted: map[string]bool{},
	}
	defer k.Close()
	if err := u.inheritMaps(k, p); err != nil {
		return nil, err
	}
	if u.beside != nil {
		k.maps[shadow.JudgedMap] = u.beside.counters
	}
	for _, ps := range p.Dynamic {
		if err := u.inheritSet(k, p, ps); err != nil {
			return nil, err
		}
	}
	spec := loader.WithoutBTF(p.Spec)
	if len(u.live) > 0 { // nobody confirms them: the variant with a deadline alone judges
		delete(spec.Programs, p.Judge())
	}
	l, err := loader.LoadSpec(p, spec, k.maps, k.memories)
	if err != nil {
		return nil, attach.Unable(err)
	}
	if err := hold(l, k); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	if err := errors.Join(u.begin(k, l), u.carry(k, p, l), copyMemories(l, k)); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	if err := u.Step("sets"); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	for ps, old := range k.copied {
		if err := sets.CopySet(ps, old, l.Place(p, ps.Name)); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	if u.beside == nil { // else its sets are those of the policy in force, or empty
		if err := u.restore(p, l, k); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	if err := errors.Join(u.fillSelf(l, p), around.FillOwn(l, u.dev.Index, u.Note),
		around.FillWays(l, u.dev.Index, u.Dev, u.Note),
		around.FillSenders(l, &p.Senders, u.Note)); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// inheritMaps finds the maps that the program continues, without those of dynamic sets, and the
// interface's maps that it does not use.
func (u *up) inheritMaps(k *inherited, p *codegen.Program) error {
	if u.together() != "" {
		if err := u.joinMaps(k, p, u.ahead); err != nil {
			return err
		}
	}
	for _, g := range u.continued() {
		if err := u.inheritMapsOf(k, p, g); err != nil {
			return err
		}
	}
	if err := u.inheritTurn(k, p); err != nil {
		return err
	}
	if u.beside != nil {
		return u.lend(k, p)
	}
	return u.joinMaps(k, p, u.inForce())
}

// inheritTurn finds the map that says whose turn it is at egress: an interface has one, which the
// policies have, and a shadow where they say nothing of what leaves.
func (u *up) inheritTurn(k *inherited, p *codegen.Program) error {
	to, asks := p.MapOf(state.HoldsTurn)
	if !asks || u.at == nil {
		return nil
	}
	var from []*store.Description
	if b := u.beside; b != nil {
		from = append(from, b.of)
	}
	if sh := u.at.Shadow(); sh != nil {
		from = append(from, sh)
	}
	for _, g := range from {
		name, has := codegen.MapOf(g.Maps, state.HoldsTurn)
		if !has || k.maps[to] != nil {
			continue
		}
		m, err := u.OpenPinned(u.key, g.Generation, name)
		if err != nil {
			return err
		}
		if m != nil {
			k.opened["turn"], k.maps[to] = m, m
		}
	}
	return nil
}

// lend has a shadow look into the memories of the policy in force that this lends, where it has
// them.
func (u *up) lend(k *inherited, p *codegen.Program) error {
	for i := range state.Table {
		row, of := &state.Table[i], u.beside.of
		name, asks := p.MapOf(row.What)
		kept, keeps := codegen.MapOf(of.Maps, row.What)
		if !row.Lent || !asks || !keeps {
			continue
		}
		m, err := u.OpenPinned(u.key, of.Generation, kept)
		if err != nil {
			return err
		}
		if m == nil {
			continue
		}
		k.opened["in force/"+kept] = m
		if p.Spec.Maps[name].Compatible(m) == nil {
			k.maps[name] = m
		}
	}
	return nil
}

// continued lists the generations whose memories the program continues, where several have one of
// the same identity that of the first.
func (u *up) continued() (out []*store.Description) {
	switch {
	case u.at == nil:
		return nil
	case u.beside == nil:
		out = append(out, u.at.Current())
		if sh := u.shadowed(); sh != nil {
			out = append(out, sh)
		}
		if u.rulesOf != nil {
			out = append(out, u.rulesOf)
		}
	case u.beside.before != nil:
		out = append(out, u.beside.before)
	}
	return out
}

// inheritMapsOf finds the maps of one generation that the program continues.
func (u *up) inheritMapsOf(k *inherited, p *codegen.Program, g *store.Description) error {
	for _, old := range g.Maps {
		i := slices.IndexFunc(p.Maps, func(m codegen.MapUse) bool { return m.Holds == old.Holds })
		switch {
		case old.Holds.What == codegen.DynamicSet: // see inheritSet
		case u.leaves && old.Lifetime == codegen.Attached && inspect.IsShared(old):
			// Who has put something into it puts it into the new one, too.
		case i < 0 && old.Lifetime == codegen.Attached && g.ShadowOf == 0 && g != u.rulesOf:
			m, err := u.openOld(k, g, old.Name)
			if err != nil {
				return err
			}
			if m != nil {
				k.idle = append(k.idle, idleMap{old, m})
			}
		case i >= 0 && p.Maps[i].Lifetime.Continues() && k.maps[p.Maps[i].Name] == nil &&
			k.copies[p.Maps[i].Name] == nil:
			m, err := u.openOld(k, g, old.Name)
			if err != nil {
				return err
			}
			if m == nil {
				continue
			}
			if p.Spec.Maps[p.Maps[i].Name].Compatible(m) != nil {
				u.noteAnew(p.Maps[i])
				continue
			}
			if u.leaves && inspect.IsShared(old) {
				k.copies[p.Maps[i].Name] = m
			} else {
				k.maps[p.Maps[i].Name] = m
			}
		}
	}
	return nil
}

// noteAnew notes that a memory whose contents cannot be moved is of another shape than it was, as
// after an upgrade.
func (u *up) noteAnew(use codegen.MapUse) {
	if row := state.Of(use.Holds.What); row != nil && row.Seed != nil && row.Carry == nil &&
		use.Lifetime == codegen.Carried {
		u.Note("%s: the memory of %s has another shape than it had, and begins empty", u.Dev,
			row.Name)
	}
}

// openOld opens a map of a generation, nil if it is gone.
func (u *up) openOld(k *inherited, g *store.Description, name string) (*ebpf.Map, error) {
	id := fmt.Sprint(g.Generation, "/", name)
	if m := k.opened[id]; m != nil {
		return m, nil
	}
	m, err := u.OpenPinned(u.at.Key, g.Generation, name)
	if m != nil {
		k.opened[id] = m
	}
	return m, err
}

// hold keeps idle maps with a program that does not use them, for the next that does. A map of the
// program may have the name.
func hold(l *loader.Loaded, k *inherited) error {
	for _, idle := range k.idle {
		use := idle.MapUse
		m, err := idle.m.Clone()
		if err != nil {
			return kernel.Refuse(err, "keep the map %s", use.Name)
		}
		for l.Maps[use.Name] != nil {
			use.Name += "_"
		}
		l.Maps[use.Name] = m
		l.Ledger = append(l.Ledger, use)
	}
	return nil
}

// inheritSet finds the set of the policy in force that a new one continues, and decides how.
func (u *up) inheritSet(k *inherited, p *codegen.Program, ps *policy.Set) error {
	if u.from.g != nil && hasSet(u.from.g, ps) {
		from, err := sets.OpenPlace(u.Store, u.from.key, u.from.g, ps.Name)
		if err != nil || from.Outer == nil {
			return err
		}
		k.opened[ps.Name] = from.Outer
		k.copied[ps] = from
		return nil
	}
	g := u.withSet(ps)
	if g == nil {
		return nil
	}
	from, to := g.Places[ps.Name], p.Places[ps.Name]
	outer, err := u.openOld(k, g, from.Map)
	if err != nil || outer == nil {
		return err
	}
	old := sets.Place{Outer: outer, Key: from.Key, Name: ps.Name,
		Pins: u.Pins(u.at.Key, g.Generation)}
	s, err := sets.Access(old, ps.Name, ps.Type, ps.Lease)
	if err != nil {
		return err
	}
	defer s.Close()
	spec := p.Spec.Maps[to.Map]
	// Where entries lie depends on the room itself; sizes may agree by chance.
	same := s.Max() == ps.Max && s.Room() == to.Room &&
		s.Inner.ValueSize() == spec.InnerMap.ValueSize &&
		(ps.Type != policy.Names || names.SecretOf(s.Mem) == p.Names)
	own := sameSet(g.Maps, from.Map, p.Maps, to.Map)
	if !same {
		k.copied[ps] = old
		return nil
	}
	if own && spec.Compatible(outer) == nil {
		k.maps[to.Map] = outer
	}
	if k.memories[ps.Name], err = s.Inner.Clone(); err != nil {
		delete(k.memories, ps.Name)
		return kernel.Refuse(err, "keep the memory of dynamic set %q", ps.Name)
	}
	return nil
}

// withSet returns the generation whose set a new one continues, nil if there is none. A shadow
// reads the sets of the policy in force.
func (u *up) withSet(ps *policy.Set) *store.Description {
	if u.at == nil {
		return nil
	}
	for _, g := range append([]*store.Description{u.at.Current()}, u.continued()...) {
		if hasSet(g, ps) {
			return g
		}
	}
	return nil
}

// hasSet reports whether a generation has a set of that name and type: entries of another type are
// those of another set.
func hasSet(d *store.Description, ps *policy.Set) bool {
	return slices.ContainsFunc(d.Sets,
		func(info store.SetInfo) bool {
			return info.Name == ps.Name &&
				info.EntryType() == ps.Type
		})
}

// sameSet reports whether two maps hold one and the same dynamic set, and nothing besides it.
func sameSet(old []codegen.MapUse, from string, next []codegen.MapUse, to string) bool {
	i := slices.IndexFunc(old, func(m codegen.MapUse) bool { return m.Name == from })
	j := slices.IndexFunc(next, func(m codegen.MapUse) bool { return m.Name == to })
	return i >= 0 && j >= 0 && old[i].Holds == next[j].Holds &&
		next[j].Holds.What == codegen.DynamicSet
}
