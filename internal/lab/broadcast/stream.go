package broadcast

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"levee/internal/monitor/mpegts"
)

type pid struct {
	mpegts.Counts // that have to be counted
	number        uint16
	counter       int64 // of its last packet with payload; four bits of it are sent
	seen          int64 // that of the packet which was followed last, -1 before the first
}

type stream struct {
	of       *Sender
	rand     *rand.Rand
	filler   uint64
	pids     []*pid
	expected mpegts.Stream

	pcr    time.Duration // when the last was sent
	lose   int           // datagrams from now on
	silent time.Duration // until then there is none
	last   time.Duration // when one arrived
	held   *datagram     // arrives behind the next

	ssrc      uint32
	offset    uint16 // of sequence numbers
	number    int64  // of the next datagram
	next      int64  // the number that is expected; -1: any
	restarted bool   // no datagram with the new identifier has arrived

	parity  []byte
	covers  int
	parties uint16 // datagrams of parity
}

func newStream(s *Sender, i int, to netip.AddrPort) *stream {
	st := &stream{of: s, rand: rand.New(rand.NewPCG(s.Seed, uint64(i))), pcr: -time.Hour, next: -1}
	st.filler = st.rand.Uint64() | 1
	st.ssrc, st.offset = st.rand.Uint32(), uint16(st.rand.Uint32())
	st.expected.Src, st.expected.Dst, st.expected.RTP = s.From, to, s.RTP
	st.expected.VLAN, st.expected.InnerVLAN = mpegts.NoVLAN, mpegts.NoVLAN
	if s.VLAN != 0 {
		st.expected.VLAN = s.VLAN
	}
	for _, m := range mux {
		st.pids = append(st.pids, &pid{number: m.pid, seen: -1,
			counter: int64(st.rand.Uint32() & 15)})
	}
	return st
}

// datagram is one, as the account knows it.
type datagram struct {
	number  int64
	payload []byte
	packets []packet
}

type packet struct {
	of      *pid
	counter int64
	payload bool
	copy    int // 1: the packet before again; 2: for the third time

	declared, error, unsynced, scrambled bool
}

// media says whether a packet has payload, and a counter that counts.
func (m *packet) media() bool { return m.payload && m.of.number != mpegts.Null }

// comes says whether a fault happens here. The first datagram of a stream has none: who follows it
// has to know where it begins.
func (st *stream) comes(f Fault) bool {
	p := st.of.Faults[f]
	if p == 0 || st.expected.Datagrams == 0 || st.rand.Float64() >= p {
		return false
	}
	st.of.Made[f]++
	return true
}

// make makes the next datagram, if there is one, and has it arrive or not.
func (st *stream) make(at time.Duration) {
	if at < st.silent {
		return
	}
	if st.comes(Silence) {
		st.silent = at + 3*st.of.Silence
		return
	}
	if st.held == nil && st.lose == 0 && st.comes(Restart) {
		st.ssrc, st.restarted = st.rand.Uint32(), true
	}
	d := &datagram{number: st.number}
	st.number++
	st.fill(d, at)
	if st.of.RTP {
		d.payload = st.rtp(d.payload, 33, uint16(d.number)+st.offset, at)
	}
	defer st.cover(at, d.payload)
	if st.lose == 0 && st.held == nil && st.comes(Loss) {
		st.lose = 1 + st.rand.IntN(3)
	}
	switch {
	case st.lose > 0:
		st.lose--
	case st.held != nil:
		late := st.held
		st.held = nil
		st.arrive(at, d)
		st.arrive(at+1, late)
	case st.comes(Fragment):
		st.fragment(at, d)
	case !st.restarted && st.comes(Reorder):
		st.held = d
	default:
		st.arrive(at, d)
		// One packet again is a duplicate of it, and a sender may repeat what has no payload.
		if (st.of.RTP || len(d.packets) > 1 && slices.ContainsFunc(d.packets, func(m packet) bool {
			return m.media()
		})) && st.comes(Repeat) {
			st.expected.Repeated++
			st.send(at+1, d.payload)
		}
	}
}

// fill makes the packets of a datagram.
func (st *stream) fill(d *datagram, at time.Duration) {
	each := time.Duration(float64(mpegts.Bytes*8) / st.of.Rate * 1e9)
	for len(d.packets) < st.of.Packets {
		m, b := st.packet(at + each*time.Duration(len(d.packets)))
		if m.media() && st.comes(Skip) {
			continue
		}
		copies, room := 0, st.of.Packets-len(d.packets)-1
		plain := m.media() && !m.declared && !m.error && !m.unsynced
		switch {
		case plain && room > 0 && st.comes(Duplicate):
			copies = 1
		case plain && room > 1 && st.comes(Triple):
			copies = 2
		}
		for m.copy = 0; m.copy <= copies; m.copy++ {
			d.packets, d.payload = append(d.packets, m), append(d.payload, b...)
		}
	}
}

// packet makes the next packet of the stream, which is at its place at a time.
func (st *stream) packet(at time.Duration) (packet, []byte) {
	n := st.rand.IntN(100)
	share, of := 0, st.pids[0]
	for i, m := range mux {
		if share += int(m.share); n < share {
			of = st.pids[i]
			break
		}
	}
	m := packet{of: of, payload: true}
	pcr := of.number == pcrPID && at-st.pcr >= pcrEvery
	m.payload = of.number != pcrPID || pcr || n%16 != 0 // else an adaptation field alone
	if of.number != mpegts.Null {
		if m.payload {
			of.counter++
			if st.comes(Declared) {
				m.declared = true
				of.counter += 1 + int64(st.rand.IntN(14))
			}
			m.scrambled = st.comes(Scrambled)
		}
		m.unsynced = st.comes(Unsynced)
		m.error = !m.unsynced && st.comes(Error)
	}
	m.counter = of.counter
	b := st.noise()
	b[0] = 0x47
	if m.unsynced {
		b[0] = 0xb8
	}
	binary.BigEndian.PutUint16(b[1:], of.number)
	b[3] = byte(m.counter & 15)
	for _, set := range []struct {
		is   bool
		at   int
		bits byte
	}{{m.error, 1, 0x80}, {m.payload, 3, 0x10}, {m.scrambled, 3, 0x80}} {
		if set.is {
			b[set.at] |= set.bits
		}
	}
	if pcr || m.declared || !m.payload {
		b[3] |= 0x20
		b[4], b[5] = 7, 0
		if !m.payload {
			b[4] = 183
		}
		if m.declared {
			b[5] |= 0x80
		}
		if pcr {
			st.pcr = at
			b[5] |= 0x10
			putPCR(b[6:], uint64(at)*27/1000)
		}
	}
	return m, b
}

// putPCR writes a program clock reference, in 27 MHz (H.222.0 2.4.3.5).
func putPCR(b []byte, ticks uint64) {
	base, ext := ticks/300%(1<<33), ticks%300
	binary.BigEndian.PutUint32(b, uint32(base>>1))
	binary.BigEndian.PutUint16(b[4:], uint16(base&1)<<15|0x7e00|uint16(ext))
}

// noise returns a packet that no other is like, by Marsaglia's xorshift.
func (st *stream) noise() []byte {
	b := make([]byte, mpegts.Bytes)
	for i := 4; i < len(b); i += 8 {
		st.filler ^= st.filler << 13
		st.filler ^= st.filler >> 7
		st.filler ^= st.filler << 17
		binary.LittleEndian.PutUint64(b[i:], st.filler)
	}
	return b
}

// arrive sends a datagram, and records in the account what it brings.
func (st *stream) arrive(at time.Duration, d *datagram) {
	e := &st.expected
	st.send(at, d.payload)
	if st.of.RTP {
		switch {
		case st.restarted && st.next >= 0:
			e.RTPRestarts++
		case st.next >= 0 && d.number < st.next:
			e.RTPLate++
			return
		case st.next >= 0:
			e.RTPLost += uint64(d.number - st.next)
		}
		st.next, st.restarted = d.number+1, false
	}
	e.Datagrams++
	for _, m := range d.packets {
		st.count(&m)
	}
}

// count records a followed packet in the account.
func (st *stream) count(m *packet) {
	e, p := &st.expected, m.of
	if m.unsynced {
		e.Unsynced++
		return
	}
	e.Packets++
	if p.number == mpegts.Null {
		e.Nulls++
		return
	}
	add := func(is bool, n uint64, of, sum *uint64) {
		if is {
			*of += n
			*sum += n
		}
	}
	p.Packets++
	add(m.scrambled, 1, &p.Scrambled, &e.Scrambled)
	add(m.error, 1, &p.Errors, &e.Errors)
	add(m.declared, 1, &p.Declared, &e.Declared)
	if m.copy > 0 {
		add(true, 1, &p.Duplicates, &e.Duplicates)
		add(m.copy > 1, 1, &p.Discontinuities, &e.Discontinuities)
		return
	}
	want := p.seen
	if m.payload {
		want++
	}
	// A counter has four bits: what is 16 apart cannot be told.
	skipped := uint64(m.counter-want) & 15
	switch {
	case p.seen < 0 && m.error:
		return
	case p.seen < 0, m.declared, skipped == 0:
	case m.error:
		return
	default:
		add(true, 1, &p.Discontinuities, &e.Discontinuities)
		add(true, skipped, &p.Missing, &e.Missing)
	}
	p.seen = m.counter
}
