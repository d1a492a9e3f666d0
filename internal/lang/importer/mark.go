package importer

import (
	"slices"
)

// MarkWhy says why a rule that asks for a mark is left out.
const MarkWhy = "-m mark asks for a mark that other rules set"

// MarkAsk is a condition: of the bits of mask, exactly those of value are set, or not so.
type MarkAsk struct {
	Value, Mask uint32
	Not         bool
}

// Unmarked has the bits that the rule asks for be 0.
func (r *ChainRule) Unmarked() {
	r.Unknown = slices.DeleteFunc(r.Unknown, func(u Reason) bool { return u.What == MarkWhy })
	const text = "no rule that a packet meets before sets the mark: it is 0, and "
	if (r.Mark.Value == 0) == r.Mark.Not {
		r.Alts = nil
		r.Remarks = append(r.Remarks, r.Remark(Noticed, text+"no packet has what the rule asks "+
			"for", ""))
		return
	}
	r.Remarks = append(r.Remarks, r.Remark(Noticed, text+"each packet has what the rule asks for",
		""))
}
