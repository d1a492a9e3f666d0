package assembler

import (
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// A program with several functions tells the kernel their types. What it gains: a function that
// is global is verified once, by itself, and not again at each call (Linux 5.6). But for
// Context, only such types are used as need nothing of the kernel's own BTF, so that the program
// loads where the kernel has none. Where one function of a program has a type, every function
// must.

// Param is a parameter of a function.
type Param struct {
	Name   string
	Type   btf.Type
	memory bool // it is made by Memory
}

var (
	number = &btf.Int{Name: "unsigned long long", Size: 8}
	index  = &btf.Int{Name: "unsigned int", Size: 4}
)

// Number returns a parameter of 64 bits.
func Number(name string) Param { return Param{Name: name, Type: number} }

// Pointer returns a parameter whose type the verifier knows from the caller: the context of the
// program, or the stack of a function that calls a static one.
func Pointer(name string) Param {
	return Param{Name: name, Type: &btf.Pointer{Target: &btf.Void{}}}
}

// Context returns the context of the program as an argument of a global function. The verifier
// finds it by the name of its struct in the kernel, and needs the kernel's own BTF for that.
func Context(of string) Param {
	return Param{Name: "ctx", Type: &btf.Pointer{Target: &btf.Struct{Name: of}}}
}

// Memory returns a pointer to so many bytes, a multiple of 8, that a global function may read and
// write (Linux 5.12). The function must reckon with none: it compares the pointer with 0 first.
func Memory(name string, size int) Param {
	words := &btf.Array{Index: index, Type: number, Nelems: uint32(size / 8)}
	return Param{Name: name, Type: &btf.Pointer{Target: words}, memory: true}
}

// Global begins a function that the verifier walks by itself, once, however often it is called.
// It returns a number in R0.
func (b *Builder) Global(name string, params ...Param) { b.function(name, btf.GlobalFunc, params) }

// Static begins a function that the verifier walks at each call, with what it knows there: one
// that takes pointers to the caller's stack, or that bpf_loop calls.
func (b *Builder) Static(name string, params ...Param) { b.function(name, btf.StaticFunc, params) }

func (b *Builder) function(name string, linkage btf.FuncLinkage, params []Param) {
	b.Label(name)
	b.begins = &btf.Func{Name: name, Type: proto(number, params), Linkage: linkage}
}

func proto(returns btf.Type, params []Param) *btf.FuncProto {
	p := &btf.FuncProto{Return: returns}
	for _, param := range params {
		p.Params = append(p.Params, btf.FuncParam{Name: param.Name, Type: param.Type})
	}
	return p
}

// Replaceable begins a global function that a program can replace, or that replaces one of another
// program (freplace), as C has it: int NAME(struct xdp_md *ctx). The kernel compares these types by
// names and sizes (btf_check_func_type_match, kernel/bpf/btf.c).
func (b *Builder) Replaceable(name string) {
	b.Label(name)
	packet := &btf.Struct{Name: "xdp_md", Size: index.Size,
		Members: []btf.Member{{Name: "data", Type: index}}}
	b.begins = &btf.Func{Name: name, Linkage: btf.GlobalFunc,
		Type: proto(&btf.Int{Name: "int", Size: 4, Encoding: btf.Signed},
			[]Param{{Name: "ctx", Type: &btf.Pointer{Target: packet}}})}
}

// Loop calls a static function for each round, at most so many, until it returns 1: bpf_loop,
// Linux 5.17. The function gets the number of the round and the address of state, an offset from
// R10, or 0 where that is 0. R0 becomes the number of rounds.
func (b *Builder) Loop(rounds int32, function string, state int16) {
	address := asm.LoadImm(asm.R2, -1, asm.DWord)
	address.Src = asm.PseudoFunc
	b.Emit(asm.Mov.Imm(asm.R1, rounds), address.WithReference(function))
	if state == 0 {
		b.Emit(asm.Mov.Imm(asm.R3, 0))
	} else {
		b.Emit(asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, int32(state)))
	}
	b.Emit(asm.Mov.Imm(asm.R4, 0), asm.FnLoop.Call())
}
