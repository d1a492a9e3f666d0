package plan

import (
	"levee/internal/filter/ir"
	"levee/internal/lang/action"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
)

// Fields is a set of fields of the decoded packet.
type Fields [field.NumFields]bool

// Ask notes the fields that a condition reads: both fields of a pair, else its own.
func (f *Fields) Ask(q *ir.Cond) {
	info := q.Field.Info()
	if InPacket(q) {
		return // no field of the decoded packet
	}
	if info.Compare != field.ByPair {
		f[q.Field] = true
		return
	}
	if info.Address != field.None {
		f[info.Address] = true
	}
	if q.Dynamic() && q.Number != field.Proto && q.Proto != 0 && !policy.HasPorts(q.Proto) {
		return // ICMP: no port is asked for
	}
	f[q.Number] = true
}

// askAll notes the fields that rules read.
func (f *Fields) askAll(rules []ir.Rule) {
	for i := range rules {
		for j := range rules[i].Conds {
			f.Ask(&rules[i].Conds[j])
		}
		for _, e := range rules[i].Action.Effects {
			for _, asked := range effectCosts[e.Action].asks {
				if asked != field.TCPFlags || e.Answers == action.SYNs {
					f[asked] = true
				}
			}
		}
		if l := limitOf(&rules[i]); l != nil {
			if l.Rates != nil {
				f[l.Rates.Field] = true
			}
			for j := range l.Keys {
				for _, key := range l.Keys[j].Fields {
					f[key] = key != field.DNSName || f[key]
				}
			}
		}
	}
}
