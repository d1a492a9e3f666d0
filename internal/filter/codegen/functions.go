package codegen

import (
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// A program with several functions tells the kernel their types. What it gains: a function that is
// global is verified once, by itself, and not again at each call (Linux 5.6). Only such types as
// need nothing of the kernel's own BTF are used, so that the program loads where the kernel has none.
var (
	typeInt    = &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed}
	typeNumber = &btf.Int{Name: "unsigned long long", Size: 8}
	typePtr    = &btf.Pointer{Target: &btf.Void{}}
	typeKey    = &btf.Pointer{Target: &btf.Struct{Name: "key", Size: keySize, Members: []btf.Member{{
		Name: "words",
		Type: &btf.Array{Index: typeInt, Type: &btf.Int{Name: "unsigned long long", Size: 8}, Nelems: keySize / 8},
	}}}}
)

// signature puts the type of a function on its first instruction.
func signature(in asm.Instruction, linkage btf.FuncLinkage, params ...btf.Type) asm.Instruction {
	proto := &btf.FuncProto{Return: typeInt}
	for i, t := range params {
		proto.Params = append(proto.Params, btf.FuncParam{Name: string(rune('a' + i)), Type: t})
	}
	return btf.WithFuncMetadata(in, &btf.Func{Name: in.Symbol(), Type: proto, Linkage: linkage})
}
