package oracle

import (
	"fmt"

	"levee/internal/lang/policy"
)

// Decider names what decided in a few words: `"bogon" (edge.levee:14)`, `malformed:ip-length`,
// `the default (edge.levee:20)`.
func Decider(p *policy.Policy, s policy.Slot) string {
	where := p.Where(s)
	switch {
	case s.Reason == policy.ByDefault:
		return fmt.Sprintf("the default (%s)", where)
	case s.Rule == nil:
		return where
	case s.Rule.Label != "":
		return fmt.Sprintf("%q (%s)", s.Rule.Label, where)
	}
	return fmt.Sprintf("`%s` (%s)", s.Rule.Text, where)
}
