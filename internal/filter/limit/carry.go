package limit

import (
	"encoding/binary"
	"math/bits"
	"sync/atomic"
	"unsafe"

	"levee/internal/lang/policy"
)

// Carrier moves the budgets of one memory into another, whose limit counts time in another unit,
// pays another burst, or has another number of lines: what was spent stays spent. It reads the old
// memory while a program charges it, and once more when the next program judges, so that what was
// charged meanwhile counts, too. Keys of both limits are the same.
type Carrier struct {
	from, to     []byte
	was, is      Shape
	a, b         int // log2 of the lines of both
	seen         []uint64
	begun, nsNow uint64 // ns
}

// CanCarry tells whether the budgets of a memory of so many bytes can go on in another. A slot has
// 18 bits of the hash behind those that name its line: where lines become more than four times as
// many, nobody can tell where it would be looked for.
func CanCarry(from, to int) bool { return logLines(to)-logLines(from) <= maxUnknown }

// maxUnknown is how many bits of a tag may be unknown: a budget then lies in the line under each
// tag that it may have.
const maxUnknown = 2

func logLines(bytes int) int { return bits.Len(uint((bytes-Head)/policy.LineBytes)) - 1 }

// NewCarrier begins with a memory that nobody writes yet: it takes the keys of the old one, and
// what it has counted. jiffies and hz say the time.
func NewCarrier(from []byte, was Shape, to []byte, is Shape, jiffies, hz uint64) *Carrier {
	c := &Carrier{from: from, to: to, was: was, is: is, begun: jiffies * Tick(hz)}
	c.a, c.b = logLines(len(from)), logLines(len(to))
	c.nsNow = c.begun
	copy(to[:Head], from[:Head])
	inherited := binary.NativeEndian.Uint64(from[atInherited:])
	binary.NativeEndian.PutUint64(to[atInherited:], inherited<<was.Shift>>is.Shift)
	for i := range c.slots() {
		w := atomic.LoadUint64(word(from, Head+8*i))
		c.seen = append(c.seen, w)
		c.add(i, w, c.debt(w))
	}
	return c
}

// Finish adds what the old program has charged since.
func (c *Carrier) Finish(jiffies, hz uint64) {
	c.nsNow = jiffies * Tick(hz)
	for i, before := range c.seen {
		w := atomic.LoadUint64(word(c.from, Head+8*i))
		if w == before {
			continue
		}
		full := c.begun + c.debt(w) + (c.nsNow - c.begun) // when it is full again
		since := c.begun
		if (w^before)&(1<<tagBits-1) == 0 {
			since += c.debtAt(before, c.begun)
		}
		if full > since {
			c.add(i, w, full-since)
		}
	}
}

// slots are those of the old memory that programs use.
func (c *Carrier) slots() int {
	if !c.was.Keyed {
		return 1
	}
	return (len(c.from) - Head) / 8
}

func word(memory []byte, at int) *uint64 { return (*uint64)(unsafe.Pointer(&memory[at])) }

// debt is what a word of the old memory owes now, in ns.
func (c *Carrier) debt(w uint64) uint64 { return c.debtAt(w, c.nsNow) }

func (c *Carrier) debtAt(w, ns uint64) uint64 {
	units := (w - ns>>c.was.Shift<<tagBits) >> tagBits
	if w == 0 || units == 0 || units > c.was.Depth {
		return 0
	}
	return units << c.was.Shift
}

// add charges the budget of the old slot i, whose tag is in w, in the new memory.
func (c *Carrier) add(i int, w, ns uint64) {
	if ns == 0 {
		return
	}
	line, tag := uint64(i/policy.SlotsInLine), w&(1<<tagBits-1)
	known := line<<tagBits | tag // the upper bits of the hash
	unknown := max(0, c.b-c.a)
	if less := c.a - c.b; less > 0 {
		known >>= less
	} else {
		known <<= unknown
	}
	at := Head + int(known>>tagBits)*policy.LineBytes
	if !c.is.Keyed {
		at = Head
	}
	for variant := range uint64(1) << unknown {
		c.charge(at, (known|variant)&(1<<tagBits-1), ns)
	}
}

// charge adds to the debt of a tag in a line of the new memory. Where there is neither its slot nor
// an empty one, it takes that with the least debt, if its own is greater.
func (c *Carrier) charge(line int, tag, ns uint64) {
	slots := policy.SlotsInLine
	if !c.is.Keyed {
		slots = 1
	}
	now := c.nsNow >> c.is.Shift
	owes := func(w uint64) uint64 {
		if d := (w - now<<tagBits) >> tagBits; w != 0 && d <= c.is.Depth {
			return d
		}
		return 0
	}
	more := (ns + 1<<c.is.Shift - 1) >> c.is.Shift
	for {
		var at *uint64
		var old uint64
		least := ^uint64(0)
		for s := range slots {
			p := word(c.to, line+8*s)
			w := atomic.LoadUint64(p)
			own := w != 0 && w&(1<<tagBits-1) == tag || !c.is.Keyed
			if d := owes(w); own || d < least {
				at, old, least = p, w, d
			}
			if own {
				break
			}
		}
		debt := more
		if old != 0 && old&(1<<tagBits-1) == tag {
			debt += owes(old)
		} else if least > more {
			return
		}
		next := (now+min(debt, c.is.Depth))<<tagBits | tag
		if next == 0 || atomic.CompareAndSwapUint64(at, old, next) {
			return
		}
	}
}
