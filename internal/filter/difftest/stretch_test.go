package difftest

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"levee/internal/filter/codegen"
	"levee/internal/filter/oracle"
	"levee/internal/packet"
)

// stretch makes a frame as no network carries it: its headers end beyond the first buffer of a
// program, and what is looked through stands where it is not looked through.
func stretch(r *rand.Rand, f []byte) []byte {
	var p packet.Packet
	packet.Decode(f, &p)
	at := p.NetworkOffset
	if p.Malformed != packet.WellFormed || p.Family == packet.AnyFamily || p.Carried {
		return f
	}
	long := func(first uint8) (chain []byte, next uint8) {
		for range 1 + r.IntN(8) {
			units := []int{0, 1, 100, 255, r.IntN(256)}[r.IntN(5)]
			h := random(r, 8+8*units)
			h[0], h[1] = first, uint8(units)
			chain = append(h, chain...)
			first = []uint8{0, 43, 60, 135}[r.IntN(4)]
		}
		return chain, first
	}
	switch {
	case p.Family == packet.IPv6:
		chain, next := long(f[at+6])
		f = slices.Insert(slices.Clone(f), at+40, chain...)
		f[at+6] = next
		binary.BigEndian.PutUint16(f[at+4:], uint16(len(f)-at-40))
	case r.IntN(2) == 0: // IPv4 within IPv6
		chain, next := long(packet.ProtoIPIP)
		h := random(r, 40)
		h[0], h[6] = 0x60, next
		binary.BigEndian.PutUint16(h[4:], uint16(len(chain)+len(f)-at))
		f = slices.Concat(f[:at], h, chain, f[at:])
		binary.BigEndian.PutUint16(f[at-2:], packet.EtherIPv6)
	}
	if r.IntN(6) > 0 {
		return f
	}
	rest := len(f) - at
	label := []byte{0, byte(r.Uint32()), byte(r.Uint32()) | 1, 64}
	pppoe := binary.BigEndian.AppendUint16([]byte{0x11, 0, 0, 7}, uint16(rest+6))
	outer, head := uint16(packet.EtherMPLS), label
	switch r.IntN(5) {
	case 0: // MPLS within PPPoE
		outer, head = packet.EtherPPPoE, slices.Concat(pppoe, []byte{0x02, 0x81}, label)
	case 1: // PPPoE within MPLS
		head = slices.Concat(label, pppoe, []byte{0, 0x21})
	case 2: // a tag within MPLS
		head = slices.Concat(label, []byte{0x81, 0, 0, 1})
	case 3: // SNAP
		outer, head = uint16(min(rest+8, 1500)), []byte{0xaa, 0xaa, 3, 0, 0, 0, f[at-2], f[at-1]}
	}
	f = slices.Insert(slices.Clone(f), at, head...)
	binary.BigEndian.PutUint16(f[at-2:], outer)
	return f
}

// TestLongHeadersAgreeWithTheOracle judges headers that end up to 16 KB behind the beginning of the
// frame, by policies without state.
func TestLongHeadersAgreeWithTheOracle(t *testing.T) {
	needRoot(t)
	far, policies := 0, 0
	for seed := max(*firstSeed, 1); policies < 8; seed++ {
		p, text, err := Policy(seed)
		if err != nil {
			t.Fatal(err)
		}
		if p.Remembers() {
			continue
		}
		policies++
		c := Case{Policy: p, Text: text, Seed: seed, Frames: 1000}
		e := compiled{Runner: load(t, p, codegen.Target{CPUs: 2, Frags: true}), hook: codegen.XDP}
		o := oracle.New(p)
		r := newRand(seed, streamStretch)
		for f := range Packets(p, seed, c.Frames) {
			f = stretch(r, f)
			if len(f) > maxLength {
				far++
			}
			want := o.Eval(f)
			if slot, got, err := e.Eval(f); err != nil || slot != want.Slot || got != want.Action {
				t.Error(errors.Join(err, &Difference{Case: c, Frame: f, Engine: "xdp.frags",
					Want: verdict(p, want.Slot, want.Action), Got: verdict(p, slot, got),
					Story: o.Explain(f)}))
				break
			}
		}
	}
	if far < 500 {
		t.Errorf("%d of %d frames are long", far, policies*1000)
	}
	t.Logf("%d policies, %d long frames", policies, far)
}
