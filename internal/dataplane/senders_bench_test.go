package dataplane

import (
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"levee/internal/filter/codegen"
)

// BenchmarkSenders tells what asking who sends adds to a packet: one socket sends datagrams by a
// policy that asks, and by one that does not, in turn. The kernel takes the time of the program at
// egress, and of its own clock, which the difference is without.
func BenchmarkSenders(b *testing.B) {
	const packets = 1 << 15
	n := newSenders(b)
	n.enter(b, "system.slice/system-a.slice/a@b.service")
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer unix.Close(s)
	to := &unix.SockaddrInet4{Port: 25, Addr: [4]byte{192, 0, 2, 9}}
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		b.Fatal(err)
	}
	defer stats.Close()
	run := func(text string) float64 {
		n.bring(b, text)
		defer func() {
			if _, err := Down(b.Context(), "lv0"); err != nil {
				b.Fatal(err)
			}
		}()
		p := programNamed(b, codegen.LeavingName)
		defer p.Close()
		before, err := p.Stats()
		for range packets {
			if err == nil {
				err = unix.Sendto(s, []byte("x"), 0, to)
			}
		}
		if err != nil {
			b.Fatal(err)
		}
		after, err := p.Stats()
		if err != nil {
			b.Fatal(err)
		}
		return float64((after.Runtime - before.Runtime).Nanoseconds()) /
			float64(after.RunCount-before.RunCount)
	}
	for _, term := range []string{"forwarded", "uid 99", "user nobody", "gid 99", "group nogroup",
		`service "postfix.service"`, "container web"} {
		b.Run(term, func(b *testing.B) {
			n.enterHere(b)
			var more []float64
			for b.Loop() {
				asks := run("out drop " + term + "\ndefault pass\n")
				more = append(more, asks-run("out drop ttl 0\ndefault pass\n"))
			}
			slices.Sort(more)
			b.ReportMetric(more[len(more)/2], "ns/packet")
		})
	}
}

// programNamed is the newest program of a name.
func programNamed(b *testing.B, name string) *ebpf.Program {
	b.Helper()
	var found *ebpf.Program
	for id := ebpf.ProgramID(0); ; {
		next, err := ebpf.ProgramGetNextID(id)
		if err != nil {
			break
		}
		id = next
		p, err := ebpf.NewProgramFromID(id)
		if err != nil {
			continue
		}
		if info, err := p.Info(); err == nil && info.Name == name {
			if found != nil {
				found.Close()
			}
			found = p
			continue
		}
		p.Close()
	}
	if found == nil {
		b.Fatalf("there is no program %s", name)
	}
	return found
}
