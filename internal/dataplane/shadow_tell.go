package dataplane

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"levee/internal/filter/codegen"
	"levee/internal/filter/shadow"
	"levee/internal/kernel"
	"levee/internal/packet"
)

// carriedShadow is what the shadows of replaced generations have counted, of the shadow that goes
// on.
type carriedShadow struct {
	Shadow uint64               `json:"shadow"`
	Totals map[string][]Counter `json:"totals"` // by what slots count, then by CPU
	Pairs  []carriedPair        `json:"pairs"`
	Untold Counter              `json:"untold"`
}

// pairID is a pair of decisions by the identities of rules; Would is empty where the shadow was not
// asked.
type pairID struct {
	Judged        string         `json:"judged"`
	JudgedVerdict shadow.Verdict `json:"judged_verdict"`
	Would         string         `json:"would"`
	WouldVerdict  shadow.Verdict `json:"would_verdict"`
}

type carriedPair struct {
	pairID
	Counter
}

func (c *carriedShadow) clone() *carriedShadow {
	if c == nil {
		return nil
	}
	out := *c
	out.Totals = map[string][]Counter{}
	for id, cpus := range c.Totals {
		out.Totals[id] = slices.Clone(cpus)
	}
	out.Pairs = slices.Clone(c.Pairs)
	return &out
}

// of is what is carried of one shadow.
func (c *carriedShadow) of(number uint64) *carriedShadow {
	if c != nil && c.Shadow == number {
		return c
	}
	return &carriedShadow{Shadow: number, Totals: map[string][]Counter{}}
}

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

// ShadowState is what a shadow has seen.
type ShadowState struct {
	Policy  string
	Hash    string
	Since   time.Time
	Program uint32
	Rules   []SlotCounter // of the shadow, without CPUs
	Pairs   []ShadowPair  // those that differ first, then by packets
	Flows   []ShadowFlow  // of pairs that differ, the newest first
	// Unjudged are packets that the policy in force had answered, so that the shadow could not
	// judge them; Untold those of pairs above what a CPU tells apart.
	Unjudged uint64
	Untold   Counter
	Unasked  []string // cookies of the shadow, which answer nobody
}

// ShadowPair is what has been counted of a pair of decisions.
type ShadowPair struct {
	Judged, Would               SlotCounter // without counts
	JudgedVerdict, WouldVerdict shadow.Verdict
	Counter
}

// Differs reports whether the verdicts do.
func (p *ShadowPair) Differs() bool { return p.JudgedVerdict != p.WouldVerdict }

// ShadowFlow is a flow that the shadow would have judged otherwise.
type ShadowFlow struct {
	ShadowPair           // Packets since it is a sample; no Bytes
	At         time.Time // of its last packet
	Length     int       // of a frame
	Packet     []byte    // the first bytes of it
	Link       packet.Link
}

// tellShadow reads what a shadow has seen, nil if there is none.
func (s *store) tellShadow(a *attachment) (*ShadowState, error) {
	g, sh := a.current(), a.shadow()
	if sh == nil {
		return nil, nil
	}
	m, err := s.contents(a.key, sh)
	if err != nil {
		return nil, err
	}
	clock, err := s.jiffies()
	if err != nil {
		return nil, err
	}
	cpus, err := s.counters(a.key, sh)
	if err != nil {
		return nil, kernel.Refuse(err, "read the counters of the shadow")
	}
	sum := a.carried.Shadow.clone().of(sh.Shadow)
	addTo(sum.Totals, sh.Slots, cpus)
	sum.add(g, sh, &m)
	out := &ShadowState{Policy: sh.Policy, Hash: sh.Hash, Since: sh.Since, Program: sh.Program,
		Untold: sum.Untold, Unasked: sh.Unasked}
	for _, sl := range sh.Slots {
		c, n := sl.counter(), sumCPUs(sum.Totals[sl.counts()])
		c.Packets, c.Bytes = n.Packets, n.Bytes
		out.Rules = append(out.Rules, c)
	}
	for _, p := range sum.Pairs {
		if p.WouldVerdict == shadow.None {
			out.Unjudged += p.Packets
			continue
		}
		out.Pairs = append(out.Pairs, ShadowPair{g.counterOf(p.Judged), sh.counterOf(p.Would),
			p.JudgedVerdict, p.WouldVerdict, p.Counter})
	}
	slices.SortStableFunc(out.Pairs, func(x, y ShadowPair) int {
		switch {
		case x.Differs() != y.Differs() && x.Differs():
			return -1
		case x.Differs() != y.Differs():
			return 1
		}
		return cmp.Compare(y.Packets, x.Packets)
	})
	out.Flows = s.flowsOf(g, sh, m.Samples, clock)
	return out, nil
}

// flowsOf tells of samples, of which the CPUs may have several of one flow.
func (s *store) flowsOf(g, sh *description, samples []shadow.Sample,
	clock *kernel.Clock) []ShadowFlow {
	type flowID struct {
		shadow.Key
		flow uint32
	}
	all := map[flowID]*ShadowFlow{}
	now := clock.Now()
	for _, f := range samples {
		if f.Judged.Slot >= len(g.Slots) || f.Would.Slot >= len(sh.Slots) {
			continue
		}
		ago := time.Duration(now-f.Last) * time.Second / time.Duration(clock.HZ())
		one := &ShadowFlow{At: time.Now().Add(-ago), Length: f.Bytes, Packet: f.Packet,
			Link: g.Link, ShadowPair: ShadowPair{g.Slots[f.Judged.Slot].counter(),
				sh.Slots[f.Would.Slot].counter(), f.Judged.Verdict, f.Would.Verdict,
				Counter{Packets: f.Packets}}}
		id := flowID{f.Key, f.Flow}
		if same := all[id]; same != nil {
			one.Packets += same.Packets
			if same.At.After(one.At) {
				one.At, one.Length, one.Packet = same.At, same.Length, same.Packet
			}
		}
		all[id] = one
	}
	out := make([]ShadowFlow, 0, len(all))
	for _, id := range slices.SortedFunc(maps.Keys(all), func(x, y flowID) int {
		return cmp.Or(all[y].At.Compare(all[x].At), cmp.Compare(x.flow, y.flow))
	}) {
		out = append(out, *all[id])
	}
	return out
}
