package template

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/assembler"
	"levee/internal/lang/spec"
)

// Bounds on what a program does; what is above them is sent from user space.
const (
	// a page without the kernel's head, XDP headroom and skb_shared_info (net/bpf/test_run.c)
	maxLiveFrame = 3072
	maxLivePlans = 16
	maxChain     = 64      // runs of values that are found by comparing
	maxTable     = 1 << 18 // values in tables, 8 bytes each
	maxWhole     = 512     // bytes written for each packet where packets take turns
)

// Program is a template as an eBPF function.
type Program struct {
	// Instructions are the body of a function of (struct xdp_md *, u64 number) that writes the
	// frame of that number over the packet, which is as long as First and began so, and
	// returns its length, or 0 when it cannot. The function has no name yet.
	Instructions asm.Instructions
	// Table is the value of the array map that the instructions refer to as TableMap.
	Table []byte
	First []byte
}

// TableMap is the name by which a program refers to its table.
const TableMap = "template_table"

// Program compiles the template, for packets that begin slack bytes longer than the longest frame.
// returned says that who receives them may write into them before their memory comes back: then
// also the payload that the template gives is written each time. The error says why it can be sent
// from user space only.
func (t *Template) Program(slack int, returned bool) (*Program, error) {
	if len(t.plans) > maxLivePlans {
		return nil, fmt.Errorf("%d packets take turns: the program has room for %d", len(t.plans),
			maxLivePlans)
	}
	c := &compiler{Builder: assembler.New(), longest: t.Longest() + slack,
		turns: len(t.plans) > 1, returned: returned}
	for _, k := range t.plans {
		c.whole = c.whole || c.turns && !zero(k.frame[k.layout.Payload:])
		c.given = max(c.given, given(k))
	}
	for _, k := range t.plans {
		if err := c.can(k); err != nil {
			return nil, err
		}
	}
	c.Emit(asm.Mov.Reg(asm.R6, asm.R1), asm.Mov.Reg(asm.R7, asm.R2))
	if c.turns {
		c.Emit(asm.Mov.Reg(asm.R0, asm.R7), asm.Mod.Imm(asm.R0, int32(len(t.plans))),
			asm.Div.Imm(asm.R7, int32(len(t.plans))))
		for i := 1; i < len(t.plans); i++ {
			c.Emit(asm.JEq.Imm(asm.R0, int32(i), fmt.Sprintf("plan%d", i)))
		}
	}
	for i, k := range t.plans {
		if i > 0 {
			c.Label(fmt.Sprintf("plan%d", i))
		}
		c.plan(k)
	}
	c.Label("fail")
	c.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
	if len(c.table) > maxTable*8 {
		return nil, fmt.Errorf("the values take %d KiB in tables: there is room for %d",
			len(c.table)>>10, maxTable*8>>10)
	}
	if len(c.table) == 0 {
		c.table = make([]byte, 8)
	}
	first := make([]byte, c.longest)
	copy(first, t.plans[0].frame)
	ins, err := c.Finish()
	if err != nil {
		return nil, err
	}
	return &Program{Instructions: ins, Table: c.table, First: first}, nil
}

// compiler holds one function that is being written. Registers: R6 context, then packet; R7 number;
// R8 sum of the transport; R9 sum of the IP header; the others are free between steps, R0 carries
// values.
type compiler struct {
	*assembler.Builder
	table   []byte
	longest int
	turns   bool
	whole   bool // packets take turns, and what lies behind the headers differs
	given   int  // the furthest end of what the template gives of any packet
	// returned says that a frame's memory may come back changed.
	returned bool
}

// given returns where the bytes of a frame end that its template gives; behind them all is zero.
func given(k *plan) int {
	if k.layout.Payload == 0 { // a frame in hex
		return len(k.frame)
	}
	n := len(k.frame)
	for n > k.layout.Payload+k.given && k.frame[n-1] == 0 {
		n--
	}
	return n
}

// can says why a packet cannot be made by a program.
func (c *compiler) can(k *plan) error {
	switch {
	case len(k.frame) > maxLiveFrame:
		return fmt.Errorf("a frame of %d bytes: a live frame holds %d", len(k.frame), maxLiveFrame)
	case k.random > 0:
		return errors.New("the payload is drawn for each packet")
	case k.crc:
		return errors.New("the checksum of SCTP is a CRC, which the program does not compute")
	case c.whole && c.written(k) > maxWhole:
		return fmt.Errorf("packets take turns with payloads, and one has more than %d bytes",
			maxWhole)
	case c.whole && k.length != nil:
		return errors.New("packets take turns with payloads, and one varies in length")
	}
	for i := range k.fields {
		if f := &k.fields[i]; len(f.spans) > maxChain && (f.bits == 128 || f.size > 1<<16) {
			return fmt.Errorf("%s is a list of %d ranges: the program finds values among %d",
				f.word, len(f.spans), maxChain)
		}
	}
	return nil
}

func zero(b []byte) bool {
	for _, v := range b {
		if v != 0 {
			return false
		}
	}
	return true
}

// constant loads v.
func (c *compiler) constant(r asm.Register, v uint64) {
	if v <= math.MaxInt32 {
		c.Emit(asm.Mov.Imm(r, int32(v)))
		return
	}
	c.Emit(asm.LoadImm(r, int64(v), asm.DWord))
}

// with does r = r op v; R5 is lost where v is large.
func (c *compiler) with(op asm.ALUOp, r asm.Register, v uint64) {
	if v <= math.MaxInt32 {
		c.Emit(op.Imm(r, int32(v)))
		return
	}
	c.constant(asm.R5, v)
	c.Emit(op.Reg(r, asm.R5))
}

// below leaves the function unless R0 < v, so that the verifier knows it.
func (c *compiler) below(v uint64) { c.Emit(asm.JGE.Imm(asm.R0, int32(v), "fail")) }

// plan writes one packet.
func (c *compiler) plan(k *plan) {
	varied := k.length != nil
	if varied {
		c.shape(k)
	} else if s := &k.shapes[0]; s.frame != c.longest {
		c.Emit(asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, int32(s.frame-c.longest)),
			asm.FnXdpAdjustTail.Call(),
			asm.JNE.Imm(asm.R0, 0, "fail"))
	}
	n := c.written(k)
	c.Emit(
		asm.LoadMem(asm.R1, asm.R6, 4, asm.Word), // xdp_md.data_end
		asm.LoadMem(asm.R6, asm.R6, 0, asm.Word), // xdp_md.data
		asm.Mov.Reg(asm.R2, asm.R6), asm.Add.Imm(asm.R2, int32(n)),
		asm.JGT.Reg(asm.R2, asm.R1, "fail"))
	if varied && c.returned {
		c.rest(k, n)
	}
	if varied {
		c.Emit(
			asm.LoadMem(asm.R0, asm.R8, shapeFrame, asm.Word),
			asm.StoreMem(asm.RFP, -8, asm.R0, asm.DWord),
			asm.LoadMem(asm.R0, asm.R8, shapeLengths, asm.Word),
			asm.StoreMem(asm.RFP, -16, asm.R0, asm.DWord),
			asm.LoadMem(asm.R9, asm.R8, shapeIP, asm.Word),
			asm.LoadMem(asm.R8, asm.R8, shapeL4, asm.Word))
	} else {
		c.constant(asm.R9, uint64(k.shapes[0].ipSum))
		c.constant(asm.R8, uint64(k.shapes[0].l4Sum))
	}
	c.header(k.frame[:n])
	for i := range k.fields {
		c.field(&k.fields[i])
	}
	c.lengths(k)
	c.finish(asm.R9, k.ipSum)
	c.finish(asm.R8, k.l4Sum)
	if varied {
		c.Emit(asm.LoadMem(asm.R0, asm.RFP, -8, asm.DWord), asm.Return())
		return
	}
	c.Emit(asm.Mov.Imm(asm.R0, int32(k.shapes[0].frame)), asm.Return())
}

// written returns how much of the frame is written each time: the headers, and payload too where it
// is not the same in all packets or may have been changed. What lies behind stays as it was in the
// first.
func (c *compiler) written(k *plan) int {
	switch {
	case c.whole:
		return min(len(k.frame), c.given)
	case k.length != nil && c.returned:
		return k.minLen() // behind it: rest
	case c.returned || k.layout.Payload == 0:
		return given(k)
	}
	return k.layout.Payload
}

// rest writes the payload from byte n on, as far as the packet goes, whose length varies. R1 is its
// end.
func (c *compiler) rest(k *plan, n int) {
	done := c.Fresh("done")
	for ; n < given(k); n++ {
		c.Emit(asm.Mov.Reg(asm.R2, asm.R6), asm.Add.Imm(asm.R2, int32(n+1)),
			asm.JGT.Reg(asm.R2, asm.R1, done),
			asm.StoreImm(asm.R6, int16(n), int64(k.frame[n]), asm.Byte))
	}
	c.Label(done)
}

// Entries of the table for lengths, in the order of bytes of the machine, as all of it.
const (
	shapeFrame   = 0
	shapeLengths = 4 // of UDP and, above it, of IP
	shapeIP      = 8
	shapeL4      = 12
	shapeSize    = 16
)

// shape leaves R8 pointing to the shape of packet R7, and the packet at its length.
func (c *compiler) shape(k *plan) {
	at := len(c.table)
	for _, s := range k.shapes {
		c.table = binary.NativeEndian.AppendUint32(c.table, uint32(s.frame))
		c.table = binary.NativeEndian.AppendUint32(c.table, uint32(s.ipLen)<<16|uint32(s.udpLen))
		c.table = binary.NativeEndian.AppendUint32(c.table, s.ipSum)
		c.table = binary.NativeEndian.AppendUint32(c.table, s.l4Sum)
	}
	c.index(k.length)
	c.below(uint64(len(k.shapes)))
	c.Emit(
		asm.Mul.Imm(asm.R0, shapeSize),
		asm.LoadMapValue(asm.R8, 0, uint32(at)).WithReference(TableMap),
		asm.Add.Reg(asm.R8, asm.R0),
		asm.LoadMem(asm.R2, asm.R8, shapeFrame, asm.Word), asm.Sub.Imm(asm.R2, int32(c.longest)),
		asm.Mov.Reg(asm.R1, asm.R6), asm.FnXdpAdjustTail.Call(), asm.JNE.Imm(asm.R0, 0, "fail"))
}

// header writes what stays the same.
func (c *compiler) header(b []byte) {
	for off := 0; len(b) > 0; {
		size, n := asm.Byte, 1
		var v uint64
		switch {
		case len(b) >= 8:
			size, n, v = asm.DWord, 8, binary.NativeEndian.Uint64(b)
		case len(b) >= 4:
			size, n, v = asm.Word, 4, uint64(binary.NativeEndian.Uint32(b))
		case len(b) >= 2:
			size, n, v = asm.Half, 2, uint64(binary.NativeEndian.Uint16(b))
		default:
			v = uint64(b[0])
		}
		c.constant(asm.R0, v)
		c.Emit(asm.StoreMem(asm.R6, int16(off), asm.R0, size))
		b, off = b[n:], off+n
	}
}

// field writes the value that a field has in packet R7.
func (c *compiler) field(f *field) {
	c.index(&f.walk)
	c.value(f)
	c.put(f)
}

// index sets R0 to walk.index(R7). R1 to R5 are lost.
func (c *compiler) index(w *walk) {
	c.Emit(asm.Mov.Reg(asm.R0, asm.R7))
	if w.every > 1 {
		c.with(asm.Div, asm.R0, w.every)
	}
	switch w.mode {
	case spec.Random:
		c.draw(w)
	case spec.Permuted:
		c.modulo(w.size)
		c.permute(&w.perm)
	default:
		c.modulo(w.steps())
		if w.step > 1 {
			c.with(asm.Mul, asm.R0, w.step)
		}
		if w.down {
			c.constant(asm.R1, w.size-1)
			c.Emit(asm.Sub.Reg(asm.R1, asm.R0), asm.Mov.Reg(asm.R0, asm.R1))
		}
	}
}

// manyPackets is more than any run sends: 24 hours at 10^9 a second.
const manyPackets = 1 << 47

// modulo does R0 %= n.
func (c *compiler) modulo(n uint64) {
	switch k, ok := powerOfTwo(n); {
	case n >= manyPackets:
	case ok && k <= 31:
		c.Emit(asm.And.Imm(asm.R0, int32(n-1)))
	case ok:
		c.constant(asm.R5, n-1)
		c.Emit(asm.And.Reg(asm.R0, asm.R5))
	default:
		c.with(asm.Mod, asm.R0, n)
	}
}

// draw is the function of that name.
func (c *compiler) draw(w *walk) {
	c.constant(asm.R1, golden)
	c.Emit(asm.Mul.Reg(asm.R0, asm.R1))
	c.constant(asm.R1, w.seed)
	c.Emit(asm.Add.Reg(asm.R0, asm.R1))
	for _, step := range []struct {
		shift int32
		mul   uint64
	}{{30, mix1}, {27, mix2}, {31, 0}} {
		c.Emit(asm.Mov.Reg(asm.R1, asm.R0), asm.RSh.Imm(asm.R1, step.shift),
			asm.Xor.Reg(asm.R0, asm.R1))
		if step.mul != 0 {
			c.constant(asm.R1, step.mul)
			c.Emit(asm.Mul.Reg(asm.R0, asm.R1))
		}
	}
	switch _, ok := powerOfTwo(w.size); {
	case ok:
		c.constant(asm.R1, w.size-1)
		c.Emit(asm.And.Reg(asm.R0, asm.R1))
	case w.size <= 1<<32:
		c.Emit(asm.RSh.Imm(asm.R0, 32))
		c.with(asm.Mul, asm.R0, w.size)
		c.Emit(asm.RSh.Imm(asm.R0, 32))
	default:
		c.with(asm.Mod, asm.R0, w.size)
	}
}

// maxCycle bounds the cycle walk: each step is inside with a probability above a half.
const maxCycle = 64

// permute is permutation.at.
func (c *compiler) permute(p *permutation) {
	again, done := c.Fresh("again"), c.Fresh("done")
	walks := p.space != p.mask+1
	if walks {
		c.Emit(asm.Mov.Imm(asm.R4, maxCycle))
		c.Label(again)
	}
	c.constant(asm.R2, p.mask)
	for i := range p.mul {
		c.constant(asm.R1, p.add[i])
		c.Emit(asm.Add.Reg(asm.R0, asm.R1))
		c.constant(asm.R1, p.mul[i])
		c.Emit(asm.Mul.Reg(asm.R0, asm.R1), asm.And.Reg(asm.R0, asm.R2),
			asm.Mov.Reg(asm.R1, asm.R0), asm.RSh.Imm(asm.R1, int32(p.shift)),
			asm.Xor.Reg(asm.R0, asm.R1))
	}
	if !walks {
		return
	}
	c.constant(asm.R1, p.space)
	c.Emit(asm.JLT.Reg(asm.R0, asm.R1, done), asm.Sub.Imm(asm.R4, 1), asm.JGT.Imm(asm.R4, 0, again),
		asm.Ja.Label("fail"))
	c.Label(done)
}

// value turns the index in R0 into the value in R0, of an IPv6 address with its upper half in R1.
func (c *compiler) value(f *field) {
	switch n := len(f.spans); {
	case n == 1:
		c.span(f, &f.spans[0])
	case n <= maxChain:
		done := c.Fresh("done")
		for i := n - 1; i > 0; i-- {
			c.constant(asm.R1, f.spans[i].start)
			next := c.Fresh("next")
			c.Emit(asm.JLT.Reg(asm.R0, asm.R1, next))
			c.span(f, &f.spans[i])
			c.Emit(asm.Ja.Label(done))
			c.Label(next)
		}
		c.span(f, &f.spans[0])
		c.Label(done)
	default:
		at := len(c.table)
		for i := range f.size {
			_, v := f.walk.value(i)
			c.table = binary.NativeEndian.AppendUint64(c.table, v)
		}
		c.below(f.size)
		c.Emit(asm.LSh.Imm(asm.R0, 3), asm.LoadMapValue(asm.R1, 0,
			uint32(at)).WithReference(TableMap),
			asm.Add.Reg(asm.R1, asm.R0), asm.LoadMem(asm.R0, asm.R1, 0, asm.DWord))
	}
}

// span is value for an index that lies in s.
func (c *compiler) span(f *field, s *span) {
	if s.fillHi|s.fillLo == 0 {
		if base := s.lo - s.start; base != 0 {
			c.with(asm.Add, asm.R0, base)
		}
		if f.bits == 128 {
			c.constant(asm.R1, s.hi)
		}
		return
	}
	// scatter
	c.Emit(asm.Mov.Reg(asm.R2, asm.R0))
	c.with(asm.Add, asm.R2, golden)
	c.with(asm.Mul, asm.R2, mix1)
	c.Emit(asm.Mov.Reg(asm.R3, asm.R2), asm.RSh.Imm(asm.R3, 29), asm.Xor.Reg(asm.R2, asm.R3),
		asm.Mov.Reg(asm.R1, asm.R2))
	c.with(asm.And, asm.R1, s.fillHi)
	c.with(asm.Or, asm.R1, s.hi)
	c.with(asm.And, asm.R2, s.fillLo)
	c.with(asm.Or, asm.R2, s.lo)
	c.Emit(asm.Add.Reg(asm.R0, asm.R2))
	if s.start != 0 {
		c.with(asm.Sub, asm.R0, s.start)
	}
}

// put writes R0, or R1 and R0, and adds it to the sums.
func (c *compiler) put(f *field) {
	off := int16(f.from)
	if f.bits == 128 {
		c.add(f, asm.R1)
		c.add(f, asm.R0)
		c.Emit(asm.HostTo(asm.BE, asm.R1, asm.DWord), asm.HostTo(asm.BE, asm.R0, asm.DWord),
			asm.StoreMem(asm.R6, off, asm.R1, asm.DWord),
			asm.StoreMem(asm.R6, off+8, asm.R0, asm.DWord))
		return
	}
	if s := f.shift(); f.inIP || f.inL4 {
		c.Emit(asm.Mov.Reg(asm.R1, asm.R0))
		if s > 0 {
			c.Emit(asm.LSh.Imm(asm.R1, int32(s)))
		}
		if f.inIP {
			c.Emit(asm.Add.Reg(asm.R9, asm.R1))
		}
		if f.inL4 {
			c.Emit(asm.Add.Reg(asm.R8, asm.R1))
		}
	}
	if f.bits == 48 {
		c.Emit(asm.Mov.Reg(asm.R1, asm.R0), asm.RSh.Imm(asm.R1, 32),
			asm.HostTo(asm.BE, asm.R1, asm.Half),
			asm.HostTo(asm.BE, asm.R0, asm.Word), asm.StoreMem(asm.R6, off, asm.R1, asm.Half),
			asm.StoreMem(asm.R6, off+2, asm.R0, asm.Word))
		return
	}
	size, bytes := asm.Byte, 1
	switch n := f.to - f.from; {
	case n > 2:
		size, bytes = asm.Word, 4
	case n == 2:
		size, bytes = asm.Half, 2
	}
	off = int16(f.to - bytes) // a field of three bytes has the one before it for company
	if low := f.to*8 - f.bit - f.bits; low > 0 {
		c.Emit(asm.LSh.Imm(asm.R0, int32(low)))
	}
	if f.bits != bytes*8 { // others share the bytes
		c.Emit(asm.LoadMem(asm.R1, asm.R6, off, size))
		if bytes > 1 {
			c.Emit(asm.HostTo(asm.BE, asm.R1, size))
		}
		c.Emit(asm.Or.Reg(asm.R0, asm.R1))
	}
	if bytes > 1 {
		c.Emit(asm.HostTo(asm.BE, asm.R0, size))
	}
	c.Emit(asm.StoreMem(asm.R6, off, asm.R0, size))
}

// add adds 64 bits to the sums of an IPv6 address.
func (c *compiler) add(f *field, r asm.Register) {
	if !f.inL4 {
		return
	}
	c.Emit(asm.Mov.Reg(asm.R2, r), asm.RSh.Imm(asm.R2, 32), asm.Add.Reg(asm.R8, asm.R2),
		asm.Mov.Reg32(asm.R2, r), asm.Add.Reg(asm.R8, asm.R2))
}

// lengths writes the lengths that the shape says, where they differ from packet to packet or
// nothing else wrote them.
func (c *compiler) lengths(k *plan) {
	for _, l := range []struct {
		at    int
		value uint16
		shift int32
	}{{k.ipLen, k.shapes[0].ipLen, 16}, {k.udpLen, k.shapes[0].udpLen, 0}} {
		switch {
		case l.at == 0:
			continue
		case k.length == nil:
			c.Emit(asm.Mov.Imm(asm.R0, int32(l.value)))
		default:
			c.Emit(asm.LoadMem(asm.R0, asm.RFP, -16, asm.DWord), asm.RSh.Imm(asm.R0, l.shift))
		}
		c.Emit(asm.HostTo(asm.BE, asm.R0, asm.Half),
			asm.StoreMem(asm.R6, int16(l.at), asm.R0, asm.Half))
	}
}

// finish is sum.finish.
func (c *compiler) finish(r asm.Register, s *sum) {
	if s == nil {
		return
	}
	c.Emit(asm.Mov.Reg(asm.R1, r), asm.RSh.Imm(asm.R1, 32), asm.Mov.Reg32(r, r),
		asm.Add.Reg(r, asm.R1))
	for range 4 { // 33, 18, 17 and 16 bits
		c.Emit(asm.Mov.Reg(asm.R1, r), asm.RSh.Imm(asm.R1, 16), asm.And.Imm(r, 0xffff),
			asm.Add.Reg(r, asm.R1))
	}
	c.Emit(asm.Xor.Imm(r, 0xffff))
	for _, zero := range []struct {
		when  bool
		flip  int32
		value int32
	}{{s.nonzero, 0, 0xffff}, {s.wrong, 1, 3}} {
		if !zero.when {
			continue
		}
		if zero.flip != 0 {
			c.Emit(asm.Xor.Imm(r, zero.flip))
		}
		done := c.Fresh("done")
		c.Emit(asm.JNE.Imm(r, 0, done), asm.Mov.Imm(r, zero.value))
		c.Label(done)
	}
	c.Emit(asm.HostTo(asm.BE, r, asm.Half), asm.StoreMem(asm.R6, int16(s.at), r, asm.Half))
}
