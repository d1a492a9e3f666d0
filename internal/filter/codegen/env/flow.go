package env

import (
	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/cookie"
	"levee/internal/filter/flow"
	"levee/internal/filter/ir"
	"levee/internal/filter/plan"
	"levee/internal/lang/field"
)

// FastProof stores what a client acknowledges, or the number of an echo, from the header at l4.
func (c *Code) FastProof(class ir.Class, l4 int16) {
	at := l4 + 8
	switch class.Transport {
	case ir.UDP:
		return
	case ir.ICMP:
		at = l4 + 4
	}
	c.Emit(
		asm.LoadMem(asm.R2, RegData, at, asm.Word), asm.HostTo(asm.BE, asm.R2, asm.Word),
		asm.StoreMem(asm.R10, KeyProof, asm.R2, asm.Word),
	)
}

// LookUpFlow looks up the connection of a packet, by the fields in the registers of its chain. It
// stores in key.flow whether the connection is known.
func (c *Code) LookUpFlow(ch *plan.Chain) {
	class := ch.Classes[0]
	six, proto := class.Family == ir.IPv6, class.Proto()
	if c.Target.Leaves {
		c.lookUpAnswer(ch)
		return
	}
	done := c.Fresh("looked_up")
	if class.Transport == ir.ICMP {
		answer := c.Fresh("echo_reply")
		c.Emit(
			asm.Mov.Reg(asm.R1, RegDstPort),
			asm.RSh.Imm(asm.R1, 8),
			asm.Mov.Imm(asm.R0, 0),
			asm.JEq.Imm(asm.R1, int32(flow.EchoReply(six)), answer),
		)
		if c.Quotes(ch) {
			c.lookUpQuote(six, done)
		} else {
			c.Emit(asm.Ja.Label(done))
		}
		c.Label(answer)
	}
	flow.Hash(c.Builder, six, proto, c.flowPieces(class))
	c.Emit(asm.Mov.Reg(asm.R1, asm.R0))
	if class.Transport == ir.UDP {
		c.Emit(
			asm.StoreMem(asm.R10, mainStranger, asm.R0, asm.DWord),
			asm.StoreMem(asm.R10, KeyDstPort, RegDstPort, asm.Half),
		)
	}
	if class.Transport == ir.TCP {
		at, n := c.FieldAt(field.TCPFlags)
		c.Emit(
			asm.LoadMem(asm.R2, asm.R10, at, SizeOf(n)),
			asm.LoadMem(asm.R3, asm.R10, KeyProof, asm.Word),
		)
	}
	c.Emit(asm.Call.Label(flow.Label(proto)))
	if class.Transport == ir.UDP {
		c.lookUpGroup(six, done)
	}
	if class.Transport != ir.ICMP {
		c.Emit(asm.JLE.Imm(asm.R0, flow.Known, done))
		if class.Transport == ir.TCP && c.Plan.ProvesSources() {
			c.proveSource(six, done)
		}
		if c.Target.Clock { // in tests no connection is older
			c.Emit(asm.Mov.Imm(asm.R0, 0))
		} else {
			c.askKernel(six, class.Transport)
		}
	}
	c.Label(done)
	c.Emit(asm.StoreMem(asm.R10, keyFlow, asm.R0, asm.Byte))
	if class.Transport == ir.UDP {
		strange := c.Fresh("strange")
		c.Emit(asm.JEq.Imm(asm.R0, flow.Unknown, strange))
		c.NoStranger()
		c.Label(strange)
	}
}

// lookUpGroup goes to done with 1 in R0 where a packet over UDP answers what a group has been
// asked. Else it leaves in R0 what the look-up of its own connection returned.
func (c *Code) lookUpGroup(six bool, done string) {
	none := c.Fresh("no_group")
	c.Emit(asm.JLT.Imm(asm.R0, flow.Groups, none))
	// Functions change R0 to R5; the place of the result is free until there is one.
	c.Emit(
		asm.And.Imm(asm.R0, flow.Groups-1),
		asm.StoreMem(asm.R10, keyFlow, asm.R0, asm.Byte),
		asm.Mov.Reg(asm.R1, RegDst),
		asm.Mov.Imm(asm.R2, 0),
		asm.Mov.Reg(asm.R3, RegSrc),
		asm.Mov.Reg(asm.R4, RegDstPort),
		asm.Mov.Imm(asm.R5, 0),
	)
	if six {
		c.Emit(
			asm.LoadMem(asm.R2, asm.R10, KeyDstLo, asm.DWord),
			asm.Mov.Imm(asm.R5, 1),
		)
	}
	c.Emit(
		asm.Call.Label(flow.AnswersGroup),
		asm.JNE.Imm(asm.R0, flow.Unknown, done),
		asm.LoadMem(asm.R0, asm.R10, keyFlow, asm.Byte),
	)
	c.Label(none)
}

// notesStrangers reports whether the program notes who has begun over UDP.
func (c *Code) notesStrangers() bool { return c.Plan.Tracks() && !c.Target.Leaves }

// NoStranger clears the mark by which the program's end notes that the other side has begun a flow.
func (c *Code) NoStranger() {
	if c.notesStrangers() {
		c.Emit(
			asm.Mov.Imm(asm.R0, 0),
			asm.StoreMem(asm.R10, mainStranger, asm.R0, asm.DWord),
		)
	}
}

// NoPort fills what NoteStranger reads of an environment that nobody clears.
func (c *Code) NoPort() {
	if c.notesStrangers() {
		c.Emit(asm.Mov.Imm(asm.R0, 0), asm.StoreMem(asm.R10, KeyDstPort, asm.R0, asm.Half))
	}
}

// NoteStranger notes that the other side began where a packet over UDP of no known connection
// passes: the verdict is in R7. R6 and R7 are kept.
func (c *Code) NoteStranger() {
	if !c.notesStrangers() {
		return
	}
	noted := c.Fresh("noted")
	c.Emit(
		asm.JNE.Imm32(asm.R7, c.PassCode(), noted),
		asm.LoadMem(asm.R1, asm.R10, mainStranger, asm.DWord),
		asm.JEq.Imm(asm.R1, 0, noted),
		asm.Call.Label(flow.NoteStranger),
		asm.JEq.Imm(asm.R0, 0, noted),
		asm.LoadMem(asm.R1, asm.R10, KeyDstPort, asm.Half),
		asm.Call.Label(flow.NoteServed),
	)
	c.Label(noted)
}

// proveSource has cookies know the source of a segment that proves it, leaves 1 in R0 and goes to
// done.
func (c *Code) proveSource(six bool, done string) {
	ask := c.Fresh("ask")
	c.Emit(asm.JNE.Imm(asm.R0, flow.Proven, ask))
	c.CallSource(six, cookie.ProveLabel)
	c.Emit(asm.Mov.Imm(asm.R0, flow.Known), asm.Ja.Label(done))
	c.Label(ask)
}

// Quotes reports whether packets of a chain may be ICMP errors, which quote a packet of a
// connection.
func (c *Code) Quotes(ch *plan.Chain) bool {
	return ch.Tracked && ch.Classes[0].Transport == ir.ICMP && !c.Target.Plain && !c.Target.Leaves
}

// lookUpQuote looks up the connection of the packet that an ICMP error quotes. The ICMP type is in
// R1. Packets that are no error go to done at once.
func (c *Code) lookUpQuote(six bool, done string) {
	quote := c.Fresh("icmp_error")
	for _, t := range flow.Errors(six) {
		c.Emit(asm.JEq.Imm(asm.R1, int32(t), quote))
	}
	c.Emit(asm.Ja.Label(done))
	c.Label(quote)
	c.Context(asm.R1)
	c.Emit(
		asm.LoadMem(asm.R2, asm.R10, KeyOff, asm.Half),
		asm.LoadMem(asm.R3, asm.R10, KeyLeft, asm.Half),
		asm.Mov.Reg(asm.R4, RegDst),
	)
	if six {
		c.Emit(asm.LoadMem(asm.R5, asm.R10, KeyDstLo, asm.DWord))
	}
	c.Emit(asm.Call.Label(flow.QuoteLabel(six)), asm.Ja.Label(done))
}

// askKernel leaves 1 in R0 if the kernel has a socket for the packet's connection: for TCP one with
// a complete handshake, for UDP one that is connected to the packet's source. What the connection
// sends is noted at egress.
func (c *Code) askKernel(six bool, transport ir.Transport) {
	const tuple = -48 // struct bpf_sock_tuple in the scratch above the environment
	// Of the states (include/net/tcp_states.h) those in which data may come. A socket of UDP is
	// established if it is connected, else closed: that one takes what anybody sends.
	lookUp, states := asm.FnSkcLookupTcp, int32(1<<1|1<<4|1<<5|1<<8|1<<9|1<<11)
	if transport == ir.UDP {
		lookUp, states = asm.FnSkLookupUdp, 1<<1
	}
	bytes, none, found := int32(12), c.Fresh("no_socket"), c.Fresh("socket")
	put := func(at int16, reg asm.Register, size asm.Size) {
		c.Emit(asm.Mov.Reg(asm.R1, reg), asm.HostTo(asm.BE, asm.R1, size),
			asm.StoreMem(asm.R10, tuple+at, asm.R1, size))
	}
	if six {
		bytes = 36
		for i, a := range []struct {
			hi asm.Register
			lo int16
		}{{RegSrc, KeySrcLo}, {RegDst, KeyDstLo}} {
			put(int16(16*i), a.hi, asm.DWord)
			c.Emit(asm.LoadMem(asm.R0, asm.R10, a.lo, asm.DWord))
			put(int16(16*i)+8, asm.R0, asm.DWord)
		}
		put(32, RegSrcPort, asm.Half)
		put(34, RegDstPort, asm.Half)
	} else {
		put(0, RegSrc, asm.Word)
		put(4, RegDst, asm.Word)
		put(8, RegSrcPort, asm.Half)
		put(10, RegDstPort, asm.Half)
	}
	c.Context(asm.R1)
	c.Emit(
		asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, tuple),
		asm.Mov.Imm(asm.R3, bytes),
		asm.Mov.Imm(asm.R4, currentNetns),
		asm.Mov.Imm(asm.R5, 0),
		lookUp.Call(),
		asm.JNE.Imm(asm.R0, 0, found),
		asm.Ja.Label(none),
	)
	c.Label(found)
	c.Emit(
		asm.LoadMem(asm.R2, asm.R0, sockState, asm.Word),
		asm.StoreMem(asm.R10, tuple, asm.R2, asm.Word),
		asm.Mov.Reg(asm.R1, asm.R0),
		asm.FnSkRelease.Call(),
		asm.LoadMem(asm.R2, asm.R10, tuple, asm.Word),
		asm.And.Imm(asm.R2, 31),
		asm.Mov.Imm(asm.R0, states),
		asm.RSh.Reg(asm.R0, asm.R2),
		asm.And.Imm(asm.R0, 1),
	)
	c.Label(none)
}

// From include/uapi/linux/bpf.h: BPF_F_CURRENT_NETNS, and where struct bpf_sock has the state.
const (
	currentNetns = -1
	sockState    = 72
)

// flowPieces returns the parts of a connection that are hashed, the side of the policy first.
func (c *Code) flowPieces(class ir.Class) map[int]func() {
	upper := func(r asm.Register) func() {
		return func() { c.Emit(asm.Mov.Reg(asm.R1, r), asm.RSh.Imm(asm.R1, 32)) }
	}
	lower := func(r asm.Register) func() { return func() { c.Emit(asm.Mov.Reg32(asm.R1, r)) } }
	word := func(at int16) func() {
		return func() { c.Emit(asm.LoadMem(asm.R1, asm.R10, at, asm.Word)) }
	}
	out := map[int]func(){}
	sides := []struct {
		hi, port asm.Register
		lo       int16
	}{{RegDst, RegDstPort, KeyDstLo}, {RegSrc, RegSrcPort, KeySrcLo}}
	if c.Target.Leaves {
		sides[0], sides[1] = sides[1], sides[0]
	}
	for i, a := range sides {
		if class.Family == ir.IPv4 {
			out[4*i] = lower(a.hi)
			continue
		}
		out[4*i], out[4*i+1] = upper(a.hi), lower(a.hi)
		out[4*i+2], out[4*i+3] = word(a.lo+4), word(a.lo) // a number of the machine's order
	}
	out[8] = func() {
		c.Emit(asm.Mov.Reg(asm.R1, sides[0].port), asm.LSh.Imm(asm.R1, 16),
			asm.Or.Reg(asm.R1, sides[1].port))
	}
	if class.Transport == ir.ICMP { // the identifier
		out[8] = func() {
			c.Emit(asm.LoadMem(asm.R1, asm.R10, KeyProof, asm.Word), asm.RSh.Imm(asm.R1, 16))
		}
	}
	return out
}

// CallSource calls a function of package cookie for the source of a packet of a chain.
func (c *Code) CallSource(six bool, label string) {
	c.Emit(asm.Mov.Reg(asm.R1, RegSrc))
	if six {
		c.Emit(asm.LoadMem(asm.R2, asm.R10, KeySrcLo, asm.DWord))
	} else {
		c.Emit(asm.Mov.Imm(asm.R2, 0))
	}
	c.Emit(asm.Mov.Imm(asm.R3, cookie.Class(six)), asm.Call.Label(label))
}
