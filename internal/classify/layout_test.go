package classify

import (
	"net/netip"
	"testing"
)

// A packet that matches in the first leaf of a row has not to go through the others: each says which rule is the first behind it.
func TestRowsOfLeavesEndAtTheFirstMatch(t *testing.T) {
	p := NewPool(32)
	every := netip.MustParsePrefix("0.0.0.0/0")
	var rules []*rule
	for i := range 3 * maxLeaf {
		rules = append(rules, newRule(32, &Box{Src: every, Dst: every, Ports: [2]Span{Any, Any}, Result: uint32(i + 1)}, i))
	}
	d := newBuilder(p, &Table{pool: p}, len(rules)).leaf(rules, after{})
	for leaf := 1; d&more != 0; leaf++ {
		header := p.words[uint32(d)-header:]
		if want := key(rules[leaf*maxLeaf]); header[1] != want {
			t.Errorf("leaf %d: what follows begins with %#x, want %#x", leaf, header[1], want)
		}
		d = header[0]
	}
}
