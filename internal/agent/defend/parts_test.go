package defend

import (
	"testing"

	"levee/internal/agent/part"
)

func TestLiveRulesThatHaveEndedAreNotToldToBeInForce(t *testing.T) {
	r := part.NewRegister(nil)
	p := newWatchParts(r, "eth0")
	p.set(nil, true)
	says := func(want string) {
		t.Helper()
		if all := r.List(); len(all) != 1 || all[0].Saw != want || all[0].State != part.Works {
			t.Errorf("%+v, want %q", all, want)
		}
	}
	p.tried(nil)
	says("")
	p.put(nil, 2)
	says("2 in force")
	p.tried(nil)
	says("2 in force")
	p.put(nil, 0)
	says("0 in force")
}
