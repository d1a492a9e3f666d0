package state

import (
	"fmt"

	"levee/internal/filter/price"
	"levee/internal/filter/ring"
	"levee/internal/lang/action"
	"levee/internal/quantity"
)

// What maps of the row hold. The name is that of the ring.
const (
	// HoldsRingCounts is an array of 1 entry, BPF_F_MMAPABLE: what programs count of a ring,
	// package ring.
	HoldsRingCounts Contents = "counts of a ring"
	// HoldsRingSockets is a map of AF_XDP sockets, by receive queue: who reads a ring.
	HoldsRingSockets Contents = "sockets of a ring"
	// HoldsRingReaders is an array of 1 entry, BPF_F_MMAPABLE: what readers count of a ring,
	// package ring.
	HoldsRingReaders Contents = "readers of a ring"
)

var rings = Row{
	Name: "rings",
	What: HoldsRingCounts,
	Used: func(u *Use) bool { return len(u.Rings) > 0 },
	Maps: func(u *Use) (maps []Map) {
		for _, name := range u.Rings {
			maps = append(maps,
				Map{Name: ring.CountsMap(name), Bytes: ring.CountsBytes(u.CPUs),
					For:   "counts of ring " + name,
					Holds: Identity{What: HoldsRingCounts, Name: name}, Lifetime: Attached},
				Map{ring.SocketsMap(name), ring.Queues * ring.SocketBytes, "who reads ring " + name,
					Identity{What: HoldsRingSockets, Name: name}, Attached, ring.SocketsSpec(name)},
				Map{Name: ring.ReadersMap(name), Bytes: ring.ReadersBytes,
					For:   "what readers of ring " + name + " count",
					Holds: Identity{What: HoldsRingReaders, Name: name}, Lifetime: Attached})
		}
		return maps
	},
	Bound: func(u *Use) Bound {
		return Bound{u.RingsReached, u.RingsReached * ring.MaxInstructions}
	},
	Emit: func(e *Emission) error {
		ring.Emit(e.Builder, e.Context, e.CPUs, e.Rings)
		return nil
	},
	Calls: []Call{{Action: action.Redirect, Size: 10, Time: price.Wait(20)}},
	Tell: func(r *Reading, to *Memories) {
		is := Ring{Name: r.Name, Counts: ring.ReadCounts(r.Memory),
			Queues: append([]int{}, r.Taken(Identity{What: HoldsRingSockets, Name: r.Name})...)}
		r.Beside(Identity{What: HoldsRingReaders, Name: r.Name}, func(memory []byte) {
			is.Received = ring.ReadReceived(memory)
		})
		to.Rings = append(to.Rings, is)
	},
	Values: []Value{
		ofRings("levee_ring_reading_queues", "queues", false,
			"Receive queues from which somebody reads the ring.",
			func(r *Ring) uint64 { return uint64(len(r.Queues)) }),
		ofRings("levee_ring_redirected_packets", "packets", true,
			"Packets that were handed to a reader of the ring.",
			func(r *Ring) uint64 { return r.Redirected }),
		ofRings("levee_ring_bypassed_packets", "packets", true,
			"Packets for the ring whose queue nobody read.",
			func(r *Ring) uint64 { return r.Bypassed }),
		ofRings("levee_ring_received_packets", "packets", true,
			"Packets of the ring that readers have taken.",
			func(r *Ring) uint64 { return r.Received }),
		ofRings("levee_ring_unread_packets", "packets", false,
			"Packets that were handed to a reader of the ring and that none has taken: those in "+
				"its queues, and those that found no room or whose reader ended.",
			func(r *Ring) uint64 { return r.Unread() }),
	},
	Lines: func(of *Memories, dev string) (lines []Line) {
		for i := range of.Rings {
			r := &of.Rings[i]
			readers := "read from " + quantity.Plural(len(r.Queues), "queue")
			if len(r.Queues) == 0 {
				readers = "nobody reads it: levee ring read " + r.Name + " --dev " + dev
			}
			counts := fmt.Sprintf("%d redirected, %d received, %d unread, %d bypassed",
				r.Redirected, r.Received, r.Unread(), r.Bypassed)
			lines = append(lines, Line{"ring " + r.Name, len(r.Queues), counts, "ring",
				fmt.Sprintf("%q %s; %s", r.Name, counts, readers)})
		}
		return lines
	},
}

// Ring is the status of a ring.
type Ring struct {
	Name string `json:"name"`
	ring.Counts
	Received uint64 `json:"received"` // packets that readers have taken
	Queues   []int  `json:"queues"`   // from which somebody reads
}

// Unread returns how many packets were handed to a reader and taken by none. Beside a flood a
// reader may count before who looks here has read the other count.
func (r *Ring) Unread() uint64 { return r.Redirected - min(r.Redirected, r.Received) }

// ofRings returns a value that each ring has.
func ofRings(metric, unit string, counts bool, help string, of func(*Ring) uint64) Value {
	return Value{metric, unit, counts, help, func(m *Memories) (all []Sample) {
		for i := range m.Rings {
			all = append(all, Sample{Ring: m.Rings[i].Name, V: float64(of(&m.Rings[i]))})
		}
		return all
	}}
}
