package plan

import (
	"levee/internal/filter/ir"
	"levee/internal/lang/policy"
)

// Fields is a set of fields of the decoded packet.
type Fields [policy.NumFields]bool

// Ask notes the fields that a condition asks for.
func (f *Fields) Ask(q *ir.Cond) {
	if q.Dynamic() && q.Number != policy.Proto && q.Proto != 0 && !policy.HasPorts(q.Proto) { // ICMP: no port is asked for
		if q.Field == policy.SrcEndpoint {
			f[policy.SrcAddr] = true
		} else {
			f[policy.DstAddr] = true
		}
		return
	}
	switch q.Field {
	case policy.SrcEndpoint:
		f[policy.SrcAddr], f[q.Number] = true, true
	case policy.DstEndpoint:
		f[policy.DstAddr], f[q.Number] = true, true
	case policy.SrcService, policy.DstService:
		f[q.Number] = true
	default:
		f[q.Field] = true
	}
}

// askAll notes the fields that rules ask for.
func (f *Fields) askAll(rules []ir.Rule) {
	for i := range rules {
		for j := range rules[i].Conds {
			f.Ask(&rules[i].Conds[j])
		}
	}
}
