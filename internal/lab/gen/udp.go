package gen

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"

	"levee/internal/lang/spec"
	"levee/internal/packet"
	"levee/internal/packet/template"
)

// udpSender sends the payloads of a template's frames from a UDP socket. The kernel makes the
// headers; of the template it takes destination, ports and payload.
type udpSender struct {
	messages
	bufs    [sendBatch][]byte
	names   [sendBatch]unix.RawSockaddrInet6 // large enough for IPv4 too
	headers int                              // of Ethernet, IP and UDP
	six     bool
}

// newUDPSender opens the socket; it refuses what a socket cannot vary.
func newUDPSender(dev device, packets []spec.Packet, t *template.Template) (*udpSender, error) {
	if len(packets) != 1 {
		return nil, errors.New("a socket sends one packet's payload: the template has several " +
			"packets")
	}
	p := &packets[0]
	if err := socketCan(p); err != nil {
		return nil, fmt.Errorf("the kernel makes the headers of a socket's packets: %w; take "+
			"--path packet", err)
	}
	s := &udpSender{six: p.Spec.Resolved() == packet.IPv6, headers: 14 + 20 + 8}
	family := unix.AF_INET
	if s.six {
		family, s.headers = unix.AF_INET6, s.headers+20
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP)
	if err != nil {
		return nil, fmt.Errorf("opening a UDP socket: %w", err)
	}
	s.fd = fd
	if err := s.prepare(dev, &p.Spec); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("preparing a UDP socket: %w", err)
	}
	for i := range s.bufs {
		s.bufs[i] = make([]byte, t.Longest())
	}
	return s, nil
}

// socketCan says what of a packet is not a socket's to choose.
func socketCan(p *spec.Packet) error {
	s := &p.Spec
	switch {
	case p.Frame != nil:
		return errors.New("the frame is given in hex")
	case s.Protocol() != packet.ProtoUDP || s.Resolved() != packet.IPv4 &&
		s.Resolved() != packet.IPv6:
		return errors.New("it is no UDP")
	case s.VLAN != nil:
		return errors.New("vlan")
	case s.Frag != nil:
		return errors.New("frag")
	case s.Options || len(s.IPOptions) > 0 || len(s.Extensions) > 0:
		return errors.New("options")
	}
	for _, f := range s.Fields {
		return errors.New(f.Word)
	}
	for _, v := range p.Vary {
		switch v.Word {
		case "to", "port", spec.WordLen:
		default:
			return fmt.Errorf("%q cannot vary", v.Word)
		}
	}
	return nil
}

// prepare sets what is the same for all packets.
func (s *udpSender) prepare(dev device, spec *packet.Spec) error {
	level, ttl, tos, recvErr := unix.IPPROTO_IP, unix.IP_TTL, unix.IP_TOS, unix.IP_RECVERR
	if s.six {
		level, ttl, tos, recvErr = unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, unix.IPV6_TCLASS,
			unix.IPV6_RECVERR
	}
	hops := 64
	if spec.TTL != nil {
		hops = int(*spec.TTL)
	}
	err := errors.Join(
		unix.BindToDevice(s.fd, dev.name),
		unix.SetsockoptInt(s.fd, level, ttl, hops),
		unix.SetsockoptInt(s.fd, level, tos, int(spec.DSCP)<<2),
		// Without it the kernel keeps to itself that the device refused a packet (udp_send_skb of
		// net/ipv4/udp.c).
		unix.SetsockoptInt(s.fd, level, recvErr, 1),
		unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1),
		unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 8<<20),
	)
	if err != nil {
		return err
	}
	port := 0
	if spec.FromPort != nil {
		port = int(*spec.FromPort)
	}
	if !spec.From.IsValid() && port == 0 {
		return nil
	}
	from := spec.From
	if s.six {
		a := unix.SockaddrInet6{Port: port}
		if from.IsValid() {
			a.Addr = from.As16()
		}
		err = unix.Bind(s.fd, &a)
	} else {
		a := unix.SockaddrInet4{Port: port}
		if from.IsValid() {
			a.Addr = from.As4()
		}
		err = unix.Bind(s.fd, &a)
	}
	if err != nil {
		return fmt.Errorf("sending from %s: it must be an address of this host: %w",
			netip.AddrPortFrom(from, uint16(port)), err)
	}
	return nil
}

func (s *udpSender) batch() int { return sendBatch }

func (s *udpSender) buffer() ([]byte, error) { return s.bufs[s.n], nil }

// push adds the payload of a frame, for whom the frame is.
func (s *udpSender) push(n int) {
	b, name := s.bufs[s.n][:n], &s.names[s.n]
	port := b[s.headers-6:]
	h := s.add(b[s.headers:])
	h.hdr.Name = (*byte)(unsafe.Pointer(name))
	if s.six {
		*name = unix.RawSockaddrInet6{Family: unix.AF_INET6, Port: binary.NativeEndian.Uint16(port)}
		copy(name.Addr[:], b[14+24:])
		h.hdr.Namelen = unix.SizeofSockaddrInet6
		return
	}
	four := (*unix.RawSockaddrInet4)(unsafe.Pointer(name))
	*four = unix.RawSockaddrInet4{Family: unix.AF_INET, Port: binary.NativeEndian.Uint16(port)}
	copy(four.Addr[:], b[14+16:])
	h.hdr.Namelen = unix.SizeofSockaddrInet4
}

func (s *udpSender) flush(r *Report) error { return s.send(r, s.headers) }

func (s *udpSender) finish(*Report) error { return nil }

func (s *udpSender) what() string {
	return "UDP socket, sendmmsg in batches of up to 64: the kernel makes the headers"
}

func (s *udpSender) close() { unix.Close(s.fd) }
