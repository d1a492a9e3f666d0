// Package oracle follows MPEG transport streams as the monitor's program does, and shares nothing
// with it: it keeps whole packets and the times of a window, and works them out by the words of
// H.222.0 2.4.3.3 to 2.4.3.5, RFC 3550 A.1 and RFC 4445. In go frames with their times, out come
// streams. It must never be in a program that has to be fast.
package oracle

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"levee/internal/monitor/mpegts"
)

// Monitor follows streams. Its zero value knows none; Window and Silence are to be set.
type Monitor struct {
	Window, Silence time.Duration
	Rate            float64 // bits a second of every stream, 0: by its PCRs or by what comes
	Totals          mpegts.Totals
	flows           map[mpegts.Flow]*flow
}

type flow struct {
	mpegts.Stream
	pids map[uint16]*pid
	last []byte // payload of the datagram before, of UDP without RTP

	expected, bad uint16
	came          map[uint16]bool // sequence numbers of the last 64

	begun      time.Duration
	arrivals   []arrival
	bits       float64 // media rate, 0 is unknown
	faults     uint64
	clock      uint16 // PID of the PCR
	hasClock   bool
	pcrs       []pcr
	everything uint64
}

type arrival struct {
	at    time.Duration
	bytes int
}

type pcr struct{ ticks, at uint64 }

type pid struct {
	mpegts.Counts
	known    bool
	before   []byte // the packet
	cc       byte
	repeated bool
}

// Streams returns the streams so far.
func (m *Monitor) Streams() (all []mpegts.Stream) {
	for _, f := range m.flows {
		s := f.Stream
		for n, p := range f.pids {
			s.PIDs = append(s.PIDs, mpegts.PID{PID: n, Counts: p.Counts})
		}
		slices.SortFunc(s.PIDs, func(a, b mpegts.PID) int { return int(a.PID) - int(b.PID) })
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b mpegts.Stream) int { return a.Compare(&b.Flow) })
	return all
}

// Frame takes an Ethernet frame that comes at a time.
func (m *Monitor) Frame(at time.Duration, frame []byte) {
	key, payload, part := decode(frame)
	switch part {
	case none:
		return
	case later:
		m.Totals.Fragments++
		return
	}
	r, data := rtp(payload)
	if part == first {
		if m.flows[key] != nil || !isParity(r, data) && len(data) > mpegts.Bytes &&
			data[0] == sync && data[mpegts.Bytes] == sync {
			f := m.flow(key)
			f.pause(at, m.Silence)
			f.Fragments++
			f.RTP = false // the next sequence number is the first that is known
			f.forget()
		}
		return
	}
	if isParity(r, data) {
		m.Totals.FEC++
		return
	}
	var packets [][]byte
	synced := 0
	for p := range slices.Chunk(data, mpegts.Bytes) {
		packets = append(packets, p)
		if p[0] == sync {
			synced++
		}
	}
	whole := len(data)%mpegts.Bytes == 0 && len(packets) <= most
	f := m.flows[key]
	switch {
	case len(data) < mpegts.Bytes, f == nil && (!whole || synced != len(packets)):
		return
	case f == nil:
		f = m.flow(key)
	case !whole:
		if data[0] == sync {
			f.Strange++
		}
		return
	case synced == 0:
		f.Strange++
		return
	}
	f.pause(at, m.Silence)
	if r == nil {
		f.RTP = false
		again := len(packets) > 1 && bytes.Equal(withoutPCRs(data), f.last) &&
			slices.ContainsFunc(packets, func(p []byte) bool {
				return p[3]&0x10 != 0 && number(p) != mpegts.Null
			})
		if again {
			f.Repeated++
			return
		}
	} else if !f.next(r) {
		return
	}
	f.last = withoutPCRs(data)
	f.Datagrams++
	f.arrive(m, at, len(data))
	for _, p := range packets {
		f.packet(p)
	}
}

func (m *Monitor) flow(key mpegts.Flow) *flow {
	if f := m.flows[key]; f != nil {
		return f
	}
	if m.flows == nil {
		m.flows = map[mpegts.Flow]*flow{}
	}
	f := &flow{Stream: mpegts.Stream{Flow: key}, pids: map[uint16]*pid{}}
	m.flows[key] = f
	return f
}

const (
	sync = 0x47
	most = 48 // packets of a datagram
)

// forget has the next packet of each PID be the first that is known.
func (f *flow) forget() {
	for _, p := range f.pids {
		p.known = false
	}
}

func (f *flow) pause(at, silence time.Duration) {
	if f.First == 0 {
		f.First, f.Last = at, at
		return
	}
	paused := at - f.Last
	if paused <= 0 {
		return
	}
	f.Last = at
	f.Longest = max(f.Longest, paused)
	if paused >= silence {
		f.Silences++
		f.Silent += paused
	}
}

func number(p []byte) uint16 { return binary.BigEndian.Uint16(p[1:]) & 0x1fff }

// adaptation returns the adaptation field behind its length, nil if there is none.
func adaptation(p []byte) []byte {
	if p[3]&0x20 == 0 || p[4] == 0 {
		return nil
	}
	return p[5:min(5+int(p[4]), len(p))]
}

// pcrOf returns the program clock reference of a packet, in 27 MHz.
func pcrOf(p []byte) (ticks uint64, ok bool) {
	a := adaptation(p)
	if len(a) < 7 || a[0]&0x10 == 0 {
		return 0, false
	}
	base := uint64(binary.BigEndian.Uint32(a[1:]))<<1 | uint64(a[5]>>7)
	return base*300 + uint64(binary.BigEndian.Uint16(a[5:])&0x1ff), true
}

// withoutPCRs returns a copy of packets with zeros in the place of PCRs, which duplicates may have
// of their own.
func withoutPCRs(data []byte) []byte {
	out := bytes.Clone(data)
	for p := range slices.Chunk(out, mpegts.Bytes) {
		if _, ok := pcrOf(p); ok {
			clear(p[6:12])
		}
	}
	return out
}

// packet follows one packet of a stream.
func (f *flow) packet(p []byte) {
	if p[0] != sync {
		f.Unsynced++
		f.everything += mpegts.Bytes
		return
	}
	ticks, hasPCR := pcrOf(p)
	declares := len(adaptation(p)) > 0 && adaptation(p)[0]&0x80 != 0
	n := number(p)
	if hasPCR {
		f.tick(n, pcr{ticks, f.everything}, declares)
	}
	f.everything += mpegts.Bytes
	f.Packets++
	if n == mpegts.Null {
		f.Nulls++
		return
	}
	s := f.pids[n]
	if s == nil {
		if len(f.pids) == 255 {
			f.Unfollowed++
			return
		}
		s = &pid{}
		f.pids[n] = s
	}
	damaged, payload, cc := p[1]&0x80 != 0, p[3]&0x10 != 0, p[3]&0x0f
	count := func(is bool, of, sum *uint64) {
		if is {
			*of++
			*sum++
		}
	}
	s.Packets++
	count(p[3]&0xc0 != 0, &s.Scrambled, &f.Scrambled)
	count(damaged, &s.Errors, &f.Errors)
	count(declares, &s.Declared, &f.Declared)
	body := withoutPCRs(p)
	want := s.cc
	if payload {
		want = (want + 1) % 16
	}
	switch {
	case !s.known && damaged:
		return
	case !s.known, declares:
	case payload && cc == s.cc && bytes.Equal(body, s.before):
		count(true, &s.Duplicates, &f.Duplicates)
		count(s.repeated, &s.Discontinuities, &f.Discontinuities)
		s.repeated = true
		return
	case cc != want && damaged:
		return
	case cc != want:
		count(true, &s.Discontinuities, &f.Discontinuities)
		missing := uint64(cc+16-want) % 16
		s.Missing += missing
		f.Missing += missing
	}
	s.known, s.repeated, s.cc, s.before = true, false, cc, body
}

// header is that of RTP.
type header struct {
	seq  uint16
	ssrc uint32
	kind byte
}

// rtp takes RTP's header off a payload; nil: it has none.
func rtp(b []byte) (*header, []byte) {
	if len(b) < 12 || b[0]>>6 != 2 {
		return nil, b
	}
	data := b
	if b[0]&0x20 != 0 {
		pad := int(b[len(b)-1])
		if len(b) == 12 || pad > len(b) {
			return nil, b
		}
		data = b[:len(b)-pad]
	}
	at := 12 + 4*int(b[0]&15)
	if b[0]&0x10 != 0 {
		if len(b) < at+4 {
			return nil, b
		}
		at += 4 + 4*int(binary.BigEndian.Uint16(b[at+2:]))
	}
	if len(data) < at || len(b)%mpegts.Bytes == 0 && (len(data)-at)%mpegts.Bytes != 0 {
		return nil, b // the last is a stream without RTP, whose first sync byte is damaged
	}
	return &header{binary.BigEndian.Uint16(b[2:]), binary.BigEndian.Uint32(b[8:]), b[1] & 0x7f},
		data[at:]
}

// isParity tells of the parity of other datagrams (SMPTE 2022-1): a header of 16 bytes with the
// E bit, and as many bytes as these have.
func isParity(r *header, data []byte) bool {
	return r != nil && r.kind != 33 && len(data) > 16 && (len(data)-16)%mpegts.Bytes == 0 &&
		data[4]&0x80 != 0
}

// next says whether a datagram is the next of its sequence, or one behind some that are missing.
func (f *flow) next(h *header) bool {
	f.PayloadType = h.kind
	ahead, back := h.seq-f.expected, f.expected-h.seq
	switch {
	case !f.RTP || f.SSRC != h.ssrc:
		if f.RTP {
			f.RTPRestarts++
		}
		f.RTP, f.SSRC = true, h.ssrc
		f.came = map[uint16]bool{}
	case ahead < 0x8000:
		f.RTPLost += uint64(ahead)
	case back <= 64:
		if f.came[h.seq] {
			f.Repeated++
		} else {
			f.RTPLate++
		}
		f.came[h.seq] = true
		f.bad = h.seq
		return false
	case h.seq != f.bad:
		f.bad = h.seq + 1
		f.RTPLate++
		return false
	default:
		f.RTPRestarts++
		f.came = map[uint16]bool{}
		f.forget()
	}
	f.came[h.seq] = true
	f.expected, f.bad = h.seq+1, h.seq+1
	for seq := range f.came {
		if f.expected-seq > 64 {
			delete(f.came, seq)
		}
	}
	return true
}

// allFaults returns those behind which bytes between two PCRs are missing.
func (f *flow) allFaults() uint64 {
	return f.Discontinuities + f.RTPLost + f.Unsynced + f.Fragments
}

// arrive takes the bytes of a datagram into the window.
func (f *flow) arrive(m *Monitor, at time.Duration, n int) {
	switch {
	case f.begun == 0:
		f.begun = at
		if m.Rate > 0 {
			f.bits, f.RateBy = m.Rate, mpegts.RateGiven
		}
	case at-f.begun >= m.Window:
		f.end(m, at)
	}
	f.arrivals = append(f.arrivals, arrival{at, n})
	f.MediaRate = f.bits
}

// end ends a window.
func (f *flow) end(m *Monitor, at time.Duration) {
	lasted := at - f.begun
	if lasted < 2*m.Window {
		if f.bits > 0 {
			f.Delay = f.delay()
			f.DelayMost = max(f.DelayMost, f.Delay)
			f.Windows++
		}
		bytes := 0
		for _, a := range f.arrivals {
			bytes += a.bytes
		}
		switch by, ok := f.byPCR(lasted); {
		case m.Rate > 0:
		case len(f.pcrs) > 1 && f.faults == f.allFaults():
			if ok {
				f.bits, f.RateBy = by, mpegts.RatePCR
			}
		case bytes > 0 && f.RateBy != mpegts.RatePCR:
			f.bits, f.RateBy = float64(bytes)*8/lasted.Seconds(), mpegts.RateArrival
		}
	}
	if len(f.pcrs) > 1 {
		f.pcrs = f.pcrs[len(f.pcrs)-1:]
	} else {
		f.pcrs, f.hasClock = nil, false
		if f.RateBy == mpegts.RatePCR {
			f.RateBy = mpegts.RateUnknown
		}
	}
	f.faults = f.allFaults()
	f.begun, f.arrivals = at, nil
}

// delay returns the delay factor of a window, RFC 4445 3.1: how far apart the highest and the
// lowest level of the virtual buffer are, in time at the media rate.
func (f *flow) delay() time.Duration {
	least, most, came := 0.0, 0.0, 0.0
	for _, a := range f.arrivals {
		drained := f.bits / 8 * (a.at - f.begun).Seconds()
		least = min(least, came-drained)
		came += float64(a.bytes)
		most = max(most, came-drained)
	}
	return time.Duration((most - least) / (f.bits / 8) * 1e9)
}

func (f *flow) tick(n uint16, p pcr, declares bool) {
	if !f.hasClock {
		f.clock, f.hasClock = n, true
	}
	if f.clock != n {
		return
	}
	if declares {
		f.pcrs = nil
	}
	f.pcrs = append(f.pcrs, p)
}

// byPCR returns the media rate between the first and the last PCR, unless these are far from how
// long the window lasted: then they are another clock's, or one that began anew.
func (f *flow) byPCR(lasted time.Duration) (bits float64, ok bool) {
	if len(f.pcrs) < 2 {
		return 0, false
	}
	a, b := f.pcrs[0], f.pcrs[len(f.pcrs)-1]
	const wraps = 1 << 33 * 300
	passed := time.Duration((b.ticks + wraps - a.ticks) % wraps * 1000 / 27)
	if b.at == a.at || passed >= 2*lasted || passed <= lasted/2 {
		return 0, false
	}
	return float64(b.at-a.at) * 8 / passed.Seconds(), true
}

type part int

const (
	none  part = iota // no datagram of UDP
	whole             // one
	first             // the first fragment of one
	later             // another
)

// decode finds the payload of a datagram.
func decode(b []byte) (key mpegts.Flow, payload []byte, p part) {
	key.VLAN, key.InnerVLAN = mpegts.NoVLAN, mpegts.NoVLAN
	if len(b) < 14 {
		return key, nil, none
	}
	kind, b := binary.BigEndian.Uint16(b[12:]), b[14:]
	for _, id := range []*uint16{&key.VLAN, &key.InnerVLAN} {
		if kind != 0x8100 && kind != 0x88a8 {
			break
		}
		if len(b) < 4 {
			return key, nil, none
		}
		*id, kind, b = binary.BigEndian.Uint16(b)&0xfff, binary.BigEndian.Uint16(b[2:]), b[4:]
	}
	var ip ipHeader
	ok := false
	switch kind {
	case 0x0800:
		ip, ok = decodeIPv4(b)
	case 0x86dd:
		ip, ok = decodeIPv6(b)
	}
	switch {
	case !ok:
		return key, nil, none
	case ip.offset > 0:
		return key, nil, later
	case len(ip.payload) < 8:
		return key, nil, none
	}
	b = ip.payload
	key.Src = netip.AddrPortFrom(ip.src, binary.BigEndian.Uint16(b))
	key.Dst = netip.AddrPortFrom(ip.dst, binary.BigEndian.Uint16(b[2:]))
	if ip.more {
		return key, b[8:], first
	}
	length := int(binary.BigEndian.Uint16(b[4:]))
	if length < 8 || length > len(b) {
		return key, nil, none
	}
	return key, b[8:length], whole
}

// ipHeader is that of a packet that carries UDP, or a fragment of it.
type ipHeader struct {
	src, dst netip.Addr
	offset   int  // of a fragment, in units of 8 bytes
	more     bool // fragments follow
	payload  []byte
}

func decodeIPv4(b []byte) (h ipHeader, ok bool) {
	if len(b) < 20 {
		return h, false
	}
	bytes, total := int(b[0]&15)*4, int(binary.BigEndian.Uint16(b[2:]))
	if b[0]>>4 != 4 || bytes < 20 || total < bytes || total > len(b) || b[9] != 17 {
		return h, false
	}
	flags := binary.BigEndian.Uint16(b[6:])
	return ipHeader{netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:])),
		int(flags & 0x1fff), flags&0x2000 != 0, b[bytes:total]}, true
}

// decodeIPv6 looks through up to four extension headers.
func decodeIPv6(b []byte) (h ipHeader, ok bool) {
	if len(b) < 40 || b[0]>>4 != 6 {
		return h, false
	}
	h.src, h.dst = netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:]))
	next, length := b[6], int(binary.BigEndian.Uint16(b[4:]))
	if length > len(b)-40 {
		return h, false
	}
	b = b[40 : 40+length]
	for range 4 {
		if next != 0 && next != 43 && next != 44 && next != 60 || h.offset > 0 {
			break
		}
		if len(b) < 8 {
			return h, false
		}
		bytes := 8
		if next == 44 {
			f := binary.BigEndian.Uint16(b[2:])
			h.offset, h.more = int(f>>3), f&1 != 0
		} else {
			bytes += 8 * int(b[1])
		}
		if len(b) < bytes {
			return h, false
		}
		next, b = b[0], b[bytes:]
	}
	h.payload = b
	return h, next == 17
}
