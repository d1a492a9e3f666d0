package workload

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func tables(n int, seed uint64) map[string][]netip.Prefix {
	return map[string][]netip.Prefix{"IPv4": Internet4(n, seed), "IPv6": Internet6(n, seed)}
}

func TestTheSameSeedDrawsTheSame(t *testing.T) {
	for family, first := range tables(5000, 7) {
		if !slices.Equal(first, tables(5000, 7)[family]) {
			t.Errorf("%s: two tables of one seed differ", family)
		}
		if slices.Equal(first, tables(5000, 8)[family]) {
			t.Errorf("%s: two seeds give one table", family)
		}
	}
	for _, shape := range Shapes {
		a, err := Rules(shape, 500, 7)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := Rules(shape, 500, 7)
		if !slices.Equal(a, b) {
			t.Errorf("%s: two rule sets of one seed differ", shape)
		}
		x, err := Headers(a, 500, Zipf, 7)
		if err != nil {
			t.Fatal(err)
		}
		if y, _ := Headers(a, 500, Zipf, 7); !slices.Equal(x, y) {
			t.Errorf("%s: two traces of one seed differ", shape)
		}
	}
	x, err := Addresses(Internet4(100, 1), 500, Mix, Zipf, 7)
	if err != nil {
		t.Fatal(err)
	}
	if y, _ := Addresses(Internet4(100, 1), 500, Mix, Zipf, 7); !slices.Equal(x, y) {
		t.Error("two traces of addresses of one seed differ")
	}
}

func TestPrefixesAreDifferentMaskedAndRouted(t *testing.T) {
	for family, table := range tables(20_000, 1) {
		seen := map[netip.Prefix]bool{}
		for _, p := range table {
			if seen[p] || p != p.Masked() || !usable(p) {
				t.Fatalf("%s: %v", family, p)
			}
			seen[p] = true
		}
	}
}

func TestLengthsFollowTheFullView(t *testing.T) {
	const n = 50_000
	for _, c := range []struct {
		table   []netip.Prefix
		weights []int
	}{{Internet4(n, 3), lengths4[:]}, {Internet6(n, 3), lengths6[:]}} {
		total := newWeighted(c.weights).total
		var got [129]int
		for _, p := range c.table {
			got[p.Bits()]++
		}
		for length, w := range c.weights {
			want := float64(w) / float64(total)
			if share := float64(got[length]) / n; math.Abs(share-want) > 0.01 {
				t.Errorf("/%d: %.3f of the table, want %.3f", length, share, want)
			}
		}
	}
}

func TestAboutHalfOfATableLiesInsideAnotherPrefix(t *testing.T) {
	for family, table := range tables(50_000, 5) {
		share := 1 - float64(len(Outermost(table)))/float64(len(table))
		if share < 0.4 || share > 0.75 {
			t.Errorf("%s: %.2f of the prefixes lie inside another one", family, share)
		}
	}
}

func TestAddressesHitAndMissAsAsked(t *testing.T) {
	for _, width := range []int{32, 128} {
		for name, prefixes := range map[string][]netip.Prefix{"hosts": Hosts(width, 500, 1),
			"table": Family(append(Internet4(500, 1), Internet6(500, 1)...), width)} {
			in := func(a netip.Addr) bool {
				return slices.ContainsFunc(prefixes,
					func(p netip.Prefix) bool { return p.Contains(a) })
			}
			for _, skew := range []Skew{Uniform, Zipf} {
				for kind, want := range map[Kind][2]float64{Hits: {1, 1}, Misses: {0, 0},
					Mix: {0.4, 0.6}} {
					addrs, err := Addresses(prefixes, 1000, kind, skew, 9)
					if err != nil {
						t.Fatal(err)
					}
					hits := 0
					for _, a := range addrs {
						if in(a) {
							hits++
						}
					}
					if share := float64(hits) / 1000; share < want[0] || share > want[1] {
						t.Errorf("%d bits, %s, %s, %s: %.2f are hits, want %v", width, name, kind,
							skew, share, want)
					}
				}
			}
		}
	}
}

// Of misses beside a prefix more lie in another prefix, and are drawn again: where such a draw may
// turn to one anywhere, a full view has a fifth of its misses beside prefixes instead of half.
func TestHalfOfTheMissesLieBesideAPrefix(t *testing.T) {
	table := Internet6(20_000, 7)
	// what has them beside it: all but the last eight bits of each
	starts := map[netip.Prefix]bool{}
	for _, p := range table {
		if p.Bits() >= 32 { // of shorter ones an address may be beside by chance
			starts[netip.PrefixFrom(p.Addr(), p.Bits()-8).Masked()] = true
		}
	}
	const n = 4000
	misses, err := Addresses(table, n, Misses, Uniform, 7)
	if err != nil {
		t.Fatal(err)
	}
	beside := 0
	for _, a := range misses {
		for bits := 24; bits <= 120; bits++ {
			if p, _ := a.Prefix(bits); starts[p] {
				beside++
				break
			}
		}
	}
	if share := float64(beside) / n; share < 0.4 || share > 0.55 {
		t.Errorf("%.3f of the misses lie beside a prefix, want about half", share)
	}
}

func TestZipfFavoursAFewEntries(t *testing.T) {
	prefixes := Hosts(32, 1000, 1)
	addrs, err := Addresses(prefixes, 10_000, Hits, Zipf, 2)
	if err != nil {
		t.Fatal(err)
	}
	count := map[netip.Addr]int{}
	most := 0
	for _, a := range addrs {
		count[a]++
		most = max(most, count[a])
	}
	if most < 1000 || most > 4000 { // of 1000 entries the first has a sixth to a fifth
		t.Errorf("the most frequent of 1000 entries has %d of 10000", most)
	}
}

func TestMissesOfEverythingAreAnError(t *testing.T) {
	for _, p := range []string{"0.0.0.0/0", "::/0"} {
		if _, err := Addresses([]netip.Prefix{netip.MustParsePrefix(p)}, 10, Misses, Uniform,
			1); !errors.Is(err, errNoMiss) {
			t.Errorf("%s: %v", p, err)
		}
	}
	for _, f := range []func() error{
		func() error { _, err := Addresses(nil, 1, Hits, Uniform, 1); return err },
		func() error { _, err := Addresses(Hosts(32, 1, 1), 1, "none", Uniform, 1); return err },
		func() error { _, err := Addresses(Hosts(32, 1, 1), 1, Hits, "none", 1); return err },
		func() error { _, err := Headers(nil, 1, Uniform, 1); return err },
		func() error { _, err := Rules("none", 1, 1); return err },
		func() error { _, err := Rules("acl", MaxRules+1, 1); return err },
	} {
		if f() == nil {
			t.Error("nonsense was accepted")
		}
	}
}

func TestRulesAreDifferentAndNoneIsHidden(t *testing.T) {
	for _, shape := range Shapes {
		rules, err := Rules(shape, 1000, 11)
		if err != nil {
			t.Fatal(err)
		}
		for i := range rules {
			for j := range rules[:i] {
				if rules[j] == rules[i] || covers(&rules[j], &rules[i]) {
					t.Fatalf("%s: rule %d %+v is hidden by %d %+v", shape, i, rules[i], j, rules[j])
				}
			}
		}
	}
}

// covers tells whether each packet of b is one of a.
func covers(a, b *Rule) bool {
	prefix := func(a, b netip.Prefix) bool { return a.Bits() <= b.Bits() && a.Contains(b.Addr()) }
	ports := func(a, b Ports) bool { return a.Lo <= b.Lo && a.Hi >= b.Hi }
	return prefix(a.Src, b.Src) && prefix(a.Dst, b.Dst) && ports(a.SrcPort, b.SrcPort) &&
		ports(a.DstPort, b.DstPort) &&
		(a.Proto == 0 || a.Proto == b.Proto) && (!a.HasPorts() || b.HasPorts())
}

func TestShapesDifferAsTheirFilterSetsDo(t *testing.T) {
	for shape, want := range map[string]struct{ wideSrc, exactDst, tcp [2]float64 }{
		"acl": {[2]float64{0, 0.05}, [2]float64{0.5, 0.7}, [2]float64{0.7, 0.95}},
		"fw":  {[2]float64{0.5, 0.8}, [2]float64{0.5, 0.7}, [2]float64{0.4, 0.65}},
		"ipc": {[2]float64{0, 0.15}, [2]float64{0.25, 0.45}, [2]float64{0.2, 0.4}},
	} {
		const n = 5000
		rules, err := Rules(shape, n, 13)
		if err != nil {
			t.Fatal(err)
		}
		var wide, exact, tcp float64
		for _, r := range rules {
			if r.Src.Bits() < 8 {
				wide += 1. / n
			}
			if r.DstPort.Lo == r.DstPort.Hi {
				exact += 1. / n
			}
			if r.Proto == 6 {
				tcp += 1. / n
			}
		}
		for name, v := range map[string]struct {
			got  float64
			want [2]float64
		}{"wide sources": {wide, want.wideSrc}, "one destination port": {exact, want.exactDst},
			"TCP": {tcp, want.tcp}} {
			if v.got < v.want[0] || v.got > v.want[1] {
				t.Errorf("%s: %.2f have %s, want %v", shape, v.got, name, v.want)
			}
		}
	}
}

func TestMostHeadersMatchARule(t *testing.T) {
	for _, shape := range Shapes {
		rules, err := Rules(shape, 300, 17)
		if err != nil {
			t.Fatal(err)
		}
		headers, err := Headers(rules, 1000, Uniform, 17)
		if err != nil {
			t.Fatal(err)
		}
		used := map[int]bool{}
		hits := 0
		for i := range headers {
			if at := slices.IndexFunc(rules,
				func(r Rule) bool { return r.Matches(&headers[i]) }); at >= 0 {
				hits++
				used[at] = true
			}
		}
		if hits < 850 || len(used) < 150 {
			t.Errorf("%s: %d of 1000 headers match, by %d of 300 rules", shape, hits, len(used))
		}
	}
}

func TestReadingFilterSets(t *testing.T) {
	const set = "@10.1.2.3/24\t1.2.3.4/32\t0 : 65535\t80 : 80\t0x06/0xFF\t0x0000/0x0200\n\n" +
		"@0.0.0.0/0 0.0.0.0/0 0 : 65535 0 : 65535 0x00/0x00\n" +
		"@0.0.0.0/0 0.0.0.0/0 0 : 65535 53 : 53 0x2f/0xFF\n"
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	fmt.Fprint(z, set)
	z.Close()
	for _, in := range []string{set, packed.String()} {
		rules, left, err := ReadClassBench(strings.NewReader(in), "set")
		want := []Rule{
			{netip.MustParsePrefix("10.1.2.0/24"), netip.MustParsePrefix("1.2.3.4/32"), AllPorts,
				Ports{80, 80}, 6},
			{any4, any4, AllPorts, AllPorts, 0},
		}
		if err != nil || left != 1 || !slices.Equal(rules, want) {
			t.Errorf("%v, %d left, %v", rules, left, err)
		}
	}
	for name, bad := range map[string]string{
		"no filters": "\n", "short": "@1.2.3.4/32 1.2.3.4/32",
		"IPv6":            "@::/0 ::/0 0 : 1 0 : 1 0x06/0xFF",
		"ports backwards": "@0.0.0.0/0 0.0.0.0/0 9 : 1 0 : 1 0x06/0xFF",
		"port":            "@0.0.0.0/0 0.0.0.0/0 9 : 65536 0 : 1 0x06/0xFF",
		"protocol":        "@0.0.0.0/0 0.0.0.0/0 0 : 1 0 : 1 tcp",
		"prefix":          "@0.0.0.0/33 0.0.0.0/0 0 : 1 0 : 1 0x06/0xFF",
	} {
		if _, _, err := ReadClassBench(strings.NewReader(bad), "set"); err == nil ||
			!strings.Contains(err.Error(), "set") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReadingTables(t *testing.T) {
	got, err := ReadPrefixes(strings.NewReader("192.0.2.0/24\n2001:db8::/32\n"), "table")
	if err != nil || len(got) != 2 || len(Family(got, 32)) != 1 || len(Family(got, 128)) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	for text, want := range map[string]string{
		"nonsense\n":  "is not an address",
		"":            "table holds no prefixes",
		"# nothing\n": "table holds no prefixes",
		"\x1f\x8b":    "the gzip data is cut off",
		"\x1f\x8b\b\x00\x00\x00\x00\x00\x00\x03\x33": "the gzip data is cut off",
	} {
		if _, err := ReadPrefixes(strings.NewReader(text), "table"); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if s := Sample(got, 5, 1); len(s) != 2 {
		t.Errorf("a sample of 5 of 2: %v", s)
	}
}

func BenchmarkInternet4(b *testing.B) {
	for b.Loop() {
		Internet4(MaxPrefixes, 1)
	}
}

func BenchmarkInternet6(b *testing.B) {
	for b.Loop() {
		Internet6(MaxPrefixes, 1)
	}
}

func BenchmarkRules(b *testing.B) {
	for b.Loop() {
		if _, err := Rules("fw", MaxRules, 1); err != nil {
			b.Fatal(err)
		}
	}
}
