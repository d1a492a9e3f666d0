package prefix

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf/asm"
	"github.com/gaissmai/bart"

	"levee/internal/filter/assembler"
)

// randomPrefix draws a prefix with one of the lengths, from a part of the space small enough for
// prefixes to meet.
func randomPrefix(r *rand.Rand, width int, lengths []int, spread int) netip.Prefix {
	hi := uint64(r.IntN(spread)) * 0x0101_0301_0000_0000
	lo := uint64(0)
	if width == 32 {
		hi ^= r.Uint64() & 0x0fff_ffff << 32
	} else {
		hi ^= 0x2001_0db8<<32 | r.Uint64()&0x00ff_00ff_00ff_ffff
		lo = r.Uint64()
	}
	return netip.PrefixFrom(join(hi, lo, width), lengths[r.IntN(len(lengths))]).Masked()
}

// probes are the addresses where an answer may go wrong: the first and last of each prefix, the
// ones beside them, the ends of the space, and random ones.
func probes(r *rand.Rand, prefixes []netip.Prefix, width, random int) []netip.Addr {
	zero := join(0, 0, width)
	last := join(^uint64(0), ^uint64(0), width)
	out := []netip.Addr{zero, zero.Next(), last, last.Prev()}
	for _, p := range prefixes {
		hi, lo := split(p.Addr())
		mhi, mlo := mask(^uint64(0), ^uint64(0), p.Bits())
		end := join(hi|^mhi, lo|^mlo, width)
		for _, a := range []netip.Addr{p.Addr(), p.Addr().Prev(), end, end.Next(), end.Prev()} {
			if a.IsValid() {
				out = append(out, a)
			}
		}
		out = append(out, join(hi|r.Uint64()&^mhi, lo|r.Uint64()&^mlo, width))
	}
	for range random {
		out = append(out, randomPrefix(r, width, []int{width}, 300).Addr(),
			join(r.Uint64(), r.Uint64(), width))
	}
	return out
}

func span(from, to int) []int {
	var out []int
	for i := from; i <= to; i++ {
		out = append(out, i)
	}
	return out
}

func newStatic(prefixes []netip.Prefix, width int) *Static {
	if width == 32 {
		return NewStatic4(prefixes)
	}
	return NewStatic6(prefixes)
}

func parse(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// staticCases are sets by name, of both families and every structure.
func staticCases(r *rand.Rand) map[string][]netip.Prefix {
	cases := map[string][]netip.Prefix{
		"empty":      {},
		"all v4":     parse("0.0.0.0/0"),
		"all v6":     parse("::/0"),
		"halves":     parse("0.0.0.0/1", "128.0.0.0/1"),
		"upper half": parse("128.0.0.0/1", "8000::/1"),
		"one host":   parse("192.0.2.1/32", "2001:db8::1/128"),
		"ends": parse("0.0.0.0/32", "255.255.255.255/32", "::/128",
			"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128"),
		"nested": parse("10.0.0.0/8", "10.1.0.0/16", "10.1.1.1/32", "2001:db8::/32",
			"2001:db8:1::/48"),
		"adjacent": parse("10.0.0.0/24", "10.0.1.0/24", "10.0.2.0/25", "2001:db8::/64",
			"2001:db8:0:1::/64"),
		"across a word": parse("2001:db8::/63", "2001:db8:1::/65", "2001:db8:2::8000:0:0:0/65",
			"2001:db8:3::/66"),
		"both families":  parse("192.0.2.0/24", "2001:db8::/32"),
		"mapped is IPv6": parse("::ffff:192.0.2.0/120"),
	}
	for _, width := range []int{32, 128} {
		lengths := map[string][]int{
			"any length": span(1, width), "hosts": {width}, "nets": {16, 24},
			"like BGP": {22, 23, 24, 24, 32},
		}
		if width == 128 {
			lengths["nets"] = []int{32, 48, 56, 64}
			lengths["around 64"] = span(57, 72)
			lengths["long"] = span(65, 128)
		}
		for name, ls := range lengths {
			for _, n := range []int{5, 20, 100, 3000} {
				var ps []netip.Prefix
				for range n {
					ps = append(ps, randomPrefix(r, width, ls, 300))
				}
				cases[fmt.Sprintf("%d bits %s %d", width, name, n)] = ps
			}
		}
	}
	return cases
}

func newRand(t testing.TB) *rand.Rand {
	const seed = 20
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

func TestStaticAgreesWithNaiveList(t *testing.T) {
	r := newRand(t)
	for name, prefixes := range staticCases(r) {
		t.Run(name, func(t *testing.T) {
			for _, width := range []int{32, 128} {
				s := newStatic(prefixes, width)
				var own []netip.Prefix
				for _, p := range prefixes {
					if p.Addr().BitLen() == width {
						own = append(own, p)
					}
				}
				addrs := probes(r, own, width, 500)
				var answers []bool
				if os.Geteuid() == 0 {
					answers = newRunner(t, emit(s), map[string]any{"set": s.MapSpec("set")},
						4096).judge(t, addrs)
				}
				for i, a := range addrs {
					want := naive(own, a)
					if got := s.Contains(a); got != want {
						t.Fatalf("%s: Contains(%v) = %v, want %v", s.Why(), a, got, want)
					}
					if answers != nil && answers[i] != want {
						t.Fatalf("%s: eBPF says %v for %v, want %v", s.Why(), answers[i], a, want)
					}
				}
			}
		})
	}
}

// TestRoutingTable compares with gaissmai/bart on all boundaries of a large table: a generated one,
// or, with LEVEE_FULL_VIEW set to a file of prefixes (gzip), that one.
func TestRoutingTable(t *testing.T) {
	r := newRand(t)
	name, prefixes := "generated", internet(r, 40_000, 20_000)
	if file := os.Getenv("LEVEE_FULL_VIEW"); file != "" {
		var err error
		if prefixes, err = readTable(file); err != nil {
			t.Fatal(err)
		}
		name = filepath.Base(file)
	}
	var lite bart.Lite
	for _, p := range prefixes {
		lite.Insert(p)
	}
	for _, width := range []int{32, 128} {
		own := ofWidth(prefixes, width)
		s := newStatic(own, width)
		addrs := probes(r, own, width, 100_000)
		hits := 0
		var answers []bool
		if os.Geteuid() == 0 {
			answers = newRunner(t, emit(s), map[string]any{"set": s.MapSpec("set")}, 1<<16).judge(t,
				addrs)
		}
		for i, a := range addrs {
			want := lite.Contains(a)
			if got := s.Contains(a); got != want {
				t.Fatalf("%s: Contains(%v) = %v, want %v", s.Why(), a, got, want)
			}
			if answers != nil && answers[i] != want {
				t.Fatalf("%s: eBPF says %v for %v, want %v", s.Why(), answers[i], a, want)
			}
			if want {
				hits++
			}
		}
		// a row of docs/explanation/soak.md
		t.Logf("| %s, %d bits | %d | %d | 0 | %d |", name, width, len(own), len(addrs), hits)
	}
}

// emit writes the look-up in a set whose map is called set.
func emit(s *Static) write { return func(b *assembler.Builder) { s.Emit(b, "set") } }

// TestSamePrefixesGiveTheSameBytes, whatever their order and repetition: compiling is pure.
func TestSamePrefixesGiveTheSameBytes(t *testing.T) {
	r := newRand(t)
	prefixes := internet(r, 5000, 5000)
	for _, width := range []int{32, 128} {
		first := newStatic(prefixes, width)
		again := append(sample(r, prefixes, len(prefixes)), prefixes[:100]...)
		second := newStatic(again, width)
		if !bytes.Equal(first.Bytes(), second.Bytes()) {
			t.Errorf("%d bits: different bytes", width)
		}
		code := func(s *Static) string {
			b := assembler.New()
			s.Emit(b, "m")
			return fmt.Sprint(b.MustFinish())
		}
		if code(first) != code(second) {
			t.Errorf("%d bits: different code", width)
		}
	}
}

// TestManyLookupsInOneProgram has each kind of code more than once, with labels of its own.
func TestManyLookupsInOneProgram(t *testing.T) {
	r := newRand(t)
	var prefixes []netip.Prefix
	for range 500 {
		prefixes = append(prefixes, randomPrefix(r, 32, span(9, 32), 300))
	}
	c := &clock{now: 1}
	d, _ := inKernel(t, 10, c)
	few := parse("10.0.0.0/8", "172.16.0.0/12")
	if err := d.Add(few[0], 0); err != nil {
		t.Fatal(err)
	}
	code := func(b *assembler.Builder) {
		b.Emit(asm.Mov.Reg(asm.R8, asm.R1), asm.Mov.Imm(asm.R7, 0))
		for range 3 {
			for i, part := range []write{
				func(b *assembler.Builder) { NewStatic4(prefixes).Emit(b, "set") },
				func(b *assembler.Builder) { NewStatic4(few).Emit(b, "none") },
				callLookup,
			} {
				b.Emit(asm.Mov.Reg(asm.R1, asm.R8))
				part(b)
				b.Emit(asm.LSh.Imm(asm.R0, int32(i)), asm.Or.Reg(asm.R7, asm.R0))
			}
		}
		// The answer is whether any look-up said yes.
		b.Emit(asm.Mov.Imm(asm.R0, 0), asm.JEq.Imm(asm.R7, 0, "none"), asm.Mov.Imm(asm.R0, 1))
		b.Label("none")
	}
	addrs := probes(r, append(prefixes, few...), 32, 100)
	run := newRunner(t, code, map[string]any{"set": NewStatic4(prefixes).MapSpec("set"),
		"set_x": d.m}, 1024, lookups(10)[32])
	for i, got := range run.judge(t, addrs) {
		if want := naive(append(prefixes, few...), addrs[i]); got != want {
			t.Fatalf("%v: %v, want %v", addrs[i], got, want)
		}
	}
}

// naive is the slow, obvious answer.
func naive(prefixes []netip.Prefix, a netip.Addr) bool {
	for _, p := range prefixes {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
