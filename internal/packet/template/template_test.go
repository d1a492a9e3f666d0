package template

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"levee/internal/lang/spec"
	"levee/internal/packet"
)

// samples are the templates of testdata/samples.txt, of one packet each.
func samples(t testing.TB) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "samples.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			out = append(out, line)
		}
	}
	return out
}

func parse(t testing.TB, src string) []spec.Packet {
	t.Helper()
	packets, ds := Parse("sample", []byte(src))
	if ds.HasErrors() {
		var b bytes.Buffer
		_ = ds.Render(&b, false)
		t.Fatalf("%s\n%s", src, b.String())
	}
	return packets
}

// naive builds frame n of a packet by putting one value of each field into the Spec. It shares the
// walk with the plan, not the frame: offsets of lengths, sums and shapes are Build's.
func naive(t *testing.T, p spec.Packet, seed, n uint64) []byte {
	t.Helper()
	if p.Frame != nil {
		return p.Frame
	}
	s := p.Spec
	s.Fields = slices.Clone(s.Fields)
	for i := range p.Vary {
		v := &p.Vary[i]
		w := newWalk(v, fieldSeed(seed, v.Word))
		hi, lo := w.value(w.index(n))
		addr := func() netip.Addr {
			b := make([]byte, 16)
			packet.Put(b, 0, 64, hi)
			packet.Put(b, 64, 64, lo)
			a, _ := netip.AddrFromSlice(b)
			if v.Prefixes[0].Addr().Is4() {
				a, _ = netip.AddrFromSlice(b[12:])
			}
			return a
		}
		mac := func() *[6]byte {
			b := make([]byte, 6)
			packet.Put(b, 0, 48, lo)
			return (*[6]byte)(b)
		}
		switch v.Word {
		case "from":
			s.From = addr()
		case "to":
			s.To = addr()
		case "from port":
			s.FromPort = new(uint16(lo))
		case "port":
			s.ToPort = new(uint16(lo))
		case "ttl":
			s.TTL = new(uint8(lo))
		case "dscp":
			s.DSCP = uint8(lo)
		case "vlan":
			s.VLAN = new(uint16(lo))
		case "inner-vlan":
			s.InnerVLAN = new(uint16(lo))
		case "ether from":
			s.EtherFrom = mac()
		case "ether to":
			s.EtherTo = mac()
		case "len":
			s.Len = new(int(lo))
		default:
			s.Fields = slices.DeleteFunc(s.Fields,
				func(f packet.FieldValue) bool { return f.Word == v.Word })
			s.Fields = append(s.Fields, packet.FieldValue{Word: v.Word, Value: lo})
		}
	}
	frame, err := packet.Build(s)
	if err != nil {
		t.Fatalf("packet %d: %v", n, err)
	}
	return frame
}

func TestFramesAreWhatBuildMakesOfTheirValues(t *testing.T) {
	const seed = 7
	r := rand.New(rand.NewPCG(seed, 0))
	for _, src := range samples(t) {
		t.Run(src, func(t *testing.T) {
			p := parse(t, src)
			tmpl, err := Compile(p, Defaults{}, seed)
			if err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, tmpl.Longest())
			for i := range uint64(600) {
				n := i
				if i >= 300 {
					n = r.Uint64N(1 << 40)
				}
				for k := range buf {
					buf[k] = 0xa5
				}
				got, want := tmpl.Frame(buf, n), naive(t, p[0], seed, n)
				if !bytes.Equal(got, want) {
					t.Fatalf("packet %d (seed %d):\n%x\n%x", n, seed, got, want)
				}
			}
		})
	}
}

// values are the first n values of a field of a template.
func values(t *testing.T, src, word string, n int) []uint64 {
	t.Helper()
	p := parse(t, src)
	var out []uint64
	for i := range p[0].Vary {
		if v := &p[0].Vary[i]; v.Word == word {
			w := newWalk(v, 1)
			for k := range uint64(n) {
				_, lo := w.value(w.index(k))
				out = append(out, lo)
			}
		}
	}
	return out
}

func TestFieldsTakeTheirValuesInTheOrderThatIsSaid(t *testing.T) {
	for _, c := range []struct {
		src, word string
		want      []uint64
	}{
		{"ipv4 udp port 5-7", "port", []uint64{5, 6, 7, 5, 6}},
		{"ipv4 udp port 5-7 counting down", "port", []uint64{7, 6, 5, 7}},
		{"ipv4 udp port 0-10 counting step 5", "port", []uint64{0, 5, 10, 0, 5}},
		{"ipv4 udp port 0-10 counting step 4", "port", []uint64{0, 4, 8, 0}},
		{"ipv4 udp port 0-10 counting down step 4", "port", []uint64{10, 6, 2, 10}},
		{"ipv4 udp port { 9, 1-2, 9 }", "port", []uint64{9, 1, 2, 9, 9, 1}},
		{"ipv4 udp ttl { 64, 128 } every 2", "ttl", []uint64{64, 64, 128, 128, 64}},
		{"ipv4 udp from 10.0.0.254-10.0.1.1", "from",
			[]uint64{0x0a0000fe, 0x0a0000ff, 0x0a000100, 0x0a000101, 0x0a0000fe}},
		{"ipv4 udp port 3", "port", nil},
		{"ipv4 udp port 3 counting", "port", []uint64{3, 3}},
	} {
		if got := values(t, c.src, c.word, len(c.want)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.src, got, c.want)
		}
	}
}

func TestPermutedValuesComeOnceEach(t *testing.T) {
	seen := map[uint64]int{}
	for _, v := range values(t, "ipv4 udp port { 100-199, 7, 1000-1049 } permuted", "port", 2*151) {
		seen[v]++
	}
	if len(seen) != 151 {
		t.Fatalf("%d values", len(seen))
	}
	for v, n := range seen {
		if n != 2 {
			t.Errorf("%d came %d times in two turns", v, n)
		}
	}
}

func TestRandomValuesAreSpreadEvenly(t *testing.T) {
	const n, space = 60000, 6
	seen := make([]int, space)
	for _, v := range values(t, "ipv4 udp ttl 0-5 random", "ttl", n) {
		seen[v]++
	}
	for v, k := range seen {
		if k < n/space*95/100 || k > n/space*105/100 {
			t.Errorf("%d came %d times of %d", v, k, n)
		}
	}
}

func TestPacketsTakeTurnsWithNumbersOfTheirOwn(t *testing.T) {
	p := parse(t, "ipv4 udp port 1-3\n# a comment\n\nipv6 udp port 7-8 len 80\n")
	tmpl, err := Compile(p, Defaults{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	buf := make([]byte, tmpl.Longest())
	for n := range uint64(8) {
		var d packet.Packet
		packet.Decode(tmpl.Frame(buf, n), &d)
		got = append(got, fmt.Sprintf("%v:%d", d.Dst.Is6(), d.DstPort))
	}
	if want := "false:1 true:7 false:2 true:8 false:3 true:7 false:1 true:8"; strings.Join(got,
		" ") != want {
		t.Errorf("%v", got)
	}
}

func TestRandomPayloadIsDrawnForEachPacketAndSummed(t *testing.T) {
	for _, src := range []string{
		"ipv4 udp len 61-200 random payload random", "ipv6 tcp syn payload random len 99",
		"ipv4 icmp len 77 payload random",
	} {
		tmpl, err := Compile(parse(t, src), Defaults{}, 3)
		if err != nil {
			t.Fatal(err)
		}
		buf, seen := make([]byte, tmpl.Longest()), map[string]bool{}
		for n := range uint64(200) {
			b := tmpl.Frame(buf, n)
			l := tmpl.plans[0].layout
			seen[string(b[l.Payload:])] = true
			sealed := slices.Clone(b)
			l.Seal(sealed, false, false)
			if !bytes.Equal(b, sealed) {
				t.Fatalf("%s: packet %d has a wrong checksum\n%x\n%x", src, n, b, sealed)
			}
		}
		if len(seen) != 200 {
			t.Errorf("%s: %d different payloads of 200", src, len(seen))
		}
	}
}

func TestWrongChecksumsAreWrong(t *testing.T) {
	for _, src := range []string{"ipv4 udp checksum wrong port 0-65535",
		"ipv4 tcp checksum wrong ip-checksum wrong port 0-65535"} {
		tmpl, err := Compile(parse(t, src), Defaults{}, 3)
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, tmpl.Longest())
		for n := range uint64(65536) {
			b := tmpl.Frame(buf, n)
			l := tmpl.plans[0].layout
			bit, _, _ := l.Locate(b, "checksum")
			right := slices.Clone(b)
			l.Seal(right, false, false)
			if at := bit / 8; bytes.Equal(b[at:at+2], right[at:at+2]) || b[at] == 0 &&
				b[at+1] == 0 {
				t.Fatalf("%s: packet %d: %x is right, or none", src, n, b[at:at+2])
			}
		}
	}
}

func TestDefaultsComeFromTheNetwork(t *testing.T) {
	d := Defaults{EtherFrom: [6]byte{2, 0, 0, 0, 0, 9}, EtherTo: [6]byte{2, 0, 0, 0, 0, 8},
		To4: netip.MustParseAddr("198.18.0.1"), To6: netip.MustParseAddr("2001:db8::1")}
	for src, to := range map[string]string{
		"ipv4 udp": "198.18.0.1", "ipv6 udp": "2001:db8::1", "udp to 10.0.0.1": "10.0.0.1",
		"udp from 2001:db8::7 port 9": "2001:db8::1",
	} {
		tmpl, err := Compile(parse(t, src), d, 1)
		if err != nil {
			t.Fatal(err)
		}
		var p packet.Packet
		b := tmpl.Frame(make([]byte, tmpl.Longest()), 0)
		packet.Decode(b, &p)
		if p.Dst.String() != to || b[5] != 8 || b[11] != 9 {
			t.Errorf("%s: to %s, %x", src, p.Dst, b[:12])
		}
	}
}

// TestMistakes compares diagnostics with testdata/mistakes.txt: a template, and below it what is
// said.
func TestMistakes(t *testing.T) {
	path := filepath.Join("testdata", "mistakes.txt")
	golden, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for block := range strings.SplitSeq(string(golden), "\n\n") {
		src, _, _ := strings.Cut(strings.TrimLeft(block, "\n"), "\n")
		if src == "" {
			continue
		}
		packets, ds := Parse("t", []byte(src))
		if !ds.HasErrors() || packets != nil {
			if _, err := Compile(packets, Defaults{}, 1); err == nil {
				t.Errorf("%q is accepted", src)
			} else {
				fmt.Fprintf(&got, "%s\n  %v\n\n", src, err)
			}
			continue
		}
		var b bytes.Buffer
		_ = ds.Render(&b, false)
		fmt.Fprintf(&got, "%s\n  %s\n\n", src,
			strings.ReplaceAll(strings.TrimSpace(b.String()), "\n", "\n  "))
	}
	if os.Getenv("LEVEE_UPDATE") != "" {
		if err := os.WriteFile(path, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if got.String() != string(golden) {
		t.Errorf("diagnostics changed; LEVEE_UPDATE=1 writes them:\n%s", got.String())
	}
}

// FuzzTemplate holds for any source: no panic; what compiles gives frames no longer than Longest,
// the same ones twice, and a program or the reason why there is none.
func FuzzTemplate(f *testing.F) {
	for _, s := range samples(f) {
		f.Add([]byte(s))
	}
	f.Add([]byte("ipv4 udp from 10.0.0.0/8 random\nipv6 tcp syn payload random len 100"))
	f.Fuzz(func(t *testing.T, src []byte) {
		packets, ds := Parse("fuzz", src)
		if ds.HasErrors() != (packets == nil) {
			t.Fatalf("%d packets with %v", len(packets), ds.Err())
		}
		tmpl, err := Compile(packets, Defaults{}, 1)
		if err != nil {
			return
		}
		a, b := make([]byte, tmpl.Longest()), make([]byte, tmpl.Longest())
		for _, n := range []uint64{0, 1, 2, 1 << 20, 1<<40 + 7} {
			if x, y := tmpl.Frame(a, n), tmpl.Frame(b, n); !bytes.Equal(x, y) {
				t.Fatalf("frame %d differs from itself", n)
			}
		}
		if p, err := tmpl.Program(0, false); (p == nil) == (err == nil) {
			t.Fatalf("%v, %v", p, err)
		}
	})
}

// TestTunnelsAreForOnePacket: a packet within a tunnel is told by its words where the test has one;
// a template, whose packets are written field by field, has none.
func TestTunnelsAreForOnePacket(t *testing.T) {
	const words = "ipv4 udp port 4789 inner( tcp syn port 22 )"
	p, ds := One("packet", words)
	if p == nil {
		t.Errorf("no packet: %v", ds)
	}
	if packets, ds := Parse("t", []byte(words+"\n")); packets != nil || len(ds) != 1 ||
		!strings.Contains(ds[0].Message, "within tunnels") {
		t.Errorf("%v, %v", packets, ds)
	}
}
