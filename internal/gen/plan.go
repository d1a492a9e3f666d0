package gen

import (
	"encoding/binary"
	"math"
	"net/netip"
	"slices"
)

// plan is what the program of bpf/gen.bpf.c needs to know.
type plan struct {
	layout  liveLayout
	sources [maxSources]liveSource
	shapes  [maxShapes]liveShape
	frame   []byte // the longest packet: every page starts as this
}

const none = 0xffff // NONE

// newPlan lays out the packets of a complete flood.
func newPlan(f *Flood, dev device, seed uint64) *plan {
	p := new(plan)
	longest := slices.Max(f.Lengths)
	p.frame = f.template(longest)
	l2 := 14 + 4*len(f.VLANs)
	l4 := l2 + f.ipHeader()
	l := &p.layout
	l.Ifindex = uint32(dev.index)
	l.Header = uint16(l4 + f.l4Header())
	l.Ip = uint16(l2)
	l.Ports, l.UdpLen, l.Tag, l.Check = none, none, none, none
	switch f.Kind {
	case UDP:
		l.Ports, l.UdpLen, l.Udp = uint16(l4), uint16(l4+4), 1
		if !f.NoChecksum {
			l.Check = uint16(l4 + 6)
		}
	case SYN, ACK:
		l.Ports, l.Tag, l.Check = uint16(l4), uint16(l4+4), uint16(l4+16)
	case ICMPEcho:
		l.Tag, l.Check = uint16(l4+4), uint16(l4+2)
	case Fragment:
		if f.To.Is6() {
			l.Tag = uint16(l4 - 4)
		}
	}
	if f.To.Is6() {
		l.Ipv6 = 1
	}
	if f.To.Is6() || f.Kind != ICMPEcho { // RFC 792 has no pseudo-header
		l.Pseudo = 1
	}
	l.Nshapes = uint32(len(f.Lengths))
	l.Longest = uint32(len(p.frame))
	l.Nsport, l.Ndport = uint32(len(f.FromPorts)), uint32(len(f.Ports))
	for i, n := range f.Lengths {
		p.shapes[i] = f.shape(p.frame[:l2+n], l)
	}
	p.setSources(f.Sources, seed)
	head := make([]byte, len(l.Template)*8)
	copy(head, p.frame)
	for i := range l.Template {
		l.Template[i] = binary.NativeEndian.Uint64(head[i*8:])
	}
	return p
}

// setSources numbers the addresses of all prefixes from 0 and chooses the permutation.
func (p *plan) setSources(prefixes []netip.Prefix, seed uint64) {
	var space uint64
	for i, pre := range prefixes {
		s, n := sourceRange(pre)
		s.Start = space
		p.sources[i] = s
		space += n
	}
	m := newPermutation(space, seed)
	l := &p.layout
	l.Nsources = uint32(len(prefixes))
	l.Space, l.Mask, l.Shift = m.space, m.mask, m.shift
	l.Mul, l.Add = m.mul, m.add
}

// maxHostBits is how many host bits of an IPv6 prefix are numbered: enough for 300 years at
// 7 Mpps. The bits above are a hash of the number.
const maxHostBits = 56

// sourceRange describes one prefix and says how many numbers it takes.
func sourceRange(p netip.Prefix) (liveSource, uint64) {
	p = p.Masked()
	a := p.Addr().As16()
	s := liveSource{Hi: binary.BigEndian.Uint64(a[:8]), Lo: binary.BigEndian.Uint64(a[8:])}
	host := p.Addr().BitLen() - p.Bits()
	if p.Addr().Is4() {
		s.Hi, s.Lo = 0, s.Lo&math.MaxUint32
		return s, 1 << host
	}
	if host <= maxHostBits {
		return s, 1 << host
	}
	if host > 64 {
		s.FillHi = 1<<(host-64) - 1
	}
	s.FillLo = (1<<min(host, 64) - 1) &^ (1<<maxHostBits - 1)
	return s, 1 << maxHostBits
}

// template is a packet with an IP length of n, and zero in all that varies.
func (f *Flood) template(n int) []byte {
	b := append([]byte(nil), f.ToMAC[:]...)
	b = append(b, f.FromMAC[:]...)
	for i, v := range f.VLANs {
		tpid := uint16(0x8100)
		if len(f.VLANs) == 2 && i == 0 {
			tpid = 0x88a8
		}
		b = binary.BigEndian.AppendUint16(b, tpid)
		b = binary.BigEndian.AppendUint16(b, v)
	}
	b = f.appendIP(b)
	b = f.appendL4(b)
	return append(b, make([]byte, 14+4*len(f.VLANs)+n-len(b))...)
}

// fragmentOffset, in units of 8 bytes, is behind a full first fragment at MTU 1500.
const fragmentOffset = 185

func (f *Flood) appendIP(b []byte) []byte {
	proto := f.protocol()
	to := f.To.AsSlice()
	if f.To.Is4() {
		frag := uint16(0)
		if f.Kind == Fragment {
			frag = fragmentOffset
		}
		b = append(b, 0x08, 0x00, 0x45, 0, 0, 0, 0, 0, byte(frag>>8), byte(frag), f.TTL, proto, 0, 0, 0, 0, 0, 0)
		return append(b, to...)
	}
	next := proto
	if f.Kind == Fragment {
		next = 44
	}
	b = append(b, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, next, f.TTL)
	b = append(b, make([]byte, 16)...)
	b = append(b, to...)
	if f.Kind == Fragment {
		b = append(b, proto, 0)
		b = binary.BigEndian.AppendUint16(b, fragmentOffset<<3)
		b = append(b, 0, 0, 0, 0)
	}
	return b
}

func (f *Flood) appendL4(b []byte) []byte {
	const window = 65535
	switch f.Kind {
	case UDP:
		return append(b, make([]byte, 8)...)
	case SYN, ACK:
		b = append(b, make([]byte, 12)...)
		b = append(b, 5<<4, f.Flags)
		b = binary.BigEndian.AppendUint16(b, window)
		return append(b, 0, 0, 0, 0)
	case ICMPEcho:
		typ := byte(8)
		if f.To.Is6() {
			typ = 128
		}
		return append(b, typ, 0, 0, 0, 0, 0, 0, 0)
	}
	return b
}

func (f *Flood) protocol() byte {
	switch f.Kind {
	case SYN, ACK:
		return 6
	case ICMPEcho:
		if f.To.Is6() {
			return 58
		}
		return 1
	}
	return 17
}

// shape describes one length: what stands in the length fields, and the checksums of everything
// that does not vary otherwise. Sums are of native 16-bit words, as the program's are
// (RFC 1071: the order of bytes does not matter to the sum).
func (f *Flood) shape(frame []byte, l *liveLayout) liveShape {
	ip := frame[l.Ip:]
	l4 := ip[f.ipHeader():]
	s := liveShape{Frame: uint32(len(frame)), UdpLen: htons(uint16(len(l4)))}
	s.L4Sum = sum(l4)
	if f.Kind == UDP {
		s.L4Sum += uint32(s.UdpLen)
	}
	if f.To.Is4() {
		s.IpLen = htons(uint16(len(ip)))
		s.IpSum = sum(ip[:20]) + uint32(s.IpLen)
	} else {
		s.IpLen = htons(uint16(len(ip) - 40))
	}
	if l.Pseudo != 0 {
		s.L4Sum += sum(f.To.AsSlice()) + uint32(htons(uint16(f.protocol()))) + uint32(htons(uint16(len(l4))))
	}
	return s
}

// sum adds native 16-bit words; a last odd byte counts as if followed by zero.
func sum(b []byte) uint32 {
	var s uint32
	for ; len(b) >= 2; b = b[2:] {
		s += uint32(binary.NativeEndian.Uint16(b))
	}
	if len(b) == 1 {
		s += uint32(binary.NativeEndian.Uint16([]byte{b[0], 0}))
	}
	return s
}

func htons(v uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], v)
	return binary.NativeEndian.Uint16(b[:])
}
