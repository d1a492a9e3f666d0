package difftest

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net/netip"
	"time"

	"levee/internal/packet"
)

// dialogue makes what a few hosts say to each other on connections of their own. What they send
// mostly fits what has been said, as that of stacks does, or just does not.
type dialogue struct {
	rand    *rand.Rand
	talkers []talker
}

// talker is a connection as its ends would see it. Side 0 has the policy.
type talker struct {
	six   bool
	proto uint8
	host  byte      // of the other side
	ports [2]uint16 // of ICMP the first is the identifier
	next  [2]uint32 // TCP: the number of what a side sends next
	group bool      // UDP: this side mostly asks a group
}

// newDialogue begins one of two or three connections, of which two may differ in one port only.
func newDialogue(r *rand.Rand) *dialogue {
	d := &dialogue{rand: r}
	for range 2 + r.IntN(2) {
		d.talkers = append(d.talkers, talker{
			six: r.IntN(4) == 0, host: byte(2 + r.IntN(2)),
			proto: []uint8{packet.ProtoTCP, packet.ProtoTCP, packet.ProtoTCP, packet.ProtoUDP,
				packet.ProtoUDP, packet.ProtoICMP}[r.IntN(6)],
			ports: [2]uint16{[]uint16{443, 40000}[r.IntN(2)], []uint16{443, 40000}[r.IntN(2)]},
			next:  [2]uint32{r.Uint32(), r.Uint32()},
			group: r.IntN(3) == 0,
		})
	}
	return d
}

// pause returns how long nobody says anything: mostly not at all, else for some ticks, or for about
// as long as a lease.
func (d *dialogue) pause() time.Duration {
	leases := []time.Duration{time.Second, 10 * time.Second, time.Minute, 2 * time.Minute,
		4 * time.Minute, 5 * time.Minute, 2*time.Hour + 4*time.Minute}
	switch d.rand.IntN(8) {
	case 0:
		return time.Duration(d.rand.Int64N(int64(3 * time.Second)))
	case 1:
		lease := leases[d.rand.IntN(len(leases))]
		return max(0, lease+time.Duration(d.rand.Int64N(int64(4*time.Second)))-2*time.Second)
	}
	return 0
}

// says makes the next frame, and reports whether it leaves.
func (d *dialogue) says() (frame []byte, leaves bool) {
	t := &d.talkers[d.rand.IntN(len(d.talkers))]
	from := d.rand.IntN(2)
	switch t.proto {
	case packet.ProtoTCP:
		return d.segment(t, from), from == 0
	case packet.ProtoUDP:
		bytes := 8 + d.rand.IntN(100)
		f, l4 := t.frame(from, bytes)
		binary.BigEndian.PutUint16(f[l4+4:], uint16(bytes))
		if t.group && d.rand.IntN(8) > 0 {
			d.toGroup(t, f, l4, from)
		}
		return f, from == 0
	}
	f, l4 := t.frame(from, 8)
	f[l4] = []byte{8, 0}[(from+d.rand.IntN(5)/4)%2]
	if t.six {
		f[l4] = []byte{128, 129}[(from+d.rand.IntN(5)/4)%2]
	}
	f[l4+1] = 0
	binary.BigEndian.PutUint16(f[l4+4:], t.ports[0])
	return f, from == 0
}

// spoken are flags as segments of stacks have them, and some that none has.
var spoken = []uint8{packet.SYN, packet.SYN, packet.SYN | packet.ACK, packet.SYN | packet.ACK,
	packet.ACK, packet.ACK, packet.ACK, packet.ACK | packet.PSH, packet.ACK | packet.PSH,
	packet.FIN | packet.ACK, packet.RST, packet.RST | packet.ACK, packet.FIN,
	packet.SYN | packet.FIN, packet.SYN | packet.RST, packet.SYN | packet.ACK | packet.RST, 0}

func (d *dialogue) segment(t *talker, from int) []byte {
	r := d.rand
	flags := spoken[r.IntN(len(spoken))]
	data := 0
	if flags&packet.SYN == 0 || r.IntN(8) == 0 {
		data = []int{0, 0, 0, 1, 1448, 3000}[r.IntN(6)]
	}
	f, l4 := t.frame(from, 20+data)
	near := func(n uint32) uint32 {
		switch r.IntN(16) {
		case 0:
			return r.Uint32()
		case 1, 2:
			return n + r.Uint32N(3) - 1
		case 3, 4: // about what FLOW_BLOCK of bpf/flow.h is
			return n + r.Uint32N(100_000) - 50_000
		}
		return n
	}
	seq := near(t.next[from])
	binary.BigEndian.PutUint32(f[l4+4:], seq)
	binary.BigEndian.PutUint32(f[l4+8:], near(t.next[1-from]))
	f[l4+12], f[l4+13] = 5<<4, flags
	if r.IntN(4) > 0 {
		t.next[from] = seq + uint32(data)
		if flags&(packet.SYN|packet.FIN) != 0 {
			t.next[from]++
		}
	}
	return f
}

// Addresses of who asks groups and who answers, of groups, and of who is on no link with the
// former.
var (
	askers = [2][]string{{"198.51.100.1", "192.168.7.1", "10.1.2.3", "172.20.0.9", "169.254.9.9"},
		{"fe80::1", "2001:db8:1:2::1"}}
	answerers = [2][]string{{"198.51.100.7", "198.51.101.7", "192.168.9.7", "192.169.7.7",
		"10.1.9.9", "10.2.2.3", "172.20.1.1", "172.32.0.9", "169.254.1.1"},
		{"fe80::7", "2001:db8:1:2::7", "2001:db8:1:3::7", "fec0::7"}}
	groups = [2][]string{{"224.0.0.251", "239.255.255.250", "255.255.255.255", "224.0.1.1"},
		{"ff02::fb", "ff12::c", "ff05::c"}}
)

// toGroup makes of a datagram a question to a group, or what may answer one.
func (d *dialogue) toGroup(t *talker, f []byte, l4, from int) {
	at, n, family := 26, 4, 0
	if t.six {
		at, n, family = 22, 16, 1
	}
	put := func(at int, of []string, few int) {
		copy(f[at:], netip.MustParseAddr(of[d.rand.IntN(min(few, len(of)))]).AsSlice())
	}
	if from == 0 {
		put(at, askers[family], 3)
		put(at+n, groups[family], 4)
		f[0] = []byte{1, 1, 2}[d.rand.IntN(3)]
		return
	}
	put(at, answerers[family], 9)
	put(at+n, askers[family], 3)
	if d.rand.IntN(4) == 0 {
		put(at+n, groups[family], 2)
	}
	if d.rand.IntN(2) == 0 {
		binary.BigEndian.PutUint16(f[l4:], uint16(d.rand.Uint32()))
	}
}

// frame returns an Ethernet frame of the connection, with so many bytes from l4 on.
func (t *talker) frame(from, bytes int) (f []byte, l4 int) {
	const ip = 14
	l4 = ip + 20
	addresses := [2][]byte{{198, 51, 100, 1}, {203, 0, 113, t.host}}
	at := ip + 12
	if t.six {
		l4, at = ip+40, ip+8
		for i := range addresses {
			addresses[i] = append(append([]byte{0x20, 1, 0xd, 0xb8}, make([]byte, 8)...),
				addresses[i]...)
		}
	}
	f = make([]byte, max(60, l4+bytes))
	copy(f, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45})
	if t.six {
		copy(f[12:], []byte{0x86, 0xdd, 0x60})
		binary.BigEndian.PutUint16(f[ip+4:], uint16(bytes))
		f[ip+6], f[ip+7] = t.proto, 64
		if t.proto == packet.ProtoICMP {
			f[ip+6] = packet.ProtoICMP6
		}
	} else {
		binary.BigEndian.PutUint16(f[ip+2:], uint16(20+bytes))
		f[ip+8], f[ip+9] = 64, t.proto
	}
	n := len(addresses[0])
	copy(f[at:], addresses[from])
	copy(f[at+n:], addresses[1-from])
	binary.BigEndian.PutUint16(f[l4:], t.ports[from])
	binary.BigEndian.PutUint16(f[l4+2:], t.ports[1-from])
	return f, l4
}

// converse makes of frame i the next of a dialogue that comes in. What leaves before it does.
func (r *comparison) converse(frames [][]byte, i int) error {
	for {
		r.clock.pass(uint64(r.dialogue.pause() / r.clock.tick))
		f, leaves := r.dialogue.says()
		f = arriving(r.c.Link, f)
		if !leaves {
			frames[i] = f
			return nil
		}
		if _, err := r.leave(f); err != nil {
			return err
		}
	}
}

// leave tells all engines, and the oracle, of a frame that leaves, if they can be told.
func (r *comparison) leave(f []byte) (told bool, err error) {
	for _, e := range r.engines {
		err := e.(Leaver).Leave(f)
		if errors.Is(err, errNotRun) {
			return false, nil // before the first engine has seen it
		}
		if err != nil {
			return false, err
		}
	}
	want := r.oracle.Leave(f)
	if r.oracle.Leaving() {
		for i := range r.sums {
			r.sums[i][want.Slot]++
			for _, counted := range want.Counted {
				r.sums[i][counted]++
			}
		}
	}
	return true, nil
}
