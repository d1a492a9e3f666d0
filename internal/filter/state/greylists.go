package state

import (
	"fmt"

	"levee/internal/filter/greylist"
	"levee/internal/filter/price"
	"levee/internal/lang/action"
	"levee/internal/lang/diag"
	"levee/internal/lang/policy"
	"levee/internal/quantity"
)

// HoldsGreylist is an array of 1 entry, BPF_F_MMAPABLE: clients that may come again, package
// greylist.
const HoldsGreylist Contents = "greylist"

var greylists = Row{
	Name: "greylists",
	What: HoldsGreylist,
	Used: func(u *Use) bool { return u.Greylists > 0 },
	Maps: func(u *Use) []Map {
		return []Map{{Name: greylist.Map, Bytes: u.Strangers.Bytes(),
			For:      "clients that may come again",
			Holds:    Identity{What: HoldsGreylist, Kind: fmt.Sprint(int(u.Strangers), " places")},
			Lifetime: Carried}}
	},
	Bound: func(*Use) Bound { return Bound{1, greylist.MaxInstructions} },
	Emit:  func(e *Emission) error { return greylist.Emit(e.Builder, e.Strangers) },
	// hashing the client, counting it, and finding it in its line
	Calls: []Call{{Action: action.Greylist, Size: 80, Time: price.Wait(16),
		Asks: policy.FlowKey.Fields}},
	Shared:   []Contents{HoldsGreylist},
	Head:     greylist.HeadBytes,
	Seed:     greylist.Seed,
	SetClock: greylist.SetClock,
	Room: func(u *Use) Room {
		return Room{int(u.Strangers), u.Strangers.Bytes(), "greylists: room for %d clients"}
	},
	In: func(to *Rooms) **Room { return &to.Greylists },
	Tell: func(r *Reading, to *Memories) {
		g := &Greylists{greylist.Read(r.Memory, r.Now, r.HZ), []diag.Shown{}}
		for _, k := range r.Greylists {
			if k.Always || greylist.Dropping(r.Memory, k.Meter, r.Now) {
				g.Dropping = append(g.Dropping, k.Rule)
			}
		}
		to.Greylists = g
	},
	Values: []Value{
		gauge("levee_greylist_clients", "clients",
			"Clients that have come to greylists within a minute.", ofGreylists,
			func(g *Greylists) int { return g.Clients }),
		gauge("levee_greylist_returned_clients", "clients",
			"Clients of greylists that have come again, and pass.", ofGreylists,
			func(g *Greylists) int { return g.Again }),
		counter("levee_greylist_evicted_clients", "clients",
			"Clients of greylists that gave way to others while they might have come again.",
			ofGreylists, func(g *Greylists) uint64 { return g.Evicted }),
		gauge("levee_dropping_greylists", "greylists",
			"Greylists that drop who comes for the first time now.", ofGreylists,
			func(g *Greylists) int { return len(g.Dropping) }),
	},
	Lines: func(of *Memories, _ string) []Line {
		g := of.Greylists
		if g == nil {
			return nil
		}
		clients := quantity.Plural(g.Clients, "client")
		dropping := forRules("dropping", g.Dropping)
		return []Line{{"greylists", g.Clients,
			fmt.Sprintf("%s, %d have come again, %s", clients, g.Again, dropping), "greylist",
			fmt.Sprintf("%s within a minute, %d have come again; room for %d; %d gave way; %s",
				clients, g.Again, g.Places, g.Evicted, dropping)}}
	},
}

func ofGreylists(m *Memories) *Greylists { return m.Greylists }

// Greylists is the status of the memory of greylists.
type Greylists struct {
	greylist.Stats
	Dropping []diag.Shown `json:"dropping"` // rules that drop who comes for the first time now
}
