package codegen

import (
	"fmt"

	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/codegen/env"
	"levee/internal/filter/ir"
	"levee/internal/filter/names"
	"levee/internal/filter/plan"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
)

// What is known of a DNS message lies where packets over UDP have nothing in struct key: the facts
// (package names) in place of what a TCP client acknowledges, the question's type in that of an
// ICMP type, the size that EDNS tells in that of a window. Facts are 0 until a rule asks.
const (
	messageType = env.KeyICMP
	messageSize = env.KeyWindow
)

// messageFacts returns where the facts are. Of what leaves the uid is there, if rules ask for it,
// and the facts are in place of a fragment's identification.
func (c *compiler) messageFacts() int16 {
	if c.Target.Leaves {
		return env.KeyDatagram
	}
	return env.KeyProof
}

// namesLabel returns the function that searches a table of names.
func namesLabel(t *plan.Table) string { return t.Name + "_search" }

// noMessage marks the packet's DNS message as not yet read. The verifier must not know that the
// mark is 0: it would walk the rules once for 0, and once for the words of messages.
func (c *compiler) noMessage(ch *plan.Chain) {
	if !plan.AsksMessages(ch.Rules) {
		return
	}
	c.Emit(
		asm.LoadMem(asm.R0, asm.R10, env.KeyBytes, asm.Word),
		asm.Sub.Reg(asm.R0, asm.R0),
		asm.StoreMem(asm.R10, c.messageFacts(), asm.R0, asm.Word),
		asm.StoreMem(asm.R10, messageType, asm.R0, asm.Half),
		asm.StoreMem(asm.R10, messageSize, asm.R0, asm.Half),
	)
}

// facts leaves what is known of the message in R1; the first rule that asks has it read.
func (c *compiler) facts() {
	seen := c.Fresh("message_read")
	c.Field(asm.R1, c.messageFacts(), asm.Word)
	if c.inArms { // it has been read in front of them
		return
	}
	c.Emit(asm.JNE.Imm(asm.R1, 0, seen))
	c.Context(asm.R1)
	c.Field(asm.R2, env.KeyOff, asm.Half)
	c.Field(asm.R3, env.KeyLeft, asm.Half)
	to, at := asm.R10, int16(0)
	c.Emit(asm.Mov.Imm(asm.R4, int32(c.Plan.Deepest)), asm.Call.Label(names.Label))
	if c.InFunction {
		to, at = asm.R2, -env.At
		c.Emit(asm.LoadMem(to, asm.R10, env.Pointer, asm.DWord))
	}
	c.Emit(
		asm.StoreMem(to, messageType+at, asm.R0, asm.Half),
		asm.Mov.Reg(asm.R1, asm.R0),
		asm.RSh.Imm(asm.R0, 16),
		asm.StoreMem(to, messageSize+at, asm.R0, asm.Half),
		asm.RSh.Imm(asm.R1, 32),
		asm.StoreMem(to, c.messageFacts()+at, asm.R1, asm.Word),
	)
	c.Label(seen)
}

// inMessage asks what the DNS message of a packet has.
func inMessage(q *ir.Cond) extra {
	return extra{looks: true, asks: true, emit: func(c *compiler, no string) {
		c.facts()
		needs := map[field.Field]int32{field.DNSName: names.Question, field.DNSType: names.Question,
			field.DNSSize: names.EDNS, field.DNSQuery: names.Header, field.DNSOpcode: names.Header,
			field.DNSResponse: names.Header, field.DNSMalformed: names.Seen}[q.Field]
		if needs == 0 {
			panic(env.Unknown(q.Field))
		}
		c.Emit(
			asm.Mov.Reg(asm.R0, asm.R1),
			asm.And.Imm(asm.R0, needs),
			asm.JEq.Imm(asm.R0, 0, no),
		)
		if q.Field == field.DNSName {
			c.Emit(
				asm.RSh.Imm(asm.R1, names.LabelsShift),
				asm.And.Imm(asm.R1, 0xff),
			)
			c.searchNames(q.Names)
			if q.Not {
				c.Emit(asm.JNE.Imm(asm.R0, 0, no))
			} else {
				c.Emit(asm.JEq.Imm(asm.R0, 0, no))
			}
			return
		}
		c.messageValue(q.Field)
		yes := c.Fresh("in_message")
		to := yes
		if q.Not {
			to = no
		}
		for _, r := range q.Ranges {
			other := c.Fresh("other")
			c.Emit(
				asm.JLT.Imm(asm.R1, int32(r.Lo), other),
				asm.JLE.Imm(asm.R1, int32(r.Hi), to),
			)
			c.Label(other)
		}
		if !q.Not {
			c.Emit(asm.Ja.Label(no))
			c.Label(yes)
		}
	}}
}

// searchNames looks the name of the message, of as many labels as R1 says, up in a list.
func (c *compiler) searchNames(l *policy.NameList) {
	if !l.Dynamic() {
		c.Emit(asm.Call.Label(namesLabel(c.Plan.NameTables[l.Number])))
		return
	}
	if c.Plan.Shared() {
		c.Emit(asm.Mov.Imm(asm.R2, int32(c.Plan.Places[l.Set].Key)))
	}
	c.Emit(asm.Call.Label(c.setFunction(l.Set, false)))
}

// messageValue leaves the value of a field in R1, where the facts are.
func (c *compiler) messageValue(f field.Field) {
	bit := func(b int32) {
		c.Emit(asm.And.Imm(asm.R1, b), asm.RSh.Imm(asm.R1, shiftOf(b)))
	}
	switch f {
	case field.DNSType:
		c.Field(asm.R1, messageType, asm.Half)
	case field.DNSSize:
		c.Field(asm.R1, messageSize, asm.Half)
	case field.DNSOpcode:
		c.Emit(asm.RSh.Imm(asm.R1, names.OpcodeShift), asm.And.Imm(asm.R1, 15))
	case field.DNSQuery:
		bit(names.Response)
		c.Emit(asm.Xor.Imm(asm.R1, 1))
	case field.DNSResponse:
		bit(names.Response)
	case field.DNSMalformed:
		bit(names.Malformed)
	default:
		panic(fmt.Sprintf("no value of a DNS message: %v", f))
	}
}

// shiftOf returns the number of a bit.
func shiftOf(bit int32) (n int32) {
	for bit>>n&1 == 0 {
		n++
	}
	return n
}

// placeNames gives the tables of names, and the keys of their digests, a place.
func (c *compiler) placeNames() {
	if !c.Plan.ReadsMessages() {
		return
	}
	c.constant(names.KeysTable, names.Keys(c.Target.Names))
	for _, t := range c.Plan.NameTables {
		if t == nil {
			continue
		}
		c.constant(t.Name, t.Names.Bytes())
		c.tables = append(c.tables, Table{For: t.For, Kind: t.Kind, Bytes: t.Bytes, Why: t.Why})
	}
}

// emitNames emits the function that reads messages, and those that search names.
func (c *compiler) emitNames() error {
	if !c.Plan.ReadsMessages() {
		return nil
	}
	if c.Referenced(names.KeyLabel) {
		names.EmitKey(c.Builder)
	}
	tcx := c.Target.Hook.OfSKB()
	if err := names.Emit(c.Builder, c.ContextParam(), tcx, c.Target.Frags); err != nil {
		return err
	}
	for _, t := range c.Plan.NameTables {
		if t != nil {
			t.Names.EmitSearch(c.Builder, namesLabel(t), t.Name)
		}
	}
	return nil
}

// nameKeyAt returns where the digest of a limit's key waits, in the scratch of look-ups.
func nameKeyAt(key int) int16 { return -8 * int16(key+1) }

// nameKey leaves in a register the digest of the last labels of the name, as many as the key counts
// by.
func (c *compiler) nameKey(k *policy.Key, key int) {
	c.facts()
	c.Emit(
		asm.RSh.Imm(asm.R1, names.LabelsShift),
		asm.And.Imm(asm.R1, 0xff),
		asm.Mov.Imm(asm.R2, int32(k.Labels)),
		asm.Call.Label(names.KeyLabel),
		asm.StoreMem(asm.R10, nameKeyAt(key), asm.R0, asm.DWord),
	)
}

// namePieces returns what such a key is hashed of, 32 bits each, which the functions load into R1.
func (c *compiler) namePieces(key int) (out []func()) {
	for half := range int16(2) {
		out = append(out, func() {
			c.Emit(asm.LoadMem(asm.R1, asm.R10, nameKeyAt(key)+4*half, asm.Word))
		})
	}
	return out
}
