package dataplane

import (
	"encoding/binary"
	"slices"
	"testing"

	"levee/internal/await"
	"levee/internal/dataplane/store"
	"levee/internal/packet"
)

// soon says whether something is so within the time that an idle machine needs. Where it is not, a
// probe tells a lost packet from one that a busy machine is slow with: what goes by a veth on one
// CPU comes in order.
func soon(is func() bool) bool {
	for range 1000 { // mostly it is at once
		if is() {
			return true
		}
	}
	asked, so := 0, false
	await.Until(func() bool {
		asked++
		so = is()
		return so || asked == 24
	})
	return so
}

// countedProbe is told by its count from what it is sent behind.
var countedProbe = probe(packet.EtherARP, 1337)

// decided reads the counters of a device when the packet that was sent to it has been decided, and
// says whether it ever is.
func (a *arena) decided(d *arenaDev, after []store.Counter) bool {
	decisions := func() (of store.Counter) {
		a.read(d, after)
		for i := range after {
			if a.decides[i] {
				of.Packets += after[i].Packets - d.seen[i].Packets
				of.Bytes += after[i].Bytes - d.seen[i].Bytes
			}
		}
		return of
	}
	if soon(func() bool { return decisions().Packets > 0 }) {
		return true
	}
	if err := send(a.in, d.far, event{frame: countedProbe}); err != nil {
		a.Fatal(err)
	}
	slot, of := a.oracle.Eval(countedProbe).Slot, store.Counter{}
	if !await.Until(func() bool {
		of = decisions()
		return of.Packets > 1 || of.Bytes == uint64(len(countedProbe))
	}) {
		a.Fatalf("neither a packet nor the probe behind it was counted: %q", a.log)
	}
	after[slot].Packets--
	after[slot].Bytes -= uint64(len(countedProbe))
	if of.Packets > 1 {
		return true // it was late
	}
	a.log = append(a.log, "it was not counted, but a probe behind it was")
	a.read(d, d.seen)
	return false
}

// answer returns the next frame that the far end of a device hears, nil if none comes.
func (a *arena) answer(d *arenaDev) []byte {
	switch got := a.heard(d, true); {
	case got == nil:
		a.log = append(a.log, "no answer came, but a probe behind it did")
	case got.at != end{d.number, true}:
		a.strange(got)
	default:
		return got.frame
	}
	return nil
}

// probe is a frame to all of a length that no other has.
func probe(kind uint16, length int) []byte {
	f := make([]byte, length)
	copy(f, "\xff\xff\xff\xff\xff\xff\x02\x00\x00\x00\x00\x01")
	binary.BigEndian.PutUint16(f[12:], kind)
	return f
}

// TestASequenceWithALostPacketIsToldAtOnce: each attempt to cut it waited three minutes for what
// never came, so that a sequence of sixty steps took hours to be told.
func TestASequenceWithALostPacketIsToldAtOnce(t *testing.T) {
	n := newTestNet(t)
	addVeth(t, "lw0", "lw1", n.peer)
	n.inPeer(t, func() { ip(t, "link set lw1 up") })
	for _, mode := range allModes(t) {
		n.run(t, string(mode), func(t *testing.T) {
			a := newArena(t, n, mode)
			a.bring("limit udp rate 9/s\ndefault pass\n") // soon loaded
			defer a.end()
			s, d := a.begin(1), &a.devs[0]
			frame := probe(packet.EtherIPv4, 60)
			want := a.oracle.Eval(frame)
			if a.counted(d, event{frame: frame}, want) {
				t.Error("a packet that was never sent was counted")
			}
			if !a.step(s, &turn{event: event{frame: slices.Clone(frame)}}) {
				t.Errorf("the packet behind it was not counted: %q", a.log)
			}
			if a.answer(d) != nil {
				t.Error("an answer that nobody gave came")
			}
			if a.comes(d, event{frame: frame, packet: &rawPacket{}}) {
				t.Error("a packet that was never sent came")
			}
			if told := append(a.log[:1:1], a.log[len(a.log)-2:]...); !slices.Equal(told, []string{
				"it was not counted, but a probe behind it was",
				"no answer came, but a probe behind it did",
				"it passed, and did not come, but a probe behind it did"}) {
				t.Errorf("told %q", a.log)
			}
		})
	}
}
