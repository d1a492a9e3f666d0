package difftest

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"levee/internal/filter/codegen"
	"levee/internal/lang/action"
	"levee/internal/lang/resolve"
	"levee/internal/packet"
)

// mergedContext returns the kernel's context of a merged packet, of so many segments of a size in
// bytes: struct __sk_buff of include/uapi/linux/bpf.h.
func mergedContext(segments, size uint32) []byte {
	c := make([]byte, 192)
	binary.NativeEndian.PutUint32(c[164:], segments)
	binary.NativeEndian.PutUint32(c[176:], size)
	return c
}

// TestALimitChargesEachPacketOfAMergedOne: 58 MB passed a limit of 200/s, in 1,397 merged packets,
// each of which was charged as one.
func TestALimitChargesEachPacketOfAMergedOne(t *testing.T) {
	needRoot(t)
	const segments, size = 10, 100
	for _, link := range []packet.Link{packet.Ethernet, packet.L3} {
		front := map[packet.Link]int{packet.Ethernet: 0, packet.L3: 14}[link]
		headers := 14 + 20 + 20 - front
		build := func(payload int) []byte {
			f, err := packet.Build(packet.Spec{Flags: new(uint8(packet.ACK)),
				ToPort: new(uint16(80)), Payload: make([]byte, payload)})
			if err != nil {
				t.Fatal(err)
			}
			return f[front:]
		}
		frame, single := build(segments*size), build(size)
		wire := segments * (headers + size)
		for _, tt := range []struct {
			rate         string
			merged, then int // how many pass
		}{
			{"1/d burst 25", 2, 5},
			{"1/d burst 9", 0, 9},
			{"1/d burst 25 by source", 2, 5},
			{"1/d burst 25 by flow, source/16 x2, destination", 2, 5},
			{fmt.Sprintf("1kbit/s burst %d", 3*wire), 3, 0},
			{fmt.Sprintf("1kbit/s burst %d by source", 3*wire+headers+size), 3, 1},
		} {
			for _, counted := range []uint32{segments, 0} {
				p, ds := resolve.Parse("test.levee", []byte("limit tcp port 80 rate "+tt.rate+
					"\ncount tcp as \"all\"\ndefault pass\n"), nil)
				if ds.HasErrors() {
					t.Fatal(ds.Err())
				}
				if counted == 0 && tt.merged > 0 && tt.then == 5 {
					tt.then = 3 // the headers count as one more, each time
				}
				r := load(t, p, codegen.Target{Hook: codegen.TCX, Link: link})
				passes := func(frame, context []byte) (n int) {
					for range 12 {
						_, verdict, err := r.EvalWith(frame, context)
						if err != nil {
							t.Fatal(err)
						}
						if verdict == action.Pass {
							n++
						}
					}
					return n
				}
				merged := passes(frame, mergedContext(counted, size))
				if then := passes(single, nil); merged != tt.merged || then != tt.then {
					t.Errorf("%s, %v, counted %d: %d merged and %d others pass, want %d and %d",
						tt.rate, link, counted, merged, then, tt.merged, tt.then)
				}
				for i, c := range r.Counters() {
					s := r.Slots()[i]
					if s.Rule == nil || s.Rule.Label != "all" {
						continue
					}
					if want := merged*wire + tt.then*len(single); int(c.Bytes) != want {
						t.Errorf("%s, %v, counted %d: %d bytes are counted, want %d", tt.rate, link,
							counted, c.Bytes, want)
					}
				}
			}
		}
	}
}

// TestATagBesideAMergedPacketIsOnEach: the tag that lies beside a frame at tc was counted once for
// all packets that a merged one stands for, so that a limit in bits let more pass.
func TestATagBesideAMergedPacketIsOnEach(t *testing.T) {
	needRoot(t)
	const segments, size, tag = 10, 100, 4
	p, ds := resolve.Parse("test.levee", []byte("count tcp as \"all\"\ndefault pass\n"), nil)
	if ds.HasErrors() {
		t.Fatal(ds.Err())
	}
	for tags := range 3 {
		f, err := packet.Build(packet.Spec{Flags: new(uint8(packet.ACK)),
			Payload: make([]byte, segments*size)})
		if err != nil {
			t.Fatal(err)
		}
		for range tags {
			f = slices.Concat(f[:12], []byte{0x81, 0, 0, 7}, f[12:])
		}
		r := load(t, p, codegen.Target{Hook: codegen.TCX})
		frame, context := (&arrival{takes: true}).split(f)
		if context == nil {
			context = make([]byte, skbBytes)
		}
		copy(context[164:], mergedContext(segments, size)[164:])
		if _, _, err := r.EvalWith(frame, context); err != nil {
			t.Fatal(err)
		}
		want := uint64(segments * (14 + tag*tags + 20 + 20 + size))
		for i, c := range r.Counters() {
			if s := r.Slots()[i]; s.Rule != nil && c.Bytes != want {
				t.Errorf("with %d tags %d bytes are counted, want %d", tags, c.Bytes, want)
			}
		}
	}
}
