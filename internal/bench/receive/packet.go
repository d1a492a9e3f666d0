package receive

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"levee/internal/lab/contender"
)

// Shape of the ring of a packet socket: blocks that the kernel fills, and hands over when they are
// full or some time after their first packet (Documentation/networking/packet_mmap.rst).
const (
	blockBytes = 1 << 20
	blocks     = room / blockBytes
	retire     = 10 // ms
)

// packet receives from a packet socket, behind which a program at tc ingress drops: what a sniffer
// sees is seldom for its own machine, and the stack has no part in it.
type packet struct {
	*taker
	fd     int
	memory []byte
	at     int // block
	frame  uint32
	stack  *behind
	drops  uint64
}

func openPacket(ctx context.Context, s site) (_ reader, err error) {
	p := &packet{fd: -1, frame: uint32(s.frame)}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if p.stack, err = install(ctx, contender.TCDrop(), s); err != nil {
		return nil, err
	}
	if err = s.host.Do(func() error { return p.listen(s.device.Index) }); err != nil {
		return nil, fmt.Errorf("opening a packet socket: %w", err)
	}
	p.taker, err = take(s.cpu, p.block)
	return p, err
}

func (p *packet) listen(index int) (err error) {
	if p.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		p.fd = -1
		return err
	}
	if err := errors.Join(
		unix.SetsockoptInt(p.fd, unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V3),
		unix.SetsockoptInt(p.fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		unix.SetsockoptTpacketReq3(p.fd, unix.SOL_PACKET, unix.PACKET_RX_RING, &unix.TpacketReq3{
			Block_size: blockBytes, Block_nr: blocks, Frame_size: 2048,
			Frame_nr: room / 2048, Retire_blk_tov: retire,
		})); err != nil {
		return err
	}
	if p.memory, err = unix.Mmap(p.fd, 0, room, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_POPULATE); err != nil {
		return err
	}
	all := uint16(unix.ETH_P_ALL)
	return unix.Bind(p.fd, &unix.SockaddrLinklayer{Protocol: all<<8 | all>>8, Ifindex: index})
}

// block takes the packets of the next block.
func (p *packet) block() (n int, err error) {
	from := p.memory[p.at*blockBytes : (p.at+1)*blockBytes]
	head := (*unix.TpacketHdrV1)(unsafe.Pointer(&(*unix.TpacketBlockDesc)(
		unsafe.Pointer(&from[0])).Hdr))
	if atomic.LoadUint32(&head.Block_status)&unix.TP_STATUS_USER == 0 {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}},
			int(patience.Milliseconds()))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return 0, fmt.Errorf("waiting for packets: %w", err)
		}
		return 0, nil
	}
	at := head.Offset_to_first_pkt
	for range head.Num_pkts {
		h := (*unix.Tpacket3Hdr)(unsafe.Pointer(&from[at]))
		if h.Snaplen == p.frame && isMeasured(from[at+uint32(h.Mac):][:h.Snaplen]) {
			n++
		}
		at += h.Next_offset
	}
	atomic.StoreUint32(&head.Block_status, unix.TP_STATUS_KERNEL)
	p.at = (p.at + 1) % blocks
	return n, nil
}

// isMeasured reads a frame, as every reader does, and tells whether it is of the generator: others
// are of the kernel's own, about neighbours and groups.
func isMeasured(frame []byte) bool {
	return frame[12] == 0x08 && frame[13] == 0 && frame[23] == unix.IPPROTO_UDP
}

func (p *packet) lost() (uint64, error) {
	s, err := unix.GetsockoptTpacketStatsV3(p.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return 0, fmt.Errorf("asking a packet socket what it has lost: %w", err)
	}
	p.drops += uint64(s.Drops) // asking sets it to 0
	return p.drops, nil
}

func (p *packet) close() error {
	var errs []error
	if p.taker != nil {
		errs = append(errs, p.halt())
	}
	if p.memory != nil {
		errs = append(errs, unix.Munmap(p.memory))
	}
	if p.fd >= 0 {
		errs = append(errs, unix.Close(p.fd))
	}
	if p.stack != nil {
		errs = append(errs, p.stack.remove())
	}
	return errors.Join(errs...)
}
