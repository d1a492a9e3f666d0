package detect

import (
	"slices"

	"levee/internal/agent/kind"
)

// Hosts that packets go to, of one kind and at once, are floods of their own where they are few and
// have nearly all of it between them. More are one flood of a network.
const (
	mostHosts = 4
	allHosts  = 0.9
)

// Floods returns the alarms of a moment, one for each flood: of places that see the same packets
// the one furthest above its threshold, which comes first. Alarms are sorted by that.
func Floods(alarms []Alarm) (out []Alarm) {
	for _, a := range alarms {
		if slices.ContainsFunc(out, func(o Alarm) bool { return o.Kind == a.Kind }) {
			continue
		}
		hosts := hostsOf(alarms, a.Kind)
		if len(hosts) < 2 {
			hosts = []Alarm{a}
		}
		out = append(out, hosts...)
	}
	return out
}

// hostsOf returns the alarms of the hosts that a kind goes to, none where they are many, or not
// all.
func hostsOf(alarms []Alarm, k kind.Kind) (out []Alarm) {
	sum, most := 0.0, 0.0
	for _, a := range alarms {
		if a.Kind != k {
			continue
		}
		most = max(most, a.Rate)
		if a.To.IsValid() && a.To.IsSingleIP() {
			out = append(out, a)
			sum += a.Rate
		}
	}
	if len(out) > mostHosts || sum < allHosts*most {
		return nil
	}
	return out
}
