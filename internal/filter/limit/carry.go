package limit

import (
	"encoding/binary"
	"math/big"
	"math/bits"
	"sync/atomic"
	"time"
	"unsafe"

	"levee/internal/lang/policy"
)

// Carrier moves the budgets of one memory into another, whose limit has another rate, burst, unit
// of time or number of lines: what was spent stays spent, to the packet or byte. It reads the old
// memory while a program charges it, and once more when the next program judges, so that what was
// charged meanwhile counts, too. Keys of both limits are the same.
type Carrier struct {
	from, to []byte
	was, is  Shape
	a, b     int // log2 of the lines of both
	num, den uint64
	seen     []uint64
	begun    uint64 // in units of the old limit
	now      uint64 // in units of the new one
}

func logLines(bytes int) int { return bits.Len(uint((bytes-Head)/policy.LineBytes)) - 1 }

// NewCarrier begins with a memory that nobody writes yet: it takes the keys of the old one, and
// what it has counted. jiffies and hz say the time.
func NewCarrier(from []byte, was Shape, to []byte, is Shape, jiffies, hz uint64) *Carrier {
	c := &Carrier{from: from, to: to, was: was, is: is}
	c.a, c.b = logLines(len(from)), logLines(len(to))
	c.num, c.den = ratio(&was, &is)
	ns := jiffies * Tick(hz)
	c.begun, c.now = ns>>was.Shift, ns>>is.Shift
	copy(to[:Head], from[:Head])
	inherited := binary.NativeEndian.Uint64(from[atInherited:])
	binary.NativeEndian.PutUint64(to[atInherited:], inherited<<was.Shift>>is.Shift)
	c.seen = make([]uint64, 0, c.slots())
	for i := range c.slots() {
		w := atomic.LoadUint64(word(from, Head+8*i))
		c.seen = append(c.seen, w)
		c.add(i, w, was.owes(w, c.begun))
	}
	return c
}

// Follow adds what the old program has charged since, which judges still.
func (c *Carrier) Follow(jiffies, hz uint64) { c.Finish(jiffies, jiffies, hz) }

// Finish adds what the old program has charged since. The new program took over at swapped, in
// jiffies, and no run of the old one continues at jiffies.
func (c *Carrier) Finish(swapped, jiffies, hz uint64) {
	at := swapped * Tick(hz) >> c.was.Shift
	c.now = jiffies * Tick(hz) >> c.is.Shift
	for i, before := range c.seen {
		w := atomic.LoadUint64(word(c.from, Head+8*i))
		if w == before {
			continue
		}
		c.seen[i] = w
		owes, owed := c.was.owes(w, at), uint64(0)
		if (w^before)&(1<<tagBits-1) == 0 {
			owed = c.was.owes(before, at)
		}
		if owes > owed {
			c.add(i, w, owes-owed)
		}
	}
}

// ratio returns what a debt in units of the old limit is times to be in units of the new one: a
// packet or a byte costs what it costs now. Where keys differ in that, as the factors behind them
// change, it is the greatest, since a slot does not tell whose it is. Packets and bytes have no
// common measure: there the share of the burst stays.
func ratio(was, is *Shape) (num, den uint64) {
	of := func(n uint64) *big.Int { return new(big.Int).SetUint64(n) }
	greatest := new(big.Rat).SetFrac(of(is.Depth), of(was.Depth))
	if was.Bytes == is.Bytes {
		greatest.SetInt64(0)
		for i := range is.Costs {
			n := new(big.Int).Mul(of(is.Costs[i]), of(was.Amount))
			d := new(big.Int).Mul(of(was.Costs[i]), of(is.Amount))
			if r := new(big.Rat).SetFrac(n, d); r.Cmp(greatest) > 0 {
				greatest = r
			}
		}
	}
	n, d := greatest.Num(), greatest.Denom()
	less := uint(max(0, n.BitLen()-63, d.BitLen()-63)) // of 63 bits or more; depths have 38
	up := new(big.Int).Lsh(of(1), less)
	n = new(big.Int).Add(n, up.Sub(up, of(1)))
	return n.Rsh(n, less).Uint64(), max(1, new(big.Int).Rsh(d, less).Uint64())
}

// owed returns a debt of the old limit in units of the new one, rounded up.
func (c *Carrier) owed(units uint64) uint64 {
	hi, lo := bits.Mul64(units, c.num)
	lo, carry := bits.Add64(lo, c.den-1, 0)
	if hi += carry; hi >= c.den {
		return c.is.Depth
	}
	n, _ := bits.Div64(hi, lo, c.den)
	return min(n, c.is.Depth)
}

// slots returns the slots of the old memory that programs use.
func (c *Carrier) slots() int {
	if !c.was.Keyed {
		return 1
	}
	return (len(c.from) - Head) / 8
}

func word(memory []byte, at int) *uint64 { return (*uint64)(unsafe.Pointer(&memory[at])) }

// behind is the largest lag of the time of who reads a memory behind that of a program that has
// charged it since: a budget that was used up then seems to owe more than it can.
const behind = uint64(time.Second)

// owes returns the debt of a word at a time, in units.
func (s *Shape) owes(w, now uint64) uint64 {
	debt := (w - now<<tagBits) >> tagBits
	if w == 0 || debt > s.Depth+behind>>s.Shift {
		return 0
	}
	return min(debt, s.Depth)
}

// add charges the budget of the old slot i, whose tag is in w, in the new memory. Where that has
// more lines, nobody knows which of several lines has it: it is entered in each.
func (c *Carrier) add(i int, w, units uint64) {
	more := c.owed(units)
	if more == 0 {
		return
	}
	if !c.is.Keyed {
		c.charge(Head, 1, w&(1<<tagBits-1), more)
		return
	}
	line, lines := i/policy.SlotsInLine, 1
	if c.b > c.a {
		lines = 1 << (c.b - c.a)
		line *= lines
	} else {
		line >>= c.a - c.b
	}
	for n := range lines {
		c.charge(Head+(line+n)*policy.LineBytes, policy.SlotsInLine, w&(1<<tagBits-1), more)
	}
}

// charge adds to the debt of a tag in a line of the new memory. Where there is neither its slot nor
// an empty one, it takes that with the least debt, if its own is greater: whoever finds no slot of
// his later takes over one that owes at least as much.
func (c *Carrier) charge(line, slots int, tag, more uint64) {
	for {
		var at *uint64
		var old, owing uint64
		for s := range slots {
			p := word(c.to, line+8*s)
			w := atomic.LoadUint64(p)
			owes := c.is.owes(w, c.now)
			own := w != 0 && w&(1<<tagBits-1) == tag
			if own || at == nil || owes < owing {
				at, old, owing = p, w, owes
			}
			if own {
				break
			}
		}
		debt := more
		if slots == 1 || old != 0 && old&(1<<tagBits-1) == tag {
			debt += owing
		} else if owing > more {
			return
		}
		next := (c.now+min(debt, c.is.Depth))<<tagBits | tag
		if next == 0 || atomic.CompareAndSwapUint64(at, old, next) {
			return
		}
	}
}
