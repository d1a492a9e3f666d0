package env

import (
	"sync"

	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/assembler"
	"levee/internal/filter/plan"
	"levee/internal/packet"
)

var loadDecoders = sync.OnceValues(loadParse)

// DecoderName returns the careful decoder for a target.
func DecoderName(t plan.Target) (function, entry string) {
	switch {
	case t.Hook == plan.Socket:
		return "parse_socket", parseProgEntrySocket
	case t.Hook == plan.CGroup:
		return "parse_tcx_ip", parseProgEntryTcxIp
	case t.Hook == plan.TCX && t.Link == packet.L3:
		return "parse_tcx_ip", parseProgEntryTcxIp
	case t.Frags && t.Link == packet.L3:
		return "parse_xdp_frags_ip", parseProgEntryXdpFragsIp
	case t.Link == packet.L3:
		return "parse_xdp_ip", parseProgEntryXdpIp
	case t.Hook == plan.TCX:
		return "parse_tcx", parseProgEntryTcx
	case t.Frags:
		return "parse_xdp_frags", parseProgEntryXdpFrags
	}
	return "parse_xdp", parseProgEntryXdp
}

// Decoder takes the careful decoder for a target out of the object that clang made.
func Decoder(t plan.Target) (asm.Instructions, error) {
	function, entry := DecoderName(t)
	spec, err := loadDecoders()
	if err != nil {
		return nil, err
	}
	return assembler.Take(spec.Programs[entry].Instructions, function)
}
