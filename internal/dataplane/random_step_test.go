package dataplane

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/dataplane/store"
	"levee/internal/filter/limit"
	"levee/internal/filter/oracle"
	"levee/internal/lang/action"
	"levee/internal/packet"
)

// turn is one step of a sequence, so that it can be done again.
type turn struct {
	pause uint64 // jiffies
	dev   int
	cpu   int
	up    bool // the policy is replaced first, by one that is the same
	event event
}

// sequence is one where nothing is known at the beginning. It returns how many packets came. One in
// which something differs is cut to the steps that it takes.
func (a *arena) sequence(seed uint64) (arrived int) {
	var done []turn
	s := a.begin(seed)
	steps := 4 + s.IntN(60)
	replaced := -1
	if *randomAll && seed%40 == 7 { // programs take long to load
		replaced = s.IntN(steps)
	}
	for i := range steps {
		t := turn{pause: uint64(s.pause(a.tick) / a.tick), dev: s.IntN(len(a.devs)),
			cpu: s.IntN(runtime.NumCPU()), up: i == replaced}
		a.pass(t.pause)
		t.event = s.next()
		if t.event.packet == nil {
			t.event.frame = nil
		} else if !t.event.leaves {
			arrived++
			if t.event.packet.toMAC == ([6]byte{}) {
				copy(t.event.frame, a.devs[t.dev].mac[:])
				if s.chance(12) {
					t.event.frame[5] ^= 1
				}
			}
		}
		done = append(done, t)
		if !a.step(s, &t) {
			a.differs(seed, done)
			return arrived
		}
	}
	return arrived
}

// begin has all be forgotten.
func (a *arena) begin(seed uint64) *scene {
	a.pass(uint64((3*time.Hour + time.Duration(seed%60)*time.Minute) / a.tick))
	for _, b := range a.budgets {
		clear(b[limit.Head:])
	}
	a.oracle = oracle.New(a.policy)
	a.oracle.SetClock(a.now)
	for a.hear() != nil {
	}
	a.log = nil
	s := newScene(rand.New(rand.NewPCG(seed, 37)), a.now)
	s.merges, s.proofs = a.merges, a.proofs
	return s
}

// differs tells of a sequence, without the steps that change nothing of it.
func (a *arena) differs(seed uint64, done []turn) {
	told := a.log
	again := func(some []turn) bool {
		s := a.begin(seed)
		for i := range some {
			a.pass(some[i].pause)
			if !a.step(s, &some[i]) {
				return i == len(some)-1
			}
		}
		return false
	}
	for i := len(done) - 2; i >= 0; i-- {
		if less := slices.Delete(slices.Clone(done), i, i+1); again(less) {
			done, told = less, a.log
		}
	}
	a.Errorf("seed %d at %s\n%s", seed, a.mode, strings.Join(told, "\n"))
}

// step has one packet come or go, and says whether all counters are as they should be.
func (a *arena) step(s *scene, t *turn) bool {
	d, e := &a.devs[t.dev], t.event
	if t.pause > 0 {
		a.log = append(a.log, fmt.Sprintf("%v pass", time.Duration(t.pause)*a.tick))
	}
	if t.up {
		a.log = append(a.log, "the policy is replaced")
		a.up()
		a.pass(0)
	}
	if e.frame == nil {
		return true
	}
	var set unix.CPUSet
	set.Set(t.cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		a.Fatal(err)
	}
	if s.unsure(e.frame) {
		return true
	}
	way := "in "
	if e.leaves {
		way = "out"
	}
	a.log = append(a.log, fmt.Sprintf("%s by %d: %s (merged %d) %x", way, d.near,
		oracle.Brief(e.frame, len(e.frame), packet.Ethernet), e.merged,
		e.frame[:min(len(e.frame), 160)]))
	if !a.silent() {
		return false
	}
	if e.leaves {
		return a.leave(d, e)
	}
	if a.mode.AtTC() && untagged(e.frame) == nil {
		return true // the kernel drops it before
	}
	if err := send(a.in, d.far, e); err != nil {
		a.log = append(a.log, "not sent: "+err.Error())
		return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EMSGSIZE)
	}
	a.oracle.SetOwn([][6]byte{d.mac}, nil)
	want := a.oracle.Eval(e.frame)
	if !a.counted(d, e, want) {
		return false
	}
	switch {
	case want.Answered:
		answer := a.answer(d)
		if answer == nil {
			return false
		}
		a.answered(s, e, answer)
	case want.Action == action.Pass && untagged(e.frame) != nil:
		return a.comes(d, e)
	}
	return a.silent()
}

// leave is a step in which a packet leaves. The kernel tells the sender of one that was dropped.
func (a *arena) leave(d *arenaDev, e event) bool {
	err := send(a.out, d.near, e)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EMSGSIZE) {
		a.log = append(a.log, "not sent: "+err.Error())
		return true
	}
	want := a.oracle.Leave(e.frame)
	drops := want.Action == action.Drop
	if errors.Is(err, unix.ENOBUFS) != drops || err != nil && !drops {
		a.log = append(a.log, fmt.Sprintf("sent: %v, want it dropped: %v", err, drops))
		return false
	}
	if a.oracle.Leaving() {
		after := make([]store.Counter, len(d.seen))
		a.read(d, after)
		if !a.tallies(d, e, want, after) {
			return false
		}
	}
	if !drops && untagged(e.frame) != nil {
		return a.comes(d, e)
	}
	return a.silent()
}

// untagged is a frame as the kernel has it at tc, nil if it drops it: net/core/skbuff.c,
// skb_vlan_untag, which reads two bytes behind the tag.
func untagged(f []byte) []byte {
	if kind := binary.BigEndian.Uint16(f[12:]); kind != 0x8100 && kind != 0x88a8 {
		return f
	}
	if len(f) < 20 {
		return nil
	}
	return append(slices.Clone(f[:12]), f[16:]...)
}

// counted says whether the counters of the device are those of one packet more.
func (a *arena) counted(d *arenaDev, e event, want oracle.Result) bool {
	after := make([]store.Counter, len(d.seen))
	return a.decided(d, after) && a.tallies(d, e, want, after)
}

// tallies says whether counters are now those of one packet more.
func (a *arena) tallies(d *arenaDev, e event, want oracle.Result, after []store.Counter) bool {
	bytes := len(e.frame)
	if e.merged > 0 {
		data := len(e.packet.body) - e.transport()
		bytes += ((data+e.merged-1)/e.merged - 1) * (bytes - data)
	}
	good := true
	slots := a.policy.Slots()
	for i := range after {
		packets := uint64(0)
		if i == want.Slot || slices.Contains(want.Counted, i) {
			packets = 1
		}
		got := store.Counter{Packets: after[i].Packets - d.seen[i].Packets,
			Bytes: after[i].Bytes - d.seen[i].Bytes}
		a.met[i] += got.Packets
		if got.Packets != packets || got.Bytes != packets*uint64(bytes) {
			name := slots[i].Name
			if r := slots[i].Rule; r != nil {
				name = r.Label + " " + r.Text
			}
			a.log = append(a.log, fmt.Sprintf("slot %d %s: counted %+v, want %d of %d bytes", i,
				name, got, packets, bytes))
			good = false
		}
	}
	copy(d.seen, after)
	return good
}

// answered notes the answer to a SYN or to a query of A2S. That to one of the DNS has nothing to
// keep. Each goes back to who asked, and is no longer than what he sent.
func (a *arena) answered(s *scene, e event, answer []byte) {
	a.oracle.Answered(answer)
	var p, q packet.Packet
	packet.Decode(answer, &p)
	packet.Decode(e.frame, &q)
	if p.Src != q.Dst || p.Dst != q.Src || p.SrcPort != q.DstPort || p.DstPort != q.SrcPort ||
		p.Proto != q.Proto || p.DstMAC != q.SrcMAC || p.Len > q.Len {
		a.Errorf("what answers %x is %x", e.frame, answer)
	}
	if p.Proto == packet.ProtoUDP {
		if q.DstPort == 27015 && p.UDPPayload == 9 {
			number := binary.LittleEndian.Uint32(answer[p.TransportOffset+8+5:])
			s.asked = append(s.asked, asked{*e.packet, number, a.now()})
			a.log = append(a.log, fmt.Sprintf("answered %x", answer))
		}
		return
	}
	if p.Transport != packet.TCPTransport {
		a.Errorf("an answer is %x", answer)
		return
	}
	s.given = append(s.given, proof{*e.packet,
		binary.BigEndian.Uint32(answer[p.TransportOffset+8:]), a.now()})
	a.log = append(a.log, fmt.Sprintf("answered %x", answer))
}

// send sends a frame by the interface of an index, with a struct virtio_net_hdr in front of it
// (include/uapi/linux/virtio_net.h).
func send(fd, index int, e event) error {
	h := make([]byte, 10, 10+len(e.frame))
	if e.merged > 0 {
		headers := len(e.frame) - len(e.packet.body)
		checksum := uint16(16)
		h[0], h[1] = 1, 1 // VIRTIO_NET_HDR_F_NEEDS_CSUM, VIRTIO_NET_HDR_GSO_TCPV4
		switch {
		case e.packet.proto == packet.ProtoUDP:
			h[1], checksum = 5, 6 // VIRTIO_NET_HDR_GSO_UDP_L4
		case e.packet.src.Is6():
			h[1] = 4
		}
		binary.NativeEndian.PutUint16(h[2:], uint16(headers+e.transport()))
		binary.NativeEndian.PutUint16(h[4:], uint16(e.merged))
		binary.NativeEndian.PutUint16(h[6:], uint16(headers))
		binary.NativeEndian.PutUint16(h[8:], checksum)
	}
	return unix.Sendto(fd, append(h, e.frame...), 0, &unix.SockaddrLinklayer{Ifindex: index})
}
