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
	What: HoldsEvents,
	Used: func(u *Use) bool { return len(u.Logs) > 0 },
	Maps: func(u *Use) []Map {
		return []Map{
			{logging.EventsMap, 4, "who watches", Identity{What: HoldsEvents}, Carried,
				logging.EventsSpec()},
			{Name: logging.LossesMap, Bytes: u.CPUs * logging.Row(len(u.Logs)),
				For: "events that nobody was told of", Holds: Identity{What: HoldsLosses},
				Lifetime: Pinned},
		}
	},
	Bound: func(u *Use) Bound {
		return Bound{len(u.Logs), logging.MaxInstructions * len(u.Logs)}
	},
	Emit: func(e *Emission) error {
		f := logging.Functions{Builder: e.Builder, Context: e.Context, TCX: e.TCX, CPUs: e.CPUs,
			HZ: e.HZ, Numbers: e.Logs}
		f.EmitAll()
		return nil
	},
	Calls:     []Call{{Action: action.Log, Size: 8, Time: price.Wait(20)}}, // nobody watches
	Elsewhere: "levee watch",
}
