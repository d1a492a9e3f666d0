package cost

import (
	"fmt"

	"levee/internal/lang/diag"
	"levee/internal/lang/policy"
)

// Told is the object of `levee cost --json`; times are nanoseconds a packet.
type Told struct {
	// above the empty program, over all packets below alike
	NsPerPacket float64 `json:"ns_per_packet"`
	NsEmpty     float64 `json:"ns_empty"` // the empty program with the kernel's test loop
	// half the distance between the quartiles of ns_per_packet
	Spread      float64      `json:"spread"`
	Rules       []ToldRule   `json:"rules"`
	NotReached  []diag.Shown `json:"not_reached"` // rules without a packet
	NotMeasured int          `json:"not_measured"`
	// one rule in so many was measured; not there: all were
	SampleEvery int `json:"sample_every,omitempty"`
	Repeat      int `json:"repeat"`
}

// ToldRule holds the cost of a packet that reaches a rule.
type ToldRule struct {
	Rule        diag.Shown `json:"rule"`
	Label       string     `json:"label"`
	Verdict     string     `json:"verdict"`
	NsPerPacket float64    `json:"ns_per_packet"`
	Spread      float64    `json:"spread"`
	Packet      string     `json:"packet"` // in hexadecimal
	Text        string     `json:"text"`
}

// Told returns a report as JSON has it.
func (m *Report) Told(p *policy.Policy, repeat int) *Told {
	rep := &Told{
		NsPerPacket: m.Ns, NsEmpty: m.NsEmpty, Spread: m.Spread, Rules: []ToldRule{},
		NotReached:  []diag.Shown{},
		NotMeasured: m.NotMeasured, Repeat: repeat,
	}
	if m.Every > 1 {
		rep.SampleEvery = m.Every
	}
	for _, r := range m.Rules {
		rule := ToldRule{
			Rule: diag.Shown(p.Where(r.Slot)), Label: p.LabelOf(r.Slot),
			Verdict:     r.Slot.Action.String(),
			NsPerPacket: r.Ns, Spread: r.Spread, Packet: fmt.Sprintf("%x", r.Frame),
		}
		if r.Slot.Rule != nil {
			rule.Text = r.Slot.Rule.Text
		}
		rep.Rules = append(rep.Rules, rule)
	}
	for _, s := range m.NotReached {
		rep.NotReached = append(rep.NotReached, diag.Shown(p.Where(s)))
	}
	return rep
}
