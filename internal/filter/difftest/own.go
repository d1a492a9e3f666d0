package difftest

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"

	"levee/internal/packet"
)

// Owner is an engine that is told whom SYNs have to be for, as far as cookies answer them.
type Owner interface {
	SetOwn(macs [][6]byte, none []netip.Addr) error
}

// own has some frames, in half of the policies with cookies, be for other machines or for no single
// host: of each kind that of some of the first frames.
func (r *comparison) own(frames [][]byte) error {
	of := rand.New(rand.NewPCG(r.c.Seed, 1))
	if !r.cookie || of.IntN(2) == 0 {
		return nil
	}
	macs := make([][6]byte, 1, 1+len(frames)) // of who judges frames from memory
	var none []netip.Addr
	for range 1 + of.IntN(60) {
		var p packet.Packet
		r.c.Link.Decode(frames[of.IntN(len(frames))], &p)
		if of.IntN(8) == 0 && p.Dst.IsValid() {
			none = append(none, p.Dst)
		}
		if of.IntN(16) == 0 && p.Src.IsValid() {
			none = append(none, p.Src)
		}
		if of.IntN(2) == 0 {
			macs = append(macs, [6]byte(binary.BigEndian.AppendUint64(nil, p.DstMAC)[2:]))
		}
	}
	for _, e := range r.engines {
		o, ok := e.(Owner)
		if !ok {
			return nil
		}
		if err := o.SetOwn(macs, none); err != nil {
			return err
		}
	}
	r.oracle.SetOwn(macs, none)
	return nil
}
