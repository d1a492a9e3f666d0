package dataplane

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/echo"
)

// BenchmarkEcho measures the time of packets whose flows are proven and are not: one flow, and many
// in turn; of a reply that is noted, and of a packet that leaves and is none; and of the same
// policy without the question.
func BenchmarkEcho(b *testing.B) {
	const many = 100_000
	const statement = "prove \"a2s\" udp port 27015 reply payload at 4 41 echo 4 bytes at 5 in " +
		"request at 25, 5\n"
	const service = "192.0.2.1:27015"
	for _, six := range []bool{false, true} {
		name, to := "IPv4", service
		if six {
			name, to = "IPv6", "[2001:db8::1]:27015"
		}
		client := func(i int) string {
			if six {
				return fmt.Sprintf("[2a00::%x:%x]:4000", i>>16, i&0xffff)
			}
			return fmt.Sprintf("10.%d.%d.%d:4000", i>>16, i>>8&255, i&255)
		}
		query := []byte("\xff\xff\xff\xffU\x01\x02\x03\x04")
		queries := func(first, n int) (frames [][]byte) {
			for i := range n {
				frames = append(frames, datagram(b, client(first+i*7919%many), to, query))
			}
			return frames
		}
		r := benchRunner(b, statement+"pass udp proven flow\ndefault drop\n")
		value := make([]byte, 4)
		for i := range many {
			binary.BigEndian.PutUint32(value, uint32(i))
			reply := append([]byte("\xff\xff\xff\xffA"), value...)
			if err := r.Leave(datagram(b, to, client(i), reply)); err != nil {
				b.Fatal(err)
			}
			back := append([]byte("\xff\xff\xff\xffU"), value...)
			run := ebpf.RunOptions{Data: datagram(b, client(i), to, back), Repeat: 1}
			if _, err := r.Loaded.Prog.Run(&run); err != nil {
				b.Fatal(err)
			}
		}
		for _, c := range []struct {
			name     string
			first, n int
		}{{"proven", 0, 1}, {"proven, 100,000 in turn", 0, many}, {"wrong", 1 << 20, 1},
			{"wrong, 100,000 in turn", 1 << 20, many}} {
			b.Run(name+"/"+c.name, func(b *testing.B) { benchFrames(b, r, queries(c.first, c.n)) })
		}
		b.Run(name+"/not asked", func(b *testing.B) {
			benchFrames(b, benchRunner(b, statement+"pass udp port 27015\ndefault drop\n"),
				queries(0, 1))
		})
		learns := r.Loaded.Others[echo.Program]
		reply := datagram(b, to, client(1), []byte("\xff\xff\xff\xffA\x01\x02\x03\x04"))
		other := datagram(b, to, client(1), []byte("\xff\xff\xff\xffI\x01\x02\x03\x04"))
		elsewhere := datagram(b, strings.Replace(to, "27015", "27016", 1), client(1), query)
		b.Run(name+"/a packet of another port leaves", func(b *testing.B) {
			benchLeave(b, learns, elsewhere)
		})
		b.Run(name+"/a reply leaves", func(b *testing.B) { benchLeave(b, learns, reply) })
		b.Run(name+"/another packet leaves", func(b *testing.B) { benchLeave(b, learns, other) })
	}
}

// benchLeave measures a program at egress above one that does nothing.
func benchLeave(b *testing.B, p *ebpf.Program, frame []byte) {
	b.Helper()
	none, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()}})
	if err != nil {
		b.Fatal(err)
	}
	defer none.Close()
	var ns []float64
	for b.Loop() {
		var took [2]float64
		for i, p := range []*ebpf.Program{p, none} {
			_, d, err := p.Benchmark(frame, 1<<20, nil)
			if err != nil {
				b.Fatal(err)
			}
			took[i] = float64(d.Nanoseconds())
		}
		ns = append(ns, took[0]-took[1])
	}
	ns = slices.Sorted(slices.Values(ns))
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(ns[len(ns)/2], "ns/packet")
}
