package lookup

import (
	"cmp"
	"math/bits"
	"net/netip"
	"slices"

	"levee/internal/bench/workload"
)

// Radix is a binary tree with path compression over prefixes of one family: the shape that the
// kernel's LPM trie (kernel/bpf/lpm_trie.c) and its IPv6 routing table (net/ipv6/ip6_fib.c) both
// have, whatever the order of insertion. The kernel does not tell how deep a look-up goes there;
// this copy of the shape does.
type Radix struct {
	nodes []radixNode
}

type radixNode struct {
	hi, lo uint64 // left-aligned
	len    int
	real   bool     // a prefix of the set, not a mere fork
	child  [2]int32 // 0 for none: the root is nobody's child
}

// NewRadix builds the tree. Its first node is the root, of length 0, which may be no prefix and no
// fork.
func NewRadix(prefixes []netip.Prefix) *Radix {
	sorted := slices.Clone(prefixes)
	slices.SortFunc(sorted, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	t := &Radix{nodes: make([]radixNode, 1, 2*len(sorted)+1)}
	path := []int32{0} // from the root to the prefix before
	for _, p := range slices.Compact(sorted) {
		hi, lo := workload.Split(p.Addr())
		n := radixNode{hi: hi, lo: lo, len: p.Bits(), real: true}
		if n.len == 0 {
			t.nodes[0].real = true
			continue
		}
		// In this order a prefix comes right after what it lies in or beside.
		popped := int32(0)
		for !t.nodes[path[len(path)-1]].covers(&n) {
			popped = path[len(path)-1]
			path = path[:len(path)-1]
		}
		above := path[len(path)-1]
		if popped != 0 {
			if fork := sharedBits(&t.nodes[popped], &n); fork > t.nodes[above].len {
				above = t.fork(above, popped, fork)
				path = append(path, above)
			}
		}
		t.nodes = append(t.nodes, n)
		at := int32(len(t.nodes) - 1)
		t.nodes[above].child[n.bit(t.nodes[above].len)] = at
		path = append(path, at)
	}
	return t
}

// fork puts a node of so many bits between a node and its child.
func (t *Radix) fork(above, child int32, length int) int32 {
	c := t.nodes[child]
	f := radixNode{hi: c.hi, lo: c.lo, len: length}
	f.child[c.bit(length)] = child
	t.nodes = append(t.nodes, f)
	at := int32(len(t.nodes) - 1)
	t.nodes[above].child[c.bit(t.nodes[above].len)] = at
	return at
}

func (n *radixNode) bit(i int) int {
	if i < 64 {
		return int(n.hi >> (63 - i) & 1)
	}
	return int(n.lo >> (127 - i) & 1)
}

func sharedBits(a, b *radixNode) int {
	if d := a.hi ^ b.hi; d != 0 {
		return min(bits.LeadingZeros64(d), a.len, b.len)
	}
	return min(64+bits.LeadingZeros64(a.lo^b.lo), a.len, b.len)
}

// covers tells whether b lies in a.
func (n *radixNode) covers(b *radixNode) bool { return n.len <= b.len && sharedBits(n, b) == n.len }

// Count returns the number of nodes, without a root that is neither a prefix nor a fork.
func (t *Radix) Count() int {
	if r := &t.nodes[0]; !r.real && (r.child[0] == 0 || r.child[1] == 0) {
		return len(t.nodes) - 1
	}
	return len(t.nodes)
}

// lpmDepth returns how many nodes trie_lookup_elem visits: down to a node that the address is not
// in, to the end of the tree or to an entry as long as the address.
func (t *Radix) lpmDepth(a netip.Addr) int {
	hi, lo := workload.Split(a)
	key := radixNode{hi: hi, lo: lo, len: a.BitLen()}
	at, depth := int32(0), 0
	if t.Count() == len(t.nodes) {
		depth = 1
	}
	for {
		at = t.nodes[at].child[key.bit(t.nodes[at].len)]
		if at == 0 {
			return depth
		}
		depth++
		if n := &t.nodes[at]; !n.covers(&key) || n.len == key.len {
			return depth
		}
	}
}

// FIBDepth returns how many nodes fib6_node_lookup_1 visits on its way down: it looks at the
// branching bits only, and compares when it comes back up.
func (t *Radix) FIBDepth(a netip.Addr) int {
	hi, lo := workload.Split(a)
	key := radixNode{hi: hi, lo: lo, len: a.BitLen()}
	at, depth := int32(0), 1
	for t.nodes[at].len < key.len {
		at = t.nodes[at].child[key.bit(t.nodes[at].len)]
		if at == 0 {
			return depth
		}
		depth++
	}
	return depth
}

// Depth is the distribution of a look-up's steps, over the addresses of the hits.
type Depth struct {
	Mean float64 `json:"mean"`
	Max  int     `json:"max"`
	Of   string  `json:"of"` // what a step is, and how it is known
}

// DepthOf returns the depth of addresses; of says what a step is.
func DepthOf(addrs []netip.Addr, of string, steps func(netip.Addr) int) *Depth {
	d := &Depth{Of: of}
	sum := 0
	for _, a := range addrs {
		n := steps(a)
		sum += n
		d.Max = max(d.Max, n)
	}
	d.Mean = float64(sum) / float64(max(len(addrs), 1))
	return d
}
