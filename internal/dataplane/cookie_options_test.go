package dataplane

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"levee/internal/dataplane/store"
	"levee/internal/packet"
)

// Options that a socket puts into all that it sends. One of IPv6 that a receiver does not know is
// skipped if its two upper bits are clear (RFC 8200 section 4.2).
var headerOptions = []struct {
	name          string
	level, option int
	value         []byte
}{
	{"IPv4, 4 bytes", unix.IPPROTO_IP, unix.IP_OPTIONS, []byte{1, 1, 1, 0}},
	{"IPv4, 40 bytes", unix.IPPROTO_IP, unix.IP_OPTIONS, bytes.Repeat([]byte{1}, 40)},
	{"hop by hop", unix.IPPROTO_IPV6, unix.IPV6_HOPOPTS, []byte{0, 0, 1, 4, 0, 0, 0, 0}},
	{"destination", unix.IPPROTO_IPV6, unix.IPV6_DSTOPTS,
		append([]byte{0, 2, 0x1e, 20}, make([]byte, 20)...)},
}

// connectsWith is connects by a socket that has the options of a number.
func connectsWith(t testing.TB, ns netns.NsHandle, from, to string, options int) error {
	t.Helper()
	o := headerOptions[options]
	d := net.Dialer{Timeout: hangs, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)},
		Control: func(_, _ string, c syscall.RawConn) (err error) {
			_ = c.Control(func(fd uintptr) {
				err = unix.SetsockoptString(int(fd), o.level, o.option, string(o.value))
			})
			return err
		}}
	type result struct {
		c   net.Conn
		err error
	}
	r := in(t, ns, func() (result, error) {
		c, err := d.Dial("tcp", to)
		return result{c, err}, nil
	})
	if r.err != nil {
		return r.err
	}
	defer r.c.Close()
	return speaks(r.c)
}

// vlanOn puts a VLAN device on another one, and says whether this kernel has such devices.
func vlanOn(t testing.TB, ns netns.NsHandle, under, name string, id int) bool {
	t.Helper()
	return in(t, ns, func() (bool, error) {
		l, err := netlink.LinkByName(under)
		if err != nil {
			return false, err
		}
		v := &netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: name, ParentIndex: l.Attrs().Index},
			VlanId: id, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q}
		if err = netlink.LinkAdd(v); errors.Is(err, unix.EOPNOTSUPP) {
			return false, nil
		}
		return true, errors.Join(err, netlink.LinkSetUp(v))
	})
}

// TestClientsWithOptionsGetThroughACookie: at tc no client of Linux did whose packets have options
// of IPv4 or extension headers of IPv6. The stack had yet to sum the SYN up, and went on to do so
// where the answer has something else.
func TestClientsWithOptionsGetThroughACookie(t *testing.T) {
	n := newTestNet(t)
	enableIPv6(t, n)
	wires := []struct{ name, here, peer string }{
		{"untagged", "lv0", "lv1"}, {"tagged", "lv0.7", "lv1.7"}, {"two tags", "lv0.8", "lv1.8"},
	}
	for _, end := range []struct {
		ns  netns.NsHandle
		dev string
	}{{n.here, "lv0"}, {n.peer, "lv1"}} {
		in(t, end.ns, func() (any, error) {
			return nil, os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6",
				[]byte("0"), 0)
		})
		if !vlanOn(t, end.ns, end.dev, end.dev+".7", 7) ||
			!vlanOn(t, end.ns, end.dev+".7", end.dev+".8", 8) {
			wires = wires[:1]
		}
	}
	for i, w := range wires {
		giveAddress(t, n.here, w.here, fmt.Sprintf("198.51.%d.1/24", i))
		giveAddress(t, n.here, w.here, fmt.Sprintf("2001:db8:%d::1/64", i))
		for j := range headerOptions {
			giveAddress(t, n.peer, w.peer, fmt.Sprintf("198.51.%d.%d/24", i, 10+j))
			giveAddress(t, n.peer, w.peer, fmt.Sprintf("2001:db8:%d::%d/64", i, 10+j))
		}
	}
	for network, addr := range map[string]string{"tcp4": "0.0.0.0:9000", "tcp6": "[::]:9000"} {
		l := in(t, n.here, func() (net.Listener, error) { return net.Listen(network, addr) })
		defer l.Close()
		serveEcho(l)
	}
	for _, mode := range allModes(t) {
		n.run(t, string(mode), func(t *testing.T) {
			if mode == store.XDPNative {
				hearXDP(t, n.peer, "lv1")
			}
			if err := bringPolicyAt(t, "lv0", mode, cookiePolicy, 0); err != nil {
				t.Fatal(err)
			}
			sources := 0
			for i, w := range wires {
				for j, o := range headerOptions {
					net4, net6 := fmt.Sprintf("198.51.%d.", i), fmt.Sprintf("2001:db8:%d::", i)
					from, to := fmt.Sprint(net4, 10+j), net4+"1:9000"
					if o.level == unix.IPPROTO_IPV6 {
						from, to = fmt.Sprint(net6, 10+j), "["+net6+"1]:9000"
					}
					if err := connectsWith(t, n.peer, from, to, j); err != nil {
						t.Errorf("%s, options: %s: %v", w.name, o.name, err)
						continue
					}
					if sources++; status(t).Cookies.Sources != sources {
						t.Errorf("%s, options: %s: %d clients are proven, want %d", w.name, o.name,
							status(t).Cookies.Sources, sources)
					}
				}
			}
			if _, err := Down(context.Background(), "lv0"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestACookieAnswersWhateverHeadersComeBefore: at tc a SYN behind a routing header was dropped, and
// nobody answered: the kernel shortens no packet to less than where its transport header began.
func TestACookieAnswersWhateverHeadersComeBefore(t *testing.T) {
	n := newTestNet(t)
	enableIPv6(t, n)
	routing := packet.Extension{Proto: packet.ProtoRouting,
		Body: append([]byte{253, 0}, make([]byte, 36)...)}
	options := bytes.Repeat([]byte{1}, 40)
	headers := map[string]func(*packet.Spec){
		"none":         func(*packet.Spec) {},
		"data":         func(s *packet.Spec) { s.Payload = make([]byte, 700) },
		"options":      func(s *packet.Spec) { s.IPOptions = options[:4] },
		"many options": func(s *packet.Spec) { s.IPOptions, s.Payload = options, options },
		"hop by hop": func(s *packet.Spec) {
			s.Extensions = []packet.Extension{{Proto: packet.ProtoHopByHop}}
		},
		"routing": func(s *packet.Spec) { s.Extensions = []packet.Extension{routing} },
		"several": func(s *packet.Spec) {
			s.Extensions = []packet.Extension{routing, routing, {Proto: packet.ProtoDestOpts}}
			s.Payload = options
		},
	}
	for _, mode := range allModes(t) {
		n.run(t, string(mode), func(t *testing.T) {
			if mode == store.XDPNative {
				hearXDP(t, n.peer, "lv1")
			}
			if err := bringPolicyAt(t, "lv0", mode, cookiePolicy, 0); err != nil {
				t.Fatal(err)
			}
			defer Down(t.Context(), "lv0")
			port := uint16(0)
			for name, change := range headers {
				for tags := range 3 {
					for _, partial := range []bool{false, true} {
						s := segment("192.0.2.9", packet.SYN)
						if change(&s); len(s.Extensions) > 0 {
							s.From = netip.MustParseAddr("2001:db8::9")
							s.To = netip.MustParseAddr("2001:db8:7::1")
						}
						port++
						s.ToPort, s.FromPort, s.EtherTo = new(uint16(9000)), &port, own(t, "lv0")
						if tags > 0 {
							s.VLAN = new(uint16(7))
						}
						if tags > 1 {
							s.InnerVLAN = new(uint16(8))
						}
						answer := n.answerTo(t, s, partial)
						if answer == nil {
							t.Errorf("%s, %d tags, partial %v: no answer", name, tags, partial)
							continue
						}
						var p packet.Packet
						packet.Decode(answer, &p)
						header := 20
						if p.Family == packet.IPv6 {
							header = 40
						}
						if p.Malformed != packet.WellFormed || p.Tags != tags ||
							p.Len != header+20 || p.Flags != packet.ACK ||
							// Nothing tells generic XDP that somebody will sum the packet up.
							!(partial && mode == store.XDPGeneric) && !sumsUp(&p, answer) {
							t.Errorf("%s, %d tags, partial %v: the answer is %x", name, tags,
								partial, answer)
						}
					}
				}
			}
		})
	}
}

// own is the address of a device here.
func own(t testing.TB, dev string) *[6]byte {
	t.Helper()
	l, err := netlink.LinkByName(dev)
	if err != nil {
		t.Fatal(err)
	}
	return (*[6]byte)(l.Attrs().HardwareAddr)
}

// answerTo sends a TCP segment from the other end of lv0, perhaps one that has yet to be summed up,
// and is what comes back from its destination, as it would be on a wire: with its tags, and summed
// up where somebody would still have to. It is nil if nothing does. Nobody at that end takes it.
func (n *testNet) answerTo(t testing.TB, s packet.Spec, partial bool) []byte {
	t.Helper()
	f, err := packet.Build(s)
	if err != nil {
		t.Fatal(err)
	}
	var p packet.Packet
	packet.Decode(f, &p)
	h := make([]byte, vnetHeader)
	if partial {
		h[0] = needsSum
		binary.NativeEndian.PutUint16(h[6:], uint16(p.TransportOffset))
		binary.NativeEndian.PutUint16(h[8:], 16)
		copy(f[p.TransportOffset+16:], pseudoSum(&p, len(f)-p.TransportOffset))
	}
	return in(t, n.peer, func() ([]byte, error) {
		const auxData, statusVLAN = 8, 1 << 4
		ear, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC,
			int(be16(unix.ETH_P_ALL)))
		if err != nil {
			return nil, err
		}
		defer unix.Close(ear)
		if err := errors.Join(unix.SetsockoptInt(ear, unix.SOL_PACKET, auxData, 1),
			unix.SetsockoptInt(ear, unix.SOL_PACKET, packetVnetHdr, 1),
			unix.SetsockoptTimeval(ear, unix.SOL_SOCKET, unix.SO_RCVTIMEO,
				&unix.Timeval{Usec: 300_000}),
			unix.Sendto(ear, append(h, f...), 0,
				&unix.SockaddrLinklayer{Ifindex: n.txIndex})); err != nil {
			return nil, err
		}
		b, aux := make([]byte, 2048), make([]byte, 128)
		for {
			size, auxSize, _, _, err := unix.Recvmsg(ear, b, aux, 0)
			if err != nil {
				return nil, nil // it took long
			}
			h, got := b[:vnetHeader], b[vnetHeader:size]
			start := int(binary.NativeEndian.Uint16(h[6:]))
			place := start + int(binary.NativeEndian.Uint16(h[8:]))
			if h[0]&needsSum != 0 && place+2 <= len(got) {
				binary.BigEndian.PutUint16(got[place:], ^checksum(got[start:]))
			}
			messages, _ := unix.ParseSocketControlMessage(aux[:auxSize])
			for _, m := range messages { // struct tpacket_auxdata: the tag that was taken off
				if d := m.Data; binary.NativeEndian.Uint32(d)&statusVLAN != 0 {
					tag := binary.BigEndian.AppendUint16(nil, binary.NativeEndian.Uint16(d[18:]))
					tag = binary.BigEndian.AppendUint16(tag, binary.NativeEndian.Uint16(d[16:]))
					got = slices.Concat(got[:12], tag, got[12:])
				}
			}
			packet.Decode(got, &p)
			if p.Transport == packet.TCPTransport && p.Src == s.To && p.Dst == s.From &&
				p.DstPort == *s.FromPort {
				return slices.Clone(got), nil
			}
		}
	})
}

// checksum is the sum of RFC 1071, not inverted.
func checksum(b []byte) uint16 {
	sum := 0
	for i := range b {
		sum += int(b[i]) << (8 * (1 - i%2))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return uint16(sum)
}

// sumsUp says whether the checksum of a TCP segment is right.
func sumsUp(p *packet.Packet, frame []byte) bool {
	segment := frame[p.TransportOffset : p.NetworkOffset+p.Len]
	return checksum(slices.Concat(pseudoSum(p, len(segment)), segment)) == 0xffff
}
