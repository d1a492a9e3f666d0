package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"levee/internal/packet"
)

// sender sends whole IP packets; the kernel finds their way.
type sender struct{ four, six int }

func newSender() (*sender, error) {
	four, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return nil, fmt.Errorf("open a raw socket: %w", err)
	}
	s := &sender{four, -1}
	s.six, err = unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if errors.Is(err, unix.EAFNOSUPPORT) {
		return s, nil // nothing of IPv6 can be reached
	}
	if err == nil {
		err = unix.SetsockoptInt(s.six, unix.IPPROTO_IPV6, unix.IPV6_HDRINCL, 1)
	}
	if err != nil {
		s.close()
		return nil, fmt.Errorf("open a raw socket of IPv6: %w", err)
	}
	return s, nil
}

func (s *sender) close() {
	_ = unix.Close(s.four)
	if s.six >= 0 {
		_ = unix.Close(s.six)
	}
}

// fullRetries is the number of waits for a full queue, a millisecond each.
const fullRetries = 100

func (s *sender) send(ip []byte, to netip.Addr) error {
	fd, at := s.four, unix.Sockaddr(&unix.SockaddrInet4{Addr: as4(to)})
	if to.Is6() {
		fd, at = s.six, &unix.SockaddrInet6{Addr: to.As16()}
	}
	for n := 0; ; n++ {
		err := unix.Sendto(fd, ip, 0, at)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ENOBUFS) && n < fullRetries:
			time.Sleep(time.Millisecond)
		default:
			return err
		}
	}
}

func as4(a netip.Addr) (out [4]byte) {
	if a.Is4() {
		out = a.As4()
	}
	return out
}

// receiver reads what comes in beside the way of the host's own packets: no socket of the host and
// no rule of its netfilter takes it away.
type receiver struct {
	file *os.File
	raw  int
}

// roomForAnswers is the size of the buffer in which answers wait, in bytes.
const roomForAnswers = 8 << 20

func newReceiver() (*receiver, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open a packet socket: %w", err)
	}
	if err := setUp(fd); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("set up the packet socket: %w", err)
	}
	return &receiver{os.NewFile(uintptr(fd), "answers"), fd}, nil
}

func setUp(fd int) error {
	if err := attachFilter(fd, answersTo(nil)); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING,
		1); err != nil {
		return err
	}
	// The larger of the two is for root alone; the other takes what is allowed.
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, roomForAnswers) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, roomForAnswers)
	}
	return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: binary.BigEndian.Uint16(
		binary.NativeEndian.AppendUint16(nil, unix.ETH_P_ALL))})
}

// answersTo returns a filter for ICMP, and for TCP and UDP to the ports from which probes leave:
// those of most, and others that a policy asks for.
func answersTo(others []uint16) []bpf.Instruction {
	// What is behind the load of a port in A.
	take := []bpf.Instruction{}
	for i, port := range others {
		take = append(take, bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(port),
			SkipTrue: uint8(len(others) - i + 1)})
	}
	take = append(take, bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: firstPort, SkipTrue: 1},
		bpf.RetConstant{}, bpf.RetConstant{Val: 1 << 16})
	out := []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtProto},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: packet.EtherIPv6, SkipTrue: 9},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: packet.EtherIPv4, SkipFalse: 6},
		bpf.LoadAbsolute{Off: 9, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: packet.ProtoICMP, SkipTrue: 5},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: packet.ProtoTCP, SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: packet.ProtoUDP, SkipFalse: 2},
		bpf.LoadMemShift{Off: 0},
		bpf.Jump{Skip: 9}, // to the load of the port of IPv4
		bpf.RetConstant{},
		bpf.RetConstant{Val: 1 << 16},
		bpf.LoadAbsolute{Off: 6, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: packet.ProtoICMP6, SkipTrue: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: packet.ProtoTCP, SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: packet.ProtoUDP, SkipFalse: 1},
		bpf.Jump{Skip: 4}, // to the load of the port of IPv6
		bpf.RetConstant{},
		bpf.RetConstant{Val: 1 << 16},
		bpf.LoadIndirect{Off: 2, Size: 2},
		bpf.Jump{Skip: 1},
		bpf.LoadAbsolute{Off: 42, Size: 2},
	}
	return append(out, take...)
}

// mostOtherPorts bounds the ports that a policy asks for.
const mostOtherPorts = 100

// also has answers to further ports read.
func (r *receiver) also(ports []uint16) error { return attachFilter(r.raw, answersTo(ports)) }

func attachFilter(fd int, filter []bpf.Instruction) error {
	raw, err := bpf.Assemble(filter)
	if err != nil {
		return err
	}
	prog := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		prog[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]})
}

// read reads one packet. An error that is os.ErrClosed is the end.
func (r *receiver) read(buf []byte) (int, error) { return r.file.Read(buf) }

// lost returns how many packets found no room.
func (r *receiver) lost() uint64 {
	s, err := unix.GetsockoptTpacketStats(r.raw, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return 0
	}
	return uint64(s.Drops)
}

func (r *receiver) close() { _ = r.file.Close() }

// sourceTo returns the address from which the kernel sends to another.
func sourceTo(to netip.Addr) (netip.Addr, error) {
	ways, err := netlink.RouteGet(to.AsSlice())
	if err == nil && len(ways) == 0 {
		err = unix.ENETUNREACH
	}
	if err != nil {
		return netip.Addr{}, fmt.Errorf("find the way to %s: %w", to, err)
	}
	a, ok := netip.AddrFromSlice(ways[0].Src)
	if !ok {
		return netip.Addr{}, fmt.Errorf("the way to %s has no source address", to)
	}
	return a.Unmap(), nil
}
