package codegen

import (
	"fmt"
	"math/bits"

	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/codegen/env"
	"levee/internal/filter/ir"
	"levee/internal/filter/plan"
	"levee/internal/lang/field"
	"levee/internal/packet"
)

// Offsets within an untagged Ethernet frame, and lengths of headers without options.
const (
	ethType  = 12
	ethBytes = 14

	ip4Bytes = 20
	ip6Bytes = 40
	udpBytes = 8 // and the least of an ICMP message

	plainIPv4 = 0x45 // version and header length
)

// ipAt returns where the IP header of an untagged packet begins.
func (c *compiler) ipAt() int16 { return int16(c.Target.Link.Header()) }

// fastSocket is fastPath for the filter of a socket, which may not read the packet itself: it gets
// a copy of the headers, in the scratch of the table look-ups, which come later. What does not hold
// so much takes the careful decoder.
func (c *compiler) fastSocket() {
	const (
		at   = -64
		tcp4 = ip4Bytes + 20
		tcp6 = ip6Bytes + 20
	)
	load := func(n int32) {
		c.Emit(
			asm.Mov.Reg(asm.R1, env.RegCtx),
			asm.Mov.Imm(asm.R2, 0),
			asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, at),
			asm.Mov.Imm(asm.R4, n),
			asm.Mov.Imm(asm.R5, headerOfNetwork),
			asm.FnSkbLoadBytesRelative.Call(),
			asm.JNE.Imm(asm.R0, 0, "slow"),
		)
	}
	c.noTunnel()
	c.oneOnWire()
	load(tcp4)
	c.Emit(
		asm.Mov.Reg(env.RegData, asm.R10), asm.Add.Imm(env.RegData, at),
		asm.LoadMem(asm.R3, env.RegData, 0, asm.Byte),
		asm.JNE.Imm(asm.R3, plainIPv4, "not_ip4"),
	)
	c.loadBE16(env.RegBytes, 2)
	c.Emit(asm.StoreMem(asm.R10, env.KeyBytes, env.RegBytes, asm.Word))
	c.fastIPv4()
	c.Label("not_ip4")
	c.Emit(asm.RSh.Imm(asm.R3, 4), asm.JNE.Imm(asm.R3, 6, "slow"))
	load(tcp6)
	c.loadBE16(env.RegBytes, 4)
	c.Emit(
		asm.Add.Imm(env.RegBytes, ip6Bytes),
		asm.StoreMem(asm.R10, env.KeyBytes, env.RegBytes, asm.Word),
	)
	c.fastIPv6()
}

// headerOfNetwork is BPF_HDR_START_NET of include/uapi/linux/bpf.h.
const headerOfNetwork = 1

// be16 returns a 16-bit value as a little-endian load of network bytes sees it.
func be16(v uint16) int32 { return int32(bits.ReverseBytes16(v)) }

// fastPath decodes the common packets: untagged, IPv4 without options or IPv6 without extension
// headers, not a fragment, and nothing odd about any length. All others go to "slow". A frame
// that it accepts is accepted by the careful decoder with the same result; the comments name the
// reason of docs/reference/decoding.md that each check rules out.
//
// Each instruction, and each branch more, costs most where the packet's line comes from another
// core: the CPU begins to read the next packet while it waits, as far as its windows of both go
// (docs/explanation/decisions/0206-reading-rung.md).
func (c *compiler) fastPath() {
	if c.Target.Hook == plan.Socket {
		c.fastSocket()
		return
	}
	if c.Target.Frags {
		c.Emit(asm.Mov.Reg(asm.R1, env.RegCtx), asm.FnXdpGetBuffLen.Call(),
			asm.Mov.Reg32(env.RegBytes, asm.R0))
	}
	c.Bounds(env.RegCtx, env.RegData, env.RegEnd)
	switch {
	case c.Target.Hook.OfSKB():
		c.Emit(asm.LoadMem(env.RegBytes, env.RegCtx, env.SkbLen, asm.Word))
	case !c.Target.Frags:
		c.Emit(asm.Mov.Reg(env.RegBytes, env.RegEnd), asm.Sub.Reg(env.RegBytes, env.RegData))
	}
	// Before any way to "slow": these are written on all of them.
	c.noTunnel()
	c.Emit(asm.StoreMem(asm.R10, env.KeyBytes, env.RegBytes, asm.Word))
	if c.Target.Hook == TCX {
		c.Emit(
			asm.LoadMem(asm.R1, env.RegCtx, env.SkbVLANPresent, asm.Word),
			asm.JNE.Imm(asm.R1, 0, "slow"),
		)
	}
	c.oneOnWire()
	c.need(int32(c.ipAt()) + ip4Bytes + c.ahead())
	if c.Target.Link == packet.L3 {
		c.byVersion()
		return
	}
	c.Emit( // EtherType and the first byte of IP: ip-version, ip-header-length, options
		asm.LoadMem(asm.R3, env.RegData, ethType, asm.Word),
		asm.And.Imm(asm.R3, 0xffffff),
		asm.JNE.Imm(asm.R3, plainIPv4<<16|be16(0x0800), "not_ip4"),
	)
	c.fastIPv4()
	c.Label("not_ip4")
	c.Emit(
		asm.And.Imm(asm.R3, 0xffff),
		asm.JEq.Imm(asm.R3, be16(0x0800), "slow"),
		asm.JNE.Imm(asm.R3, be16(0x86dd), "not_ip"),
	)
	c.fastIPv6()
	c.Label("not_ip")
	c.Emit(
		asm.JEq.Imm(asm.R3, be16(0x8100), "slow"),
		asm.JEq.Imm(asm.R3, be16(0x88a8), "slow"),
		asm.JEq.Imm(asm.R3, be16(0x8864), "slow"), // what carries IP, perhaps
		asm.JEq.Imm(asm.R3, be16(0x8847), "slow"),
		asm.JEq.Imm(asm.R3, be16(0x8848), "slow"),
	)
	c.fastClass(ir.Class{}, 0)
}

// oneOnWire goes to "slow" with a merged packet: the lengths in its headers are not those on the
// wire.
func (c *compiler) oneOnWire() {
	if c.Target.Hook.OfSKB() {
		c.Emit(
			asm.LoadMem(asm.R1, env.RegCtx, env.SkbGSOSize, asm.Word),
			asm.JNE.Imm(asm.R1, 0, "slow"),
		)
	}
}

// byVersion tells IPv4 and IPv6 apart where no header in front of IP does.
func (c *compiler) byVersion() {
	c.Emit(
		asm.LoadMem(asm.R3, env.RegData, 0, asm.Byte),
		asm.JNE.Imm(asm.R3, plainIPv4, "not_ip4"),
	)
	c.fastIPv4()
	c.Label("not_ip4")
	c.Emit(asm.RSh.Imm(asm.R3, 4), asm.JNE.Imm(asm.R3, 6, "slow"))
	c.fastIPv6()
}

// ahead returns how many bytes behind the header of IP are asked for with it: one question for most
// packets, where shorter ones may take the careful decoder. Frames of a wire have 60 bytes.
func (c *compiler) ahead() int32 {
	if c.Target.Plain {
		return 0
	}
	return udpBytes
}

// need goes to "slow" unless the first buffer holds n bytes.
func (c *compiler) need(n int32) {
	if c.Target.Hook == plan.Socket {
		return // headers were copied whole
	}
	c.Emit(
		asm.Mov.Reg(asm.R2, env.RegData),
		asm.Add.Imm(asm.R2, n),
		asm.JGT.Reg(asm.R2, env.RegEnd, "slow"),
	)
}

// needBehind is need of what ahead may have asked for already: the header of UDP or ICMP at l4.
func (c *compiler) needBehind(l4 int16) {
	if c.ahead() < udpBytes {
		c.need(int32(l4) + udpBytes)
	}
}

// loadBE16 loads a field in network order.
func (c *compiler) loadBE16(to asm.Register, at int16) {
	c.Emit(asm.LoadMem(to, env.RegData, at, asm.Half), asm.HostTo(asm.BE, to, asm.Half))
}

// fastIPv4 leaves the total length in R4 for the class's fields. The header has no options.
func (c *compiler) fastIPv4() {
	ip4At := c.ipAt()
	ip4L4At := ip4At + ip4Bytes
	c.Emit(
		asm.LoadMem(asm.R5, env.RegData, ip4At+6, asm.Half),
		asm.JSet.Imm(asm.R5, be16(0x3fff), "slow"), // fragment
	)
	c.loadBE16(asm.R4, ip4At+2)
	c.Emit(
		asm.Mov.Reg(asm.R5, asm.R4),
		asm.Add.Imm(asm.R5, int32(ip4At)),
		asm.JGT.Reg(asm.R5, env.RegBytes, "slow"), // ip-length
		asm.LoadMem(asm.R3, env.RegData, ip4At+9, asm.Byte),
		asm.JEq.Imm(asm.R3, 6, "tcp4"),
		asm.JEq.Imm(asm.R3, 17, "udp4"),
		asm.JEq.Imm(asm.R3, 1, "icmp4"),
		asm.JEq.Imm(asm.R3, 33, "slow"),
		asm.JEq.Imm(asm.R3, 132, "slow"),
		asm.JEq.Imm(asm.R3, 136, "slow"),
		asm.JLT.Imm(asm.R4, ip4Bytes, "slow"), // ip-length; what is above asks for more
	)
	c.slowTunnels()
	c.fastClass(ir.Class{Family: ir.IPv4, Transport: ir.Other}, ip4L4At)
	c.fastTransports(ir.IPv4, "4", ip4L4At, 20)
}

// fastIPv6 leaves payload length + 40 in R4.
func (c *compiler) fastIPv6() {
	ip6At := c.ipAt()
	ip6L4At := ip6At + ip6Bytes
	c.need(int32(ip6L4At) + c.ahead())
	c.Emit(
		asm.LoadMem(asm.R4, env.RegData, ip6At, asm.Byte),
		asm.RSh.Imm(asm.R4, 4),
		asm.JNE.Imm(asm.R4, 6, "slow"), // ip-version
	)
	c.loadBE16(asm.R4, ip6At+4)
	c.Emit(
		asm.Add.Imm(asm.R4, 40),
		asm.Mov.Reg(asm.R5, asm.R4),
		asm.Add.Imm(asm.R5, int32(ip6At)),
		asm.JGT.Reg(asm.R5, env.RegBytes, "slow"), // ip-length
		asm.LoadMem(asm.R3, env.RegData, ip6At+6, asm.Byte),
		asm.JEq.Imm(asm.R3, 6, "tcp6"),
		asm.JEq.Imm(asm.R3, 17, "udp6"),
		asm.JEq.Imm(asm.R3, 58, "icmp6"),
	)
	for _, next := range []int32{0, 33, 43, 44, 51, 60, 132, 135, 136} {
		c.Emit(asm.JEq.Imm(asm.R3, next, "slow"))
	}
	c.slowTunnels()
	c.fastClass(ir.Class{Family: ir.IPv6, Transport: ir.Other}, ip6L4At)
	c.fastTransports(ir.IPv6, "6", ip6L4At, 40)
}

// fastTransports checks the headers of TCP, UDP and ICMP at l4; the IP packet has R4 bytes, its
// header hlen.
func (c *compiler) fastTransports(f ir.Family, suffix string, l4 int16, hlen int32) {
	c.Label("tcp" + suffix)
	c.need(int32(l4) + 20)
	c.Emit(
		asm.LoadMem(asm.R2, env.RegData, l4+12, asm.Byte),
		asm.And.Imm(asm.R2, 0xf0),
		asm.RSh.Imm(asm.R2, 2),
		asm.JLT.Imm(asm.R2, 20, "slow"), // l4-length
		asm.Add.Imm(asm.R2, hlen),
		asm.JGT.Reg(asm.R2, asm.R4, "slow"), // truncated-l4, l4-length
	)
	c.fastClass(ir.Class{Family: f, Transport: ir.TCP}, l4)

	c.Label("udp" + suffix)
	c.needBehind(l4)
	c.loadBE16(asm.R2, l4+4)
	c.Emit(
		asm.JLT.Imm(asm.R2, 8, "slow"), // l4-length
		asm.Add.Imm(asm.R2, hlen),
	)
	udp := ir.Class{Family: f, Transport: ir.UDP}
	if c.placed(udp) { // bytes behind the datagram are no payload
		c.Emit(asm.JNE.Reg(asm.R2, asm.R4, "slow"))
	} else {
		c.Emit(asm.JGT.Reg(asm.R2, asm.R4, "slow")) // truncated-l4, l4-length
	}
	c.slowUDPTunnels(l4)
	c.fastClass(udp, l4)

	c.Label("icmp" + suffix)
	c.needBehind(l4)
	c.Emit(asm.JLT.Imm(asm.R4, hlen+8, "slow")) // truncated-l4
	c.fastClass(ir.Class{Family: f, Transport: ir.ICMP}, l4)
}

// fastClass loads what the class's rules ask for out of the frame and leaves for them. R3 is the
// protocol or, without IP, the EtherType in network order, R4 the length of the IP packet.
func (c *compiler) fastClass(class ir.Class, l4 int16) {
	ch := c.Plan.ChainOf[class.Index()]
	for i, uses := range ch.Asks {
		if f := field.Field(i); uses && !f.Info().Hot && !f.Info().Remembered {
			c.fastField(f, class, l4)
			at, n := c.FieldAt(f)
			c.Emit(asm.StoreMem(asm.R10, at, asm.R2, env.SizeOf(n)))
		}
	}
	if c.placed(class) {
		c.fastPlace(class, l4)
	}
	if ch.Tracked {
		c.FastProof(class, l4)
	}
	c.fastRegs(ch, class, l4)
	c.Emit(asm.Ja.Label(chainLabel(ch)))
}

// fastField loads a field out of the frame into R2. Frames with tags do not come here.
func (c *compiler) fastField(f field.Field, class ir.Class, l4 int16) {
	info := f.Info()
	switch {
	case info.Header.Presence().Tags > 0:
		c.Emit(asm.Mov.Imm(asm.R2, int32(info.Absent)))
	case f == field.Tags:
		c.Emit(asm.Mov.Imm(asm.R2, 0))
	case f == field.Len && class.Family == ir.NonIP:
		c.Emit(asm.Mov.Reg(asm.R2, env.RegBytes), asm.Sub.Imm(asm.R2, ethBytes))
	case f == field.Len:
		c.Emit(asm.Mov.Reg(asm.R2, asm.R4))
	case f == field.EtherType:
		c.Emit(asm.Mov.Reg(asm.R2, asm.R3), asm.HostTo(asm.BE, asm.R2, asm.Half))
	case f == field.SrcSuffix || f == field.DstSuffix:
		at := c.ipAt() + 16
		if f == field.DstSuffix {
			at += 16
		}
		c.Emit(
			asm.LoadMem(asm.R2, env.RegData, at, asm.DWord),
			asm.HostTo(asm.BE, asm.R2, asm.DWord),
		)
	case f == field.Proto:
		c.Emit(asm.Mov.Reg(asm.R2, asm.R3))
	default:
		// Where the field would be behind an Ethernet header.
		less := ethBytes - int(c.ipAt())
		frame := packet.Layout{IP: ethBytes, Six: class.Family == ir.IPv6, L4: int(l4) + less,
			Proto: class.Proto()}
		bit, bits, ok := frame.Locate(nil, info.Packet)
		if !ok {
			panic(env.Unknown(f))
		}
		c.bits(bit-8*less, bits)
	}
}

// bits loads bits of the frame, up to 32 of at most four bytes, or an Ethernet address, into R2.
func (c *compiler) bits(bit, bits int) {
	first, end := bit/8, (bit+bits+7)/8
	n := end - first
	switch {
	case bits == 48 && bit%8 == 0:
		c.mac(int16(first))
		return
	case n == 3: // with the byte before: there is one before each header
		first, n = first-1, 4
	case n > 4:
		panic(fmt.Sprintf("%d bits at %d are more than one load", bits, bit))
	}
	c.Emit(asm.LoadMem(asm.R2, env.RegData, int16(first), env.SizeOf(n)))
	if n > 1 {
		c.Emit(asm.HostTo(asm.BE, asm.R2, env.SizeOf(n)))
	}
	behind := 8*end - bit - bits
	if behind > 0 {
		c.Emit(asm.RSh.Imm(asm.R2, int32(behind)))
	}
	if bits < 8*n-behind {
		c.Emit(asm.And.Imm(asm.R2, int32(1<<bits-1)))
	}
}

// placed tells whether the rules of a class ask where what follows the IP headers lies.
func (c *compiler) placed(class ir.Class) bool {
	ch := c.Plan.ChainOf[class.Index()]
	return c.extension.looks(ch.Rules) || c.Quotes(ch) || c.Tells(ch)
}

// fastPlace says where what follows the IP headers lies, at l4 of the frame.
func (c *compiler) fastPlace(class ir.Class, l4 int16) {
	if class.Family == ir.NonIP {
		c.Emit(asm.Mov.Imm(asm.R2, ethBytes), asm.Mov.Imm(asm.R5, 0))
	} else {
		c.Emit(
			asm.Mov.Imm(asm.R2, int32(l4)),
			asm.Mov.Reg(asm.R5, asm.R4),
			asm.Sub.Imm(asm.R5, int32(l4-c.ipAt())),
		)
	}
	c.Emit(
		asm.StoreMem(asm.R10, env.KeyOff, asm.R2, asm.Half),
		asm.StoreMem(asm.R10, env.KeyLeft, asm.R5, asm.Half),
	)
}

// fastRegs loads addresses and ports. The registers of the frame are overwritten last.
func (c *compiler) fastRegs(ch *plan.Chain, class ir.Class, l4 int16) {
	address := func(f field.Field, reg asm.Register, at4, at6, keyHi, keyLo int16) {
		if !ch.Asks[f] {
			return
		}
		if class.Family == ir.IPv4 {
			c.Emit(asm.LoadMem(reg, env.RegData, at4, asm.Word), asm.HostTo(asm.BE, reg, asm.Word))
		} else {
			c.Emit(
				asm.LoadMem(asm.R2, env.RegData, at6+8, asm.DWord),
				asm.HostTo(asm.BE, asm.R2, asm.DWord),
				asm.StoreMem(asm.R10, keyLo, asm.R2, asm.DWord),
				asm.LoadMem(reg, env.RegData, at6, asm.DWord), asm.HostTo(asm.BE, reg, asm.DWord),
			)
		}
		if ch.Calls {
			c.Emit(asm.StoreMem(asm.R10, keyHi, reg, asm.DWord))
		}
	}
	keep := func(reg asm.Register, key int16) {
		if ch.Calls {
			c.Emit(asm.StoreMem(asm.R10, key, reg, asm.Half))
		}
	}
	ip := c.ipAt()
	address(field.SrcAddr, env.RegSrc, ip+12, ip+8, env.KeySrcHi, env.KeySrcLo)
	switch src, dst := ch.Asks[field.SrcPort], ch.Asks[field.DstPort]; {
	case src && dst: // in one load
		c.Emit(
			asm.LoadMem(env.RegSrcPort, env.RegData, l4, asm.Word),
			asm.HostTo(asm.BE, env.RegSrcPort, asm.Word),
			asm.Mov.Reg(env.RegDstPort, env.RegSrcPort),
			asm.And.Imm(env.RegDstPort, 0xffff),
			asm.RSh.Imm(env.RegSrcPort, 16),
		)
	case src:
		c.loadBE16(env.RegSrcPort, l4)
	case dst:
		c.loadBE16(env.RegDstPort, l4+2)
	}
	if ch.Asks[field.SrcPort] {
		keep(env.RegSrcPort, env.KeySrcPort)
	}
	if ch.Asks[field.DstPort] {
		keep(env.RegDstPort, env.KeyDstPort)
	}
	if ch.Asks[field.ICMPType] || ch.Asks[field.ICMP6Type] {
		c.loadBE16(env.RegDstPort, l4)
		keep(env.RegDstPort, env.KeyICMP)
	}
	address(field.DstAddr, env.RegDst, ip+16, ip+24, env.KeyDstHi, env.KeyDstLo)
}

// mac loads the Ethernet address at an offset into R2, first octet highest.
func (c *compiler) mac(at int16) {
	c.Emit(
		asm.LoadMem(asm.R2, env.RegData, at, asm.Word), asm.HostTo(asm.BE, asm.R2, asm.Word),
		asm.LSh.Imm(asm.R2, 16),
		asm.LoadMem(asm.R5, env.RegData, at+4, asm.Half), asm.HostTo(asm.BE, asm.R5, asm.Half),
		asm.Or.Reg(asm.R2, asm.R5),
	)
}

// slowPath has the careful decoder fill struct key and goes to the rules of the class it found.
func (c *compiler) slowPath() {
	c.Label("slow")
	c.decode()
	c.lookInside()
	c.Emit(asm.LoadMem(asm.R1, asm.R10, env.KeyClass, asm.Byte))
	c.dispatch(0, ir.NumClasses-1, c.Plan.ChainOf[:], enterLabel)
	for _, ch := range c.Plan.Chains {
		c.enterFromKey(ch)
	}
}

// decode has the careful decoder fill struct key.
func (c *compiler) decode() {
	name, _ := env.DecoderName(c.Target)
	c.giveEnv()
	c.Emit(
		asm.Mov.Reg(asm.R2, env.RegCtx),
		asm.Call.Label(name),
		asm.JNE.Imm32(asm.R0, 0, "malformed"),
	)
}

// dispatch finds the chain of the class in R1, known to lie in lo to hi, by halving, and goes to
// its label.
func (c *compiler) dispatch(lo, hi int, of []*plan.Chain, label func(*plan.Chain) string) {
	same := true
	for i := lo; i <= hi; i++ {
		same = same && of[i] == of[lo]
	}
	if same {
		c.Emit(asm.Ja.Label(label(of[lo])))
		return
	}
	mid := (lo + hi + 1) / 2
	upper := c.Fresh("class")
	c.Emit(asm.JGE.Imm(asm.R1, int32(mid), upper))
	c.dispatch(lo, mid-1, of, label)
	c.Label(upper)
	c.dispatch(mid, hi, of, label)
}
