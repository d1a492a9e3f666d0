package dataplane

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"testing"

	"levee/internal/dataplane/loader"
	"levee/internal/filter/codegen"
	"levee/internal/packet"
)

// syns are SYNs with options, from so many sources.
func syns(t testing.TB, family packet.Family, sources int) (frames [][]byte) {
	t.Helper()
	s := packet.Spec{Flags: new(uint8(packet.SYN)), FromPort: new(uint16(40000)),
		ToPort: new(uint16(443)), TCPOptions: make([]byte, 20),
		From: netip.MustParseAddr("16.0.0.1"), To: netip.MustParseAddr("198.51.100.1"),
		EtherTo: &[6]byte{2, 0, 0, 0, 0, 1}, EtherFrom: &[6]byte{2, 0, 0, 0, 0, 2}}
	source := 26 // the lower 32 bits of the address, in the frame
	if family == packet.IPv6 {
		s.From, s.To = netip.MustParseAddr("2a00::1"), netip.MustParseAddr("2001:db8::1")
		source = 34
	}
	syn, err := packet.Build(s)
	if err != nil {
		t.Fatal(err)
	}
	for i := range sources {
		f := slices.Clone(syn)
		binary.BigEndian.PutUint32(f[source:], 16<<24|uint32(i)*2654435761>>8)
		frames = append(frames, f)
	}
	return frames
}

// TestATraceRunsAProgramThatAnswers: an answer is shorter than its SYN, and the next frame found no
// room.
func TestATraceRunsAProgramThatAnswers(t *testing.T) {
	r, p := runnerOf(t, "cookie tcp\ndefault pass\n", codegen.Target{CPUs: runtime.NumCPU()})
	for _, family := range []packet.Family{packet.IPv4, packet.IPv6} {
		trace, err := loader.NewTrace(syns(t, family, 3))
		if err != nil {
			t.Fatal(err)
		}
		defer trace.Close()
		run, err := r.OnTrace(trace)
		if err != nil {
			t.Fatal(err)
		}
		before := r.Counters()
		const repeat = 1000
		if _, _, err := run.Round(repeat); err != nil {
			t.Fatalf("%s: %v", family, err)
		}
		after := r.Counters()
		answered := after[p.RuleSlot(0)].Packets - before[p.RuleSlot(0)].Packets
		passed := after[p.DefaultSlot()].Packets - before[p.DefaultSlot()].Packets
		if answered < 2*repeat || passed > 0 { // a run that is begun again counts anew
			t.Errorf("%s: %d answered, %d passed", family, answered, passed)
		}
	}
}

// BenchmarkAnswer measures the time of a SYN that a cookie answers above an empty program: from one
// source, and from so many in turn.
func BenchmarkAnswer(b *testing.B) {
	r := benchRunner(b, "cookie tcp\ndefault pass\n")
	if err := r.SetOwn([][6]byte{{2, 0, 0, 0, 0, 1}}, []netip.Addr{
		netip.MustParseAddr("198.51.100.255"), netip.MustParseAddr("203.0.113.255"),
		netip.MustParseAddr("2001:db8::")}); err != nil {
		b.Fatal(err)
	}
	for _, family := range []packet.Family{packet.IPv4, packet.IPv6} {
		for _, sources := range []int{1, 1 << 18} {
			b.Run(fmt.Sprintf("%s/sources=%d", family, sources), func(b *testing.B) {
				benchFrames(b, r, syns(b, family, sources))
			})
		}
	}
}
