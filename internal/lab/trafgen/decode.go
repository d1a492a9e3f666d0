package trafgen

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// words returns the packet in those of a template.
func (p *frame) words() ([]string, error) {
	if len(p.headers) > 0 {
		return p.byHeaders()
	}
	plain := true
	for _, c := range p.bytes {
		plain = plain && c.kind == fixed
	}
	if plain {
		if len(p.bytes) < 14 {
			return nil, wrong(p.line, "{", "a frame of %d bytes: an Ethernet header has 14",
				len(p.bytes))
		}
		return []string{`hex "` + hexOf(p.bytes) + `"`}, nil
	}
	d := &decoder{frame: p}
	d.ethernet()
	return d.out, d.err
}

// decoder reads bytes as the headers of a packet.
type decoder struct {
	*frame
	at  int
	out []string
	err error
}

func (d *decoder) say(format string, args ...any) {
	d.out = append(d.out, fmt.Sprintf(format, args...))
}

// fail keeps the first error, about the byte at which it is.
func (d *decoder) fail(at int, format string, args ...any) {
	if d.err != nil {
		return
	}
	t := token{line: d.line, text: "{"}
	if at < len(d.bytes) {
		t = d.bytes[at].token
	}
	d.err = wrong(t.line, t.text, format, args...)
}

// take returns the next n bytes.
func (d *decoder) take(n int, what string) []cell {
	if d.err == nil && d.at+n > len(d.bytes) {
		d.fail(len(d.bytes), "the packet ends within %s", what)
	}
	if d.err != nil {
		return make([]cell, n)
	}
	d.at += n
	return d.bytes[d.at-n : d.at]
}

// number returns the next n bytes, which may not vary.
func (d *decoder) number(n int, what string) (v uint64) {
	begin := d.at
	for i, c := range d.take(n, what) {
		if c.kind != fixed {
			d.fail(begin+i, "%s cannot vary", what)
		}
		v = v<<8 | uint64(c.v)
	}
	return v
}

// field says the next n bytes behind a word, as one value or as a range in an order.
func (d *decoder) field(word string, n int, what string, text func([]byte) string) {
	begin := d.at
	lo, hi, order := make([]byte, n), make([]byte, n), ""
	for i, c := range d.take(n, what) {
		switch {
		case c.kind == summed:
			d.fail(begin+i, "a checksum in %s", what)
		case order != "" && (c.kind != drawn || order != " random"):
			d.fail(begin+i, "%s varies in its front alone, which templates have no words for", what)
		case c.kind == fixed:
			lo[i], hi[i] = c.v, c.v
		case c.kind == drawn:
			hi[i], order = 255, " random"
		default:
			lo[i], hi[i] = c.lo, c.hi
			order = " counting"
			if c.down {
				order += " down"
			}
			if c.step > 1 {
				order += fmt.Sprintf(" step %d", c.step)
			}
		}
	}
	if order == "" {
		d.say("%s %s", word, text(lo))
		return
	}
	d.say("%s %s-%s%s", word, text(lo), text(hi), order)
}

// sum reads two bytes of a checksum: right, if the function makes it over those bytes, or as
// written.
func (d *decoder) sum(word, function string, from, to int) {
	begin := d.at
	c := d.take(2, "a checksum")
	if c[0].kind != summed {
		d.at = min(d.at, begin)
		d.field(word, 2, "a checksum", decimal)
		return
	}
	if c[0].text != function || c[0].from != uint64(from) ||
		to >= 0 && c[0].to != uint64(to) {
		d.fail(begin, "%s(%d, %d) is another checksum than stands here", c[0].text, c[0].from,
			c[0].to)
	}
}

func (d *decoder) ethernet() {
	d.field("ether to", 6, "the Ethernet destination", mac)
	d.field("ether from", 6, "the Ethernet source", mac)
	words := []string{"vlan", "inner-vlan"}
	typ := d.number(2, "the Ethernet type")
	for typ == 0x8100 || typ == 0x88a8 {
		if len(words) == 0 {
			d.fail(d.at-2, "more than two VLAN tags")
			return
		}
		prefix := strings.TrimSuffix(words[0], "vlan")
		tci := d.number(2, "a VLAN tag")
		d.say("%s %d", words[0], tci&0xfff)
		d.say("%spcp %d %sdei %d %stpid %d", prefix, tci>>13, prefix, tci>>12&1, prefix, typ)
		words = words[1:]
		typ = d.number(2, "the Ethernet type")
	}
	switch typ {
	case 0x0800:
		d.ipv4()
	case 0x86dd:
		d.ipv6()
	case 0x0806:
		d.arp()
	default:
		d.say("ether %d", typ)
		d.payload(d.at)
	}
}

func (d *decoder) arp() {
	if v := d.number(6, "the head of an ARP message"); d.err == nil && v != 0x000108000604 {
		d.fail(d.at-6, "this is no ARP of IPv4 over Ethernet")
	}
	d.say("arp")
	d.field("op", 2, "the operation", decimal)
	d.field("sender-mac", 6, "the sender's Ethernet address", mac)
	d.field("from", 4, "the sender's address", address)
	d.field("target-mac", 6, "the target's Ethernet address", mac)
	d.field("to", 4, "the target's address", address)
	d.payload(-1)
}

func (d *decoder) ipv4() {
	begin := d.at
	d.say("ipv4")
	if v := d.number(1, "version and header length"); d.err == nil && v != 0x45 {
		d.fail(begin, "version and header length are %#x: options, or another version, cannot be "+
			"imported", v)
	}
	d.tos()
	if n := int(d.number(2, "the length of the IP packet")); n != len(d.bytes)-begin {
		d.say("ip-len %d", n)
	}
	d.field("id", 2, "the identification", decimal)
	flags := d.number(2, "flags and fragment offset")
	d.say("reserved %d df %d mf %d frag-offset %d", flags>>15, flags>>14&1, flags>>13&1,
		flags&0x1fff)
	d.field("ttl", 1, "the TTL", decimal)
	proto := d.number(1, "the protocol")
	d.sum("ip-checksum", "csumip", begin, begin+19)
	d.field("from", 4, "the source address", address)
	d.field("to", 4, "the destination address", address)
	if flags&0x1fff != 0 {
		d.say("proto %d", proto)
		d.payload(begin)
		return
	}
	d.transport(begin, proto, 1, "icmp")
}

func (d *decoder) ipv6() {
	begin := d.at
	d.say("ipv6")
	head := d.number(4, "version, traffic class and flow label")
	if d.err == nil && head>>28 != 6 {
		d.fail(begin, "the version is %d", head>>28)
	}
	d.say("dscp %d ecn %d flow-label %d", head>>22&0x3f, head>>20&3, head&0xfffff)
	if n := int(d.number(2, "the length of the payload")); n != len(d.bytes)-begin-40 {
		d.say("ip-len %d", n)
	}
	next := d.number(1, "the next header")
	d.field("ttl", 1, "the hop limit", decimal)
	d.field("from", 16, "the source address", address)
	d.field("to", 16, "the destination address", address)
	d.transport(begin, next, 58, "icmp6")
}

// tos is the byte of DSCP and ECN.
func (d *decoder) tos() {
	if d.at < len(d.bytes) && d.bytes[d.at].kind == drawn {
		d.at++
		d.say("dscp random ecn random")
		return
	}
	v := d.number(1, "DSCP and ECN, which vary by drnd(1) or not at all: one")
	d.say("dscp %d ecn %d", v>>2, v&3)
}

// transport reads what follows an IP header, which begins at ip.
func (d *decoder) transport(ip int, proto, icmp uint64, icmpWord string) {
	begin := d.at
	six := icmp == 58
	suffix := map[bool]string{true: "6"}[six]
	switch proto {
	case 6:
		d.say("tcp")
		d.ports()
		d.field("seq", 4, "the sequence number", decimal)
		d.field("ack-number", 4, "the acknowledgement number", decimal)
		head := d.number(2, "data offset and flags")
		offset, flags := int(head>>12), head&0xff
		if head&0xf00 != 0 {
			d.fail(d.at-2, "reserved bits of TCP are set")
		}
		d.say("tcp-flags %d", flags)
		d.field("window", 2, "the window", decimal)
		d.sum("checksum", "csumtcp"+suffix, ip, begin)
		d.field("urgent", 2, "the urgent pointer", decimal)
		switch n := 4*offset - 20; {
		case n > 0 && d.at+n <= len(d.bytes):
			at := d.at
			d.number(n/8*8, "TCP options")
			d.number(n%8, "TCP options")
			if d.err == nil {
				d.say(`tcp-options hex "%s"`, hexOf(d.bytes[at:at+n]))
			}
		case n != 0:
			d.say("data-offset %d", offset)
		}
	case 17:
		d.say("udp")
		d.ports()
		if n := int(d.number(2, "the length of the datagram")); n != len(d.bytes)-begin {
			d.say("udp-len %d", n)
		}
		d.sum("checksum", "csumudp"+suffix, ip, begin)
	case icmp:
		d.say("%s", icmpWord)
		d.say("type %d", d.number(1, "the ICMP type"))
		d.field("code", 1, "the ICMP code", decimal)
		d.sum("checksum", "csumicmp", begin, -1)
		d.field("icmp-rest", 4, "what follows the ICMP checksum", decimal)
	default:
		d.say("proto %d", proto)
	}
	d.payload(ip)
}

func (d *decoder) ports() {
	d.field("from port", 2, "the source port", decimal)
	d.field("port", 2, "the destination port", decimal)
}

// payload says the rest; ip is where the IP packet begins, -1 where there may be no rest.
func (d *decoder) payload(ip int) {
	rest := d.bytes[min(d.at, len(d.bytes)):]
	if d.err != nil || len(rest) == 0 {
		return
	}
	if ip < 0 {
		d.fail(d.at, "bytes behind the message")
		return
	}
	for i, c := range rest {
		if c.kind != rest[0].kind || c.kind == counted || c.kind == summed {
			d.fail(d.at+i, "a payload is fixed or drawn as a whole")
			return
		}
	}
	if rest[0].kind == drawn {
		d.say("payload random len %d", len(d.bytes)-ip)
		return
	}
	d.say(`payload hex "%s"`, hexOf(rest))
}

func hexOf(cells []cell) string {
	b := make([]byte, len(cells))
	for i, c := range cells {
		b[i] = c.v
	}
	return hex.EncodeToString(b)
}

func mac(b []byte) string { return net.HardwareAddr(b).String() }

func address(b []byte) string {
	a, _ := netip.AddrFromSlice(b) // 4 or 16 bytes
	return a.String()
}

func decimal(b []byte) string {
	var wide [8]byte
	copy(wide[8-len(b):], b)
	return fmt.Sprint(binary.BigEndian.Uint64(wide[:]))
}
