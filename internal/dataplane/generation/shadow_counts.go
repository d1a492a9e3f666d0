package generation

import (
	"slices"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/filter/shadow"
	"levee/internal/filter/state"
	"levee/internal/kernel"
)

// Add adds what a memory has counted.
func Add(c *store.CarriedShadow, of, sh *store.Description, m *shadow.Contents) {
	at := map[store.PairID]int{}
	for i, p := range c.Pairs {
		at[p.PairID] = i
	}
	for _, p := range m.Pairs {
		judged, ok := JudgedSlot(of, p.Judged)
		if !ok || p.Would.Slot >= len(sh.Slots) {
			continue
		}
		id := store.PairID{Judged: judged.ID, JudgedVerdict: p.Judged.Verdict,
			WouldVerdict: p.Would.Verdict}
		if p.Would.Verdict != shadow.None {
			id.Would = sh.Slots[p.Would.Slot].ID
		}
		i, known := at[id]
		if !known {
			i = len(c.Pairs)
			at[id] = i
			c.Pairs = append(c.Pairs, store.CarriedPair{PairID: id})
		}
		c.Pairs[i].Packets += p.Packets
		c.Pairs[i].Bytes += p.Bytes
	}
	c.Untold.Packets += m.Untold
	c.Untold.Bytes += m.UntoldBytes
}

// JudgedSlot returns the slot by which the policy in force has judged; false if that policy has no
// such slot.
func JudgedSlot(of *store.Description, d shadow.Decision) (store.Slot, bool) {
	switch {
	case d.Slot < len(of.Slots):
		return of.Slots[d.Slot], true
	case d.Slot == len(of.Slots): // it says nothing of what leaves
		return attach.Unsaid(), true
	}
	return store.Slot{}, false
}

// Contents reads the memory of a shadow.
func Contents(s *store.Store, key string, sh *store.Description) (out shadow.Contents, err error) {
	name, _ := codegen.MapOf(sh.Maps, state.HoldsPairs)
	m, err := s.OpenPinned(key, sh.Generation, name)
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
func foldShadow(s *store.Store, a *attach.Attachment, next *store.Carried, sh *store.Description,
	cpus [][]store.Counter) error {
	of := a.Generations[sh.ShadowOf]
	if of == nil {
		return nil
	}
	m, err := Contents(s, a.Key, sh)
	if err != nil {
		return err
	}
	// Only the shadow that goes on, or goes last, is of interest: numbers are times.
	if next.Shadow != nil && next.Shadow.Shadow > sh.Shadow {
		return nil
	}
	next.Shadow = next.Shadow.Of(sh.Shadow)
	AddTo(next.Shadow.Totals, sh.Slots, cpus)
	Add(next.Shadow, of, sh, &m)
	return nil
}

// endShadow drops what is carried of a shadow that has ended. If its policy has been put in force,
// the rules that the policy before did not have go on with what they counted as the shadow's.
func endShadow(a *attach.Attachment, next *store.Carried, gone, stay []*store.Description) {
	if next.Shadow == nil {
		return
	}
	goesOn := func(g *store.Description) bool { return g.Shadow == next.Shadow.Shadow }
	if slices.ContainsFunc(stay, goesOn) {
		return
	}
	counted := next.Shadow.Totals
	next.Shadow = nil
	i := slices.IndexFunc(gone, func(g *store.Description) bool { return g.ShadowOf != 0 })
	g := a.Current()
	if i < 0 || g == nil || g.Hash != gone[i].Hash || g.Generation < gone[i].Generation {
		return
	}
	before := a.Generations[gone[i].ShadowOf]
	for of, cpus := range counted {
		if before == nil || !hasCounted(before, of) {
			next.Totals[of] = cpus
		}
	}
}

func hasCounted(d *store.Description, of string) bool {
	return slices.ContainsFunc(d.Slots, func(sl store.Slot) bool { return sl.Counts() == of })
}
