package dataplane

import (
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"levee/internal/dataplane/store"
	"levee/internal/dataplane/tap"
	"levee/internal/filter/capture"
	"levee/internal/packet"
)

// BenchmarkFlows: what a packet costs with and without a reader of flows behind the policy: one to
// a port that nobody reads, and one of a flow of which nobody wants more.
func BenchmarkFlows(b *testing.B) {
	n := newTestNet(b)
	if err := bringPolicyAt(b, "lv0", store.XDPNative, "default pass", 0); err != nil {
		b.Fatal(err)
	}
	const read, other = 443, 8443
	from, to := netip.MustParseAddrPort("192.0.2.7:40000"), netip.MustParseAddr("192.0.2.1")
	for _, c := range []struct {
		name  string
		reads bool
		port  uint16
	}{{"nobody reads", false, read}, {"another port", true, other},
		{"no more wanted", true, read}} {
		b.Run(c.name, func(b *testing.B) {
			n.enterHere(b)
			r, err := tap.NewFlowReader(b.Context(), "lv0", &capture.Ports{read: capture.ReadTCP},
				capture.FlowBounds{Bytes: 1 << 14})
			if err != nil {
				b.Fatal(err)
			}
			prog, err := ebpf.NewProgramFromID(ebpf.ProgramID(r.Hook.G.Program))
			if err != nil {
				b.Fatal(err)
			}
			defer prog.Close()
			if c.reads {
				defer r.Close()
			} else {
				r.Close()
			}
			frame, err := packet.Build(packet.Spec{From: from.Addr(), FromPort: new(from.Port()),
				To: to, ToPort: new(c.port), Flags: new(uint8(packet.ACK)),
				Payload: make([]byte, 100)})
			if err != nil {
				b.Fatal(err)
			}
			_, each, err := prog.Benchmark(frame, b.N, nil)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(each.Nanoseconds()), "ns/packet")
		})
	}
}
