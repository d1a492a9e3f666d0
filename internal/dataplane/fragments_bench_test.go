package dataplane

import (
	"encoding/binary"
	"testing"

	"levee/internal/packet"
)

// BenchmarkFragments measures the time of packets above an empty program where a policy follows
// fragments: packets that are none, first ones, those behind a first that passed, and those without
// one.
func BenchmarkFragments(b *testing.B) {
	const many = 4096 // datagrams
	const text = "fragments track\npass udp port 53\ndefault drop\n"
	first := func(i int) []byte {
		f := build(b, packet.Spec{ToPort: new(uint16(53)), Frag: new(uint16(0)), Len: new(60)})
		binary.BigEndian.PutUint16(f[18:], uint16(i)) // the identification
		return f
	}
	later := func(i int) []byte {
		f := build(b, packet.Spec{ToPort: new(uint16(53)), Frag: new(uint16(185)), Len: new(60)})
		binary.BigEndian.PutUint16(f[18:], uint16(i))
		return f
	}
	whole := func(int) []byte { return build(b, packet.Spec{ToPort: new(uint16(53))}) }
	for _, c := range []struct {
		name         string
		before, each func(int) []byte
	}{
		{"no fragments", whole, whole}, {"first", first, first}, {"later", first, later},
		{"orphans", whole, later},
	} {
		b.Run(c.name, func(b *testing.B) {
			var before, frames [][]byte
			for i := range many {
				before, frames = append(before, c.before(i)), append(frames, c.each(i))
			}
			benchAfter(b, text, frames, before...)
		})
	}
}

func build(b *testing.B, s packet.Spec) []byte {
	b.Helper()
	f, err := packet.Build(s)
	if err != nil {
		b.Fatal(err)
	}
	return f
}

// benchAfter measures frames in turn, when the policy has seen those before.
func benchAfter(b *testing.B, text string, frames [][]byte, before ...[]byte) {
	b.Helper()
	r := benchRunner(b, text)
	for _, f := range before {
		if _, _, err := r.Eval(f); err != nil {
			b.Fatal(err)
		}
	}
	benchFrames(b, r, frames)
}
