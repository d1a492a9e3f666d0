package state

import (
	"levee/internal/filter/logging"
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
	Elsewhere: "levee watch",
}
