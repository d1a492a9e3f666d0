package resolve

import (
	"hash/maphash"
	"math/bits"
)

// duplicates finds texts that a list has already. It serves one list after the other, so that the
// many short lists of a large policy need no memory of their own. Its hash is seeded, so that
// nobody can choose texts that collide.
type duplicates struct {
	seed  maphash.Seed
	slots []duplicateSlot // a power of two
	list  uint32          // number of the list, 0 before the first
	room  int             // texts that it still remembers
	alone bool            // the list has one element: there is nothing to find
}

// duplicateSlot has a text of the list with that number; of any other list, it is free.
type duplicateSlot struct {
	text string
	list uint32
}

// begin forgets the last list and makes room for n texts.
func (d *duplicates) begin(n int) {
	if d.room, d.alone = n, n < 2; d.alone {
		return
	}
	if size := 1 << bits.Len(uint(2*n-1)); size > len(d.slots) {
		*d = duplicates{seed: maphash.MakeSeed(), slots: make([]duplicateSlot, size), room: n}
	}
	if d.list++; d.list == 0 { // all numbers have been used
		clear(d.slots)
		d.list = 1
	}
}

// add says whether the text is there already. It is remembered while there is room.
func (d *duplicates) add(text string) bool {
	if d.alone {
		return false
	}
	last := len(d.slots) - 1
	for i := int(maphash.String(d.seed, text)) & last; ; i = (i + 1) & last {
		s := &d.slots[i]
		if s.list != d.list {
			if d.room > 0 {
				d.room--
				*s = duplicateSlot{text, d.list}
			}
			return false
		}
		if s.text == text {
			return true
		}
	}
}
