package difftest

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"levee/internal/filter/codegen"
	"levee/internal/filter/oracle"
	"levee/internal/lang/action"
	"levee/internal/lang/resolve"
	"levee/internal/packet"
)

// TestFragmentsAgreeWithTheOracle judges fragments of few datagrams, of which a limit drops some
// first ones, on both link layers, and sees to it that each fate is met often.
func TestFragmentsAgreeWithTheOracle(t *testing.T) {
	const text = `count fragments as "fragments"
count fragments proto udp as "udp"
fragments track as "follow"
limit ether { ipv4, ipv6 } rate 2/s burst 1 by source as "first"
pass ipv4 as "four"
pass ipv6 as "six"
default drop
`
	eachIsMet(t, text, 12, "fragments", "udp", "follow", "first", "four", "six", "fragment-overlap",
		"fragment-tiny", "fragment-orphan")
}

// cut is a UDP datagram in fragments of IPv4 over Ethernet, whose parts are as long as sizes say,
// in turn.
func cut(id uint16, bytes int, sizes ...int) (frames [][]byte) {
	for at := 0; at < bytes; {
		n := min(sizes[len(frames)%len(sizes)], bytes-at)
		f := make([]byte, max(60, 34+n))
		copy(f, []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45})
		binary.BigEndian.PutUint16(f[16:], uint16(20+n))
		binary.BigEndian.PutUint16(f[18:], id)
		binary.BigEndian.PutUint16(f[20:], uint16(at/8))
		if at+n < bytes {
			f[20] |= 0x20
		}
		f[22], f[23] = 64, packet.ProtoUDP
		copy(f[26:], []byte{203, 0, 113, 9, 198, 51, 100, 1})
		if at == 0 {
			binary.BigEndian.PutUint16(f[36:], 53)
			binary.BigEndian.PutUint16(f[38:], uint16(bytes))
		}
		frames, at = append(frames, f), at+n
	}
	return frames
}

// TestFewFirstsLetFewLaterFragmentsPass: 39,990 fragments of 8 bytes passed behind 5 first ones, in
// front of a limit of 1/s. What hosts and routers make of datagrams still passes.
func TestFewFirstsLetFewLaterFragmentsPass(t *testing.T) {
	needRoot(t)
	p, ds := resolve.Parse("test.levee", []byte(`fragments track
limit udp port 53 rate 1/s burst 100
pass udp port 53
default drop
`), nil)
	if ds.HasErrors() {
		t.Fatal(ds.Err())
	}
	const whole = 0xffff - 20
	for _, tt := range []struct {
		name        string
		bytes       int
		sizes       []int
		late, tells bool // the first comes last; all of it passes
	}{
		{"eights", whole / 8 * 8, []int{8}, false, false},
		{"eights, the first last", whole / 8 * 8, []int{8}, true, false},
		{"a long first", whole, append([]int{2960}, slices.Repeat([]int{8}, 8000)...), false,
			false},
		{"few eights", 64, []int{8}, false, true},
		{"Ethernet", whole, []int{1480}, false, true},
		{"IPv6's least", whole, []int{1232}, false, true},
		{"576 bytes", whole, []int{552}, false, true},
		{"cut again", whole, []int{1376, 104}, false, true},
		{"cut again for 576 bytes, the first last", whole, []int{552, 552, 376}, true, true},
	} {
		for _, hook := range []codegen.Hook{codegen.XDP, codegen.TCX} {
			r, ev := load(t, p, codegen.Target{Hook: hook}), oracle.New(p)
			now := time.Unix(1000, 0)
			r.SetClock(1 << 20)
			ev.SetClock(func() time.Time { return now })
			for id := range uint16(2) {
				frames := cut(id, tt.bytes, tt.sizes...)
				if tt.late {
					slices.Reverse(frames)
				}
				passed, bytes := 0, 0
				for i, f := range frames {
					_, verdict, err := r.Eval(f)
					if err != nil {
						t.Fatal(err)
					}
					if want := ev.Eval(f).Action; verdict != want {
						t.Fatalf("%s, %v, fragment %d: %v, oracle: %v", tt.name, hook, i, verdict,
							want)
					}
					if verdict == action.Pass {
						passed++
						bytes += int(binary.BigEndian.Uint16(f[16:])) - 20
					}
				}
				if most := 9 + bytes/512; passed > most || tt.tells && passed < len(frames) {
					t.Errorf("%s, %v: %d of %d passed, at most %d", tt.name, hook, passed,
						len(frames), most)
				}
			}
		}
	}
}
