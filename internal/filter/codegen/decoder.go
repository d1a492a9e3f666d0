package codegen

import (
	"sync"
	"unsafe"

	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/assembler"
)

// Where the decoded packet (struct key of bpf/parse.h) lies on the stack. The 64 bytes above it
// are scratch of the table look-ups (package prefix).
const (
	keySize = uint32(unsafe.Sizeof(parseKey{}))
	keyEnd  = int16(-64)
	keyAt   = keyEnd - int16(keySize)
)

// Offsets from R10 of the fields of struct key.
const (
	keyBytes   = keyAt + int16(unsafe.Offsetof(parseKey{}.Bytes))
	keySrcHi   = keyAt + int16(unsafe.Offsetof(parseKey{}.SrcHi))
	keySrcLo   = keyAt + int16(unsafe.Offsetof(parseKey{}.SrcLo))
	keyDstHi   = keyAt + int16(unsafe.Offsetof(parseKey{}.DstHi))
	keyDstLo   = keyAt + int16(unsafe.Offsetof(parseKey{}.DstLo))
	keySrcPort = keyAt + int16(unsafe.Offsetof(parseKey{}.SrcPort))
	keyDstPort = keyAt + int16(unsafe.Offsetof(parseKey{}.DstPort))
	keyICMP    = keyAt + int16(unsafe.Offsetof(parseKey{}.Icmp))
	keyProto   = keyAt + int16(unsafe.Offsetof(parseKey{}.Proto))
	keyClass   = keyAt + int16(unsafe.Offsetof(parseKey{}.Class))
)

var loadDecoders = sync.OnceValues(loadParse)

// decoderName is the careful decoder for a target.
func decoderName(t Target) (function, entry string) {
	switch {
	case t.Hook == TCX:
		return "parse_tcx", parseProgEntryTcx
	case t.Frags:
		return "parse_xdp_frags", parseProgEntryXdpFrags
	}
	return "parse_xdp", parseProgEntryXdp
}

// decoder takes the careful decoder for a target out of the object that clang made.
func decoder(t Target) (asm.Instructions, error) {
	function, entry := decoderName(t)
	spec, err := loadDecoders()
	if err != nil {
		return nil, err
	}
	return assembler.Take(spec.Programs[entry].Instructions, function)
}
