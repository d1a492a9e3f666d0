package loader

import (
	"encoding/binary"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"levee/internal/kernel"
	"levee/internal/packet"
)

// Refuses says whether the kernel, if it looked for the socket of a segment now, would be told by a
// program of the policy to refuse it. Frames of anything else have no such socket.
func (r *Runner) Refuses(frame []byte) (bool, error) {
	var pkt packet.Packet
	r.link.Decode(frame, &pkt)
	if pkt.Malformed != packet.WellFormed || pkt.Transport != packet.TCPTransport {
		return false, nil
	}
	for _, p := range r.Loaded.Others {
		if p.Type() == ebpf.SkLookup {
			return LookedUp(p, &pkt)
		}
	}
	return false, nil
}

// LookedUp asks the program for the socket of a segment, and says whether that is to be refused.
func LookedUp(p *ebpf.Program, pkt *packet.Packet) (refused bool, err error) {
	asked := lookupContext{Family: unix.AF_INET, Protocol: packet.ProtoTCP,
		LocalPort: uint32(pkt.DstPort)}
	binary.BigEndian.PutUint16(asked.RemotePort[:], pkt.SrcPort)
	if pkt.Family == packet.IPv6 {
		asked.Family = unix.AF_INET6
		asked.RemoteIPv6, asked.LocalIPv6 = pkt.Src.As16(), pkt.Dst.As16()
	} else {
		asked.RemoteIPv4, asked.LocalIPv4 = pkt.Src.As4(), pkt.Dst.As4()
	}
	ret, err := p.Run(&ebpf.RunOptions{Context: &asked, Repeat: 1})
	if err != nil {
		return false, kernel.Refuse(err, "run the program that is asked for sockets")
	}
	return ret == lookupDrop, nil
}

// lookupContext is struct bpf_sk_lookup of linux/bpf.h.
type lookupContext struct {
	Cookie     uint64
	Family     uint32
	Protocol   uint32
	RemoteIPv4 [4]byte
	RemoteIPv6 [16]byte
	RemotePort [2]byte
	_          [2]byte
	LocalIPv4  [4]byte
	LocalIPv6  [16]byte
	LocalPort  uint32
	Ifindex    uint32
	_          uint32
}

// lookupDrop is SK_DROP of linux/bpf.h.
const lookupDrop = 0
