package inuse

import (
	"net/netip"
	"testing"

	"levee/internal/filter/ir"
	"levee/internal/filter/oracle"
	"levee/internal/lang/action"
	"levee/internal/lang/resolve"
	"levee/internal/packet"
)

// TestNoDraftTakesWhatIsEssential: the draft of a machine that forwards dropped neighbour discovery
// by its rule about groups, and IPv6 ended.
func TestNoDraftTakesWhatIsEssential(t *testing.T) {
	host := Machine{Dev: "eth0", Ephemeral: [2]uint16{32768, 60999},
		Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.9"),
			netip.MustParseAddr("2001:db8::9")}}
	gateway := host
	gateway.Forwards, gateway.Behind = true, []string{"docker0"}
	uplinks := gateway
	uplinks.Uplinks = 2
	multicast := gateway
	multicast.RoutesMulticast = true
	for name, m := range map[string]Machine{"host": host, "gateway": gateway, "uplinks": uplinks,
		"multicast": multicast} {
		p, ds := resolve.Parse("draft.levee", []byte(m.Policy()), nil)
		if len(ds) > 0 {
			t.Fatalf("%s: %v\n%s", name, ds, m.Policy())
		}
		for _, f := range ir.Taken(ir.Build(p)) {
			t.Errorf("%s: line %d: %s\n%s", name, f.Pos.Line, f.Message, m.Policy())
		}
		asked, err := packet.Build(packet.Spec{Family: packet.IPv6,
			Proto: new(uint8(packet.ProtoICMP6)), Type: new(uint8(135)), TTL: new(uint8(255)),
			From: netip.MustParseAddr("2001:db8::1"), To: solicited(m.Addresses[1])})
		if err != nil {
			t.Fatal(err)
		}
		if got := oracle.New(p).Eval(asked); got.Action != action.Pass {
			t.Errorf("%s: a neighbour's question is not let in:\n%s", name, m.Policy())
		}
	}
}
