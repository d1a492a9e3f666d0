package limit

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"net/netip"

	"github.com/cilium/ebpf/asm"

	"levee/internal/lang/policy"
)

// Rates by prefix lie in a table that programs only read: rows, one a prefix, and for each family
// the addresses from which on a row counts, in order. A function finds the row of an address by
// halving. The first row is that of addresses without a rate.

// Offsets in a row.
const (
	rowRate  = 0  // what a packet costs, in units of time; of bits how many a second
	rowDepth = 8  // the greatest debt, in units of time
	rowKey   = 16 // tells the budgets of a prefix from those of others
	rowBytes = 32
)

const (
	startBytes4 = 8  // u32 address, u32 row
	startBytes6 = 32 // u64 high, u64 low, u64 row
)

// start is an address from which on a row counts.
type start struct {
	at  netip.Addr
	row int
}

// table is the form in which a program has rates by prefix.
type table struct {
	limit     *policy.Limit
	four, six []start // one alone: no address of the family has a rate
}

// RatesOf returns the name of the table of the limit whose memory is a map.
func RatesOf(memory string) string { return memory + "_rates" }

// LabelOf is Label of the function for a family of addresses.
func LabelOf(l *policy.Limit, memory string, six bool) string {
	if l.Rates != nil && six {
		return Label(memory) + "6"
	}
	return Label(memory)
}

// searchInstructions returns what the search of the longer of both families takes, at most.
func searchInstructions(l *policy.Limit) int {
	t := tableOf(l)
	steps := bits.TrailingZeros(uint(room(max(len(t.four), len(t.six)))))
	return 30 + 16*steps
}

// Families are those of packets that come to a limit.
type Families struct{ four, six bool }

// Add adds a family: IPv6, or all others.
func (f *Families) Add(six bool) {
	f.four, f.six = f.four || !six, f.six || six
}

// have reports whether there is a family.
func (f Families) have(six bool) bool { return six && f.six || !six && f.four }

// Functions returns how many functions a limit has. With rates by prefix it is one for each family:
// the kernel refuses one that nobody calls.
func Functions(l *policy.Limit, of Families) int {
	if l.Rates != nil && of.four && of.six {
		return 2
	}
	return 1
}

func tableOf(l *policy.Limit) table {
	t := table{limit: l}
	t.four = startsOf(l.Rates.Entries, netip.IPv4Unspecified())
	t.six = startsOf(l.Rates.Entries, netip.IPv6Unspecified())
	return t
}

// startsOf parts the addresses of a family, from first on, by the longest prefix that holds each.
// Entries are in the order of their addresses, shorter prefixes first.
func startsOf(entries []policy.PrefixRate, first netip.Addr) []start {
	out := []start{{first, 0}}
	begin := func(at netip.Addr, row int) {
		if last := &out[len(out)-1]; last.at == at {
			last.row = row
		} else if last.row != row {
			out = append(out, start{at, row})
		}
	}
	var open []int // rows of the prefixes that the place lies in
	leave := func() {
		ends := lastOf(entries[open[len(open)-1]-1].Prefix).Next()
		open = open[:len(open)-1]
		outer := 0
		if len(open) > 0 {
			outer = open[len(open)-1]
		}
		if ends.IsValid() {
			begin(ends, outer)
		}
	}
	for i := range entries {
		p := entries[i].Prefix
		if p.Addr().Is4() != first.Is4() {
			continue
		}
		for len(open) > 0 && !entries[open[len(open)-1]-1].Prefix.Contains(p.Addr()) {
			leave()
		}
		begin(p.Addr(), i+1)
		open = append(open, i+1)
	}
	for len(open) > 0 {
		leave()
	}
	return out
}

// lastOf returns the last address of a prefix.
func lastOf(p netip.Prefix) netip.Addr {
	a := p.Addr().AsSlice()
	for i := p.Bits(); i < 8*len(a); i++ {
		a[i/8] |= 0x80 >> (i % 8)
	}
	last, _ := netip.AddrFromSlice(a)
	return last
}

func (t *table) starts(six bool) []start {
	if six {
		return t.six
	}
	return t.four
}

// has reports whether addresses of a family have rates: one prefix may hold all of them.
func (t *table) has(six bool) bool {
	all := t.starts(six)
	return len(all) > 1 || all[0].row != 0
}

// room returns how many places there are for n of something: a power of two.
func room(n int) int { return 1 << bits.Len(uint(n-1)) }

func (t *table) rows() int { return room(1 + len(t.limit.Rates.Entries)) }

// offset returns where the starts of a family begin.
func (t *table) offset(six bool) int {
	at := rowBytes * t.rows()
	if six && t.has(false) {
		at += startBytes4 * room(len(t.four))
	}
	return at
}

// RatesBytes returns the table of a limit with rates by prefix.
func RatesBytes(l *policy.Limit) []byte {
	t := tableOf(l)
	out := make([]byte, rowBytes*t.rows())
	word := binary.NativeEndian
	for i := range l.Rates.Entries {
		e := &l.Rates.Entries[i]
		row := out[rowBytes*(i+1):]
		rate := e.Rate.Amount
		if !e.Rate.Bits {
			rate = e.Charge(-1, 0)
		}
		word.PutUint64(row[rowRate:], rate)
		word.PutUint64(row[rowDepth:], e.Depth())
		key := sha256.Sum256([]byte(e.Prefix.String()))
		copy(row[rowKey:rowKey+8], key[:])
	}
	for _, six := range []bool{false, true} {
		all := t.starts(six)
		if !t.has(six) {
			continue
		}
		for n := range room(len(all)) {
			s := all[min(n, len(all)-1)]
			switch a := s.at.AsSlice(); {
			case six && n < len(all):
				out = word.AppendUint64(out, binary.BigEndian.Uint64(a))
				out = word.AppendUint64(out, binary.BigEndian.Uint64(a[8:]))
				out = word.AppendUint64(word.AppendUint64(out, uint64(s.row)), 0)
			case six:
				out = word.AppendUint64(word.AppendUint64(out, 1<<64-1), 1<<64-1)
				out = word.AppendUint64(word.AppendUint64(out, uint64(s.row)), 0)
			case n < len(all):
				out = word.AppendUint32(out, binary.BigEndian.Uint32(a))
				out = word.AppendUint32(out, uint32(s.row))
			default:
				out = word.AppendUint32(word.AppendUint32(out, 1<<32-1), uint32(s.row))
			}
		}
	}
	return out
}

// search leaves the row of the address in regRate, or returns 0 where it has no rate. The address
// is in a register, the lower half of one of IPv6 in the next.
func (f *Function) search(address asm.Register) {
	name := RatesOf(f.Map)
	each, places := startBytes4, room(len(f.rows.starts(f.six)))
	high, low := regRate, regSlot
	if f.six {
		each = startBytes6
		f.add(asm.Mov.Reg(high, address), asm.Mov.Reg(low, address+1))
	} else {
		f.add(asm.Mov.Reg32(high, address))
	}
	// R0 is the place so far, R1 the first. The verifier must not know that the place is 0 at
	// first: it would walk each way through the halves.
	f.add(
		asm.LoadMapValue(asm.R1, 0, 0).WithReference(name),
		asm.LoadMem(asm.R0, asm.R1, rowRate, asm.DWord),
		asm.And.Imm(asm.R0, int32(places-1)),
		asm.LoadMapValue(asm.R1, 0, uint32(f.rows.offset(f.six))).WithReference(name),
	)
	for step := places / 2; step > 0; step /= 2 {
		f.place(asm.R2, step, places, each)
		if f.six {
			f.below6(high, low)
		} else {
			f.below4(high, step)
		}
	}
	f.place(asm.R2, 0, places, each)
	if f.six {
		f.add(asm.LoadMem(asm.R0, asm.R3, 16, asm.DWord))
	} else {
		f.add(asm.LoadMem(asm.R0, asm.R3, 4, asm.Word))
	}
	known := f.Fresh("known")
	f.add(asm.JNE.Imm(asm.R0, 0, known), asm.Return())
	f.Label(known)
	f.add(
		asm.And.Imm(asm.R0, int32(f.rows.rows()-1)),
		asm.LSh.Imm(asm.R0, int32(bits.TrailingZeros(rowBytes))),
		asm.LoadMapValue(regRate, 0, 0).WithReference(name),
		asm.Add.Reg(regRate, asm.R0),
	)
}

// place leaves in a register which place is so many behind that in R0, and in R3 its address.
func (f *Function) place(to asm.Register, behind, places, each int) {
	f.add(
		asm.Mov.Reg(to, asm.R0),
		asm.Add.Imm(to, int32(behind)),
		asm.And.Imm(to, int32(places-1)),
		asm.Mov.Reg(asm.R3, to),
		asm.LSh.Imm(asm.R3, int32(bits.TrailingZeros(uint(each)))),
		asm.Add.Reg(asm.R3, asm.R1),
	)
}

// below4 takes the place in R2 for that in R0 unless the address lies before it. It multiplies by a
// bit: behind a mask that an arithmetic shift has made the verifier of Linux 6.18 goes both ways,
// which doubles what it walks at each step (maybe_fork_scalars of kernel/bpf/verifier.c).
func (f *Function) below4(address asm.Register, step int) {
	f.add(
		asm.LoadMem(asm.R4, asm.R3, 0, asm.Word),
		asm.Mov.Reg(asm.R0, address),
		asm.Sub.Reg(asm.R0, asm.R4),
		asm.RSh.Imm(asm.R0, 63), // 1 if it does
		asm.Mul.Imm(asm.R0, int32(step)),
		asm.Sub.Reg(asm.R2, asm.R0),
		asm.Mov.Reg(asm.R0, asm.R2),
	)
}

// below6 does the same.
func (f *Function) below6(high, low asm.Register) {
	before, take := f.Fresh("before"), f.Fresh("take")
	f.add(asm.LoadMem(asm.R4, asm.R3, 0, asm.DWord))
	f.Forget(asm.R5, high)
	f.add(
		asm.JGT.Reg(asm.R4, asm.R5, before),
		asm.JLT.Reg(asm.R4, asm.R5, take),
		asm.LoadMem(asm.R4, asm.R3, 8, asm.DWord),
	)
	f.Forget(asm.R5, low)
	f.add(asm.JGT.Reg(asm.R4, asm.R5, before))
	f.Label(take)
	f.add(asm.Mov.Reg(asm.R0, asm.R2))
	f.Label(before)
}

// mix makes the hash of a key in R4 that of the key and the packet's prefix. The memory is in
// regSlot.
func (f *Function) mix() {
	f.add(
		asm.LoadMem(asm.R3, regRate, rowKey, asm.DWord),
		asm.Add.Reg(asm.R4, asm.R3),
		asm.LoadMapValue(asm.R3, 0, 0).WithReference(f.Map),
		asm.LoadMem(asm.R3, asm.R3, atLast, asm.DWord),
		asm.Mul.Reg(asm.R4, asm.R3),
		asm.Mov.Reg(asm.R3, asm.R4),
		asm.RSh.Imm(asm.R3, 32),
		asm.Xor.Reg(asm.R4, asm.R3),
	)
}
