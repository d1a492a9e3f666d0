package assembler

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// Function is a function of an object that clang made, for programs that call it.
type Function struct {
	Label string // by which they call it
	Name  string // in the object; "": the label
	Entry string // the program of the object that has it
	// Params are its parameters. Where the first one is Memory, the function returns Without if
	// there is none, and its instructions need not reckon with that.
	Params  []Param
	Without int32
	// Change, if not nil, returns the instructions as they have to be here.
	Change func(asm.Instructions) asm.Instructions
}

// Functions emits those functions of an object that are called so far: one that another one calls
// stands behind it. What they do is said in an error about the object.
func (b *Builder) Functions(load func() (*ebpf.CollectionSpec, error), do string,
	of ...Function) error {
	for _, f := range of {
		if !b.Referenced(f.Label) {
			continue
		}
		if err := b.Function(load, do, f); err != nil {
			return err
		}
	}
	return nil
}

// Function emits a function of an object.
func (b *Builder) Function(load func() (*ebpf.CollectionSpec, error), do string, f Function) error {
	object, err := load()
	if err != nil {
		return fmt.Errorf("read the object of functions that %s: %w", do, err)
	}
	body, err := Take(object.Programs[f.Entry].Instructions, cmp.Or(f.Name, f.Label))
	if err != nil {
		return err
	}
	if f.Change != nil {
		body = f.Change(body)
	}
	b.Global(f.Label, f.Params...)
	if f.Params[0].memory {
		given := b.Fresh("given")
		b.Emit(
			asm.JNE.Imm(asm.R1, 0, given),
			asm.Mov.Imm(asm.R0, f.Without),
			asm.Return(),
		)
		b.Label(given)
	}
	b.Emit(body...)
	return nil
}

// Program returns a program of an object under another name. What it does is said in an error about
// the object.
func Program(load func() (*ebpf.CollectionSpec, error), does, name, as string,
	at ebpf.AttachType) (*ebpf.ProgramSpec, error) {
	object, err := load()
	if err != nil {
		return nil, fmt.Errorf("read the program that %s: %w", does, err)
	}
	spec := object.Programs[name].Copy()
	spec.Name, spec.AttachType, spec.Instructions = as, at, Older(spec.Instructions)
	return spec, nil
}

// Take gives the instructions of one function of an object that clang made, to be emitted behind
// Static or Global. Its own BTF is left behind: line information of one function among generated
// ones is refused. The function finds its maps, and functions that it calls, by their names.
func Take(object asm.Instructions, function string) (asm.Instructions, error) {
	first, last, err := find(object, function)
	if err != nil {
		return nil, err
	}
	body := slices.Clone(object[first:last])
	for i := range body {
		object := body[i].Reference()
		body[i].Metadata = asm.Metadata{}
		if body[i].IsLoadFromMap() || body[i].IsFunctionCall() {
			body[i] = body[i].WithReference(object)
		}
	}
	return jumpIntoLoops(body), nil
}

// Replace gives the instructions of an object with another body for one function, which keeps its
// name and type.
func Replace(object asm.Instructions, function string, body asm.Instructions) (asm.Instructions,
	error) {
	first, last, err := find(object, function)
	if err != nil {
		return nil, err
	}
	body = slices.Clone(body)
	// The kernel wants the type and a line of the source at the start of a function.
	body[0].Metadata = object[first].Metadata
	return slices.Concat(object[:first], body, object[last:]), nil
}

// find gives the first instruction of a function and the first behind it.
func find(object asm.Instructions, function string) (first, last int, err error) {
	first = slices.IndexFunc(object,
		func(in asm.Instruction) bool { return in.Symbol() == function })
	if first < 0 {
		return 0, 0,
			fmt.Errorf("function %s is missing from the embedded object: run make generate",
				function)
	}
	last = first + 1
	for last < len(object) && btf.FuncMetadata(&object[last]) == nil {
		last++
	}
	return first, last, nil
}
