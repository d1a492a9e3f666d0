package dataplane

import (
	"errors"
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
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/loader"
	"levee/internal/dataplane/sets"
	"levee/internal/dataplane/store"
	"levee/internal/filter/oracle"
	"levee/internal/filter/prefix"
	"levee/internal/lang/action"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
	"levee/internal/packet"
)

// manySets is a policy with one dynamic set for each number: of addresses, endpoints or services,
// with five sizes.
func manySets(numbers []int) string {
	var sets, rules strings.Builder
	for _, i := range numbers {
		of := [...]string{"addresses", "endpoints", "services"}[i%3]
		fmt.Fprintf(&sets, "set s%d = dynamic(of %s, max %d)\n", i, of, 20*(1+i%5))
		fmt.Fprintf(&rules, "%s to s%d as \"s%[2]d\"\n", [...]string{"drop", "pass"}[i%2], i)
	}
	return sets.String() + rules.String() + "default pass\n"
}

func numbers(from, to int) (out []int) {
	for i := from; i < to; i++ {
		out = append(out, i)
	}
	return out
}

// crowd changes the sets of a running policy at random and holds the program in force against the
// oracle.
type crowd struct {
	*testing.T
	*rand.Rand
	mode    store.Mode
	sets    []int
	entries map[int]map[policy.Element]bool // by set
	counted map[string]uint64               // packets, by label
	oracle  *oracle.Evaluator
	slots   []policy.Slot
}

// up replaces the policy by one with other sets; of those that it had, the entries stay.
func (c *crowd) up(sets []int, confirm time.Duration) {
	c.Helper()
	begin := time.Now()
	text := manySets(sets)
	if err := bringPolicyAt(c.T, "lv0", c.mode, text, confirm); err != nil {
		c.Fatal(err)
	}
	c.Logf("up with %d dynamic sets: %v", len(sets), time.Since(begin).Round(time.Millisecond))
	c.forget(sets)
	c.judgeBy(sets)
}

// forget drops what was known of sets that are gone: entries, and counts of rules.
func (c *crowd) forget(sets []int) {
	maps.DeleteFunc(c.entries, func(i int, _ map[policy.Element]bool) bool {
		return !slices.Contains(sets, i)
	})
	kept := map[string]bool{"default": true}
	for _, i := range sets {
		kept[fmt.Sprintf("label:s%d", i)] = true
	}
	maps.DeleteFunc(c.counted, func(id string, _ uint64) bool { return !kept[id] })
}

// judgeBy makes the oracle that of a policy with these sets.
func (c *crowd) judgeBy(sets []int) {
	c.sets = sets
	p, ds := resolve.Parse("test.levee", []byte(manySets(sets)), nil)
	if ds.HasErrors() {
		c.Fatal(ds)
	}
	c.oracle, c.slots = oracle.New(p), p.Slots()
	for _, i := range sets {
		if c.entries[i] == nil {
			c.entries[i] = map[policy.Element]bool{}
		}
		for e := range c.entries[i] {
			if err := c.oracle.AddEntry(fmt.Sprintf("s%d", i), e, time.Time{}); err != nil {
				c.Fatal(err)
			}
		}
	}
}

// element draws an entry for a set; those of several sets overlap.
func (c *crowd) element(i int) (e policy.Element) {
	if i%3 != 2 {
		a, bits := netip.AddrFrom4([4]byte{198, 51, byte(c.IntN(4)), byte(c.IntN(256))}),
			32-4*c.IntN(3)
		if c.IntN(2) == 0 {
			a, bits = netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 13: byte(c.IntN(4)),
				15: byte(c.IntN(256))}), 128-8*c.IntN(3)
		}
		e.Prefix = netip.PrefixFrom(a, bits).Masked()
	}
	if i%3 != 0 {
		port := uint16(c.IntN(64)) * 4
		e.Service = policy.Service{Proto: []uint8{6, 17}[c.IntN(2)], Lo: port, Hi: port +
			uint16(c.IntN(2))*3}
	}
	return e
}

func (c *crowd) some(i int) (out []sets.Entry) {
	for range 1 + c.IntN(4) {
		e := c.element(i)
		out = append(out, sets.Entry{Prefix: e.Prefix, Service: e.Service})
	}
	return out
}

// change adds to, deletes from or replaces one set.
func (c *crowd) change() {
	c.Helper()
	i := c.sets[c.IntN(len(c.sets))]
	name, entries, known := fmt.Sprintf("s%d", i), c.some(i), c.entries[i]
	var err error
	switch c.IntN(4) {
	case 0:
		_, err = sets.Replace(c.Context(), "lv0", name, entries)
		clear(known)
	case 1:
		var gone []policy.Element
		for e := range known {
			gone = append(gone, e)
			break
		}
		for _, e := range gone {
			delete(known, e)
		}
		_, _, err = sets.Delete(c.Context(), "lv0", name, gone)
		entries = nil
	default:
		if len(known) > 15 {
			return
		}
		_, err = sets.Add(c.Context(), "lv0", name, entries)
	}
	if err != nil {
		c.Fatalf("set %s: %v", name, err)
	}
	for _, e := range entries {
		known[e.Element()] = true
	}
}

// frame is a packet to an entry of some set, or to nothing in particular.
func (c *crowd) frame() []byte {
	e := c.element(c.IntN(3))
	if i := c.sets[c.IntN(len(c.sets))]; c.IntN(4) > 0 {
		for have := range c.entries[i] {
			e = have
			break
		}
	}
	to, port, proto := netip.MustParseAddr("192.0.2.1"), e.Service.Lo, e.Service.Proto
	if e.Prefix.IsValid() {
		to = e.Prefix.Addr()
	}
	if proto == 0 {
		proto = 17
	}
	f, err := packet.Build(packet.Spec{To: to, Proto: &proto, ToPort: &port})
	if err != nil {
		c.Fatal(err)
	}
	return f
}

// agree holds verdicts and counters against the oracle, and all sets against what was put there.
func (c *crowd) agree(frames int) {
	c.Helper()
	prog := inForceProgram(c.T)
	defer prog.Close()
	for range frames {
		f := c.frame()
		want := c.oracle.Eval(f)
		c.counted[c.slots[want.Slot].ID]++
		ret, err := prog.Run(&ebpf.RunOptions{Data: f})
		if err != nil {
			c.Fatal(err)
		}
		drop := ret == loader.XdpDrop
		if c.mode.AtTC() {
			drop = ret == loader.TcxDrop
		}
		if drop != (want.Action == action.Drop) {
			c.Fatalf("the program returns %d, the oracle says %v by %s: %x", ret, want.Action,
				c.slots[want.Slot].ID, f)
		}
	}
	a := status(c.T)
	for _, s := range c.slots {
		if s.Rule != nil && packets(&a, s.ID) != c.counted[s.ID] {
			c.Fatalf("%s has counted %d packets, want %d", s.ID, packets(&a, s.ID), c.counted[s.ID])
		}
	}
	if len(a.Sets) != len(c.sets) {
		c.Fatalf("status tells of %d sets, want %d", len(a.Sets), len(c.sets))
	}
	for _, s := range a.Sets {
		var i int
		fmt.Sscanf(s.Name, "s%d", &i)
		if s.Entries != len(c.entries[i]) || s.Max != 20*(1+i%5) {
			c.Fatalf("set %s has %d entries of %d, want %d", s.Name, s.Entries, s.Max,
				len(c.entries[i]))
		}
	}
}

// Policies with more dynamic sets than a program may use maps load, and their sets behave like
// those of small ones.
func TestManyDynamicSets(t *testing.T) {
	for _, tt := range []struct {
		sets int
		mode store.Mode
	}{{60, store.XDPNative}, {300, store.Clsact}, {1000, store.XDPNative}, {1000, tcModes(t)[0]}} {
		t.Run(fmt.Sprintf("%d, %s", tt.sets, tt.mode), func(t *testing.T) {
			before := kernelObjects(t)
			newTestNet(t)
			seed := uint64(tt.sets)
			t.Logf("seed %d", seed)
			c := &crowd{T: t, Rand: rand.New(rand.NewPCG(seed, 1)), mode: tt.mode,
				entries: map[int]map[policy.Element]bool{}, counted: map[string]uint64{}}
			c.up(numbers(0, tt.sets), 0)
			churn := func() {
				for range 6 {
					c.change()
				}
				c.judgeBy(c.sets)
				c.agree(100)
			}
			churn()
			// Sets go, others come, and the rest change their places.
			c.up(numbers(7, min(tt.sets+7, 1000)), 0)
			churn()
			// Few sets have a map each.
			c.up(numbers(10, 50), 0)
			churn()
			returned := maps.Clone(c.entries)
			c.up(numbers(10, 20+tt.sets/2), time.Minute)
			churn()
			// What is changed on trial is changed in the policy to return to as well.
			if _, err := generation.RollBack(t.Context(), "lv0", status(t).Generation); err != nil {
				t.Fatal(err)
			}
			maps.Copy(c.entries, returned)
			c.forget(numbers(10, 50))
			c.judgeBy(numbers(10, 50))
			churn()
			c.up(numbers(3, tt.sets), 0)
			churn()
			if _, err := Down(t.Context(), "lv0"); err != nil {
				t.Fatal(err)
			}
			runDirIsGone(t)
			await.OK(t, func() error { return nothingAdded(t, before) })
		})
	}
}

// A set that shares its map keeps to its own max, and takes its entries along to another.
func TestSharedSetKeepsItsMax(t *testing.T) {
	newTestNet(t)
	policyOf := func(max int) string {
		return fmt.Sprintf("set abusers = dynamic(max %d)\ndrop from abusers as \"abuser\"\n",
			max) + manySets(numbers(0, 60))
	}
	for _, max := range []int{70, 71, 64, 65} { // the same room, and another
		if err := bringPolicy(t, "lv0", policyOf(max), 0); err != nil {
			t.Fatal(err)
		}
		if _, err := sets.Replace(t.Context(), "lv0", "abusers",
			hosts("10.0.0.0", max+1)); !errors.Is(err, prefix.ErrFull) {
			t.Errorf("%d entries of %d: %v", max+1, max, err)
		}
		if _, err := sets.Replace(t.Context(), "lv0", "abusers",
			hosts("10.0.0.0", 64)); err != nil {
			t.Fatal(err)
		}
		if _, err := sets.Add(t.Context(), "lv0", "abusers",
			hosts("10.1.0.0", max-64+1)); !errors.Is(err, prefix.ErrFull) {
			t.Errorf("%d more of %d: %v", max-64+1, max, err)
		}
	}
	if all, err := sets.List(t.Context(), "lv0", "abusers"); err != nil ||
		len(all[0].Entries) != 64 {
		t.Errorf("%v, %v", all, err)
	}
}

// While a policy is on trial, new contents come into force there and in the policy to return to.
func TestASwapReachesBothPoliciesOfATrial(t *testing.T) {
	n := newTestNet(t)
	text := func(sets int) string {
		s := manySets(numbers(0, sets))
		return "set abusers = dynamic(max 64)\ndrop from abusers as \"abuser\"\n" + s
	}
	if err := bringPolicy(t, "lv0", text(60), 0); err != nil {
		t.Fatal(err)
	}
	if err := bringPolicy(t, "lv0", text(80), time.Minute); err != nil {
		t.Fatal(err)
	}
	s, err := sets.Open(t.Context(), "lv0", "abusers")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if len(s.Maps) != 1 || len(s.Maps[0].Places) != 2 {
		t.Fatalf("%d memories, want one in two places", len(s.Maps))
	}
	if err := s.Replace(t.Context(), entriesOf("192.0.2.1/32")); err != nil {
		t.Fatal(err)
	}
	for i, at := range s.Maps[0].Places {
		var inner *ebpf.Map
		if err := at.Outer.Lookup(at.Key, &inner); err != nil {
			t.Fatal(err)
		}
		if same, err := store.SameMap(inner, s.Maps[0].Inner); !same || err != nil {
			t.Errorf("place %d has other memory: %v", i, err)
		}
		inner.Close()
	}
	n.from(t, "192.0.2.1")
	wantPackets(t, "abuser", 1)
	if _, err := generation.RollBack(t.Context(), "lv0", status(t).Generation); err != nil {
		t.Fatal(err)
	}
	n.from(t, "192.0.2.1")
	wantPackets(t, "abuser", 2)
}
