package defend

import (
	"net/netip"
	"time"

	"levee/internal/agent/evidence"
	"levee/internal/agent/incident"
)

// facts returns what is known of an incident besides its packets.
func (m *Manager) facts(id string) (evidence.Facts, bool) {
	i, ok := m.Incidents.Get(id)
	if !ok {
		return evidence.Facts{}, false
	}
	return factsOf(&i, time.Now()), true
}

func factsOf(i *incident.Incident, now time.Time) evidence.Facts {
	f := evidence.Facts{Began: i.Began, Ended: now, Forged: i.Seen.Forged}
	if i.Ended != nil {
		f.Ended = *i.Ended
	}
	f.Target, _ = netip.ParsePrefix(i.Seen.Destination) // none: all that is watched
	for k := range i.Rules {
		f.Packets += i.Rules[k].Packets
	}
	if f.Packets == 0 { // nothing was done about it
		f.Packets = uint64(i.Seen.Packets * f.Ended.Sub(f.Began).Seconds())
	}
	return f
}
