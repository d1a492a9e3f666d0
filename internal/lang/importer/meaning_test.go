package importer_test

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"levee/internal/filter/oracle"
	"levee/internal/lang/importer"
	"levee/internal/lang/importer/classbench"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
	"levee/internal/packet"
)

// filter is the test's own reading of a line: the five-tuple match of the format, without levee.
type filter struct {
	from, to         netip.Prefix
	srcLo, srcHi     uint16
	dstLo, dstHi     uint16
	proto, protoMask uint8
}

func (f filter) line() string {
	return fmt.Sprintf("@%s\t%s\t%d : %d\t%d : %d\t0x%02x/0x%02X\t0x0000/0x0200\t", f.from, f.to,
		f.srcLo, f.srcHi, f.dstLo, f.dstHi, f.proto, f.protoMask)
}

// flow is a packet as a classifier sees it.
type flow struct {
	from, to netip.Addr
	src, dst uint16
	proto    uint8
	hasPorts bool
}

// matches is the format's meaning for packets with ports, and levee's word for those without: a
// wildcard of ports asks nothing, anything else cannot hold.
func (f filter) matches(p flow) bool {
	port := func(lo, hi, v uint16) bool {
		return lo == 0 && hi == 65535 || p.hasPorts && lo <= v && v <= hi
	}
	return f.from.Contains(p.from) && f.to.Contains(p.to) && port(f.srcLo, f.srcHi, p.src) &&
		port(f.dstLo, f.dstHi, p.dst) && f.proto&f.protoMask == p.proto&f.protoMask
}

// TestClassBenchMeansTheSame compares the oracle's verdicts by the imported policy with a direct
// reading of the filters, for packets made from the filters and at random.
func TestClassBenchMeansTheSame(t *testing.T) {
	const seed = 20261121
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 20 {
		filters := make([]filter, 50)
		var in strings.Builder
		for i := range filters {
			filters[i] = randomFilter(rnd)
			in.WriteString(filters[i].line() + "\n")
		}
		p := imported(t, in.String(), importer.Options{})
		e, slots := oracle.New(p), p.Slots()
		for n := range 400 {
			pkt := randomFlow(rnd, filters[rnd.IntN(len(filters))], n%4 == 0)
			got := e.Eval(frame(t, pkt))
			want := "default"
			for i, f := range filters {
				if f.matches(pkt) {
					want = fmt.Sprintf("r%d", i)
					break
				}
			}
			if label := p.LabelOf(slots[got.Slot]); label != want {
				t.Fatalf("%+v: decided by %s, want %s\n%s", pkt, label, want, in.String())
			}
		}
	}
}

// imported is the resolved policy of a filter set, whose layout is checked on the way.
func imported(t *testing.T, set string, opts importer.Options) *policy.Policy {
	t.Helper()
	var out bytes.Buffer
	rep, err := classbench.Import(strings.NewReader(set), &out, opts)
	if err != nil {
		t.Fatal(err)
	}
	checkLayout(t, out.Bytes(), rep.Rules)
	p, diags := resolve.Parse("imported.levee", out.Bytes(),
		func(string) (io.ReadCloser, error) { return nil, fs.ErrNotExist })
	if err := diags.Err(); err != nil {
		t.Fatal(err)
	}
	return p
}

var protocols = []uint8{1, 2, 6, 17, 33, 47, 50, 51, 58, 132, 136, 253}

func randomFilter(rnd *rand.Rand) filter {
	f := filter{from: randomPrefix(rnd), to: randomPrefix(rnd), srcHi: 65535, dstHi: 65535}
	if rnd.IntN(5) > 0 {
		f.proto, f.protoMask = protocols[rnd.IntN(len(protocols))], 0xff
		if rnd.IntN(10) == 0 {
			f.protoMask = 0xf0
		}
	}
	if rnd.IntN(4) == 0 {
		f.srcLo, f.srcHi = randomRange(rnd)
	}
	if rnd.IntN(2) == 0 {
		f.dstLo, f.dstHi = randomRange(rnd)
	}
	return f
}

// randomPrefix may have host bits. Few distinct networks, so that filters overlap.
func randomPrefix(rnd *rand.Rand) netip.Prefix {
	a := netip.AddrFrom4([4]byte{192, 0, 2 + byte(rnd.IntN(2)), byte(rnd.IntN(256))})
	return netip.PrefixFrom(a, [...]int{0, 0, 22, 24, 26, 32}[rnd.IntN(6)])
}

func randomRange(rnd *rand.Rand) (lo, hi uint16) {
	lo = uint16(rnd.IntN(1 << 16))
	if rnd.IntN(2) == 0 {
		return lo, lo
	}
	return lo, lo + uint16(rnd.IntN(1<<16-int(lo)))
}

// randomFlow is a packet that f matches, or nearly, or anything.
func randomFlow(rnd *rand.Rand, f filter, anything bool) flow {
	if anything {
		f = randomFilter(rnd)
	}
	p := flow{from: within(rnd, f.from), to: within(rnd, f.to), proto: f.proto}
	if f.protoMask != 0xff {
		p.proto = protocols[rnd.IntN(len(protocols))]
	}
	p.src = f.srcLo + uint16(rnd.IntN(int(f.srcHi-f.srcLo)+1))
	p.dst = f.dstLo + uint16(rnd.IntN(int(f.dstHi-f.dstLo)+1))
	if rnd.IntN(4) == 0 {
		p.dst++
	}
	switch p.proto {
	case 6, 17, 33, 132, 136:
		p.hasPorts = true
	}
	return p
}

// within is an address of a prefix.
func within(rnd *rand.Rand, p netip.Prefix) netip.Addr {
	a := p.Masked().Addr().As4()
	for bit := p.Bits(); bit < 32; bit++ {
		a[bit/8] |= byte(rnd.IntN(2)) << (7 - bit%8)
	}
	return netip.AddrFrom4(a)
}

func frame(t *testing.T, p flow) []byte {
	t.Helper()
	s := packet.Spec{Family: packet.IPv4, From: p.from, To: p.to, Proto: &p.proto}
	if p.hasPorts {
		s.FromPort, s.ToPort = &p.src, &p.dst
	}
	b, err := packet.Build(s)
	if err != nil {
		t.Fatalf("%+v: %v", p, err)
	}
	return b
}

// TestClassBenchReadsRealSets imports the sets that others publish, where they lie beside the
// repository.
func TestClassBenchReadsRealSets(t *testing.T) {
	files, err := filepath.Glob("../../../../shared/data/classbench/*")
	if err != nil || len(files) == 0 {
		t.Skip("ClassBench sets are not at hand")
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			set, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			p := imported(t, string(set), importer.Options{Action: importer.Alternate,
				Name: filepath.Base(file)})
			if want := strings.Count(string(set), "@"); len(p.Rules) != want {
				t.Errorf("%d rules, want %d", len(p.Rules), want)
			}
		})
	}
}
