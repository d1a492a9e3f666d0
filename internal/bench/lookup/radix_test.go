package lookup

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"levee/internal/bench/workload"
)

// naiveNodes are the prefixes and every fork between two of them.
func naiveNodes(prefixes []netip.Prefix) []radixNode {
	seen := map[netip.Prefix]bool{}
	var out []radixNode
	add := func(p netip.Prefix) {
		if !seen[p] {
			seen[p] = true
			hi, lo := workload.Split(p.Addr())
			out = append(out, radixNode{hi: hi, lo: lo, len: p.Bits()})
		}
	}
	for _, p := range prefixes {
		add(p)
	}
	for _, p := range prefixes {
		for _, q := range prefixes {
			if p.Contains(q.Addr()) && p.Bits() <= q.Bits() || q.Contains(p.Addr()) &&
				q.Bits() <= p.Bits() {
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

// naiveDepths returns how many nodes the two kernel walks visit, by definition.
func naiveDepths(nodes []radixNode, a netip.Addr) (lpm, fib int) {
	hi, lo := workload.Split(a)
	key := radixNode{hi: hi, lo: lo, len: a.BitLen()}
	below := func(above radixNode) *radixNode { // the shortest node below, on the address's side
		var best *radixNode
		for i := range nodes {
			n := &nodes[i]
			if n.len > above.len && above.covers(n) && n.bit(above.len) == key.bit(above.len) &&
				(best == nil || n.len < best.len) {
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
				prefixes = append(
					prefixes, netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(r.Uint32())}),
						r.IntN(9)).Masked())
			}
		}
		nodes := naiveNodes(prefixes)
		tree := NewRadix(prefixes)
		if tree.Count() != len(nodes) {
			t.Fatalf("seed %d, round %d: %d nodes, want %d", seed, round, tree.Count(), len(nodes))
		}
		addrs, err := workload.Addresses(prefixes, 50, workload.Hits, workload.Uniform, r.Uint64())
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			addrs = append(addrs, workload.Hosts(prefixes[0].Addr().BitLen(), 1,
				r.Uint64())[0].Addr())
		}
		for _, a := range addrs {
			lpm, fib := naiveDepths(nodes, a)
			if tree.lpmDepth(a) != lpm || tree.FIBDepth(a) != fib {
				t.Fatalf("seed %d, round %d: depth of %s is %d and %d, want %d and %d", seed, round,
					a, tree.lpmDepth(a), tree.FIBDepth(a), lpm, fib)
			}
		}
	}
}
