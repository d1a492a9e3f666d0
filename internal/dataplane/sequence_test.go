package dataplane

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"levee/internal/await"
	"levee/internal/dataplane/loader"
	"levee/internal/dataplane/sets"
	"levee/internal/filter/prefix"
	"levee/internal/packet"
)

var sequenceSteps = flag.Int("sequence-steps", 250, "TestSequences: steps of each sequence")

// naiveSet is the plainest model of a dynamic set: its prefixes, each with the hours until it ends
// (0: never). The test itself takes entries out that end at once, when it has waited for their end.
type naiveSet struct {
	max     int
	rollUp  bool
	spared  []netip.Prefix
	entries map[netip.Prefix]int
}

// add puts entries in, all or none.
func (n *naiveSet) add(entries map[netip.Prefix]int, order []netip.Prefix) (added, rolledUp bool) {
	next := maps.Clone(n.entries)
	for _, p := range order {
		if _, there := next[p]; !there && len(next) >= n.max {
			for n.rollUp && len(next) >= n.max && n.roll(next) {
				rolledUp = true
			}
			if _, there := next[p]; !there && len(next) >= n.max {
				return false, false
			}
		}
		next[p] = entries[p]
	}
	n.entries = next
	return true, rolledUp
}

// roll replaces the hosts of the fullest /24 or /64 by one entry for all of it, and so on until one
// in 64 entries is free.
func (n *naiveSet) roll(entries map[netip.Prefix]int) bool {
	hosts := map[netip.Prefix][]netip.Prefix{}
	for p := range entries {
		if p.IsSingleIP() {
			cover, _ := p.Addr().Prefix(map[int]int{32: 24, 128: 64}[p.Bits()])
			hosts[cover] = append(hosts[cover], p)
		}
	}
	covers := slices.SortedFunc(maps.Keys(hosts), func(a, b netip.Prefix) int {
		return cmp.Or(len(hosts[b])-len(hosts[a]), a.Compare(b))
	})
	before := len(entries)
	for _, cover := range covers {
		if before-len(entries) >= max(1, n.max/64) || len(hosts[cover]) < 2 {
			break
		}
		if slices.ContainsFunc(n.spared, cover.Overlaps) {
			continue
		}
		longest, there := entries[cover]
		for i, p := range hosts[cover] {
			if i == 0 && !there || longest != 0 && (entries[p] == 0 || entries[p] > longest) {
				longest = entries[p]
			}
			delete(entries, p)
		}
		entries[cover] = longest
	}
	return len(entries) < before
}

func (n *naiveSet) contains(a netip.Addr) bool {
	for p := range n.entries {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// sequence is a random sequence of changes to a set in force.
type sequence struct {
	*testing.T
	r       *rand.Rand
	set     *sets.Set
	prog    *ebpf.Program
	naive   naiveSet
	draw    func(r *rand.Rand) netip.Prefix
	known   []netip.Prefix // that were drawn, the latest last
	frames  map[int][]byte // by bits of an address
	asked   int
	happens map[string]int
}

// TestSequences changes sets in force at random and asks, after each step, the program in the
// kernel and the library for every boundary of what is in the set, of what was lately, and of the
// same as IPv4-mapped addresses.
func TestSequences(t *testing.T) {
	any4, any6 := netip.MustParsePrefix("10.0.0.0/13"), netip.MustParsePrefix("2001:db8::/32")
	for _, c := range []struct {
		name, set, protect string
		draw               func(r *rand.Rand) netip.Prefix
		must               []string
	}{
		{"all lengths, nested, with /0", "max 60, lease 1h", "", func(r *rand.Rand) netip.Prefix {
			if r.IntN(40) == 0 {
				return netip.PrefixFrom([]netip.Addr{netip.IPv4Unspecified(),
					netip.IPv6Unspecified()}[r.IntN(2)], 0)
			}
			in := []netip.Prefix{any4, any6}[r.IntN(2)]
			return within(r, in, in.Bits()+r.IntN(in.Addr().BitLen()-in.Bits()+1), 3)
		}, []string{"/0"}},
		{"hosts", "max 40, lease 1h", "", func(r *rand.Rand) netip.Prefix {
			in := []netip.Prefix{any4, any6}[r.IntN(2)]
			return within(r, in, in.Addr().BitLen(), 2)
		}, nil},
		{"nested networks", "max 50, lease 1h", "", func(r *rand.Rand) netip.Prefix {
			if r.IntN(2) == 0 {
				return within(r, any4, []int{16, 24, 25, 31, 32}[r.IntN(5)], 1)
			}
			return within(r, any6, []int{48, 63, 64, 65, 128}[r.IntN(5)], 1)
		}, nil},
		{"hosts rolled up", "max 40, lease 1h, rollup", "protect from 10.0.1.77 tcp port 22\n",
			func(r *rand.Rand) netip.Prefix {
				a := netip.AddrFrom4([4]byte{10, 0, byte(r.IntN(6)), byte(r.IntN(256))})
				if r.IntN(3) == 0 {
					a = netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 7: byte(r.IntN(4)),
						15: byte(r.IntN(256))})
				}
				if r.IntN(2) == 0 { // these stay, so that there may be nothing to roll up
					return netip.PrefixFrom(a, a.BitLen()-1-r.IntN(6)).Masked()
				}
				return netip.PrefixFrom(a, a.BitLen())
			}, []string{"rolled up"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			newTestNet(t)
			text := "set abusers = dynamic(" + c.set + ")\n" + c.protect +
				"drop from abusers as \"abuser\"\ndefault pass\n"
			if err := bringPolicy(t, "lv0", text, 0); err != nil {
				t.Fatal(err)
			}
			const seed = 24
			s := &sequence{T: t, r: rand.New(rand.NewPCG(seed, 1)), prog: inForceProgram(t),
				draw: c.draw, happens: map[string]int{}}
			s.naive = naiveSet{max: status(t).Sets[0].Max,
				rollUp: strings.Contains(c.set, "rollup"), entries: map[netip.Prefix]int{}}
			if c.protect != "" {
				s.naive.spared = []netip.Prefix{netip.MustParsePrefix("10.0.1.77/32")}
			}
			s.frames = map[int][]byte{32: sourceFrame(t, "192.0.2.1"),
				128: sourceFrame(t, "2001:db8::1")}
			var err error
			if s.set, err = sets.Open(t.Context(), "lv0", "abusers"); err != nil {
				t.Fatal(err)
			}
			defer s.set.Close()
			for i := range *sequenceSteps {
				s.step(i)
				s.check(i)
			}
			t.Logf("seed %d", seed)
			must := append(c.must, "added", "renewed", "deleted", "ended", "replaced", "full")
			for _, what := range must {
				if s.happens[what] == 0 {
					t.Errorf("it never happened in %d steps: %s", *sequenceSteps, what)
				}
			}
			// a row of docs/explanation/soak.md
			t.Logf("| %s | %d | %d | 0 | %s |", c.name, *sequenceSteps, s.asked, s.happened())
		})
	}
}

func (s *sequence) happened() string {
	var out []string
	for _, what := range slices.Sorted(maps.Keys(s.happens)) {
		out = append(out, fmt.Sprintf("%d %s", s.happens[what], what))
	}
	return strings.Join(out, ", ")
}

// within is a prefix of that length inside p, one of so few that they meet: some bits behind p and
// the last are random.
func within(r *rand.Rand, p netip.Prefix, length, spread int) netip.Prefix {
	b := p.Addr().AsSlice()
	for i := p.Bits() / 8; i < len(b); i++ {
		if i <= p.Bits()/8+spread || i == len(b)-1 {
			b[i] |= byte(r.IntN(4)) << (2 * r.IntN(4))
		}
	}
	a, _ := netip.AddrFromSlice(b)
	return netip.PrefixFrom(a, length).Masked()
}

func sourceFrame(t *testing.T, src string) []byte {
	t.Helper()
	port := uint16(9)
	f, err := packet.Build(packet.Spec{From: netip.MustParseAddr(src), ToPort: &port})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (s *sequence) next() netip.Prefix {
	if len(s.known) > 0 && s.r.IntN(4) == 0 {
		return s.known[s.r.IntN(len(s.known))]
	}
	p := s.draw(s.r)
	if s.known = append(s.known, p); len(s.known) > 100 {
		s.known = s.known[1:]
	}
	return p
}

// leases by hours.
var leases = []time.Duration{0: sets.Forever, 1: 0, 5: 5 * time.Hour}

// entries draws n different entries.
func (s *sequence) entries(n int) (hours map[netip.Prefix]int, order []netip.Prefix,
	entries []sets.Entry) {
	hours = map[netip.Prefix]int{}
	for range n {
		p := s.next()
		if _, drawn := hours[p]; drawn {
			continue
		}
		h := []int{0, 1, 5}[s.r.IntN(3)]
		hours[p] = h
		order = append(order, p)
		entries = append(entries, sets.Entry{Prefix: p, Lease: leases[h]})
	}
	return hours, order, entries
}

func (s *sequence) step(i int) {
	s.Helper()
	if _, all := s.naive.entries[s.known0()]; all { // everything is in the set: not for long
		s.happens["/0"]++
		s.remove(i, s.known0())
		return
	}
	switch op := s.r.IntN(40); {
	case op < 24:
		s.add(i, 1+s.r.IntN(4)*s.r.IntN(2))
	case op < 36:
		p := s.next()
		if at := slices.Collect(maps.Keys(s.naive.entries)); len(at) > 0 && s.r.IntN(3) > 0 {
			slices.SortFunc(at, netip.Prefix.Compare)
			p = at[s.r.IntN(len(at))]
		}
		s.remove(i, p)
	case op < 38:
		s.end(i)
	default:
		hours, order, entries := s.entries(s.r.IntN(s.naive.max))
		if err := s.set.Replace(context.Background(), entries); err != nil {
			s.Fatalf("step %d: replace: %v", i, err)
		}
		s.naive.entries = map[netip.Prefix]int{}
		s.naive.add(hours, order)
		s.happens["replaced"]++
	}
}

// known0 is the prefix of everything that is in the set, if there is one.
func (s *sequence) known0() netip.Prefix {
	for p := range s.naive.entries {
		if p.Bits() == 0 {
			return p
		}
	}
	return netip.Prefix{}
}

func (s *sequence) add(i, n int) {
	s.Helper()
	hours, order, entries := s.entries(n)
	before := len(s.naive.entries)
	added, rolledUp := s.naive.add(hours, order)
	err := s.set.Add(context.Background(), entries...)
	switch {
	case added && err != nil, !added && !errors.Is(err, prefix.ErrFull):
		s.Fatalf("step %d: adding %v to %d entries: %v; must it fit: %v", i, entries, before, err,
			added)
	case !added:
		s.set.NoRoom = time.Time{} // or it would not look for room again for a while
		s.happens["full"]++
	case rolledUp:
		s.happens["rolled up"]++
	case len(s.naive.entries) == before:
		s.happens["renewed"]++
	default:
		s.happens["added"]++
	}
}

func (s *sequence) remove(i int, p netip.Prefix) {
	s.Helper()
	n, err := s.set.Delete(context.Background(), p)
	_, there := s.naive.entries[p]
	if err != nil || n == 1 != there {
		s.Fatalf("step %d: deleting %v: %d, %v; was it there: %v", i, p, n, err, there)
	}
	delete(s.naive.entries, p)
	if there {
		s.happens["deleted"]++
	}
}

// end gives an entry a lease that ends at once, and waits for that.
func (s *sequence) end(i int) {
	s.Helper()
	p := s.next()
	if added, _ := s.naive.add(map[netip.Prefix]int{p: 1}, []netip.Prefix{p}); !added {
		return
	}
	if err := s.set.Add(context.Background(),
		sets.Entry{Prefix: p, Lease: time.Millisecond}); err != nil {
		s.Fatalf("step %d: adding %v: %v", i, p, err)
	}
	await.Pass(30*time.Millisecond, "a few ticks of the slowest kernel's clock")
	delete(s.naive.entries, p)
	s.happens["ended"]++
}

// check asks program and library.
func (s *sequence) check(step int) {
	s.Helper()
	around := append(slices.SortedFunc(maps.Keys(s.naive.entries), netip.Prefix.Compare),
		s.known[max(0, len(s.known)-10):]...)
	for _, p := range around {
		for _, a := range boundaries(p) {
			s.ask(step, a)
			if a.Is4() {
				s.ask(step, netip.AddrFrom16(a.As16())) // the same, mapped: another address
			}
		}
	}
	listed, err := s.set.List(context.Background())
	if err != nil {
		s.Fatal(err)
	}
	got := map[netip.Prefix]int{}
	for _, e := range listed {
		if got[e.Prefix] = 0; e.Lease != sets.Forever {
			got[e.Prefix] = int(e.Lease.Round(time.Hour) / time.Hour)
		}
	}
	if !maps.Equal(got, s.naive.entries) {
		s.Fatalf("step %d: the set has %v, want %v", step, got, s.naive.entries)
	}
}

func (s *sequence) ask(step int, a netip.Addr) {
	s.Helper()
	s.asked++
	want := s.naive.contains(a)
	f := s.frames[a.BitLen()]
	copy(f[map[int]int{32: 14 + 12, 128: 14 + 8}[a.BitLen()]:], a.AsSlice())
	ret, err := s.prog.Run(&ebpf.RunOptions{Data: f})
	if err != nil {
		s.Fatal(err)
	}
	if (ret == loader.XdpDrop) != want {
		s.Fatalf("step %d: the program returns %d for %v, which is in the set: %v", step, ret, a,
			want)
	}
	if got := s.set.Maps[0].Table.(sets.Prefixes).Lookup(a); got != want {
		s.Fatalf("step %d: the library says %v for %v, want %v", step, got, a, want)
	}
}

// boundaries are the first and last address of p and the two beside them.
func boundaries(p netip.Prefix) []netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	last, _ := netip.AddrFromSlice(b)
	out := []netip.Addr{p.Addr(), last}
	for _, a := range []netip.Addr{p.Addr().Prev(), last.Next()} {
		if a.IsValid() {
			out = append(out, a)
		}
	}
	return out
}
