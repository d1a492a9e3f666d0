package plan

import (
	"levee/internal/filter/cookie"
	"levee/internal/filter/logging"
	"levee/internal/filter/state"
	"levee/internal/lang/action"
	"levee/internal/lang/policy"
)

// Cookie is a cookie that packets may reach.
type Cookie struct {
	Rule  *policy.Rule
	Slot  int // of the rule
	Meter int // in the memory of cookies; it goes with the identity of the rule
}

// ProvesSources reports whether handshakes that are seen prove who is there. A shadow looks into
// the memory of the policy in force, and changes nothing there.
func (p *Plan) ProvesSources() bool {
	return p.State.Keeps(state.HoldsCookies) && p.Tracks() && !p.Target.IsShadow()
}

// findCookies lists the cookies that packets may reach.
func (p *planner) findCookies() {
	if p.Target.IsShadow() {
		return
	}
	reached := p.reached(action.Cookie)
	taken := map[int]bool{}
	for i, r := range p.Program.Policy.Rules {
		slot := p.Program.Policy.RuleSlot(i)
		if !reached[slot] {
			continue
		}
		meter := int(logging.Number(r.ID) % uint32(cookie.Meters))
		for taken[meter] {
			meter = (meter + 1) % cookie.Meters
		}
		taken[meter] = true
		p.Cookies = append(p.Cookies, Cookie{r, slot, meter})
	}
}
