package scale

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"levee/internal/bench/workload"
	"levee/internal/kernel"
)

// naiveNodes are the prefixes and every fork between two of them.
func naiveNodes(prefixes []netip.Prefix) []radixNode {
	seen := map[netip.Prefix]bool{}
	var out []radixNode
	add := func(p netip.Prefix) {
		if !seen[p] {
			seen[p] = true
			hi, lo := leftAligned(p.Addr())
			out = append(out, radixNode{hi: hi, lo: lo, len: p.Bits()})
		}
	}
	for _, p := range prefixes {
		add(p)
	}
	for _, p := range prefixes {
		for _, q := range prefixes {
			if p.Contains(q.Addr()) && p.Bits() <= q.Bits() || q.Contains(p.Addr()) && q.Bits() <= p.Bits() {
				continue
			}
			n := 0
			for netip.PrefixFrom(p.Addr(), n+1).Masked().Contains(q.Addr()) {
				n++
			}
			add(netip.PrefixFrom(p.Addr(), n).Masked())
		}
	}
	return out
}

// naiveDepths are what the two kernel walks visit, by definition.
func naiveDepths(nodes []radixNode, a netip.Addr) (lpm, fib int) {
	hi, lo := leftAligned(a)
	key := radixNode{hi: hi, lo: lo, len: a.BitLen()}
	below := func(above radixNode) *radixNode { // the shortest node below, on the address's side
		var best *radixNode
		for i := range nodes {
			n := &nodes[i]
			if n.len > above.len && above.covers(n) && n.bit(above.len) == key.bit(above.len) && (best == nil || n.len < best.len) {
				best = n
			}
		}
		return best
	}
	walk := func(until func(*radixNode) bool) (depth int, root bool) {
		at := radixNode{}
		root = slices.ContainsFunc(nodes, func(n radixNode) bool { return n.len == 0 })
		for at.len < key.len {
			next := below(at)
			if next == nil {
				break
			}
			depth++
			if at = *next; until(next) {
				break
			}
		}
		return depth, root
	}
	lpm, root := walk(func(n *radixNode) bool { return !n.covers(&key) })
	if root {
		lpm++
	}
	fib, _ = walk(func(*radixNode) bool { return false })
	return lpm, fib + 1
}

func TestRadixHasTheShapeOfItsDefinition(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for round := range 60 {
		n := 1 + r.IntN(60)
		var prefixes []netip.Prefix
		switch round % 3 {
		case 0:
			prefixes = workload.Internet4(n, r.Uint64())
		case 1:
			prefixes = workload.Internet6(n, r.Uint64())
		default: // few bits: much nesting, and /0
			for range n {
				prefixes = append(prefixes, netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(r.Uint32())}), r.IntN(9)).Masked())
			}
		}
		nodes := naiveNodes(prefixes)
		tree := newRadix(prefixes)
		if tree.count() != len(nodes) {
			t.Fatalf("seed %d, round %d: %d nodes, want %d", seed, round, tree.count(), len(nodes))
		}
		addrs, err := workload.Addresses(prefixes, 50, workload.Hits, workload.Uniform, r.Uint64())
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			addrs = append(addrs, workload.Hosts(prefixes[0].Addr().BitLen(), 1, r.Uint64())[0].Addr())
		}
		for _, a := range addrs {
			lpm, fib := naiveDepths(nodes, a)
			if tree.lpmDepth(a) != lpm || tree.fibDepth(a) != fib {
				t.Fatalf("seed %d, round %d: depth of %s is %d and %d, want %d and %d", seed, round, a, tree.lpmDepth(a), tree.fibDepth(a), lpm, fib)
			}
		}
	}
}

func TestTriestatIsRead(t *testing.T) {
	const text = "Basic info: size of leaf: 48 bytes, size of tnode: 40 bytes.\nMain:\n\tAver depth:     3.31\n\tMax depth:      6\n\tLeaves:         873\n" +
		"\tPrefixes:       1005\n\tInternal nodes: 349\n\t  1: 200  2: 100\n\tPointers: 1854\nNull ptrs: 633\nTotal size: 129  kB\nLocal:\n\tAver depth:     9.99\n\tMax depth:      9\n"
	d, err := parseTriestat(bufio.NewScanner(strings.NewReader(text)))
	if err != nil || d.Mean != 3.31 || d.Max != 6 || !strings.Contains(d.Of, "873 leaves") {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := parseTriestat(bufio.NewScanner(strings.NewReader("Local:\n\tAver depth: 1\n"))); err == nil {
		t.Error("no main table gave no error")
	}
}

func needPrivileges(t *testing.T) {
	t.Helper()
	if err := kernel.Privileged(); err != nil {
		t.Skip("needs root: ", err)
	}
}

func TestTheCopyHasAsManyNodesAsTheKernelsTree(t *testing.T) {
	needPrivileges(t)
	prefixes := workload.Internet6(5000, 1)
	nodes := func(b *built) (n int) {
		err := b.within(func() error {
			text, err := os.ReadFile("/proc/thread-self/net/rt6_stats")
			if err != nil {
				return err
			}
			v, err := strconv.ParseInt(strings.Fields(string(text))[0], 16, 64)
			n = int(v)
			return err
		})
		if err != nil {
			t.Skip("this kernel does not count the nodes of its tree: ", err)
		}
		return n
	}
	few, err := buildFIB(t.Context(), prefixes[:1], 128)
	if err != nil {
		t.Fatal(err)
	}
	before := nodes(few)
	if err := few.close(); err != nil {
		t.Error(err)
	}
	all, err := buildFIB(t.Context(), prefixes, 128)
	if err != nil {
		t.Fatal(err)
	}
	grown := nodes(all) - before + 1
	if err := all.close(); err != nil {
		t.Error(err)
	}
	// Forks with the lab's own routes are no part of the copy.
	if want := newRadix(prefixes).count(); grown < want-8 || grown > want+8 {
		t.Errorf("the kernel has %d nodes, the copy %d", grown, want)
	}
}

func TestRoutesComparesWithRightAnswers(t *testing.T) {
	needPrivileges(t)
	r, err := Routes(t.Context(), RouteOptions{Options: Options{Sizes: []int{300}, Rounds: minRounds, Seed: 1, Only: []string{"levee static", "kernel FIB"}, Command: "levee bench route"}, Families: []string{"4"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Cases) != 1 {
		t.Fatalf("%d cases, want Internet-like IPv4 alone", len(r.Cases))
	}
	for _, c := range r.Cases {
		for _, s := range c.Structures {
			if s.Missing != "" || len(s.Lookups) != len(traffics) || s.LoadNs <= 0 && s.BuildNs <= 0 || s.UpdateNs <= 0 {
				t.Errorf("%s %s: %s: %+v", c.Family, c.Entries, s.Name, s)
			}
			if s.Depth == nil && s.DepthUnknown == "" || s.Depth != nil && (s.Depth.Mean <= 0 || s.Depth.Max < 1) {
				t.Errorf("%s %s: depth of %s: %+v %q", c.Family, c.Entries, s.Name, s.Depth, s.DepthUnknown)
			}
		}
		if len(c.Structures) != 2 {
			t.Errorf("%s %s: %d structures", c.Family, c.Entries, len(c.Structures))
		}
	}
	var b strings.Builder
	if err := r.Text(&b); err != nil || !strings.Contains(b.String(), "kernel FIB") || strings.Contains(b.String(), "no figure") {
		t.Errorf("%v:\n%s", err, b.String())
	}
	d := r.Document()
	if len(d.Charts) != 2*len(traffics)+2 || len(d.Tables) != 1 || len(d.Refusals) != 0 {
		t.Errorf("%d charts, %d tables, refusals %v", len(d.Charts), len(d.Tables), d.Refusals)
	}
	nothingIsLeft(t)
}

func TestInterruptedRoutesSaySoAndLeaveNothing(t *testing.T) {
	needPrivileges(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := Routes(ctx, RouteOptions{
		Options: Options{Sizes: []int{100}, Rounds: 500, Only: []string{"kernel FIB"}}, Families: []string{"4"},
		Steps: func(_ string, done, total int) {
			if total != 1+len(traffics) {
				t.Errorf("%d steps", total)
			}
			if done == 1 {
				cancel()
			}
		},
	})
	if !errors.Is(err, context.Canceled) || r == nil || r.Incomplete == "" {
		t.Fatalf("%v, %+v", err, r)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("tidying up failed as well: %v", err)
	}
	var b strings.Builder
	if err := r.Text(&b); err != nil || !strings.Contains(b.String(), "INCOMPLETE") {
		t.Errorf("%v:\n%s", err, b.String())
	}
	nothingIsLeft(t)
}

func TestRoutesThatTheKernelRefusesAreNamed(t *testing.T) {
	needPrivileges(t)
	p := netip.MustParsePrefix("192.0.2.0/24")
	b, err := buildFIB(t.Context(), []netip.Prefix{p, p}, 32)
	if b != nil {
		defer b.close()
	}
	if err == nil || !strings.Contains(err.Error(), "refuses route 192.0.2.0/24") {
		t.Errorf("a route twice: %v", err)
	}
}

func TestRouteOptionsThatCannotBeMeasuredAreRefused(t *testing.T) {
	for _, o := range []RouteOptions{
		{Options: Options{Rounds: 5}}, {Options: Options{Sizes: []int{0}}}, {Options: Options{Sizes: []int{workload.MaxPrefixes + 1}}},
		{Options: Options{Only: []string{"trie"}}}, {Tables: []string{"47s"}},
	} {
		if _, err := Routes(t.Context(), o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
}

// nothingIsLeft fails for namespaces of this process that are still there.
func nothingIsLeft(t *testing.T) {
	t.Helper()
	names, err := filepath.Glob(fmt.Sprintf("/run/netns/levee-%d-*", os.Getpid()))
	if err != nil || len(names) > 0 {
		t.Errorf("left namespaces %q, %v", names, err)
	}
}
