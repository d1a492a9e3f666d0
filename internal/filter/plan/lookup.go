package plan

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"net/netip"

	"levee/internal/filter/ir"
	"levee/internal/filter/names"
	"levee/internal/filter/prefix"
	"levee/internal/lang/field"
)

// Lookup is a set look-up of straight code: one question for one of many elements.
type Lookup struct {
	Node
	Cond   *ir.Cond
	Family ir.Family
	Table  *Table // of prefixes, Ethernet addresses or bits; nil for the others
	Tree   *Tree  // of endpoints
	// InPlace has the first walks of a rule tree be code of their own.
	InPlace bool
}

func (*Lookup) Kind() string    { return "set look-up" }
func (*Lookup) Blocks() []Block { return nil }

// endpoints reports whether the look-up walks a rule tree.
func (l *Lookup) endpoints() bool { return l.Table == nil && !l.Cond.Dynamic() }

// Table is memory for look-ups of straight code and bytecode.
type Table struct {
	Name     string // in instructions that refer to it
	For      string
	Kind     string
	Why      string
	Bytes    int
	Prefixes *prefix.Static // of addresses and Ethernet addresses
	Bits     []byte         // of numbers: one for each value of 16 bits
	States   []byte         // of an automaton
	Rates    []byte         // of a limit, by prefix
	Names    *names.Table   // of names of the DNS
}

// lookup returns the look-up of a condition in its set. Rule trees are built later, when the plan
// knows which are needed.
func (p *planner) lookup(f ir.Family, c *ir.Cond) *Lookup {
	l := &Lookup{Cond: c, Family: f}
	switch {
	case c.Dynamic():
		l.What = "set " + c.Set.Name
		l.Why = "filled at run time"
		p.setFunction(c.Set, f == ir.IPv4 || ofServices(c))
	case c.Pairs != nil:
		l.What = nameOfList(c, len(c.Pairs), "endpoint")
		l.Why = fmt.Sprintf("more than %d endpoints: the cost does not grow with their number",
			maxPairs)
	case c.Prefixes != nil:
		l.Table = p.prefixTable(f, c)
	case wide(c.Field):
		l.Table = p.ethernetTable(c)
	default:
		l.Table = p.bitTable(c)
	}
	if l.Table != nil {
		l.What, l.Why = l.Table.For+": "+l.Table.Kind, l.Table.Why
	}
	return l
}

// nameOfList says what a list is: its set, or how many elements it has.
func nameOfList(c *ir.Cond, n int, element string) string {
	if c.Set != nil {
		return "set " + c.Set.Name
	}
	return count(n, element)
}

// prefixTable builds the table of a list of prefixes, or finds it.
func (p *planner) prefixTable(f ir.Family, c *ir.Cond) *Table {
	if t := p.prefixes[c.List]; t != nil {
		return t
	}
	build, family := prefix.NewStatic6, "IPv6"
	if f == ir.IPv4 {
		build, family = prefix.NewStatic4, "IPv4"
	}
	s := build(c.Prefixes)
	t := &Table{
		For:  nameOfList(c, len(c.Prefixes), "prefix") + ", " + family,
		Kind: s.Kind(), Why: s.Why(), Bytes: len(s.Bytes()), Prefixes: s,
	}
	p.prefixes[c.List] = t
	return t
}

// ethernetTable builds the table of ranges of Ethernet addresses, as the upper 48 bits of IPv6
// addresses, or finds it.
func (p *planner) ethernetTable(c *ir.Cond) *Table {
	key := make([]byte, 0, 16*len(c.Ranges))
	for _, r := range c.Ranges {
		key = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(key, r.Lo), r.Hi)
	}
	if t := p.ethernet[string(key)]; t != nil {
		return t
	}
	s := prefix.NewStatic6(ethernetPrefixes(c.Ranges))
	t := &Table{
		For:  fmt.Sprintf("%d ranges of Ethernet addresses", len(c.Ranges)),
		Kind: s.Kind(), Why: "as prefixes; " + s.Why(), Bytes: len(s.Bytes()), Prefixes: s,
	}
	p.ethernet[string(key)] = t
	return t
}

// ethernetPrefixes covers ranges of 48 bits by the fewest prefixes of the upper bits of IPv6
// addresses.
func ethernetPrefixes(rs []field.Range) []netip.Prefix {
	var out []netip.Prefix
	for _, r := range rs {
		for lo := r.Lo; lo <= r.Hi; {
			open := bits.Len64(r.Hi-lo+1) - 1 // log2 of the largest block that fits
			if lo != 0 {
				open = min(open, bits.TrailingZeros64(lo)) // and is aligned
			}
			var a [16]byte
			binary.BigEndian.PutUint64(a[:8], lo<<16)
			out = append(out, netip.PrefixFrom(netip.AddrFrom16(a), 48-open))
			lo += 1 << open
		}
	}
	return out
}

// bitmapBytes holds a bit for each value of 16 bits.
const bitmapBytes = 1 << 16 / 8

// bitTable builds the bitmap of ranges of numbers, or finds it.
func (p *planner) bitTable(c *ir.Cond) *Table {
	set := make([]byte, bitmapBytes)
	for _, r := range c.Ranges {
		for v := r.Lo; v <= min(r.Hi, math.MaxUint16); v++ {
			set[v/8] |= 1 << (v % 8)
		}
	}
	if t := p.bits[string(set)]; t != nil {
		return t
	}
	t := &Table{
		For:  fmt.Sprintf("%d ranges of a number", len(c.Ranges)),
		Kind: "bitmap", Why: fmt.Sprintf("more than %d ranges: one load instead of compares",
			maxHalving),
		Bytes: len(set), Bits: set,
	}
	p.bits[string(set)] = t
	return t
}

// beyondBits returns how many ranges a bitmap does not hold as a whole: lengths may have more than
// 16 bits. These are found by compares.
func beyondBits(rs []field.Range) (n int) {
	for _, r := range rs {
		if r.Hi > math.MaxUint16 {
			n++
		}
	}
	return n
}

// label returns the name of a table, number n of the plan.
func (t *Table) label(n int) string {
	switch {
	case t.Bits != nil:
		return fmt.Sprintf("bits_%d", n)
	case t.States != nil:
		return fmt.Sprintf("states_%d", n)
	}
	return fmt.Sprintf("prefixes_%d", n)
}
