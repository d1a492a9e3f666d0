package guard

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"levee/internal/filter/ir"
	"levee/internal/host/session"
	"levee/internal/lang/field"
	"levee/internal/packet"
)

// packets are some that arrive of a session.
type packets struct {
	ir.Traffic
	needs, remedy string // as in CutError
}

// Systems start at a TTL of 64 or more, and no path has more than 32 hops.
const minTTL = 32

// usualMTU is that of an interface which does not tell.
const usualMTU = 1500

// ofConnection are the flags of an established connection: ACK, and any of FIN, PSH and the bits of
// congestion control (RFC 3168). SSH sends no urgent data, and a reset ends the session anyway.
var ofConnection = func() (out []field.Range) {
	const never = packet.SYN | packet.RST | packet.URG
	for v := range uint64(256) {
		if v&packet.ACK != 0 && v&never == 0 {
			out = append(out, field.Range{Lo: v, Hi: v})
		}
	}
	return field.Join(out)
}()

// arriving returns the kinds of packets that arrive of a session: its own, and those of the
// neighbour that look for this machine or answer it. Of its own packets DSCP and window may be
// anything.
func arriving(s session.Session, link packet.Link) []packets {
	if link == packet.L3 {
		s.Tags, s.SrcMAC, s.DstMAC, s.Neighbour = nil, nil, nil, netip.Addr{}
	}

	own := packets{Traffic: traffic(s), remedy: remedy(s)}
	own.Class = ir.Class{Family: family(s.Local.Addr()), Transport: ir.TCP}
	own.Src, own.Dst = s.Remote.Addr(), s.Local.Addr()
	own.Known[field.SrcPort] = one(uint64(s.Remote.Port()))
	own.Known[field.DstPort] = one(uint64(s.Local.Port()))
	own.Known[field.TCPFlags] = ofConnection
	own.Known[field.Flow] = one(1) // the kernel has it, which the program asks
	own.Known[field.TTL] = span(minTTL, 255)
	mtu := s.MTU
	if mtu == 0 {
		mtu = usualMTU
	}
	headers := map[ir.Family]int{ir.IPv4: 20 + 20, ir.IPv6: 40 + 20}[own.Class.Family]
	own.Known[field.Len] = span(uint64(headers), uint64(max(headers, mtu)))
	own.know(field.DstMAC, s.DstMAC)
	own.knowSuffixes()
	if s.Back { // then there is a way back at all
		own.Known[field.StrictPath], own.Known[field.LoosePath] = one(1), one(1)
	}
	all := []packets{own}
	if s.Neighbour.IsValid() {
		if s.Neighbour.Is4() {
			all = append(all, arp(s)...)
		} else {
			all = append(all, discovery(s)...)
		}
	}
	return all
}

// remedy returns the rule that lets all packets of a session pass.
func remedy(s session.Session) string {
	return fmt.Sprintf("protect from %s tcp port %d", s.Remote.Addr(), s.Local.Port())
}

// traffic returns what all packets of a session have in common.
func traffic(s session.Session) ir.Traffic {
	tags := slices.DeleteFunc(slices.Clone(s.Tags), func(id uint16) bool { return id == 0 })
	t := packets{Traffic: ir.Traffic{Tags: tags, Known: map[field.Field][]field.Range{}}}
	t.know(field.SrcMAC, s.SrcMAC)
	return t.Traffic
}

// know notes an Ethernet address, which is one of a single machine if it is not known.
func (k *packets) know(f field.Field, mac net.HardwareAddr) {
	k.Known[f] = single
	if len(mac) == 6 {
		k.Known[f] = one(number(mac))
	}
}

// knowSuffixes notes the lower halves of IPv6 addresses, which rules may ask for alone.
func (k *packets) knowSuffixes() {
	if k.Class.Family == ir.IPv6 {
		src, dst := k.Src.As16(), k.Dst.As16()
		k.Known[field.SrcSuffix] = one(binary.BigEndian.Uint64(src[8:]))
		k.Known[field.DstSuffix] = one(binary.BigEndian.Uint64(dst[8:]))
	}
}

// single are the Ethernet addresses that are not of groups.
var single = func() (out []field.Range) {
	for first := uint64(0); first < 1<<8; first += 2 {
		out = append(out, field.Range{Lo: first << 40, Hi: first<<40 | (1<<40 - 1)})
	}
	return out
}()

func number(mac net.HardwareAddr) (v uint64) {
	for _, b := range mac {
		v = v<<8 | uint64(b)
	}
	return v
}

// arp is requests and answers of the neighbour (RFC 826), with the padding of Ethernet.
func arp(s session.Session) []packets {
	answer := packets{Traffic: traffic(s), needs: "ARP of " + s.Neighbour.String(),
		remedy: "protect arp"}
	answer.Known[field.EtherType] = one(packet.EtherARP)
	answer.Known[field.Len] = span(28, 46)
	request := answer
	request.Traffic = traffic(s)
	request.Known[field.EtherType] = answer.Known[field.EtherType]
	request.Known[field.Len] = answer.Known[field.Len]
	request.Known[field.DstMAC] = one(1<<48 - 1)
	answer.know(field.DstMAC, s.DstMAC)
	return []packets{answer, request}
}

// discovery is advertisements and solicitations of the neighbour (RFC 4861 section 4).
func discovery(s session.Session) []packets {
	k := func(typ uint64, dst netip.Addr, mac net.HardwareAddr) packets {
		k := packets{Traffic: traffic(s), needs: "neighbour discovery of " + s.Neighbour.String(),
			remedy: "protect icmp6 type 133-137 ttl 255"}
		k.Class = ir.Class{Family: ir.IPv6, Transport: ir.ICMP}
		k.Src, k.Dst = s.Neighbour, dst
		k.Known[field.ICMP6Type] = one(typ << 8)
		k.Known[field.TTL] = one(255)
		k.Known[field.Len] = span(64, 1280)
		k.know(field.DstMAC, mac)
		k.knowSuffixes()
		return k
	}
	const solicitation, advertisement = 135, 136
	last := s.Local.Addr().As16()
	group := netip.MustParseAddr("ff02::1:ff00:0").As16()
	copy(group[13:], last[13:])
	return []packets{
		k(advertisement, s.Local.Addr(), s.DstMAC),
		k(solicitation, s.Local.Addr(), s.DstMAC),
		k(solicitation, netip.AddrFrom16(group),
			net.HardwareAddr{0x33, 0x33, 0xff, last[13], last[14], last[15]}),
	}
}

func family(a netip.Addr) ir.Family {
	if a.Is4() {
		return ir.IPv4
	}
	return ir.IPv6
}

func one(v uint64) []field.Range       { return []field.Range{{Lo: v, Hi: v}} }
func span(lo, hi uint64) []field.Range { return []field.Range{{Lo: lo, Hi: hi}} }

// usual lists the fields that messages name first, with the value that packets of a session mostly
// have. For all other fields the least value is as good as any.
var usual = []struct {
	field field.Field
	value uint64
}{
	{field.TCPFlags, packet.ACK},
	{field.Len, 72},
	{field.TTL, 64},
	{field.DSCP, 0},
	{field.TCPWindow, 501},
	{field.SrcMAC, 0x020000000001},
	{field.DstMAC, 0x020000000002},
}

// told are the phrases of fields in the order in which messages name them: the usual ones, then all
// other numbers that rules ask for.
var told = func() (all []*field.Phrase) {
	of := map[field.Field]*field.Phrase{}
	var others []*field.Phrase
	for i := range field.Phrases {
		switch ph := &field.Phrases[i]; ph.Form {
		case field.FormNumber, field.FormMAC, field.FormFlags:
			of[ph.Field] = ph
			others = append(others, ph)
		}
	}
	for _, u := range usual {
		all = append(all, of[u.field])
	}
	for _, ph := range others {
		if !slices.Contains(all, ph) {
			all = append(all, ph)
		}
	}
	return all
}()

// usually returns what the packets mostly have in a field.
func (k *packets) usually(f field.Field) uint64 {
	values := k.Known[f]
	for _, u := range usual {
		has := func(r field.Range) bool { return r.Lo <= u.value && u.value <= r.Hi }
		if u.field == f && (values == nil || slices.ContainsFunc(values, has)) {
			return u.value
		}
	}
	if values == nil {
		values = f.Info().Values.IPv4
		if k.Class.Family == ir.IPv6 {
			values = f.Info().Values.IPv6
		}
	}
	return values[0].Lo
}

// words tells what is unusual about packets that would be dropped, as a rule would ask for it.
func (k *packets) words(d *ir.Dropped) string {
	if k.needs != "" {
		return ""
	}
	var words []string
	for _, ph := range told {
		f, info := ph.Field, ph.Field.Info()
		if info.ByClass || info.Absent != 0 { // protocol, tags: the same of all its packets
			continue
		}
		usually := k.usually(f)
		v := d.Value(f, usually)
		if v == usually || len(k.Known[f]) == 1 && k.Known[f][0] == one(v)[0] {
			continue
		}
		text := fmt.Sprint(v)
		switch ph.Form {
		case field.FormFlags:
			text = flags(v)
		case field.FormMAC:
			mac := packet.MAC(v)
			text = net.HardwareAddr(mac[:]).String()
		}
		words = append(words, ph.Word+" "+text)
	}
	return strings.Join(words, " ")
}

func flags(v uint64) string {
	var names []string
	for _, n := range field.TCPFlags.Info().Names {
		if v&n.Lo != 0 {
			names = append(names, n.Word)
		}
	}
	return strings.Join(names, ",")
}
