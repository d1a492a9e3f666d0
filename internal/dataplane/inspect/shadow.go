package inspect

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/store"
	"levee/internal/filter/shadow"
	"levee/internal/kernel"
	"levee/internal/packet"
)

// tellShadow reads what a shadow has seen, nil if there is none.
func tellShadow(s *store.Store, a *attach.Attachment) (*ShadowState, error) {
	g, sh := a.Current(), a.Shadow()
	if sh == nil {
		return nil, nil
	}
	m, err := generation.Contents(s, a.Key, sh)
	if err != nil {
		return nil, err
	}
	clock, err := s.Jiffies()
	if err != nil {
		return nil, err
	}
	cpus, err := generation.Counters(s, a.Key, sh)
	if err != nil {
		return nil, kernel.Refuse(err, "read the counters of the shadow")
	}
	sum := a.Carried.Shadow.Clone().Of(sh.Shadow)
	generation.AddTo(sum.Totals, sh.Slots, cpus)
	generation.Add(sum, g, sh, &m)
	out := &ShadowState{Policy: sh.Policy, Hash: sh.Hash, Since: sh.Since, Program: sh.Program,
		Untold: sum.Untold, Unasked: sh.Unasked}
	for _, sl := range sh.Slots {
		c, n := generation.CounterOfSlot(sl), generation.SumCPUs(sum.Totals[sl.Counts()])
		c.Packets, c.Bytes = n.Packets, n.Bytes
		out.Rules = append(out.Rules, c)
	}
	unsaid := attach.Unsaid()
	for _, p := range sum.Pairs {
		if p.WouldVerdict == shadow.None {
			out.Unjudged += p.Packets
			continue
		}
		judged := generation.CounterOf(g, p.Judged)
		if judged.Reason == "" && p.Judged == unsaid.ID {
			judged = generation.CounterOfSlot(unsaid)
		}
		out.Pairs = append(out.Pairs, ShadowPair{judged,
			generation.CounterOf(sh, p.Would),
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
	out.Flows = pairsOf(s, g, sh, m.Samples, clock)
	return out, nil
}

// ShadowState holds the counts of a shadow.
type ShadowState struct {
	Policy  string
	Hash    string
	Since   time.Time
	Program uint32
	Rules   []generation.SlotCounter // of the shadow, without CPUs
	Pairs   []ShadowPair             // those that differ first, then by packets
	Flows   []ShadowFlow             // of pairs that differ, the newest first
	// Unjudged are packets that the policy in force had answered, so that the shadow could not
	// judge them; Untold those of pairs above what a CPU tells apart.
	Unjudged uint64
	Untold   store.Counter
	Unasked  []string // cookies of the shadow, which answer nobody
}

// ShadowPair holds the counts of a pair of decisions.
type ShadowPair struct {
	Judged, Would               generation.SlotCounter // without counts
	JudgedVerdict, WouldVerdict shadow.Verdict
	store.Counter
}

// flowsOf tells of samples, of which the CPUs may have several of one flow.
func pairsOf(s *store.Store, g, sh *store.Description, samples []shadow.Sample,
	clock *kernel.Clock) []ShadowFlow {
	type flowID struct {
		shadow.Key
		flow uint32
	}
	all := map[flowID]*ShadowFlow{}
	now := clock.Now()
	for _, f := range samples {
		judged, ok := generation.JudgedSlot(g, f.Judged)
		if !ok || f.Would.Slot >= len(sh.Slots) {
			continue
		}
		ago := time.Duration(now-f.Last) * time.Second / time.Duration(clock.HZ())
		one := &ShadowFlow{At: time.Now().Add(-ago), Length: f.Bytes, Packet: f.Packet,
			Link: g.Link, ShadowPair: ShadowPair{generation.CounterOfSlot(judged),
				generation.CounterOfSlot(sh.Slots[f.Would.Slot]), f.Judged.Verdict, f.Would.Verdict,
				store.Counter{Packets: f.Packets}}}
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

// ShadowFlow is a flow that the shadow would have judged otherwise.
type ShadowFlow struct {
	ShadowPair           // Packets since it is a sample; no Bytes
	At         time.Time // of its last packet
	Length     int       // of a frame
	Packet     []byte    // the first bytes of it
	Link       packet.Link
}

// Differs reports whether the verdicts do.
func (p *ShadowPair) Differs() bool { return p.JudgedVerdict != p.WouldVerdict }
