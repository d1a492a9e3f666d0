package state

import (
	"levee/internal/filter/logging"
	"levee/internal/filter/price"
	"levee/internal/lang/action"
)

// What maps of the row hold.
const (
	// HoldsEvents is an array of 1 ring: what logs tell goes to who has put his ring into it.
	HoldsEvents Contents = "event ring"
	// HoldsLosses is an array of 1 entry, BPF_F_MMAPABLE: a row of logging.Row for each CPU.
	HoldsLosses Contents = "losses"
)

var logs = Row{
	Name: "logs",
	What: HoldsLosses,
	Used: func(u *Use) bool { return len(u.Logs) > 0 },
	Maps: func(u *Use) []Map {
		return []Map{
			{Name: logging.LossesMap, Bytes: u.CPUs * logging.Row(u.AllLogs),
				For: "events that nobody was told of", Holds: Identity{What: HoldsLosses},
				Lifetime: Pinned},
			{logging.EventsMap, 4, "who watches", Identity{What: HoldsEvents}, Carried,
				logging.EventsSpec()},
		}
	},
	Bound: func(u *Use) Bound {
		return Bound{len(u.Logs), logging.MaxInstructions * len(u.Logs)}
	},
	Emit: func(e *Emission) error {
		f := logging.Functions{Builder: e.Builder, Context: e.Context, TCX: e.TCX, CPUs: e.CPUs,
			HZ: e.HZ, Numbers: e.Logs, Before: e.LogsBefore, All: e.AllLogs}
		f.EmitAll()
		return nil
	},
	Calls: []Call{{Action: action.Log, Size: 8, Time: price.Wait(20)}}, // nobody watches
	Tell: func(r *Reading, to *Memories) {
		to.Logs = &logging.Losses{}
		for _, l := range logging.ReadLosses(r.Memory, r.Logs) {
			to.Logs.Bound += l.Bound
			to.Logs.Ring += l.Ring
		}
	},
	Values: []Value{
		counter("levee_bounded_events", "events", "Events of logs above what a CPU tells a second.",
			ofLogs, func(l *logging.Losses) uint64 { return l.Bound }),
		counter("levee_untold_events", "events",
			"Events of logs that nobody watched, or for which there was no place.", ofLogs,
			func(l *logging.Losses) uint64 { return l.Ring }),
	},
	Elsewhere: "levee watch",
}

func ofLogs(m *Memories) *logging.Losses { return m.Logs }
