package state

import (
	"levee/internal/filter/shadow"
)

// What maps of the row hold.
const (
	// HoldsPairs is an array of an entry for each CPU, BPF_F_MMAPABLE: package shadow.
	HoldsPairs Contents = "pairs"
	// HoldsJudged are the counters of the policy in force, with what its program leaves there.
	HoldsJudged Contents = "judged"
)

var pairs = Row{
	Name: "shadow",
	What: HoldsPairs,
	Used: func(u *Use) bool { return u.JudgedBytes > 0 },
	Maps: func(u *Use) []Map {
		return []Map{
			{shadow.Map, u.CPUs * shadow.CPUBytes, "pairs of rules, and flows that differ",
				Identity{What: HoldsPairs}, Pinned, shadow.Spec(u.CPUs)},
			{Name: shadow.JudgedMap, Bytes: u.CPUs * u.JudgedBytes,
				For: "counters of the policy in force", Holds: Identity{What: HoldsJudged},
				Lifetime: Private},
		}
	},
	Bound:    func(*Use) Bound { return Bound{1, shadow.MaxInstructions} },
	Emit:     func(e *Emission) error { return shadow.Emit(e.Builder, e.Context, e.TCX, e.Link) },
	OfShadow: true,
	Tell: func(r *Reading, to *Memories) {
		is := shadow.Read(r.Memory)
		to.Shadow = &ShadowCounts{Untold: is.Untold}
		for _, p := range is.Pairs {
			switch {
			case p.Would.Verdict == shadow.None:
				to.Shadow.Unjudged += p.Packets
			case p.Differs():
				to.Shadow.Differs += p.Packets
			}
		}
	},
	Values: []Value{
		counter("levee_shadow_differing_packets", "packets",
			"Packets that the shadow would have judged otherwise.", ofShadow,
			func(s *ShadowCounts) uint64 { return s.Differs }),
		counter("levee_shadow_unjudged_packets", "packets",
			"Packets that were answered, so that the shadow could not judge them.", ofShadow,
			func(s *ShadowCounts) uint64 { return s.Unjudged }),
		counter("levee_shadow_untold_packets", "packets",
			"Packets of pairs of rules above what a CPU tells apart.", ofShadow,
			func(s *ShadowCounts) uint64 { return s.Untold }),
	},
	Elsewhere: "levee status --diff",
}

// ShadowCounts are packets that a shadow has looked at, since the one or the other policy was put
// in place.
type ShadowCounts struct{ Differs, Unjudged, Untold uint64 }

func ofShadow(m *Memories) *ShadowCounts { return m.Shadow }
