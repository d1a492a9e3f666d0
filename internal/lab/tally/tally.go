// Package tally counts the packets of known hosts exactly: where they leave for a device of a lab,
// and where a device hands them to the stack, behind XDP.
//
// In go a device, a direction and the networks of the known hosts; out come packets and bytes by
// kind, of the known hosts and of all others. It counts IPv4; a packet that was merged on its way
// counts as its parts. The package changes no packet, and must never attach to a device outside a
// lab.
package tally

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"levee/internal/filter/assembler"
	"levee/internal/kernel"
	"levee/internal/lab"
)

// Kind is a kind of packet.
type Kind uint8

// Kinds. A fragment that is not the first counts as Fragment whatever its protocol is.
const (
	SYN Kind = iota // that begins a connection
	TCP
	UDP
	ICMP
	Fragment
	Other
	Kinds // their number
)

func (k Kind) String() string {
	return [...]string{"tcp syn", "tcp", "udp", "icmp", "fragment", "other"}[k]
}

// Count is packets and their bytes, without those of tags.
type Count struct{ Packets, Bytes uint64 }

// Counts are those of the known hosts, and of all others, since the tally began.
type Counts struct{ Known, Others [Kinds]Count }

// Packets returns the sum of packets of all kinds.
func Packets(of *[Kinds]Count) (n uint64) {
	for _, c := range of {
		n += c.Packets
	}
	return n
}

// Direction is that of the packets that a tally counts.
type Direction ebpf.AttachType

// In counts what a device receives, behind XDP; Out what is sent to it.
const (
	In  = Direction(ebpf.AttachTCXIngress)
	Out = Direction(ebpf.AttachTCXEgress)
)

// Tally is one that counts.
type Tally struct {
	counts *ebpf.Map
	link   link.Link
}

const (
	countsMap = "counts"
	countSize = 16 // bytes
	allCounts = 2 * int(Kinds) * countSize
)

// On begins to count at a device of a host. A device of a lab has one network of known hosts for
// IPv4.
func On(h *lab.Host, device string, d Direction, known netip.Prefix) (*Tally, error) {
	if !known.Addr().Is4() {
		return nil, fmt.Errorf("counting the packets of %v: IPv4 is counted", known)
	}
	if err := kernel.TCX.Check(); err != nil {
		return nil, err
	}
	counts, err := ebpf.NewMap(&ebpf.MapSpec{Name: countsMap, Type: ebpf.Array, KeySize: 4,
		ValueSize: uint32(allCounts), MaxEntries: 1})
	if err != nil {
		return nil, fmt.Errorf("making the counters of a tally: %w", err)
	}
	t := &Tally{counts: counts}
	if err := t.attach(h, device, d, known.Masked()); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

func (t *Tally) attach(h *lab.Host, device string, d Direction, known netip.Prefix) error {
	ins := program(known)
	if err := ins.AssociateMap(countsMap, t.counts); err != nil {
		return err
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "levee_tally", Type: ebpf.SchedCLS,
		AttachType: ebpf.AttachType(d), Instructions: ins, License: "Dual BSD/GPL"})
	if err != nil {
		return fmt.Errorf("loading the program of a tally: %w", err)
	}
	defer p.Close()
	return h.Do(func() error {
		if _, err := lab.Owned(device); err != nil {
			return err
		}
		dev, err := net.InterfaceByName(device)
		if err != nil {
			return err
		}
		t.link, err = link.AttachTCX(link.TCXOptions{Interface: dev.Index, Program: p,
			Attach: ebpf.AttachType(d), Anchor: link.Head()})
		if err != nil {
			return fmt.Errorf("counting at %s: %w", device, err)
		}
		return nil
	})
}

// Close ends the tally.
func (t *Tally) Close() error {
	var err error
	if t.link != nil {
		err = t.link.Close()
	}
	return errors.Join(err, t.counts.Close())
}

// Read reads the counts. It takes microseconds.
func (t *Tally) Read() (c Counts, err error) {
	b := make([]byte, allCounts)
	if err := t.counts.Lookup(uint32(0), b); err != nil {
		return c, fmt.Errorf("reading a tally: %w", err)
	}
	for i, to := range []*[Kinds]Count{&c.Known, &c.Others} {
		for k := range to {
			at := b[(i*int(Kinds)+k)*countSize:]
			to[k] = Count{binary.NativeEndian.Uint64(at), binary.NativeEndian.Uint64(at[8:])}
		}
	}
	return c, nil
}

// Members of struct __sk_buff (include/uapi/linux/bpf.h).
const (
	skbLen     = 0
	skbData    = 76
	skbDataEnd = 80
	skbGSOSegs = 164
)

// Places in an Ethernet frame that carries IPv4.
const (
	etherType  = 12
	ip         = 14
	ipFragment = ip + 6
	ipProto    = ip + 9
	ipSource   = ip + 12
	ipEnd      = ip + 20
	fragOffset = 0x1fff
	tcpFlags   = 13
	tcpEnd     = 20
)

// program counts packets and drops none.
func program(known netip.Prefix) asm.Instructions {
	b := assembler.New()
	addr := known.Addr().As4()
	mask := uint32(0xffffffff) << (32 - known.Bits())
	b.Emit(
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R7, asm.R6, skbData, asm.Word),
		asm.LoadMem(asm.R8, asm.R6, skbDataEnd, asm.Word),
		asm.Mov.Reg(asm.R1, asm.R7),
		asm.Add.Imm(asm.R1, ipEnd),
		asm.JGT.Reg(asm.R1, asm.R8, "done"),
		asm.LoadMem(asm.R1, asm.R7, etherType, asm.Half),
		asm.HostTo(asm.BE, asm.R1, asm.Half),
		asm.JNE.Imm(asm.R1, 0x0800, "done"),
		asm.LoadMapValue(asm.R9, 0, 0).WithReference(countsMap),
		asm.LoadMem(asm.R1, asm.R7, ipSource, asm.Word),
		asm.HostTo(asm.BE, asm.R1, asm.Word),
		asm.LoadImm(asm.R2, int64(mask), asm.DWord),
		asm.And.Reg(asm.R1, asm.R2),
		asm.LoadImm(asm.R2, int64(binary.BigEndian.Uint32(addr[:])), asm.DWord),
		asm.JEq.Reg(asm.R1, asm.R2, "kind"),
		asm.Add.Imm(asm.R9, int32(Kinds)*countSize),
	)
	b.Label("kind")
	b.Emit(
		asm.LoadMem(asm.R1, asm.R7, ipFragment, asm.Half),
		asm.HostTo(asm.BE, asm.R1, asm.Half),
		asm.And.Imm(asm.R1, fragOffset),
		asm.JNE.Imm(asm.R1, 0, Fragment.String()),
		asm.LoadMem(asm.R1, asm.R7, ipProto, asm.Byte),
		asm.JEq.Imm(asm.R1, 17, UDP.String()),
		asm.JEq.Imm(asm.R1, 1, ICMP.String()),
		asm.JNE.Imm(asm.R1, 6, Other.String()),
		// the TCP header lies behind options
		asm.LoadMem(asm.R1, asm.R7, ip, asm.Byte),
		asm.And.Imm(asm.R1, 15),
		asm.LSh.Imm(asm.R1, 2),
		asm.Add.Reg(asm.R1, asm.R7),
		asm.Mov.Reg(asm.R2, asm.R1),
		asm.Add.Imm(asm.R2, ip+tcpEnd),
		asm.JGT.Reg(asm.R2, asm.R8, TCP.String()),
		asm.LoadMem(asm.R1, asm.R1, ip+tcpFlags, asm.Byte),
		asm.And.Imm(asm.R1, 0x12), // SYN, ACK
		asm.JEq.Imm(asm.R1, 0x02, "count"),
	)
	for k := TCP; k < Kinds; k++ {
		b.Label(k.String())
		b.Emit(asm.Add.Imm(asm.R9, int32(k)*countSize))
		if k+1 < Kinds {
			b.Emit(asm.Ja.Label("count"))
		}
	}
	b.Label("count")
	b.Emit(
		asm.LoadMem(asm.R1, asm.R6, skbGSOSegs, asm.Word),
		asm.JNE.Imm(asm.R1, 0, "add"),
		asm.Mov.Imm(asm.R1, 1),
	)
	b.Label("add")
	b.Emit(
		asm.StoreXAdd(asm.R9, asm.R1, asm.DWord),
		asm.LoadMem(asm.R1, asm.R6, skbLen, asm.Word),
		asm.Add.Imm(asm.R9, 8),
		asm.StoreXAdd(asm.R9, asm.R1, asm.DWord),
	)
	b.Label("done")
	b.Emit(asm.Mov.Imm(asm.R0, -1), asm.Return()) // TCX_NEXT
	return b.MustFinish()
}
