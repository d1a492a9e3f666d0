package codegen

import (
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// A program with several functions tells the kernel their types. What it gains: a function that is
// global is verified once, by itself, and not again at each call (Linux 5.6). Only such types as
// need nothing of the kernel's own BTF are used, so that the program loads where the kernel has none.
var (
	typeInt = &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed}
	typeU64 = &btf.Int{Name: "unsigned long long", Size: 8}
	typePtr = &btf.Pointer{Target: &btf.Void{}}
)

// signature puts the type of a function on its first instruction.
func signature(in asm.Instruction, linkage btf.FuncLinkage, params ...btf.Type) asm.Instruction {
	proto := &btf.FuncProto{Return: typeInt}
	for i, t := range params {
		proto.Params = append(proto.Params, btf.FuncParam{Name: string(rune('a' + i)), Type: t})
	}
	return btf.WithFuncMetadata(in, &btf.Func{Name: in.Symbol(), Type: proto, Linkage: linkage})
}

// lookup is a function of two numbers, the halves of an address; it returns 1 for a member, else 0.
type lookup struct {
	label string
	code  asm.Instructions
}

// emitLookups emits the functions that rules have called.
func (c *compiler) emitLookups() {
	for _, l := range c.lookups {
		first := len(c.ins)
		c.label(l.label)
		c.emit(asm.Mov.Reg(asm.R1, asm.R1)) // carries the function's name; the code has labels of its own
		c.emit(l.code...)
		c.emit(asm.Return())
		c.ins[first] = signature(c.ins[first], btf.GlobalFunc, typeU64, typeU64)
	}
}
