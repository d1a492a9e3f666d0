package capture

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/net/bpf"

	"levee/internal/filter/plan"
	"levee/internal/packet"
)

// TestFiltersTakeWhatTheirMachineTakes runs filters as the program that captures has them, and as
// package bpf does. testdata/filters.txt has tcpdump's expressions, and below each what
// `tcpdump -y EN10MB -ddd -s 262144` of libpcap 1.10.3 makes of it.
func TestFiltersTakeWhatTheirMachineTakes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it loads programs")
	}
	text, err := os.ReadFile("testdata/filters.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split(strings.TrimSpace(string(text)), "\n\n") {
		expression, instructions, _ := strings.Cut(part, "\n")
		t.Run(expression, func(t *testing.T) { compareFilter(t, parse(t, instructions)) })
	}
}

func parse(t *testing.T, text string) []bpf.Instruction {
	t.Helper()
	var raw []bpf.RawInstruction
	for _, line := range strings.Split(text, "\n")[1:] {
		var r bpf.RawInstruction
		if _, err := fmt.Sscan(line, &r.Op, &r.Jt, &r.Jf, &r.K); err != nil {
			t.Fatal(err)
		}
		raw = append(raw, r)
	}
	filter, ok := bpf.Disassemble(raw)
	if !ok {
		t.Fatal("instructions are not known")
	}
	return filter
}

func compareFilter(t *testing.T, filter []bpf.Instruction) {
	vm, err := bpf.NewVM(filter)
	if err != nil {
		t.Fatal(err)
	}
	taken := loadFilter(t, filter)
	r := rand.New(rand.NewPCG(1, 2))
	matches := 0
	for range 3000 {
		f := someFrame(r)
		n, err := vm.Run(f)
		if err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			matches++
		}
		if got := taken(f); got != (n > 0) {
			t.Fatalf("taken %v, the machine says %d: %x", got, n, f)
		}
	}
	if matches == 0 {
		t.Error("no packet is taken")
	}
}

// loadFilter loads the program, and gives what says whether it takes a frame.
func loadFilter(t *testing.T, filter []bpf.Instruction) func([]byte) bool {
	t.Helper()
	const row = 64
	spec, p, err := Spec(Options{Filter: filter, Snap: 128, Bound: 1 << 15, Slots: [2]int{0, 0},
		Judge: Judge{RowBytes: row, Rows: 1, Note: plan.SlotBytes, NumSlots: 1}})
	if err != nil {
		t.Fatal(err)
	}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(coll.Close)
	if err := coll.Variables["until"].Set(^uint64(0)); err != nil {
		t.Fatal(err)
	}
	before := uint64(0)
	return func(frame []byte) bool {
		run := &ebpf.RunOptions{Data: frame, Repeat: 1}
		if _, err := coll.Programs[p.Name].Run(run); err != nil {
			t.Fatal(err)
		}
		var values []Counts
		if err := coll.Maps[CPUsMap].Lookup(uint32(0), &values); err != nil {
			t.Fatal(err)
		}
		now := Sum(Losses{}, values).Taken
		was := before
		before = now
		return now > was
	}
}

// someFrame is a frame of few hosts and ports, some of them cut off.
func someFrame(r *rand.Rand) []byte {
	pick := func(of ...byte) byte { return of[r.IntN(len(of))] }
	f := []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, pick(1, 1, 3)}
	if r.IntN(4) == 0 {
		f = append(f, 0x81, 0, 0, pick(7, 8))
	}
	proto := pick(6, 6, 17, 17, 1, 58, 132)
	transport := make([]byte, 20+r.IntN(40))
	for i := range transport {
		transport[i] = byte(r.Uint32())
	}
	copy(transport, []byte{0, pick(22, 53, 80), pick(0, 1), pick(53, 80, 187)})
	switch proto {
	case 1:
		transport[0] = pick(0, 8)
	case 6:
		transport[12] = pick(5, 6) << 4
		copy(transport[len(transport)-4:], "GET ")
		if r.IntN(2) == 0 {
			transport = append(transport[:20:20], "GET /"...)
			transport[12] = 5 << 4
		}
	case 17:
		copy(transport[8:], []byte{0x12, 0x34})
	}
	switch r.IntN(5) {
	case 0:
		f = append(f, 8, 6)
		f = append(f, make([]byte, 28)...)
	case 1, 2:
		ip := make([]byte, 40)
		ip[0], ip[6], ip[7] = 0x60, proto, 64
		copy(ip[8:], []byte{0x20, 1, 0xd, 0xb8})
		copy(ip[24:], []byte{0x20, 1, 0xd, pick(0xb8, 0xb9)})
		f = append(append(append(f, 0x86, 0xdd), ip...), transport...)
	default:
		ip := make([]byte, 20+4*r.IntN(2))
		ip[0], ip[8], ip[9] = 0x40|byte(len(ip)/4), pick(1, 64), proto
		ip[3] = byte(len(ip) + len(transport))
		if r.IntN(6) == 0 {
			ip[6], ip[7] = pick(0, 0x20), pick(0, 3)
		}
		copy(ip[12:], []byte{pick(10, 11), 0, 0, pick(1, 2)})
		copy(ip[16:], []byte{192, 168, pick(1, 2), 1})
		f = append(append(append(f, 8, 0), ip...), transport...)
	}
	if r.IntN(8) == 0 {
		f = f[:14+r.IntN(len(f)-14)]
	}
	return f
}

// TestTheFilterOfSources takes packets of its addresses, tagged or not, and no others.
func TestTheFilterOfSources(t *testing.T) {
	four, six := netip.MustParseAddr("203.0.113.5"), netip.MustParseAddr("2001:db8::5")
	from := []netip.Addr{four, six}
	for _, c := range []struct {
		spec  packet.Spec
		taken bool
	}{
		{packet.Spec{From: four}, true},
		{packet.Spec{From: six}, true},
		{packet.Spec{From: four.Next()}, false},
		{packet.Spec{From: six.Next()}, false},
		{packet.Spec{From: four, VLAN: new(uint16(7))}, true},
		{packet.Spec{From: six, VLAN: new(uint16(7)), InnerVLAN: new(uint16(8))}, true},
		{packet.Spec{From: six.Next(), VLAN: new(uint16(7)), InnerVLAN: new(uint16(8))}, false},
		{packet.Spec{To: four}, false},
		{packet.Spec{Family: packet.ARP, From: four}, false},
	} {
		frame, err := packet.Build(c.spec)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range []packet.Link{packet.Ethernet, packet.L3} {
			as, err := l.Carry(frame)
			if err != nil {
				continue
			}
			filter := FromSources(l, from)
			if _, err := bpf.Assemble(filter); err != nil {
				t.Fatal(err)
			}
			vm, err := bpf.NewVM(filter)
			if err != nil {
				t.Fatal(err)
			}
			if n, err := vm.Run(as); err != nil || (n > 0) != c.taken {
				t.Errorf("%s, %+v: %d, %v; taken is to be %v", l, c.spec, n, err, c.taken)
			}
			if _, err := translate(filter); err != nil {
				t.Error(err)
			}
		}
	}
}
