package dataplane

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"levee/internal/dataplane/loader"
	"levee/internal/filter/codegen"
	"levee/internal/filter/oracle"
	"levee/internal/lang/action"
	"levee/internal/lang/resolve"
	"levee/internal/packet"
)

// TestNoByteOfADatagramPassesTwice: whatever is sent again, and in whatever order, no fragment
// passes that covers a part of what another has brought. On a host that believes the later of two,
// what no rule has looked at would take the place of what one has.
func TestNoByteOfADatagramPassesTwice(t *testing.T) {
	needRoot(t)
	p, ds := resolve.Parse("test.levee",
		[]byte("fragments track\npass udp port 53\ndefault drop\n"),
		nil)
	if ds.HasErrors() {
		t.Fatal(ds.Err())
	}
	type sent struct {
		port     uint16
		from, to int
		passes   bool
	}
	noRoom := []sent{}
	for i := range 8 {
		noRoom = append(noRoom, sent{53, 64 + 16*i, 72 + 16*i, true})
	}
	for name, all := range map[string][]sent{
		"without room for the first": append(noRoom, sent{53, 0, 48, false},
			sent{53, 8, 64, false}),
		"after an overlap": {{53, 0, 48, true}, {53, 8, 64, false}, {53, 0, 16, false},
			{53, 16, 64, false}},
		"after a first that is dropped": {{53, 64, 72, true}, {54, 0, 48, false}, {53, 0, 48, true},
			{53, 48, 80, false}},
		"again": {{53, 0, 48, true}, {53, 0, 48, false}, {53, 8, 24, false}, {53, 48, 64, true},
			{53, 48, 64, false}, {53, 0, 16, false}, {53, 64, 72, true}},
	} {
		for _, hook := range []codegen.Hook{codegen.XDP, codegen.TCX} {
			prog, err := codegen.Compile(p, codegen.Target{Hook: hook, Trace: true, Clock: true,
				HZ: testHZ})
			if err != nil {
				t.Fatal(err)
			}
			r, err := loader.NewRunner(prog)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			now := time.Unix(1<<30, 0)
			o := oracle.New(p)
			o.SetClock(func() time.Time { return now })
			r.SetClock(1 << 33)
			for i, s := range all {
				frame := moreOf(t, s.port, s.from, s.to)
				slot, verdict, err := r.Eval(frame)
				if err != nil {
					t.Fatal(err)
				}
				if (verdict == action.Pass) != s.passes {
					t.Errorf("%s, hook %v: fragment %d: slot %d, %v", name, hook, i, slot, verdict)
				}
				if want := o.Eval(frame); want.Slot != slot {
					t.Errorf("%s, hook %v: fragment %d: slot %d, by the oracle %d", name, hook, i,
						slot, want.Slot)
				}
			}
		}
	}
}

// moreOf is a fragment, not the last, with the bytes of a datagram to a port between two offsets.
func moreOf(t *testing.T, port uint16, from, to int) []byte {
	t.Helper()
	proto := uint8(packet.ProtoUDP)
	s := packet.Spec{From: netip.MustParseAddr("192.0.2.9"), FromPort: new(uint16(5000)),
		ToPort: &port, Payload: make([]byte, 400)}
	s.Proto, s.To = &proto, netip.MustParseAddr("198.51.100.7")
	whole, err := packet.Build(s)
	if err != nil {
		t.Fatal(err)
	}
	const ip, header = 14, 20
	out := append(whole[:ip+header:ip+header], whole[ip+header+from:ip+header+to]...)
	binary.BigEndian.PutUint16(out[ip+2:], uint16(len(out)-ip))
	binary.BigEndian.PutUint16(out[ip+6:], uint16(0x2000|from/8))
	if len(out) < 60 {
		out = append(out, make([]byte, 60-len(out))...)
	}
	return out
}
