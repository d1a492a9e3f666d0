package signature

import (
	"slices"
	"testing"

	"levee/internal/lang/action"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
	"levee/internal/packet"
)

// TestOnlyNewerRulesInFrontDecideWhatHasPassed: by each slot that passes packets, with newer rules
// at each place.
func TestOnlyNewerRulesInFrontDecideWhatHasPassed(t *testing.T) {
	p, ds := resolve.Parse("p", []byte("set known = dynamic(max 10, lease 1h)\n"+
		"protect tcp port 22\n"+
		"drop udp port 1 as \"new 1\"\npass from known as \"old\"\ndrop udp port 2 as \"new 2\"\n"+
		"default drop\n"), nil)
	if p == nil {
		t.Fatal(ds)
	}
	slots := p.Slots()
	id := func(reason policy.Reason, label string) string {
		return slots[slices.IndexFunc(slots, func(s policy.Slot) bool {
			return s.Reason == reason && (label == "" || s.Rule.Label == label)
		})].ID
	}
	newer := func(r *policy.Rule) bool { return r.Label != "old" }
	for _, c := range []struct {
		by   string
		port uint16
		want string // the slot that decides
		act  action.Action
	}{
		{id(policy.ByProtect, ""), 1, id(policy.ByProtect, ""), action.Pass},
		{id(policy.ByRule, "old"), 1, id(policy.ByRule, "new 1"), action.Drop},
		{id(policy.ByRule, "old"), 2, id(policy.ByRule, "old"), action.Pass},
		{id(policy.ByEssential, ""), 2, id(policy.ByRule, "new 2"), action.Drop},
		{id(policy.ByEssential, ""), 3, id(policy.ByEssential, ""), action.Pass},
		{id(policy.ByDefault, ""), 2, id(policy.ByRule, "new 2"), action.Drop},
		{"text:gone", 2, id(policy.ByRule, "new 2"), action.Drop},
		{Unsaid, 3, id(policy.ByDefault, ""), action.Pass},
		{"", 3, id(policy.ByDefault, ""), action.Drop}, // by the oracle
		{"", 2, id(policy.ByRule, "new 2"), action.Drop},
	} {
		b, err := packet.Build(packet.Spec{Proto: new(uint8(packet.ProtoUDP)), ToPort: &c.port})
		if err != nil {
			t.Fatal(err)
		}
		s := NewSample(packet.Ethernet, p, 10)
		s.AddPassed(b, 0, c.by)
		n := 0
		s.Judge(p, newer, 0, func(_ []byte, slot int, act action.Action) {
			if n++; slots[slot].ID != c.want || act != c.act {
				t.Errorf("passed by %q, to port %d: %s by %q", c.by, c.port, act, slots[slot].ID)
			}
		})
		if n != 1 {
			t.Errorf("%d packets of one", n)
		}
	}
}
