package state

import (
	"fmt"

	"github.com/cilium/ebpf"

	"levee/internal/filter/stream"
	"levee/internal/quantity"
)

// What maps of the row hold.
const (
	// HoldsStreams is an array of 1 entry, BPF_F_MMAPABLE: streams of TCP, package stream.
	HoldsStreams Contents = "streams"
	// HoldsSearched is an array of 1 entry: the ports whose streams are noted, package stream.
	HoldsSearched Contents = "searched ports"
)

var streams = Row{
	Name: "streams",
	What: HoldsStreams,
	Used: func(u *Use) bool { return len(u.Streams) > 0 },
	Maps: func(u *Use) []Map {
		maps := []Map{{Name: stream.Map, Bytes: stream.Size, For: "how far streams are known",
			Holds: Identity{What: HoldsStreams}, Lifetime: Carried}}
		if u.JudgedBytes > 0 {
			return maps
		}
		return append(maps, Map{stream.PortsMap, stream.PortBytes, "ports with streams",
			Identity{What: HoldsSearched}, Private, u.searched})
	},
	Bound: func(*Use) Bound { return Bound{5, stream.MaxInstructions} },
	Emit:  func(e *Emission) error { return stream.Emit(e.Builder, e.Context, e.TCX) },
	Beside: &Program{Name: stream.Program, At: Egress, Nth: 1,
		Lost: "streams that began since are unknown",
		Spec: func(u *Use) (*ebpf.ProgramSpec, error) {
			if u.JudgedBytes > 0 {
				return nil, nil // the policy in force notes where streams begin
			}
			return stream.Spec(u.Link)
		}},
	Shared:   []Contents{HoldsStreams},
	Lent:     true,
	Head:     stream.HeadBytes,
	Seed:     stream.Seed,
	SetClock: stream.SetClock,
	Room: func(*Use) Room {
		return Room{stream.Places, stream.Size, "streams: room for %d beginnings and searches"}
	},
	In:   func(to *Rooms) **Room { return &to.Streams },
	Tell: func(r *Reading, to *Memories) { to.Streams = new(stream.Read(r.Memory)) },
	Values: []Value{
		gauge("levee_streams", "streams", "Streams of TCP whose handshake was seen.", ofStreams,
			func(s *stream.Stats) int { return s.Flows }),
		gauge("levee_stream_searches", "searches", "Searches of streams that have begun.",
			ofStreams, func(s *stream.Stats) int { return s.Searches }),
		counter("levee_begun_streams", "streams",
			"Streams of TCP whose client has acknowledged the handshake.", ofStreams,
			func(s *stream.Stats) uint64 { return s.Begun }),
		counter("levee_stream_gap_packets", "packets",
			"Segments that were not the next of their stream.", ofStreams,
			func(s *stream.Stats) uint64 { return s.Gaps }),
		counter("levee_refused_streams", "streams",
			"Streams and searches that found no place, since all in their line are active.",
			ofStreams, func(s *stream.Stats) uint64 { return s.Refused }),
		counter("levee_evicted_streams", "streams",
			"Streams and searches that lost their place to another.", ofStreams,
			func(s *stream.Stats) uint64 { return s.Taken }),
	},
	Lines: func(of *Memories, _ string) []Line {
		s := of.Streams
		if s == nil {
			return nil
		}
		now := quantity.Plural(s.Flows, "stream")
		return []Line{{"streams", s.Flows, now, "streams", fmt.Sprintf("%s with %s; room for %d "+
			"in all; %d segments out of order, %d refused, %d lost their place", now,
			quantity.Plural(s.Searches, "search"), s.Places, s.Gaps, s.Refused, s.Taken)}}
	},
}

func ofStreams(m *Memories) *stream.Stats { return m.Streams }

// SetStreams says of which ports streams are searched.
func (u *Use) SetStreams(ports []stream.Ports) (err error) {
	u.Streams = ports
	if len(ports) > 0 {
		u.searched, err = stream.PortsSpec(ports)
	}
	return err
}
