package prefix

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/assembler"
)

// fullView is the file of a real routing table, if it is at hand; else a table drawn by internet.
const fullView = "../../../../shared/data/prefixes/full-view.txt.gz"

func table(b testing.TB) []netip.Prefix {
	name := fullView
	if given := os.Getenv("LEVEE_FULL_VIEW"); given != "" {
		name = given
	}
	out, err := readTable(name)
	if err != nil {
		b.Logf("a generated table, since: %v", err)
		return internet(newRand(b), 900_000, 160_000)
	}
	return out
}

// readTable reads prefixes, one a line, from a gzip file.
func readTable(name string) ([]netip.Prefix, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	var out []netip.Prefix
	lines := bufio.NewScanner(z)
	for lines.Scan() {
		p, err := netip.ParsePrefix(lines.Text())
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, lines.Err()
}

// internet draws prefixes with about the lengths of a full view: in blocks of neighbours, of which
// some are not announced.
func internet(r *rand.Rand, n4, n6 int) []netip.Prefix {
	len4 := []int{24, 24, 24, 24, 24, 24, 22, 22, 23, 23, 21, 20, 19, 18, 17, 16}
	len6 := []int{48, 48, 48, 48, 48, 48, 48, 44, 44, 40, 36, 32, 32, 32, 29, 34}
	var out []netip.Prefix
	for len(out) < n4 {
		block := uint64(r.IntN(0xdf)+1)<<56 | r.Uint64()&0x00ff_ffff<<32
		for range r.IntN(40) {
			a := block + uint64(r.IntN(128))<<40
			out = append(out, netip.PrefixFrom(join(a, 0, 32), len4[r.IntN(len(len4))]).Masked())
		}
	}
	out = out[:n4]
	tops := []uint64{0x2001, 0x2400, 0x2401, 0x2402, 0x2404, 0x2405, 0x2406, 0x2600, 0x2602, 0x2603,
		0x2604, 0x2605, 0x2606, 0x2607, 0x2620, 0x2800, 0x2801, 0x2803, 0x2804, 0x2a00, 0x2a01,
		0x2a02, 0x2a03, 0x2a04, 0x2a05, 0x2a06, 0x2a07, 0x2a09, 0x2a0a, 0x2a0b, 0x2a0c, 0x2a0d,
		0x2a0e, 0x2a0f, 0x2c0f}
	for len(out) < n4+n6 {
		block := tops[r.IntN(len(tops))]<<48 | uint64(r.IntN(1<<13))<<35
		for range r.IntN(12) {
			a := block | uint64(r.IntN(64))<<(16+4*r.IntN(4))
			out = append(out, netip.PrefixFrom(join(a, 0, 128), len6[r.IntN(len(len6))]).Masked())
		}
	}
	return out
}

func ofWidth(prefixes []netip.Prefix, width int) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range prefixes {
		if p.Addr().BitLen() == width {
			out = append(out, p)
		}
	}
	return out
}

// hosts draws single addresses.
func hosts(r *rand.Rand, n, width int) []netip.Prefix {
	var out []netip.Prefix
	for range n {
		out = append(out, netip.PrefixFrom(join(0x2a00<<48^r.Uint64()>>3, r.Uint64(), width),
			width))
	}
	return out
}

// sample takes n of the prefixes.
func sample(r *rand.Rand, prefixes []netip.Prefix, n int) []netip.Prefix {
	r = rand.New(rand.NewPCG(r.Uint64(), 7))
	out := append([]netip.Prefix(nil), prefixes...)
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out[:min(n, len(out))]
}

// traffic is addresses inside the prefixes ("hits"), all over the space ("random", mostly misses in
// IPv6), or of both kinds in no order ("mix").
func traffic(r *rand.Rand, prefixes []netip.Prefix, width, n int, kind string) []netip.Addr {
	var out []netip.Addr
	for range n {
		hi, lo := r.Uint64(), r.Uint64()
		if kind == "hits" || kind == "mix" && r.IntN(2) == 0 {
			p := prefixes[r.IntN(len(prefixes))]
			phi, plo := split(p.Addr())
			mhi, mlo := mask(^uint64(0), ^uint64(0), p.Bits())
			hi, lo = phi|hi&^mhi, plo|lo&^mlo
		} else if width == 128 {
			hi = hi>>3 | 1<<61 // 2000::/3
		}
		out = append(out, join(hi, lo, width))
	}
	return out
}

// timer is a program that makes eight look-ups in each round of its loop, so that the loop costs
// little. Chained, each address is chosen by the answer before, so that a look-up begins only when
// the last has ended.
func timer(b *testing.B, code write, sets map[string]any, chained bool,
	functions ...write) *runner {
	const unroll = 8
	each := func(to *assembler.Builder) {
		to.Emit(
			asm.Mov.Reg(asm.R6, asm.R1),
			asm.LSh.Imm(asm.R6, 3),
			asm.And.Imm(asm.R6, benchAddrs-unroll),
			asm.Mov.Imm(asm.R7, 0),
		)
		for i := range unroll {
			to.Emit(asm.Mov.Reg(asm.R1, asm.R6), asm.Or.Imm(asm.R1, int32(i)))
			if chained {
				to.Emit(asm.And.Imm(asm.R7, 1), asm.Xor.Reg(asm.R1, asm.R7))
			}
			to.Emit(loadAddress()...)
			code(to)
			to.Emit(asm.Add.Reg(asm.R7, asm.R0))
		}
		to.Emit(
			asm.LoadMapValue(asm.R3, 0, 0).WithReference("result"),
			asm.StoreMem(asm.R3, 0, asm.R7, asm.DWord),
		)
	}
	return loadRunner(b, each, sets, benchAddrs, benchLookups/unroll, functions...)
}

var kinds = []string{"hits", "mix", "random"}

const (
	benchAddrs   = 1 << 17
	benchLookups = 1 << 20 // in one run
)

// measure times code over the addresses, above the same loop without code: once as a stream of
// independent look-ups, which the CPU overlaps, once each waiting for the one before. Medians,
// and of the stream the least: that of a machine which does nothing else.
func measure(b *testing.B, code write, sets map[string]any, addrs []netip.Addr,
	functions ...write) {
	b.Helper()
	// Without a look-up the address itself is the answer, so that the chain is the same.
	nothing := func(to *assembler.Builder) { to.Emit(asm.Mov.Reg(asm.R0, asm.R1)) }
	var runs [2][2]*runner
	for i, chained := range []bool{false, true} {
		runs[i] = [2]*runner{timer(b, code, sets, chained, functions...),
			timer(b, nothing, nil, chained)}
		runs[i][0].fill(b, addrs)
		runs[i][1].fill(b, addrs)
	}
	var took [2][]float64
	least := [2]float64{math.MaxFloat64, math.MaxFloat64} // of a stream, with and without code
	for b.Loop() {
		for i, r := range runs {
			with, without := r[0].time(b), r[1].time(b)
			took[i] = append(took[i], (with-without)/benchLookups)
			if i == 0 {
				least = [2]float64{min(least[0], with), min(least[1], without)}
			}
		}
	}
	slices.Sort(took[0])
	slices.Sort(took[1])
	b.ReportMetric(took[0][len(took[0])/2], "ns/lookup")
	b.ReportMetric(took[1][len(took[1])/2], "ns/dependent")
	b.ReportMetric((least[0]-least[1])/benchLookups, "ns/least")
	b.ReportMetric(0, "ns/op")
}

// time is one run's, in ns.
func (r *runner) time(b *testing.B) float64 {
	_, d, err := r.prog.Benchmark(make([]byte, 64), 1, nil)
	if err != nil {
		b.Fatal(err)
	}
	return float64(d)
}

func benchSets(b *testing.B) map[string][]netip.Prefix {
	r := newRand(b)
	full := table(b)
	out := map[string][]netip.Prefix{}
	for _, width := range []int{32, 128} {
		own := ofWidth(full, width)
		for _, n := range []int{1, 2, 4, 7, 14, 30, 100, 1000, 10_000, 100_000} {
			out[fmt.Sprintf("v%d/view-%07d", 4+width/64, n)] = sample(r, own, n)
		}
		out[fmt.Sprintf("v%d/view-%07d", 4+width/64, len(own))] = own
		for _, n := range []int{10_000, 1_000_000} {
			out[fmt.Sprintf("v%d/hosts-%07d", 4+width/64, n)] = hosts(r, n, width)
		}
	}
	return out
}

func BenchmarkStatic(b *testing.B) {
	needRoot(b)
	for name, prefixes := range benchSets(b) {
		width := prefixes[0].Addr().BitLen()
		s := newStatic(prefixes, width)
		for _, kind := range kinds {
			b.Run(name+"/"+kind, func(b *testing.B) {
				addrs := traffic(rand.New(rand.NewPCG(5, 5)), prefixes, width, benchAddrs, kind)
				measure(b, func(to *assembler.Builder) { s.Emit(to, "set") },
					map[string]any{"set": s.MapSpec("set")}, addrs)
				b.ReportMetric(float64(len(s.Bytes()))/float64(len(prefixes)), "B/prefix")
				if os.Getenv("WHY") != "" {
					b.Log(s.Kind(), s.Why())
				}
			})
		}
	}
}

func BenchmarkBuild(b *testing.B) {
	for name, prefixes := range benchSets(b) {
		b.Run(name, func(b *testing.B) {
			width := prefixes[0].Addr().BitLen()
			for b.Loop() {
				newStatic(prefixes, width)
			}
		})
	}
}
