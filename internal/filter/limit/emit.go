package limit

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/assembler"
	"levee/internal/lang/policy"
)

// Function is the function of a limit, which is called with the hash of each key, and behind them
// the bytes of the packet where bits are limited, or how many packets there were where it may be
// merged. It charges all budgets and returns 0, or none and returns 1.
type Function struct {
	*assembler.Builder
	Limit *policy.Limit
	Map   string // with the memory
	HZ    uint64 // jiffies a second
	Alone bool   // no other CPU changes the memory
	// Merged says that a packet may stand for several.
	Merged   bool
	Families Families

	six  bool // of rates by prefix: the function is for addresses of IPv6
	rows table
}

// MaxInstructions returns how many instructions a function of a limit has, at most.
func MaxInstructions(l *policy.Limit) int {
	n := 20 + 345*max(1, len(l.Keys))
	if l.Rates != nil {
		n += searchInstructions(l) + 9*max(1, len(l.Keys))
	}
	return n
}

// attempts is the number of times that a slot is charged anew that another CPU has changed
// meanwhile.
const attempts = 8

// Stack bytes of the function, below R10; of each key 32 bytes from stackKeys down.
const (
	stackHash   = -8 // one a key
	stackAmount = -32
	stackPlace  = -37 // of the slot in its line
	stackKeys   = -48
	// of a key, above each other
	ofSlot   = 0   // address
	ofOld    = -8  // word that was read
	ofNew    = -16 // word to write
	ofCharge = -24
	keySize  = 32
)

// Registers of the function.
const (
	regDepth = asm.R6
	regNow   = asm.R7 // shifted to where slots have their time
	regRate  = asm.R8 // of rates by prefix: the row of the packet's
	regSlot  = asm.R9
)

// Label returns the function of the limit whose memory is a map. It is given the hash of each key,
// and the amount where it counts one; it returns 0 where the packet is within the limit.
func Label(memory string) string { return memory + "_charge" }

// Emit emits the functions of the limit.
func (f *Function) Emit() {
	if f.Limit.Rates == nil {
		f.emit(Label(f.Map))
		return
	}
	f.rows = tableOf(f.Limit)
	for _, six := range []bool{false, true} {
		if f.six = six; f.Families.have(six) {
			f.emit(LabelOf(f.Limit, f.Map, six))
		}
	}
}

func (f *Function) emit(name string) {
	keys := max(1, len(f.Limit.Keys))
	var params []assembler.Param
	for i := range keys {
		params = append(params, assembler.Number(fmt.Sprintf("hash%d", i)))
	}
	if f.counted() {
		params = append(params, assembler.Number("amount"))
	}
	address := asm.R1 + asm.Register(len(params))
	if f.Limit.Rates != nil {
		params = append(params, assembler.Number("address"))
		if f.six {
			params = append(params, assembler.Number("low"))
		}
	}
	f.Global(name, params...)
	for i := range keys {
		f.add(asm.StoreMem(asm.R10, stackHash-8*int16(i), asm.R1+asm.Register(i), asm.DWord))
	}
	if f.counted() {
		f.add(asm.StoreMem(asm.R10, stackAmount, asm.R1+asm.Register(keys), asm.DWord))
	}
	if f.Limit.Rates != nil {
		f.search(address)
	}
	f.now()
	if f.Limit.Rates != nil {
		f.add(asm.LoadMem(regDepth, regRate, rowDepth, asm.DWord))
	} else {
		f.add(asm.LoadImm(regDepth, int64(f.Limit.Depth()), asm.DWord))
	}
	over := f.Fresh("over")
	for i := range keys {
		f.find(i)
		f.charge(i, over)
	}
	for i := range keys {
		f.commit(i, over)
	}
	f.add(asm.Mov.Imm(asm.R0, 0), asm.Return())
	f.Label(over)
	f.add(asm.Mov.Imm(asm.R0, 1), asm.Return())
}

// counted says whether the function is told how much the packet is.
func (f *Function) counted() bool { return f.Limit.Rate.Bits || f.Merged }

// add adds instructions.
func (f *Function) add(ins ...asm.Instruction) { f.Builder.Emit(ins...) }

func at(key int, of int16) int16 { return stackKeys - int16(key)*keySize + of }

// now leaves the time in regNow.
func (f *Function) now() {
	f.Jiffies()
	f.add(
		asm.Mov.Reg(regNow, asm.R0),
		asm.Mul.Imm(regNow, int32(Tick(f.HZ))),
	)
	if f.Limit.Shift > 0 {
		f.add(asm.RSh.Imm(regNow, int32(f.Limit.Shift)))
	}
	f.add(asm.LSh.Imm(regNow, tagBits))
}

// orders are those in which the keys of a limit look for an empty slot. The keys of one packet may
// have the same line, and none has written its slot yet when the next looks: each begins where the
// others end, so that two take the same one only in a line that is all but full.
var orders = [policy.MaxKeys][policy.SlotsInLine]int{
	{0, 1, 2, 3, 4, 5, 6, 7},
	{7, 6, 5, 4, 3, 2, 1, 0},
	{4, 3, 5, 2, 6, 1, 7, 0},
}

// find leaves the slot of a key in regSlot, its word in R0 and the tag in R4.
func (f *Function) find(key int) {
	lines := bits.Len(uint(f.Limit.Lines())) - 1
	found := f.Fresh("found")
	f.add(
		asm.LoadMapValue(regSlot, 0, Head).WithReference(f.Map),
		asm.LoadMem(asm.R4, asm.R10, stackHash-8*int16(key), asm.DWord),
	)
	if f.Limit.Rates != nil {
		f.mix()
	}
	if lines > 0 {
		f.add(
			asm.Mov.Reg(asm.R3, asm.R4),
			asm.RSh.Imm(asm.R3, int32(64-lines)),
			asm.LSh.Imm(asm.R3, 6),
			asm.Add.Reg(regSlot, asm.R3),
			asm.LSh.Imm(asm.R4, lineBits),
		)
	}
	f.add(asm.RSh.Imm(asm.R4, timeBits))
	if f.Limit.One() { // in the first slot
		f.add(asm.LoadMem(asm.R0, regSlot, 0, asm.DWord))
		return
	}
	places := make([]string, policy.SlotsInLine)
	for i := range places {
		places[i] = f.Fresh("slot")
		f.add(
			asm.LoadMem(asm.R0, regSlot, int16(8*i), asm.DWord),
			asm.Mov.Reg(asm.R1, asm.R0),
			asm.Xor.Reg(asm.R1, asm.R4),
			asm.And.Imm(asm.R1, 1<<tagBits-1),
			asm.JEq.Imm(asm.R1, 0, places[i]),
		)
	}
	// None is the key's own: an empty one, else that with the least debt.
	f.add(asm.Mov.Imm(asm.R2, 0), asm.LoadImm(asm.R3, -1, asm.DWord))
	f.most(asm.R5)
	for _, i := range orders[key] {
		next := f.Fresh("next")
		f.add(
			asm.LoadMem(asm.R0, regSlot, int16(8*i), asm.DWord),
			asm.JEq.Imm(asm.R0, 0, places[i]),
			asm.Mov.Reg(asm.R1, asm.R0),
			asm.Sub.Reg(asm.R1, regNow),
			asm.RSh.Imm(asm.R1, tagBits),
			asm.Sub.Imm(asm.R1, 1),
			asm.JGE.Reg(asm.R1, asm.R5, places[i]),
			asm.JGE.Reg(asm.R1, asm.R3, next),
			asm.Mov.Reg(asm.R3, asm.R1),
			asm.Mov.Imm(asm.R2, int32(8*i)),
		)
		f.Label(next)
	}
	f.add(asm.Ja.Label(found))
	f.Meet(places, found, regSlot, 8, stackPlace)
	f.add(asm.LoadMem(asm.R0, regSlot, 0, asm.DWord))
}

// charge works out the word that a slot is to have, or goes to over.
func (f *Function) charge(key int, over string) {
	f.amount(key)
	f.next(over)
	f.add(
		asm.StoreMem(asm.R10, at(key, ofSlot), regSlot, asm.DWord),
		asm.StoreMem(asm.R10, at(key, ofOld), asm.R0, asm.DWord),
		asm.StoreMem(asm.R10, at(key, ofNew), asm.R1, asm.DWord),
		asm.StoreMem(asm.R10, at(key, ofCharge), asm.R2, asm.DWord),
	)
}

// late is the largest lag of a CPU's time behind that of another, which has read it before: by a
// tick, and by as long as what the first does may be interrupted for.
const late = 100 * time.Millisecond

// most leaves what a word may be ahead of the time in a register: a budget that another CPU has
// used up since owes more than it can.
func (f *Function) most(reg asm.Register) {
	f.add(asm.Mov.Reg(reg, regDepth), asm.Add.Imm(reg, int32(late>>f.Limit.Shift)))
}

// next leaves the word in R1 that a slot with the word in R0 gets when the charge in R2 is taken,
// with the tag in R4, or goes to over where the budget has not as much. R3 is used.
func (f *Function) next(over string) {
	owing, empty := f.Fresh("owing"), f.Fresh("empty")
	f.add(
		asm.JEq.Imm(asm.R0, 0, empty),
		asm.Mov.Reg(asm.R1, asm.R0),
		asm.Sub.Reg(asm.R1, regNow),
		asm.RSh.Imm(asm.R1, tagBits),
	)
	f.most(asm.R3)
	f.add(asm.JLE.Reg(asm.R1, asm.R3, owing))
	f.Label(empty)
	f.add(asm.Mov.Imm(asm.R1, 0))
	f.Label(owing)
	f.add(
		asm.Add.Reg(asm.R1, asm.R2),
		asm.JGT.Reg(asm.R1, regDepth, over),
		asm.LSh.Imm(asm.R1, tagBits),
		asm.Add.Reg(asm.R1, regNow),
		asm.Or.Reg(asm.R1, asm.R4),
	)
}

// amount leaves what the packet costs in R2: see policy.Limit.Charge.
func (f *Function) amount(key int) {
	l := f.Limit
	if len(l.Keys) == 0 {
		key = -1
	}
	if !l.Rate.Bits {
		if l.Rates != nil {
			f.add(asm.LoadMem(asm.R2, regRate, rowRate, asm.DWord))
		} else {
			f.add(asm.LoadImm(asm.R2, int64(l.Charge(key, 0)), asm.DWord))
		}
		if f.Merged {
			f.add(
				asm.LoadMem(asm.R1, asm.R10, stackAmount, asm.DWord),
				asm.Mul.Reg(asm.R2, asm.R1),
			)
		}
		return
	}
	amount := l.Rate.Amount
	if key >= 0 {
		amount *= l.Keys[key].Times
	}
	some := f.Fresh("some")
	f.add(
		asm.LoadMem(asm.R2, asm.R10, stackAmount, asm.DWord),
		asm.LoadImm(asm.R1, int64(8*time.Second), asm.DWord),
		asm.Mul.Reg(asm.R2, asm.R1),
	)
	if l.Rates != nil {
		f.add(asm.LoadMem(asm.R1, regRate, rowRate, asm.DWord))
	} else {
		f.add(asm.LoadImm(asm.R1, int64(amount), asm.DWord))
	}
	f.add(
		asm.Add.Reg(asm.R2, asm.R1),
		asm.Sub.Imm(asm.R2, 1),
		asm.Div.Reg(asm.R2, asm.R1),
	)
	if l.Shift > 0 {
		f.add(
			asm.LoadImm(asm.R1, 1<<l.Shift-1, asm.DWord),
			asm.Add.Reg(asm.R2, asm.R1),
			asm.RSh.Imm(asm.R2, int32(l.Shift)),
		)
	}
	f.add(asm.JNE.Imm(asm.R2, 0, some), asm.Mov.Imm(asm.R2, 1))
	f.Label(some)
}

// commit writes the word of a slot. Where another CPU has written it since it was read, what that
// has left counts, whoever's it is.
func (f *Function) commit(key int, over string) {
	load := func(to asm.Register, of int16) {
		f.add(asm.LoadMem(to, asm.R10, at(key, of), asm.DWord))
	}
	done := f.Fresh("done")
	load(regSlot, ofSlot)
	load(asm.R1, ofNew)
	if f.Alone {
		f.add(asm.StoreMem(regSlot, 0, asm.R1, asm.DWord))
	} else {
		load(asm.R0, ofOld)
		for i := range attempts {
			if i > 0 {
				load(asm.R4, ofNew)
				f.add(asm.And.Imm(asm.R4, 1<<tagBits-1))
				load(asm.R2, ofCharge)
				f.next(over)
			}
			f.add(asm.Mov.Reg(asm.R3, asm.R0))
			f.CompareAndSwap(regSlot, asm.R1)
			f.add(asm.JEq.Reg(asm.R0, asm.R3, done))
		}
		f.bump(atContended)
		f.add(asm.Ja.Label(over))
	}
	f.Label(done)
	if f.Limit.One() {
		return
	}
	own := f.Fresh("own")
	load(asm.R0, ofOld)
	load(asm.R1, ofNew)
	f.add(
		asm.Xor.Reg(asm.R1, asm.R0),
		asm.And.Imm(asm.R1, 1<<tagBits-1),
		asm.JEq.Imm(asm.R1, 0, own),
		asm.JEq.Imm(asm.R0, 0, own),
		asm.Sub.Reg(asm.R0, regNow),
		asm.RSh.Imm(asm.R0, tagBits),
		asm.Mov.Reg(asm.R1, asm.R0),
		asm.Sub.Imm(asm.R1, 1),
		asm.JGE.Reg(asm.R1, regDepth, own),
	)
	f.bump(atEvicted)
	f.add(
		asm.LoadMapValue(asm.R1, 0, atInherited).WithReference(f.Map),
		asm.AddAtomic.Mem(asm.R1, asm.R0, asm.DWord, 0),
	)
	f.Label(own)
}

// bump adds 1 to a counter of the memory.
func (f *Function) bump(counter uint32) {
	f.add(
		asm.LoadMapValue(asm.R1, 0, counter).WithReference(f.Map),
		asm.Mov.Imm(asm.R2, 1),
		asm.AddAtomic.Mem(asm.R1, asm.R2, asm.DWord, 0),
	)
}

// Hash emits the hash of a key, of pieces of 32 bits that functions load into R1, and leaves it in
// R0. R1 to R3 are used. Keys of IPv4 and of IPv6 packets are different ones.
func Hash(b *assembler.Builder, memory string, key int, six bool, pieces []func()) {
	b.Emit(
		asm.LoadMapValue(asm.R3, 0, 0).WithReference(memory),
		asm.LoadMem(asm.R0, asm.R3, atStarts+8*int16(key), asm.DWord),
	)
	if six {
		b.Emit(
			asm.LoadMem(asm.R1, asm.R3, atFactors+8*(factors-1), asm.DWord),
			asm.Add.Reg(asm.R0, asm.R1),
		)
	}
	for i, load := range pieces {
		load()
		b.Emit(
			asm.LoadMem(asm.R2, asm.R3, atFactors+8*int16(i), asm.DWord),
			asm.Mul.Reg(asm.R1, asm.R2),
			asm.Add.Reg(asm.R0, asm.R1),
		)
	}
	b.Emit(
		asm.Mov.Reg(asm.R1, asm.R0),
		asm.RSh.Imm(asm.R1, 32),
		asm.Xor.Reg(asm.R0, asm.R1),
		asm.LoadMem(asm.R1, asm.R3, atLast, asm.DWord),
		asm.Mul.Reg(asm.R0, asm.R1),
	)
}
