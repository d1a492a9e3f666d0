// Package route asks the kernel for the way back to the source of a packet: whether there is one,
// and by which interface (RFC 3704). What goes in is the context of a program, addresses and tags;
// what comes out is two bytes. The map lists the interfaces that receive packets in the stack. It
// opens, pins and loads nothing, and knows no rules.
package route

import (
	"bytes"
	"encoding/binary"
	"sync"
	"unsafe"

	"github.com/cilium/ebpf"

	"levee/internal/filter/assembler"
)

//go:generate ../../../bpf/compile -type route_ways route ../../../bpf/route.bpf.c

// Map is the map with the interfaces that packets come up to, of Bytes.
const (
	Map   = "ways"
	Bytes = int(unsafe.Sizeof(routeRouteWays{}))
)

// Labels of the functions. Find4 and Find6 are given the context, and the source and the
// destination, of which IPv6 has two halves each. What they return Tell is given, with both tags,
// and returns the byte for strict, and that for loose above it.
const (
	Find4 = "route_find4"
	Find6 = "route_find6"
	Tell  = "route_tell"
)

// MaxInstructions bounds the instructions of all functions.
const MaxInstructions = 400

// Most interfaces that can receive untagged frames.
var most = len(routeRouteWays{}.Untagged)

// Ways are interfaces that packets come up to, by their indexes.
type Ways struct {
	From     int // that lookups are made for
	Own      int
	Untagged []int
	Tagged   map[int]int // by the id of the VLAN
}

// Bytes returns the contents of the map.
func (w *Ways) Bytes() []byte {
	out := routeRouteWays{From: uint32(w.From), Own: uint32(w.Own)}
	for i, index := range w.Untagged[:min(len(w.Untagged), most)] {
		out.Untagged[i] = uint32(index)
	}
	for id, index := range w.Tagged {
		if 0 < id && id < len(out.Tagged) {
			out.Tagged[id] = uint32(index)
		}
	}
	var b bytes.Buffer
	binary.Write(&b, binary.NativeEndian, &out)
	return b.Bytes()
}

var load = sync.OnceValues(func() (*ebpf.CollectionSpec, error) { return loadRoute() })

// Emit emits the functions that are called.
func Emit(b *assembler.Builder, context assembler.Param, tcx bool) error {
	suffix, entry := "_xdp", routeProgEntryXdp
	if tcx {
		suffix, entry = "_tcx", routeProgEntryTcx
	}
	number := assembler.Number
	return b.Functions(load, "ask for routes",
		assembler.Function{Label: Find4, Name: Find4 + suffix, Entry: entry,
			Params: []assembler.Param{context, number("src"), number("dst")}},
		assembler.Function{Label: Find6, Name: Find6 + suffix, Entry: entry,
			Params: []assembler.Param{context, number("src_hi"), number("src_lo"),
				number("dst_hi"), number("dst_lo")}},
		assembler.Function{Label: Tell, Entry: routeProgEntryTcx,
			Params: []assembler.Param{number("found"), number("vlan"), number("inner")}})
}
