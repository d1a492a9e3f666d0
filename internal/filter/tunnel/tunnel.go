// Package tunnel decodes the packet within a tunnel: functions for programs at ingress, which clang
// makes of bpf/tunnel.bpf.c with the decoder of all other packets.
//
// In go the place of a packet's payload and what kind of tunnel it may be, out comes a decoded
// packet, or that there is none, or why it is malformed. The package looks one tunnel deep, knows
// no policies, and opens, pins and loads nothing.
package tunnel

import (
	"sync"

	"levee/internal/filter/assembler"
)

//go:generate ../../../bpf/compile -type tunnel_kind -type tunnel_result within ../../../bpf/tunnel.bpf.c

// Label is the function. It is given memory for a decoded packet, the context, a place and a kind:
// the place is the offset of the tunnel's header in the frame, plus 1<<16 for each byte from there,
// plus 1<<32 if later fragments have the rest. A kind is an element of Protocols or Ports. It
// returns 0, None, or the reason why the packet within is malformed.
const Label = "inner"

// None is returned for a packet that is no tunnel.
const None = int32(withinTunnelResultTUNNEL_NONE)

// Protocols are those of IP that are tunnels.
var Protocols = []uint8{uint8(withinTunnelKindTUNNEL_IPIP), uint8(withinTunnelKindTUNNEL_IPV6),
	uint8(withinTunnelKindTUNNEL_GRE)}

// Ports are destination ports of UDP that are those of tunnels.
var Ports = []uint16{uint16(withinTunnelKindTUNNEL_GTPU), uint16(withinTunnelKindTUNNEL_VXLAN),
	uint16(withinTunnelKindTUNNEL_GENEVE), uint16(withinTunnelKindTUNNEL_OTV)}

// MaxInstructions limits the instructions of the function.
const MaxInstructions = 4_000

var load = sync.OnceValues(loadWithin)

// Emit emits the function for a hook. memory and context are its arguments that are no numbers.
func Emit(b *assembler.Builder, memory, context assembler.Param, tcx, frags bool) error {
	function, entry := "inner_xdp", withinProgEntryXdp
	switch {
	case tcx:
		function, entry = "inner_tcx", withinProgEntryTcx
	case frags:
		function, entry = "inner_xdp_frags", withinProgEntryXdpFrags
	}
	return b.Function(load, "decode what tunnels carry", assembler.Function{Label: Label,
		Name: function, Entry: entry, Without: None, Params: []assembler.Param{memory, context,
			assembler.Number("place"), assembler.Number("kind")}})
}
