package assembler

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

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
