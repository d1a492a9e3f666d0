package state

import (
	"fmt"

	"github.com/cilium/ebpf"

	"levee/internal/filter/divert"
	"levee/internal/filter/price"
	"levee/internal/lang/action"
	"levee/internal/lang/field"
	"levee/internal/quantity"
)

// What maps of the row hold.
const (
	// HoldsDiverted is an array of 1 entry, BPF_F_MMAPABLE: packets that rules divert, package
	// divert.
	HoldsDiverted Contents = "diverted"
	// HoldsTrap is a sockmap: the sockets that new connections are diverted to, package divert.
	HoldsTrap Contents = "trap"
)

var diversions = Row{
	Name: "diversions",
	What: HoldsDiverted,
	Used: func(u *Use) bool { return u.Families[action.Divert] > 0 },
	Maps: func(*Use) []Map {
		return []Map{
			{Name: divert.Map, Bytes: divert.Size, For: "packets that are diverted",
				Holds: Identity{What: HoldsDiverted}, Lifetime: Carried},
			{divert.TrapMap, divert.SocketBytes, "sockets of the trap", Identity{What: HoldsTrap},
				Attached, divert.TrapSpec()},
		}
	},
	Bound: func(u *Use) Bound { return Bound{u.Families[action.Divert], divert.MaxInstructions} },
	Emit:  func(e *Emission) error { return divert.Emit(e.Builder) },
	Beside: &Program{Name: divert.Program, At: SocketLookup,
		Spec: func(*Use) (*ebpf.ProgramSpec, error) { return divert.Spec() }},
	Calls: []Call{{Action: action.Divert, Size: 16, Time: price.Wait(21),
		Asks: []field.Field{field.SrcAddr, field.DstAddr, field.SrcPort, field.DstPort}}},
	Shared:   []Contents{HoldsDiverted, HoldsTrap},
	Head:     divert.HeadBytes,
	Seed:     divert.Seed,
	SetClock: divert.SetClock,
	Room: func(*Use) Room {
		return Room{divert.Places, divert.Size, "diverted: room for %d connections"}
	},
	In: func(to *Rooms) **Room { return &to.Diverted },
	Tell: func(r *Reading, to *Memories) {
		trap := r.Taken(Identity{What: HoldsTrap})
		to.Diverted = &Diversions{len(trap) > 0, divert.Read(r.Memory, r.Now)}
	},
	Values: []Value{
		counter("levee_trapped_segments", "segments",
			"Segments that a trap got to begin a diverted connection.", ofDiversions,
			func(d *Diversions) uint64 { return d.Given }),
		counter("levee_refused_diverted_segments", "segments",
			"Such segments that were refused, without a trap.", ofDiversions,
			func(d *Diversions) uint64 { return d.Alone }),
		counter("levee_dropped_diverted_packets", "packets",
			"Packets to divert that found no room.", ofDiversions,
			func(d *Diversions) uint64 { return d.Full }),
	},
	Lines: func(of *Memories, dev string) []Line {
		d := of.Diverted
		if d == nil {
			return nil
		}
		noted, trap := quantity.Plural(d.Noted, "connection")+" noted", "a trap is there"
		if !d.Trap {
			trap = "no trap is there: levee trap ssh --divert " + dev
		}
		return []Line{{"diverted", d.Noted,
			fmt.Sprintf("%s, %d given to a trap, %d refused", noted, d.Given, d.Alone), "diverted",
			fmt.Sprintf("%s; room for %d; %d given to a trap, %d refused, %d dropped; %s", noted,
				d.Places, d.Given, d.Alone, d.Full, trap)}}
	},
}

func ofDiversions(m *Memories) *Diversions { return m.Diverted }

// Diversions is the status of the memory of diversions.
type Diversions struct {
	Trap bool `json:"trap"` // there is one
	divert.Stats
}
