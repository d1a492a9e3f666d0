package cookie

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
	"unsafe"
)

// OwnMap is the map with what the kernel takes on an interface, of OwnBytes.
const (
	OwnMap   = "own"
	OwnBytes = int(unsafe.Sizeof(answerCookieOwn{}))
)

const (
	ofMACs   = int(unsafe.Offsetof(answerCookieOwn{}.Macs))
	ofNones  = int(unsafe.Offsetof(answerCookieOwn{}.Nones))
	atOthers = int(unsafe.Offsetof(answerCookieOwn{}.Others))
	atNone   = int(unsafe.Offsetof(answerCookieOwn{}.None))
	noneSize = int(unsafe.Sizeof(answerCookieOwn{}.None[0]))

	// maxMACs and MaxNone are how many addresses of each kind there is room for.
	maxMACs = len(answerCookieOwn{}.Others)
	MaxNone = len(answerCookieOwn{}.None)
)

// Own tells the destinations for which the kernel answers a SYN on an interface.
type Own struct {
	// MACs are the Ethernet addresses that the kernel takes frames for, that of the interface
	// first. None, or more than there is room for, are all.
	MACs [][6]byte
	// None are addresses that belong to no single host. Those beyond the room are left out.
	None []netip.Addr
}

// Bytes returns the contents of the map.
func (o *Own) Bytes() []byte {
	out := make([]byte, OwnBytes)
	if len(o.MACs) > 0 && len(o.MACs) <= maxMACs {
		all := make([]uint64, len(o.MACs))
		for i, m := range o.MACs {
			all[i] = binary.BigEndian.Uint64(append([]byte{0, 0}, m[:]...))
		}
		binary.NativeEndian.PutUint64(out, all[0])
		binary.NativeEndian.PutUint32(out[ofMACs:], uint32(len(all)))
		slices.Sort(all)
		for i, m := range all {
			binary.NativeEndian.PutUint64(out[atOthers+8*i:], m)
		}
	}
	var none [][2]uint64
	for _, a := range o.None {
		hi, lo := halves(a)
		none = append(none, [2]uint64{hi, lo})
	}
	none = none[:min(len(none), MaxNone)]
	slices.SortFunc(none, func(a, b [2]uint64) int {
		return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1]))
	})
	binary.NativeEndian.PutUint32(out[ofNones:], uint32(len(none)))
	for i, a := range none {
		binary.NativeEndian.PutUint64(out[atNone+noneSize*i:], a[0])
		binary.NativeEndian.PutUint64(out[atNone+noneSize*i+8:], a[1])
	}
	return out
}
