package state

import (
	"fmt"

	"github.com/cilium/ebpf"

	"levee/internal/filter/flow"
	"levee/internal/quantity"
)

// What maps of the row hold.
const (
	// HoldsFlows is an array of 1 entry, BPF_F_MMAPABLE: connections, package flow.
	HoldsFlows Contents = "connections"
)

var connections = Row{
	Name: "connections",
	What: HoldsFlows,
	Used: func(u *Use) bool { return u.Tracks },
	Maps: func(u *Use) []Map {
		return []Map{{Name: flow.Map, Bytes: u.Room.Bytes(), For: "connections",
			Holds: Identity{What: HoldsFlows}, Lifetime: Carried}}
	},
	Bound: func(u *Use) Bound {
		if u.Leaves {
			return Bound{2, flow.MaxAnswersInstructions}
		}
		b := Bound{6, flow.MaxInstructions + flow.MaxStrangeInstructions}
		if !u.Plain {
			b.Add(Bound{2, flow.MaxQuoteInstructions})
		}
		return b
	},
	Emit: func(e *Emission) error {
		if e.Leaves {
			return e.Room.EmitAnswers(e.Builder, e.Context)
		}
		emitted := map[string]bool{}
		for _, proto := range e.Protocols {
			if label := flow.Label(proto); !emitted[label] {
				emitted[label] = true
				e.Room.Emit(e.Builder, proto, e.Proves)
			}
		}
		if err := e.Room.EmitStrange(e.Builder); err != nil {
			return err
		}
		return e.Room.EmitQuotes(e.Builder, e.Context, e.TCX, e.Frags)
	},
	Beside: &Program{Name: flow.Program, At: Egress,
		Lost: "`established` knows no connection that began since",
		Spec: func(u *Use) (*ebpf.ProgramSpec, error) {
			if u.Leaves { // the program for what arrives has it beside it
				return nil, nil
			}
			return flow.Spec(u.Link, u.Service, u.Room)
		}},
	Shared:   []Contents{HoldsFlows},
	Head:     flow.HeadBytes,
	Seed:     flow.Seed,
	SetClock: flow.SetClock,
	Carry: func(c *Carrying) Moving {
		return movingFlows{flow.Move(c.From, c.To, c.Now, c.Trial)}
	},
	Older: &Older{Settle: flow.Settle, Settling: flow.Settling, Adopt: flow.Adopt,
		Left: "of connections that it alone knew, those go on that this machine has a socket or " +
			"conntrack an entry for"},
	Room: func(u *Use) Room {
		return Room{int(u.Room), u.Room.Bytes(), "connections: room for %d"}
	},
	In:   func(to *Rooms) **Room { return &to.Connections },
	Tell: func(r *Reading, to *Memories) { to.Connections = new(flow.Read(r.Memory, r.Now)) },
	Values: []Value{
		gauge("levee_connections", "connections", "Connections that are known.", ofFlows,
			func(s *flow.Stats) int { return s.Live }),
		gauge("levee_open_connections", "connections",
			"TCP connections among them whose handshake is proven.", ofFlows,
			func(s *flow.Stats) int { return s.Open }),
		gauge("levee_max_connections", "connections", "Connections that there is room for.",
			ofFlows, func(s *flow.Stats) int { return s.Places }),
		counter("levee_refused_connections", "connections",
			"Connections that found no place, since all of their bucket are open.", ofFlows,
			func(s *flow.Stats) uint64 { return s.Refused }),
		counter("levee_evicted_connections", "connections",
			"Connections that lost their place to a new one.", ofFlows,
			func(s *flow.Stats) uint64 { return s.Taken }),
	},
	Lines: func(of *Memories, _ string) []Line {
		c := of.Connections
		if c == nil {
			return nil
		}
		return []Line{{"flows", c.Live,
			fmt.Sprintf("%d known of %d, %d of TCP open", c.Live, c.Places, c.Open), "flows",
			fmt.Sprintf("%s known, %d of TCP open; room for %d; %d refused, %d lost their place",
				quantity.Plural(c.Live, "connection"), c.Open, c.Places, c.Refused, c.Taken)}}
	},
}

func ofFlows(m *Memories) *flow.Stats { return m.Connections }

// movingFlows are connections on their way.
type movingFlows struct{ *flow.Mover }

func (m movingFlows) Follow(now, _ uint64) { m.Mover.Follow(now) }

func (m movingFlows) Finish(_, now, _ uint64) { m.Mover.Finish(now) }
