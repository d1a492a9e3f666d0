package difftest

import (
	"fmt"
	"testing"

	"levee/internal/filter/codegen"
	"levee/internal/filter/oracle"
	"levee/internal/lang/resolve"
	"levee/internal/packet"
)

// A datagram ends where its header says, and the kernel cuts off what the IP packet has behind it:
// whoever put what a rule asks for there passed with any payload.
func TestBytesBehindADatagramAreNoPayload(t *testing.T) {
	needRoot(t)
	p, ds := resolve.Parse("behind.levee", []byte("pass udp payload contains \"token\"\n"+
		"pass udp payload at 4 746f6b656e\ndefault drop\n"), nil)
	if p == nil {
		t.Fatal(ds)
	}
	frame, err := packet.Build(packet.Spec{Proto: new(uint8(packet.ProtoUDP)),
		Payload: []byte("eviltoken")})
	if err != nil {
		t.Fatal(err)
	}
	const length = 14 + 20 + 5
	for _, target := range []codegen.Target{{}, {Frags: true}, {Hook: codegen.TCX}} {
		t.Run(fmt.Sprint(target.Hook, target.Frags), func(t *testing.T) {
			r := load(t, p, target)
			for datagram, want := range map[byte]int{
				8 + 9: p.RuleSlot(0), 8 + 8: p.DefaultSlot(), 8 + 4: p.DefaultSlot(),
			} {
				frame[length] = datagram
				slot, _, err := r.Eval(frame)
				if err != nil {
					t.Fatal(err)
				}
				if by := oracle.New(p).Eval(frame).Slot; slot != want || by != want {
					t.Errorf("a datagram of %d bytes: slot %d, by the oracle %d, want %d", datagram,
						slot, by, want)
				}
			}
		})
	}
}
