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
	keyBytes     = keyAt + int16(unsafe.Offsetof(parseKey{}.Bytes))
	keyLen       = keyAt + int16(unsafe.Offsetof(parseKey{}.Len))
	keySrcHi     = keyAt + int16(unsafe.Offsetof(parseKey{}.SrcHi))
	keySrcLo     = keyAt + int16(unsafe.Offsetof(parseKey{}.SrcLo))
	keyDstHi     = keyAt + int16(unsafe.Offsetof(parseKey{}.DstHi))
	keyDstLo     = keyAt + int16(unsafe.Offsetof(parseKey{}.DstLo))
	keySrcMAC    = keyAt + int16(unsafe.Offsetof(parseKey{}.SrcMac))
	keyDstMAC    = keyAt + int16(unsafe.Offsetof(parseKey{}.DstMac))
	keySrcPort   = keyAt + int16(unsafe.Offsetof(parseKey{}.SrcPort))
	keyDstPort   = keyAt + int16(unsafe.Offsetof(parseKey{}.DstPort))
	keyICMP      = keyAt + int16(unsafe.Offsetof(parseKey{}.Icmp))
	keyEtherType = keyAt + int16(unsafe.Offsetof(parseKey{}.EtherType))
	keyVLAN      = keyAt + int16(unsafe.Offsetof(parseKey{}.Vlan))
	keyInnerVLAN = keyAt + int16(unsafe.Offsetof(parseKey{}.InnerVlan))
	keyProto     = keyAt + int16(unsafe.Offsetof(parseKey{}.Proto))
	keyTTL       = keyAt + int16(unsafe.Offsetof(parseKey{}.Ttl))
	keyDSCP      = keyAt + int16(unsafe.Offsetof(parseKey{}.Dscp))
	keyTCPFlags  = keyAt + int16(unsafe.Offsetof(parseKey{}.TcpFlags))
	keyTags      = keyAt + int16(unsafe.Offsetof(parseKey{}.Tags))
	keyClass     = keyAt + int16(unsafe.Offsetof(parseKey{}.Class))
)

// noVLAN is NO_VLAN of bpf/parse.h: outside the domain of VLAN ids, so that no range holds.
const noVLAN = 0xffff

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
