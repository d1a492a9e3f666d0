package status

import "time"

// ruleKey is a rule across replaces of the policy.
type ruleKey struct {
	service string // "": of an interface
	netns   uint64
	ifindex int
	rule    string
}

// Readings holds the counters of a report.
type Readings map[ruleKey]reading

// reading is the value of a counter at a time.
type reading struct {
	packets, bytes uint64
	at             time.Time
}

// Rates fills the rates of a report from the readings of the one before, and returns its own. A
// counter that begins anew has no rate.
func (rep *Report) Rates(before Readings, now time.Time) Readings {
	after := Readings{}
	rate := func(key ruleKey, r *Rule) {
		key.rule = r.ID
		after[key] = reading{r.Packets, r.Bytes, now}
		was, ok := before[key]
		took := now.Sub(was.at).Seconds()
		if !ok || took <= 0 || r.Packets < was.packets || r.Bytes < was.bytes {
			return
		}
		r.PacketsPerSecond = new(float64(r.Packets-was.packets) / took)
		r.BitsPerSecond = new(float64(r.Bytes-was.bytes) * 8 / took)
	}
	for i := range rep.Interfaces {
		s := &rep.Interfaces[i]
		for j := range s.Rules {
			rate(ruleKey{netns: s.Netns, ifindex: s.Ifindex}, &s.Rules[j])
		}
	}
	for i := range rep.Services {
		s := &rep.Services[i]
		for j := range s.Rules {
			rate(ruleKey{service: s.Service}, &s.Rules[j])
		}
	}
	return after
}
