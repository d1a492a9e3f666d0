package hash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"levee/internal/bench"
	"levee/internal/kernel"
)

func named(t *testing.T, name string) *function {
	t.Helper()
	i := slices.IndexFunc(functions, func(f function) bool { return f.name == name })
	if i < 0 {
		t.Fatalf("no function %s", name)
	}
	return &functions[i]
}

// counting is the bytes 0, 1, 2, ...
func counting(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i)
	}
	return string(b)
}

// vectors are published ones.
var vectors = []struct {
	function string
	from     string
	key      string
	secret   Secret
	bits     int // of the hash that are published
	want     uint64
}{
	{"siphash24", "the paper, appendix A", counting(15),
		Secret{0x0706050403020100, 0x0f0e0d0c0b0a0908}, 64, 0xa129ca6149be45e5},
	// The reference implementation's table vectors_sip64, little-endian.
	{"siphash24", "the reference implementation", counting(4),
		Secret{0x0706050403020100, 0x0f0e0d0c0b0a0908}, 64, 0xcf2794e0277187b7},
	{"siphash24", "the reference implementation", counting(8),
		Secret{0x0706050403020100, 0x0f0e0d0c0b0a0908}, 64, 0x93f5f5799a932462},
	{"siphash24", "the reference implementation", counting(16),
		Secret{0x0706050403020100, 0x0f0e0d0c0b0a0908}, 64, 0x3f2acc7f57c29bdb},
	// Linux, lib/tests/siphash_kunit.c: hsiphash of a 64-bit kernel is the lower half of
	// SipHash-1-3.
	{"siphash13", "Linux", counting(4), Secret{0x0706050403020100, 0x0f0e0d0c0b0a0908}, 32,
		0x88d38328},
	{"siphash13", "Linux", counting(8), Secret{0x0706050403020100, 0x0f0e0d0c0b0a0908}, 32,
		0x8d299a8e},
	// lookup3.c, driver5.
	{"jhash", "lookup3.c", "", Secret{}, 32, 0xdeadbeef},
	{"jhash", "lookup3.c", "", Secret{0xdeadbeef}, 32, 0xbd5b7dde},
	{"jhash", "lookup3.c", "Four score and seven years ago", Secret{}, 32, 0x17770551},
	{"jhash", "lookup3.c", "Four score and seven years ago", Secret{1}, 32, 0xcd628161},
	// xxhsum's self-test, whose buffer is made by prime.
	{"xxh3", "xxhsum", prime(12), Secret{}, 64, 0xa713daf0dfbb77e7},
	{"xxh3", "xxhsum", prime(48), Secret{}, 64, 0x397da259ecba1f11},
	{"xxh3", "xxhsum", prime(80), Secret{}, 64, 0xbcdefbbb2c47c90a},
	{"murmur3", "smhasher's implementation", "\xff\xff\xff\xff", Secret{}, 32, 0x76293b50},
	{"murmur3", "smhasher's implementation", "\x21\x43\x65\x87", Secret{0x5082edee}, 32,
		0x2362f9de},
	{"murmur3", "smhasher's implementation", "aaaa", Secret{0x9747b28c}, 32, 0x5a97808a},
	{"murmur3", "smhasher's implementation", "Hello, world!", Secret{0x9747b28c}, 32, 0x24884cba},
	{"crc32c", "RFC 3720, B.4", strings.Repeat("\x00", 32), Secret{}, 32, 0x8a9136aa},
	{"crc32c", "RFC 3720, B.4", strings.Repeat("\xff", 32), Secret{}, 32, 0x62a8ab43},
	{"crc32c", "RFC 3720, B.4", counting(32), Secret{}, 32, 0x46dd794e},
	// NIST, CAVP, SHA256ShortMsg.rsp (the first 64 bits).
	{"sha256", "NIST", "", Secret{}, 64, 0xe3b0c44298fc1c14},
	{"sha256", "NIST", "\x74\xba\x25\x21", Secret{}, 64, 0xb16aa56be3880d18},
}

// prime is the buffer of xxhsum's self-test.
func prime(n int) string {
	b := make([]byte, n)
	for i, x := 0, uint64(2654435761); i < n; i++ {
		b[i] = byte(x >> 56)
		x *= 11400714785074694797
	}
	return string(b)
}

func TestLibrariesGiveThePublishedHashes(t *testing.T) {
	for _, v := range vectors {
		got := named(t, v.function).hash([]byte(v.key), &v.secret)
		if got &= ^uint64(0) >> (64 - v.bits); got != v.want {
			t.Errorf("%s of %q: %#x, want %#x (%s)", v.function, v.key, got, v.want, v.from)
		}
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if err := kernel.Privileged(); err != nil {
		t.Skip("needs root: ", err)
	}
}

func TestProgramsGiveThePublishedHashes(t *testing.T) {
	needRoot(t)
	tested := 0
	for _, v := range vectors {
		if !slices.Contains(Lengths, len(v.key)) {
			continue
		}
		var keys keyTable
		copy(keys[0][:], v.key)
		name := programName(named(t, v.function), len(v.key))
		p, err := load(mode{keep: true}, &keys, v.secret, []string{name})
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.hashes(name)
		p.close()
		if err != nil {
			t.Fatal(err)
		}
		if got := got[0] & (^uint64(0) >> (64 - v.bits)); got != v.want {
			t.Errorf("%s of %q: %#x, want %#x (%s)", v.function, v.key, got, v.want, v.from)
		}
		tested++
	}
	if tested < 8 {
		t.Errorf("%d vectors were tested", tested)
	}
}

func TestProgramsAndLibrariesAgree(t *testing.T) {
	needRoot(t)
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for range 3 {
		m := &measurement{Options: &Options{Options: bench.Options{Seed: r.Uint64()},
			Lengths: Lengths}}
		m.draw()
		for i := range 8 { // corners
			m.keys[i] = [longest]byte{}
			for j := range m.keys[i] {
				m.keys[i][j] = byte(-(i & 1)) // 0 and 0xff
			}
			m.keys[i][r.IntN(longest)] ^= byte(i)
		}
		rep := m.newReport()
		var names []string
		for _, it := range m.items {
			names = append(names, programName(it.f, it.Bytes))
		}
		if err := m.compare(names); err != nil {
			t.Fatal(err)
		}
		for _, f := range rep.Functions {
			for _, c := range f.Costs {
				if c.Missing != "" {
					t.Errorf("seed %d: %s of %d bytes: %s", seed, f.Name, c.Bytes, c.Missing)
				}
			}
		}
	}
}

func TestAWrongHashIsNoticed(t *testing.T) {
	needRoot(t)
	right := functions[0].hash
	defer func() { functions[0].hash = right }()
	functions[0].hash = func(k []byte, s *Secret) uint64 { return right(k, s) ^ uint64(k[0]>>7) }
	r, err := Run(t.Context(), Options{Options: bench.Options{Rounds: bench.MinRounds},
		Only: []string{functions[0].name}, Lengths: []int{16}})
	if err != nil {
		t.Fatal(err)
	}
	if c := r.Functions[0].Costs[0]; !strings.Contains(c.Missing, "wrong hash") ||
		c.EBPF.Chain != nil {
		t.Errorf("%+v", c)
	}
	if d := r.Document(); len(d.Refusals) != 1 || d.Charts[0].Series[0].Points[0].Y != nil {
		t.Errorf("the document has %+v, %+v", d.Refusals, d.Charts[0].Series[0].Points[0])
	}
}

func TestMeasureReports(t *testing.T) {
	needRoot(t)
	r, err := Run(t.Context(), Options{
		Options: bench.Options{Rounds: bench.MinRounds, Seed: 1, Command: "levee bench hash"},
		Only:    []string{"siphash24", "jhash"}, Lengths: []int{4, 64},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Functions {
		for _, c := range f.Costs {
			for _, way := range ways {
				if len(way.of(c)) != bench.MinRounds {
					t.Errorf("%s of %d bytes: %d rounds of %s", f.Name, c.Bytes, len(way.of(c)),
						way.name)
				}
			}
		}
	}
	var b strings.Builder
	if err := r.Text(&b); err != nil || !strings.Contains(b.String(), "repeat: levee bench hash") ||
		strings.Contains(b.String(), "INCOMPLETE") {
		t.Errorf("%v:\n%s", err, b.String())
	}
	if p := r.Document().Charts[0].Series[0].Points[0]; p.Y == nil || p.Low == nil ||
		len(p.Rounds) != bench.MinRounds {
		t.Errorf("first point %+v", p)
	}
}

func TestAnInterruptedMeasurementSaysSo(t *testing.T) {
	needRoot(t)
	ctx, cancel := context.WithCancel(t.Context())
	o := Options{Only: []string{"jhash"}, Lengths: []int{4},
		Options: bench.Options{Rounds: 1000, Progress: func(p bench.Progress) {
			if p.Step == 6 {
				cancel()
			}
		}}}
	r, err := Run(ctx, o)
	if !errors.Is(err, context.Canceled) || r == nil || r.Incomplete == "" ||
		len(r.Functions[0].Costs[0].Go.Chain) == 0 {
		t.Fatalf("%v, %+v", err, r)
	}
	var b strings.Builder
	if err := r.Text(&b); err != nil || !strings.Contains(b.String(), "INCOMPLETE") {
		t.Errorf("%v:\n%s", err, b.String())
	}
	if r, err := Run(ctx, o); r != nil || err == nil {
		t.Errorf("before the first round: %+v, %v", r, err)
	}
}

func rounds(n int) bench.Options { return bench.Options{Rounds: n} }

func TestOptionsThatCannotBeMeasuredAreRefused(t *testing.T) {
	for _, o := range []Options{{Options: rounds(5)}, {Options: rounds(5000)},
		{Only: []string{"md5"}}, {Lengths: []int{5}}, {Options: rounds(-1)}} {
		if _, err := Run(t.Context(), o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
}

func TestQualityTellsGoodFromBad(t *testing.T) {
	secret := Secret{1, 2}
	good := named(t, "siphash24").quality(&secret, 1)
	if good.Low < 0.9 || good.Low > 1.1 || good.High < 0.9 || good.High > 1.1 ||
		good.Avalanche > 0.05 {
		t.Errorf("SipHash: %+v", good)
	}
	bad := function{"sum", "", 32, func(k []byte,
		_ *Secret) uint64 {
		return uint64(k[3]) + uint64(k[9])
	}}
	if q := bad.quality(&secret, 1); q.Low < 2 || q.Avalanche < 0.45 {
		t.Errorf("a sum of bytes: %+v", q)
	}
	if q := named(t, "crc32c").quality(&secret, 1); q.Avalanche != 0.5 {
		t.Errorf("CRC is linear: %+v", q)
	}
}

func TestSizesAreThoseOfTheProgram(t *testing.T) {
	source, err := os.ReadFile("../../../bpf/hash.bpf.c")
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]int{"KEYS": numKeys, "LONGEST": longest, "CALLS": calls} {
		if !strings.Contains(string(source), fmt.Sprintf("#define %s %d", name, v)) {
			t.Errorf("%s is not %d in the program", name, v)
		}
	}
}
