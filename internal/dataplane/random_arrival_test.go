package dataplane

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"levee/internal/await"
	"levee/internal/dataplane/tap"
	"levee/internal/filter/assembler"
	"levee/internal/packet"
)

// hearing collects the frames that all interfaces of an arena receive. Its receiver is a filter of
// the last priority: it stands behind the policy at each hook, and no frame gets past it to the
// host, which would answer.
type hearing struct {
	reader *ringbuf.Reader
	record ringbuf.Record
	came   []arrival // not looked at yet
}

// arrival is a frame that an interface has received.
type arrival struct {
	at    end
	frame []byte
}

// end is an interface of an arena: of a device by its number, here or at the peer.
type end struct {
	dev int
	far bool
}

// What the receiver writes, before the frame without its outermost tag.
const (
	heardAt     = 0
	heardLen    = 4
	heardTagged = 8
	heardTag    = 12 // its kind in network byte order, and its number
	heardFrame  = 20
	heardMost   = 16 << 10
)

// receiver writes each frame of an interface to a ring, and takes it.
func receiver(ring *ebpf.Map, at end) asm.Instructions {
	skb := struct{ length, tagged, tag, kind int16 }{0, 20, 24, 28} // struct __sk_buff
	b := assembler.New()
	b.Emit(
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R7, asm.R6, skb.length, asm.Word),
		asm.JLT.Imm(asm.R7, 1, "take"),
		asm.JGT.Imm(asm.R7, heardMost-heardFrame, "take"),
		asm.LoadMapPtr(asm.R1, ring.FD()),
		asm.Mov.Imm(asm.R2, heardMost),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnRingbufReserve.Call(),
		asm.JEq.Imm(asm.R0, 0, "take"),
		asm.Mov.Reg(asm.R8, asm.R0),
		asm.StoreImm(asm.R8, heardAt, int64(2*at.dev+b2i(at.far)), asm.Word),
	)
	for _, field := range [][2]int16{{heardLen, skb.length}, {heardTagged, skb.tagged},
		{heardTag, skb.kind}, {heardTag + 4, skb.tag}} {
		b.Emit(asm.LoadMem(asm.R1, asm.R6, field[1], asm.Word),
			asm.StoreMem(asm.R8, field[0], asm.R1, asm.Word))
	}
	b.Emit(
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Imm(asm.R2, 0),
		asm.Mov.Reg(asm.R3, asm.R8),
		asm.Add.Imm(asm.R3, heardFrame),
		asm.Mov.Reg(asm.R4, asm.R7),
		asm.FnSkbLoadBytes.Call(),
		asm.Mov.Reg(asm.R1, asm.R8),
		asm.Mov.Imm(asm.R2, 0),
		asm.FnRingbufSubmit.Call(),
	)
	b.Label("take")
	b.Emit(asm.Mov.Imm(asm.R0, 2), asm.Return()) // TC_ACT_SHOT
	return b.MustFinish()
}

// listen has the receiver behind interfaces of both ends.
func (a *arena) listen(n *testNet) {
	ring, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.RingBuf, MaxEntries: 64 * heardMost})
	if err != nil {
		a.Fatal(err)
	}
	a.Cleanup(func() { ring.Close() })
	if a.reader, err = ringbuf.NewReader(ring); err != nil {
		a.Fatal(err)
	}
	a.Cleanup(func() { a.reader.Close() })
	for i, d := range a.devs {
		a.listenAt(ring, end{i, false}, n.here, d.near)
		a.listenAt(ring, end{i, true}, n.peer, d.far)
	}
}

func (a *arena) listenAt(ring *ebpf.Map, at end, ns netns.NsHandle, index int) {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "Dual BSD/GPL",
		Instructions: receiver(ring, at)})
	if err != nil {
		a.Fatal(err)
	}
	defer p.Close()
	qdisc := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index,
		Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}
	filter := &netlink.BpfFilter{FilterAttrs: netlink.FilterAttrs{LinkIndex: index,
		Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Priority: 0xffff,
		Protocol: unix.ETH_P_ALL}, Fd: p.FD(), Name: "receiver", DirectAction: true}
	in(a, ns, func() (any, error) {
		return nil, errors.Join(netlink.QdiscAdd(qdisc), netlink.FilterAdd(filter))
	})
	a.Cleanup(func() {
		in(a, ns, func() (any, error) { return nil, netlink.QdiscDel(qdisc) })
	})
}

// hear is the next that came, nil if nothing has.
func (a *arena) hear() *arrival {
	if len(a.came) == 0 {
		if err := tap.Drain(a.reader, &a.record, func() {
			b := a.record.RawSample
			u32 := func(at int) uint32 { return binary.NativeEndian.Uint32(b[at:]) }
			f := bytes.Clone(b[heardFrame : heardFrame+u32(heardLen)])
			if u32(heardTagged) != 0 {
				f = slices.Insert(f, 12, b[heardTag], b[heardTag+1], byte(u32(heardTag+4)>>8),
					byte(u32(heardTag+4)))
			}
			if slices.Equal(f, countedProbe) {
				return
			}
			a.came = append(a.came, arrival{end{int(u32(heardAt) / 2), u32(heardAt)%2 == 1}, f})
		}); err != nil {
			a.Fatal(err)
		}
	}
	if len(a.came) == 0 {
		return nil
	}
	next := a.came[0]
	a.came = a.came[1:]
	return &next
}

// heard returns the next frame at one end of a device. It returns nil where a probe arrives that
// was sent behind the frame, and the frame does not.
func (a *arena) heard(d *arenaDev, leaves bool) (next *arrival) {
	is := func() bool {
		next = a.hear()
		return next != nil
	}
	if soon(is) {
		return next
	}
	probe, fd, index := probe(packet.EtherARP, 60), a.in, d.far // which is essential
	if leaves {
		fd, index = a.out, d.near
	}
	if err := send(fd, index, event{frame: probe}); err != nil {
		a.Fatal(err)
	}
	if !await.Until(is) {
		a.Fatalf("neither a packet nor the probe behind it came: %q", a.log)
	}
	if late := next; !slices.Equal(late.frame, probe) {
		if !await.Until(is) {
			a.Fatalf("the probe behind a packet did not come: %q", a.log)
		}
		next = late
	} else {
		next = nil
	}
	a.read(d, d.seen)
	return next
}

// comes says whether what passes comes to the other end as it was sent.
func (a *arena) comes(d *arenaDev, e event) bool {
	at := end{d.number, e.leaves}
	for left := len(e.packet.body) - e.transport(); ; {
		got := a.heard(d, e.leaves)
		switch {
		case got == nil:
			a.log = append(a.log, "it passed, and did not come, but a probe behind it did")
			return false
		case got.at == at && slices.Equal(got.frame, e.frame):
			return true
		case got.at == at && e.merged > 0 && len(got.frame) < len(e.frame): // the kernel cuts it
			headers := len(e.frame) - len(e.packet.body) + e.transport()
			if n := len(got.frame) - headers; n <= e.merged && n <= left {
				if left -= n; left == 0 {
					return true
				}
				continue
			}
		}
		a.strange(got)
		return false
	}
}

// strange notes what should not have come, or not so.
func (a *arena) strange(got *arrival) {
	a.log = append(a.log, fmt.Sprintf("to %+v came: %x", got.at,
		got.frame[:min(len(got.frame), 160)]))
}

// silent says whether nothing came that was not waited for.
func (a *arena) silent() bool {
	got := a.hear()
	if got != nil {
		a.strange(got)
	}
	return got == nil
}
