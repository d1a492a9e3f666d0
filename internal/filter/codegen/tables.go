package codegen

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"levee/internal/filter/plan"
	"levee/internal/filter/prefix"
)

// location is the place of a table.
type location struct {
	in string // name of the map
	at int    // byte offset in its value
}

// Tables that programs only read lie one behind the other in plan.TablesMap: a program may use no
// more than 64 maps (MAX_USED_MAPS, include/linux/bpf_verifier.h), a policy may have thousands of
// tables.

// placeTables gives the tables of the plan a place.
func (c *compiler) placeTables() {
	for _, t := range c.Plan.Tables {
		switch {
		case t.Bits != nil:
			c.constant(t.Name, t.Bits)
		case t.States != nil:
			c.constant(t.Name, t.States)
		case t.Rates != nil:
			c.constant(t.Name, t.Rates)
		default:
			c.constant(t.Name, t.Prefixes.Bytes())
		}
	}
}

// constant gives a table a place under a name that code refers to like that of a map.
func (c *compiler) constant(name string, contents []byte) {
	c.room(name, len(contents), func(to []byte) { copy(to, contents) })
}

// room gives a table of n bytes a place like constant. It is filled in the end, so that no table is
// there twice for long. Where it is too large, compiling fails in the end.
func (c *compiler) room(name string, n int, fill func(to []byte)) {
	if n > prefix.MaxBytes {
		c.failed = c.errorf("a table of %d bytes is above the %d that a program can address: "+
			"split the set or the rules that it is for", n, prefix.MaxBytes)
		return
	}
	const line = 64 // of the cache
	at := (c.packed + line - 1) &^ (line - 1)
	if at+n > prefix.MaxBytes {
		c.flushTables()
		at = 0
	}
	c.packed = at + n
	c.fills = append(c.fills, func(all []byte) { fill(all[at : at+n : at+n]) })
	c.tableAt[name] = location{c.tablesName(), at}
}

// tablesName returns the name of the map that is being filled; the first has no number.
func (c *compiler) tablesName() string {
	if c.packs == 0 {
		return plan.TablesMap
	}
	return fmt.Sprintf("%s_%d", plan.TablesMap, c.packs)
}

// flushTables makes a map of the tables collected so far. It is not frozen: a frozen map would have
// the verifier track its contents for constant offsets, to no use.
func (c *compiler) flushTables() {
	if c.packed == 0 {
		return
	}
	contents := make([]byte, c.packed)
	for i, fill := range c.fills {
		fill(contents)
		c.fills[i] = nil
	}
	name := c.tablesName()
	c.addMap(&ebpf.MapSpec{
		Name: name, Type: ebpf.Array, KeySize: 4, ValueSize: uint32(len(contents)), MaxEntries: 1,
		Flags:    unix.BPF_F_RDONLY_PROG,
		Contents: []ebpf.MapKV{{Key: uint32(0), Value: contents}},
	}, Identity{What: Tables, Name: name}, Private)
	c.packed, c.fills, c.packs = 0, nil, c.packs+1
}

// locate points the loads that name a table to where it lies.
func (c *compiler) locate(ins asm.Instructions) error {
	for i := range ins {
		p, ok := c.tableAt[ins[i].Reference()]
		if !ok {
			continue
		}
		offset := uint64(ins[i].Constant)>>32 + uint64(p.at)
		if err := ins[i].RewriteMapOffset(uint32(offset)); err != nil {
			return fmt.Errorf("place table %s: %w", ins[i].Reference(), err)
		}
		ins[i] = ins[i].WithReference(p.in)
	}
	return nil
}
