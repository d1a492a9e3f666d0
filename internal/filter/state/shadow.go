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
	Bound:     func(*Use) Bound { return Bound{1, shadow.MaxInstructions} },
	Emit:      func(e *Emission) error { return shadow.Emit(e.Builder, e.Context, e.TCX, e.Link) },
	Elsewhere: "levee status --diff",
}
