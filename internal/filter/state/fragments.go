package state

import (
	"fmt"

	"levee/internal/filter/fragment"
	"levee/internal/filter/price"
	"levee/internal/lang/action"
	"levee/internal/quantity"
)

// What maps of the row hold.
const (
	// HoldsFragments is an array of 1 entry, BPF_F_MMAPABLE: datagrams that come in fragments,
	// package fragment.
	HoldsFragments Contents = "fragments"
)

var fragments = Row{
	Name: "fragments",
	What: HoldsFragments,
	Used: func(u *Use) bool { return u.Fragments > 0 },
	Maps: func(*Use) []Map {
		return []Map{{Name: fragment.Map, Bytes: fragment.Size,
			For: "datagrams that come in fragments", Holds: Identity{What: HoldsFragments},
			Lifetime: Carried}}
	},
	Bound: func(u *Use) Bound { return Bound{u.Fragments, fragment.MaxInstructions} },
	Emit:  func(e *Emission) error { return fragment.Emit(e.Builder, e.Key) },
	// of fragments with an offset
	Calls:    []Call{{Action: action.Track, Size: 20, Time: price.Wait(35)}},
	Shared:   []Contents{HoldsFragments},
	Head:     fragment.HeadBytes,
	Seed:     fragment.Seed,
	SetClock: fragment.SetClock,
	Room: func(*Use) Room {
		return Room{fragment.Places, fragment.Size, "fragments: room for %d datagrams"}
	},
	In:   func(to *Rooms) **Room { return &to.Fragments },
	Tell: func(r *Reading, to *Memories) { to.Fragments = new(fragment.Read(r.Memory, r.Now)) },
	Values: []Value{
		gauge("levee_fragmented_datagrams", "datagrams",
			"Datagrams of which more fragments may come.", ofFragments,
			func(s *fragment.Stats) int { return s.Datagrams }),
		counter("levee_refused_fragments", "fragments",
			"Fragments that came before their first, above the rate for these.", ofFragments,
			func(s *fragment.Stats) uint64 { return s.Refused }),
	},
	Lines: func(of *Memories, _ string) []Line {
		f := of.Fragments
		if f == nil {
			return nil
		}
		expected := "of " + quantity.Plural(f.Datagrams, "datagram") + " expected"
		return []Line{{"fragments", f.Datagrams, fmt.Sprintf("%s, %d refused", expected, f.Refused),
			"frags", fmt.Sprintf("%s; room for %d; %d came ahead, %d refused; %d lost their place",
				expected, f.Places, f.Ahead, f.Refused, f.Evicted)}}
	},
}

func ofFragments(m *Memories) *fragment.Stats { return m.Fragments }
