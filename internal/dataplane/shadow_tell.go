package dataplane

import (
	"slices"

	"levee/internal/filter/codegen"
	"levee/internal/filter/shadow"
	"levee/internal/kernel"
)

// add adds what a memory has counted.
func (c *carriedShadow) add(of, sh *description, m *shadow.Contents) {
	at := map[pairID]int{}
	for i, p := range c.Pairs {
		at[p.pairID] = i
	}
	for _, p := range m.Pairs {
		if p.Judged.Slot >= len(of.Slots) || p.Would.Slot >= len(sh.Slots) {
			continue
		}
		id := pairID{Judged: of.Slots[p.Judged.Slot].ID, JudgedVerdict: p.Judged.Verdict,
			WouldVerdict: p.Would.Verdict}
		if p.Would.Verdict != shadow.None {
			id.Would = sh.Slots[p.Would.Slot].ID
		}
		i, ok := at[id]
		if !ok {
			i = len(c.Pairs)
			at[id] = i
			c.Pairs = append(c.Pairs, carriedPair{pairID: id})
		}
		c.Pairs[i].Packets += p.Packets
		c.Pairs[i].Bytes += p.Bytes
	}
	c.Untold.Packets += m.Untold
	c.Untold.Bytes += m.UntoldBytes
}

// contents reads the memory of a shadow.
func (s *store) contents(key string, sh *description) (out shadow.Contents, err error) {
	name, _ := codegen.MapOf(sh.Maps, codegen.Pairs)
	m, err := s.openPinned(key, sh.Generation, name)
	if err != nil {
		return out, err
	}
	if m == nil {
		return out, kernel.Refuse(nil, "the memory of the shadow %s is gone", sh.Policy)
	}
	defer m.Close()
	var all []byte
	for cpu := range m.MaxEntries() {
		b, err := m.LookupBytes(cpu)
		if err != nil {
			return out, kernel.Refuse(err, "read the memory of the shadow")
		}
		all = append(all, b...)
	}
	return shadow.Read(all), nil
}

// foldShadow carries over what the shadow of a replaced generation has counted.
func (s *store) foldShadow(a *attachment, next *carried, sh *description, cpus [][]Counter) error {
	of := a.gens[sh.ShadowOf]
	if of == nil {
		return nil
	}
	m, err := s.contents(a.key, sh)
	if err != nil {
		return err
	}
	// Only the shadow that goes on, or goes last, is of interest: numbers are times.
	if next.Shadow != nil && next.Shadow.Shadow > sh.Shadow {
		return nil
	}
	next.Shadow = next.Shadow.of(sh.Shadow)
	addTo(next.Shadow.Totals, sh.Slots, cpus)
	next.Shadow.add(of, sh, &m)
	return nil
}

// endShadow drops what is carried of a shadow that has ended. If its policy has been put in force,
// the rules that the policy before did not have go on with what they counted as the shadow's.
func (a *attachment) endShadow(next *carried, gone, keep []*description) {
	if next.Shadow == nil {
		return
	}
	goesOn := func(g *description) bool { return g.Shadow == next.Shadow.Shadow }
	if slices.ContainsFunc(keep, goesOn) {
		return
	}
	counted := next.Shadow.Totals
	next.Shadow = nil
	i := slices.IndexFunc(gone, func(g *description) bool { return g.ShadowOf != 0 })
	g := a.current()
	if i < 0 || g == nil || g.Hash != gone[i].Hash || g.Generation < gone[i].Generation {
		return
	}
	before := a.gens[gone[i].ShadowOf]
	for of, cpus := range counted {
		if before == nil || !before.hasCounted(of) {
			next.Totals[of] = cpus
		}
	}
}

func (d *description) hasCounted(of string) bool {
	return slices.ContainsFunc(d.Slots, func(sl slot) bool { return sl.counts() == of })
}
