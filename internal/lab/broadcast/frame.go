package broadcast

import (
	"encoding/binary"
	"net/netip"
	"time"
)

// rtp puts a header of RTP before a payload (RFC 3550 5.1).
func (st *stream) rtp(payload []byte, payloadType byte, seq uint16, at time.Duration) []byte {
	b := make([]byte, 12, 12+len(payload))
	b[0], b[1] = 2<<6, payloadType
	binary.BigEndian.PutUint16(b[2:], seq)
	binary.BigEndian.PutUint32(b[4:], uint32(at*90/time.Millisecond))
	binary.BigEndian.PutUint32(b[8:], st.ssrc)
	return append(b, payload...)
}

// Parity is sent for so many datagrams, to a port so much above the stream's (SMPTE 2022-1).
const (
	parityOf   = 20
	parityPort = 2
)

// cover takes a datagram into the parity, and sends that once it is of enough.
func (st *stream) cover(at time.Duration, datagram []byte) {
	if !st.of.FEC {
		return
	}
	if st.parity == nil {
		st.parity = make([]byte, len(datagram)-12)
	}
	for i, v := range datagram[12:] {
		st.parity[i] ^= v
	}
	if st.covers++; st.covers < parityOf {
		return
	}
	header := make([]byte, 16)
	header[4] = 0x80 | 33 // E, and the type that is recovered
	header[13], header[14] = 1, parityOf
	b := st.rtp(append(header, st.parity...), 96, st.parties, at)
	st.parties++
	st.covers, st.parity = 0, nil
	st.of.Parity++
	to := st.expected.Dst
	st.emit(at+2, st.ip(st.udp(b, to.Port()+parityPort), 0))
}

// send sends a datagram of the stream.
func (st *stream) send(at time.Duration, payload []byte) {
	st.heard(at)
	st.emit(at, st.ip(st.udp(payload, st.expected.Dst.Port()), 0))
}

// heard records in the account that something came.
func (st *stream) heard(at time.Duration) {
	e := &st.expected
	paused := at - st.last
	if e.Datagrams+e.Fragments > 0 {
		e.Longest = max(e.Longest, paused)
		if paused >= st.of.Silence {
			e.Silences++
			e.Silent += paused
		}
	}
	st.last = at
}

// cut is the part of a datagram in the first of two fragments, in units of 8 bytes.
const cut = 100

// fragment sends a datagram in two fragments. What is in it cannot be followed, nor told from what
// was lost before it.
func (st *stream) fragment(at time.Duration, d *datagram) {
	st.heard(at)
	b := st.udp(d.payload, st.expected.Dst.Port())
	n := min(cut, len(b)/16) * 8
	st.emit(at, st.ip(b[:n], moreFragments))
	st.emit(at, st.ip(b[n:], uint16(n/8)))
	st.of.Later++
	st.expected.Fragments++
	for _, p := range st.pids {
		p.seen = -1
	}
	st.next, st.restarted = -1, false
}

func (st *stream) emit(at time.Duration, frame []byte) {
	st.of.out = append(st.of.out, Frame{at, frame})
}

// udp puts a header of UDP before a payload. Fragments of IPv6 need its checksum, too.
func (st *stream) udp(payload []byte, port uint16) []byte {
	b := make([]byte, 8, 8+len(payload))
	binary.BigEndian.PutUint16(b, st.expected.Src.Port())
	binary.BigEndian.PutUint16(b[2:], port)
	binary.BigEndian.PutUint16(b[4:], uint16(8+len(payload)))
	b = append(b, payload...)
	src, dst := st.expected.Src.Addr(), st.expected.Dst.Addr()
	sum := ones(ones(uint32(17+len(b)), src.AsSlice()), dst.AsSlice())
	if c := fold(ones(sum, b)); c != 0 {
		binary.BigEndian.PutUint16(b[6:], c)
	} else {
		binary.BigEndian.PutUint16(b[6:], 0xffff)
	}
	return b
}

func ones(sum uint32, b []byte) uint32 {
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) > 0 {
		sum += uint32(b[0]) << 8
	}
	return sum
}

func fold(sum uint32) uint16 {
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

const (
	moreFragments = 0x2000
	mayNot        = 0x4000 // be cut, as senders of streams say
	hops          = 8
)

// ip puts the headers of Ethernet and IP before a datagram, or before a fragment of one: flags and
// offset are those of IPv4.
func (st *stream) ip(b []byte, fragment uint16) []byte {
	src, dst := st.expected.Src.Addr(), st.expected.Dst.Addr()
	f := ethernet(dst)
	if st.of.VLAN != 0 {
		f = binary.BigEndian.AppendUint16(f, 0x8100)
		f = binary.BigEndian.AppendUint16(f, st.of.VLAN)
	}
	id := uint32(st.number)
	if src.Is4() {
		f = binary.BigEndian.AppendUint16(f, 0x0800)
		h := make([]byte, 20)
		h[0], h[8], h[9] = 0x45, hops, 17
		binary.BigEndian.PutUint16(h[2:], uint16(20+len(b)))
		binary.BigEndian.PutUint16(h[4:], uint16(id))
		if fragment == 0 {
			fragment = mayNot
		}
		binary.BigEndian.PutUint16(h[6:], fragment)
		copy(h[12:], src.AsSlice())
		copy(h[16:], dst.AsSlice())
		binary.BigEndian.PutUint16(h[10:], fold(ones(0, h)))
		return append(append(f, h...), b...)
	}
	f = binary.BigEndian.AppendUint16(f, 0x86dd)
	h := make([]byte, 40)
	h[0], h[6], h[7] = 0x60, 17, hops
	copy(h[8:], src.AsSlice())
	copy(h[24:], dst.AsSlice())
	if fragment != 0 {
		h[6] = 44
		x := []byte{17, 0, 0, 0, 0, 0, 0, 0}
		binary.BigEndian.PutUint16(x[2:], fragment&0x1fff<<3|fragment>>13&1)
		binary.BigEndian.PutUint32(x[4:], id)
		b = append(x, b...)
	}
	binary.BigEndian.PutUint16(h[4:], uint16(len(b)))
	return append(append(f, h...), b...)
}

// ethernet returns the Ethernet header of a frame to an address: a multicast address maps to its
// group address (RFC 1112 6.4, RFC 2464 7); for other addresses the sender replaces the
// destination.
func ethernet(dst netip.Addr) []byte {
	b := []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2}
	a := dst.AsSlice()
	switch {
	case dst.Is4() && dst.IsMulticast():
		copy(b, []byte{1, 0, 0x5e, a[1] & 0x7f, a[2], a[3]})
	case dst.IsMulticast():
		copy(b, append([]byte{0x33, 0x33}, a[12:]...))
	}
	return b
}
