package difftest

import (
	"fmt"
	"slices"
	"testing"

	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/lang/resolve"
	"levee/internal/packet"
)

// A frame whose packet within is malformed was counted with 0 bytes: the decoder of tunnels cleared
// the length of the frame together with what it decodes anew.
func TestBytesOfFramesMalformedWithinATunnelAreCounted(t *testing.T) {
	needRoot(t)
	p, ds := resolve.Parse("bytes.levee",
		[]byte("drop inner( tcp )\npass malformed\ndefault pass\n"), nil)
	if p == nil {
		t.Fatal(ds)
	}
	tags := []byte{0x81, 0, 0, 1, 0x88, 0xa8, 0, 1, 0x81, 0, 0, 1, 8, 0} // one too many
	frame, err := packet.Build(packet.Spec{Proto: new(uint8(packet.ProtoUDP)),
		ToPort:  new(uint16(packet.PortVXLAN)),
		Payload: slices.Concat([]byte{8, 0, 0, 0, 0, 0, 1, 0}, make([]byte, 12), tags)})
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range []codegen.Target{{}, {Frags: true}, {Hook: codegen.TCX}} {
		t.Run(fmt.Sprint(target.Hook, target.Frags), func(t *testing.T) {
			r := load(t, p, target)
			slot, _, err := r.Eval(frame)
			if err != nil {
				t.Fatal(err)
			}
			want := store.Counter{Packets: 1, Bytes: uint64(len(frame))}
			if got := r.Counters()[slot]; slot != p.RuleSlot(1) || got != want {
				t.Errorf("slot %d counts %+v, want slot %d, %+v", slot, got, p.RuleSlot(1), want)
			}
		})
	}
}
