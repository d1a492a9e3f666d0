package region

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	"levee/internal/filter/ir"
	"levee/internal/filter/oracle"
	"levee/internal/lang/action"
	"levee/internal/lang/dnsname"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/packet/template"
)

// Example is a packet that two policies decide otherwise, or one that a policy decides as it is
// said.
type Example struct {
	Entries []Entry // of dynamic sets, which are empty otherwise
	Before  []Step  // packets that have come and gone before
	Step
}

// Step is a packet in words.
type Step struct {
	Packet string
	Leaves bool // by the interface
}

func (s *Step) text() string {
	if s.Leaves {
		return "packet " + s.Packet + " leaves"
	}
	return "packet " + s.Packet
}

// Entry is an element of a dynamic set.
type Entry struct {
	Set     string
	Element policy.Element
}

// Steps returns the example as steps of a test, without what is expected.
func (e *Example) Steps() (out []string) {
	for _, n := range e.Entries {
		out = append(out, fmt.Sprintf("set %s has %s", n.Set, n.Element))
	}
	for i := range e.Before {
		out = append(out, e.Before[i].text())
	}
	return append(out, e.text())
}

// tries is the number of packets made of a box before an example is given up: what a packet says of
// its length and payload may not go together.
const tries = 24

// example returns a packet of a box that both policies decide as a difference says, judged by the
// oracle; nil if none was found.
func (c *comparison) example(s *space, b box, classes []ir.Class, d *Difference) *Example {
	slots := [2]int{d.A, d.B}
	return s.show(b, classes, func(e *Example) bool {
		for i, p := range c.policies {
			slot, ok := e.judge(c.evaluator(i), p)
			if ok && [...]Outcome{d.Was, d.Is}[i] == asFirst && slot < len(policy.Malformed) {
				slot = slots[i] // the rule found it so
			}
			if !ok || slot != slots[i] {
				return false
			}
		}
		return true
	})
}

// show makes packets of a box until one is as wanted.
func (s *space) show(b box, classes []ir.Class, as func(*Example) bool) *Example {
	found := func(p point) *Example {
		for _, e := range p.examples() {
			if as(e) {
				return e
			}
		}
		return nil
	}
	var drawn []point // of which packets with other values are made
	for _, class := range classes {
		p := point{space: s, box: b, class: class}
		var begins []begun
		if known, asked := p.number(field.Flow, 0); asked && known == 1 {
			var none bool
			if begins, none = s.beginnings(class, b, nil); none {
				continue
			}
		}
		if e := found(p); e != nil {
			return e
		}
		for i := range begins {
			by := p
			by.by = &begins[i]
			if e := found(by); e != nil {
				return e
			}
		}
		drawn = append(drawn, p)
	}
	if len(drawn) == 0 { // nothing begins such a connection
		return nil
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for n := len(classes); n < tries; n++ {
		p := drawn[n%len(drawn)]
		p.rnd = rnd
		if e := found(p); e != nil {
			return e
		}
	}
	return nil
}

// evaluator judges by one of the policies.
func (c *comparison) evaluator(i int) *oracle.Evaluator {
	if c.judges[i] == nil {
		c.judges[i] = oracle.New(c.policies[i].Whole())
	}
	return c.judges[i]
}

// judge returns what decides the example, of which an evaluator knows no more than it says; false
// if it is no packet.
func (e *Example) judge(o *oracle.Evaluator, p *policy.Policy) (slot int, ok bool) {
	o.Forget()
	now := time.Unix(1_700_000_000, 0)
	o.SetClock(func() time.Time { return now })
	for _, n := range e.Entries {
		if slices.ContainsFunc(p.Sets, func(s *policy.Set) bool {
			return s.Name == n.Set && s.Kind == policy.Dynamic
		}) && o.AddEntry(n.Set, n.Element, time.Time{}) != nil {
			return 0, false
		}
	}
	passed := len(e.Before) == 0
	for i := range e.Before {
		is, ok := e.Before[i].judge(o, p)
		if !ok {
			return 0, false
		}
		passed = passed || is.Action != action.Drop
	}
	if !passed { // no packet before makes anything known
		return 0, false
	}
	is, ok := e.Step.judge(o, p)
	return is.Slot, ok
}

func (s *Step) judge(o *oracle.Evaluator, p *policy.Policy) (is oracle.Result, ok bool) {
	frame, tells, ok := frameOf(s.Packet)
	if !ok {
		return is, false
	}
	o.Untell()
	for _, t := range p.Told(tells) {
		o.Tell(t.Field, t.Value)
	}
	if s.Leaves {
		return o.Leave(frame), true
	}
	return o.Eval(frame), true
}

func frameOf(words string) ([]byte, []policy.Told, bool) {
	p, _ := template.One("packet", words)
	if p == nil {
		return nil, nil, false
	}
	frame, err := p.Build()
	return frame, p.Tells, err == nil
}

// point is one packet of a box.
type point struct {
	*space
	box   box
	class ir.Class
	rnd   *rand.Rand // nil: the usual values, as far as the box has them
	by    *begun     // nil: connections begin by any packet
	quote []byte     // with which the payload begins
	near  uint64     // the usual source, of IPv6 its upper half; 0 is that of tests
}

// value returns a value of a side, the first of the usual ones that the box has, and whether the
// box asks for it.
func (p *point) value(key sideKey, usual ...uint64) (v uint64, asked bool) {
	var values []field.Range
	if i, ok := p.index[key]; ok && i < len(p.box) {
		values = p.box[i]
	}
	if more := p.begun(key); values == nil {
		values = more
	} else if more != nil {
		values = field.Intersect(values, more)
	}
	if values == nil {
		return usual[0], false
	}
	if p.rnd != nil {
		r := values[p.rnd.IntN(len(values))]
		switch p.rnd.IntN(3) {
		case 0:
			return r.Lo, true
		case 1:
			return r.Hi, true
		}
		if r.Hi-r.Lo == 1<<64-1 {
			return p.rnd.Uint64(), true
		}
		return r.Lo + p.rnd.Uint64N(r.Hi-r.Lo+1), true
	}
	for _, v := range usual {
		if relate(single(v), values) == all {
			return v, true
		}
	}
	return values[0].Lo, true
}

// begun returns the values of a side with which the connection begins, nil of all. An error that
// quotes another protocol has its addresses, and no ports.
func (p *point) begun(key sideKey) []field.Range {
	if p.by == nil || key.about == ofNumber && p.quotes() {
		return nil
	}
	return p.by.asked[key]
}

func (p *point) number(f field.Field, usual uint64) (uint64, bool) {
	if unreachable, is := unreachables[f]; is && p.quotes() {
		v, _ := p.value(sideKey{about: ofNumber, field: f}, unreachable)
		return v, f == field.ICMPType == (p.class.Family == ir.IPv4)
	}
	return p.value(sideKey{about: ofNumber, field: f}, usual)
}

// unreachables are errors that quote, as type and code: that a port is unreachable.
var unreachables = map[field.Field]uint64{field.ICMPType: 3<<8 | 3, field.ICMP6Type: 1<<8 | 4}

// Addresses of packets that do not say which: those of docs/reference/language.md "Tests in a
// policy".
var (
	usualSource      = [2]uint64{0xc0000201, 0x20010db8_00000000}
	usualDestination = [2]uint64{0xc6336401, 0x20010db8_00010000}
	usualElse        = [2]uint64{0xcb007101, 0x20010db8_00020000}
)

// addr returns an address of the packet, and whether the box asks for it.
func (p *point) addr(source bool) (netip.Addr, bool) {
	high, low, usual := ofDestination, ofDestinationLow, usualDestination
	if source {
		high, low, usual = ofSource, ofSourceLow, usualSource
	}
	i := 0
	if p.class.Family == ir.IPv6 {
		i = 1
	}
	first := usual[i]
	if source && p.near > 0 {
		first = p.near
	}
	hi, askedHi := p.value(sideKey{about: high}, first, usualElse[i])
	lo, askedLo := p.value(sideKey{about: low}, 1)
	return p.address(hi, lo), askedHi || askedLo
}

// examples returns the packet with what has to have been before, in the forms in which that may be.
func (p *point) examples() (all []*Example) {
	entries, ok := p.entries()
	if !ok {
		return nil
	}
	known, asked := p.number(field.Flow, 0)
	ways := [][]Step{nil}
	if is := asked && known == 1; is && p.quotes() {
		ways = p.quoting()
	} else if is {
		ways = p.known()
	}
	if p.by != nil {
		entries = append(entries, p.by.entries...)
	}
	said := p.words()
	for _, before := range ways {
		all = append(all, &Example{entries, before, Step{said.String(), p.leaves}})
	}
	return all
}

// entries returns what sets have to hold; false if a box asks for a packet within a tunnel, which
// is not made.
func (p *point) entries() (out []Entry, ok bool) {
	for i := range p.sides {
		n := &p.sides[i]
		if n.about != ofUnknown || i >= len(p.box) || p.box[i] == nil {
			continue
		}
		switch values := p.box[i]; {
		case n.set != nil && values[0].Lo == 1:
			out = append(out, Entry{n.set.Name, p.element(n.cond)})
		case n.cond != nil && n.cond.Inner != nil && values[len(values)-1].Hi < nothingWithin:
			return nil, false
		}
	}
	return out, true
}

// element returns the element for which a condition asks a set.
func (p *point) element(c *ir.Cond) (e policy.Element) {
	if c.Names != nil {
		e.Name = dnsname.Pattern{Name: p.name()}.String()
		return e
	}
	source := c.Field == field.SrcAddr || c.Field == field.SrcEndpoint ||
		c.Field == field.SrcService
	if c.Set.Type != policy.Services {
		a, _ := p.addr(source)
		e.Prefix = netip.PrefixFrom(a, a.BitLen())
	}
	if c.Set.Type == policy.Addresses {
		return e
	}
	e.Service = policy.Service{Proto: p.class.Proto(), Hi: 1<<16 - 1} // without ports: all
	if c.Number == field.Proto {
		v, _ := p.number(field.Proto, otherProto)
		e.Service.Proto = uint8(v)
	} else if policy.HasPorts(e.Service.Proto) {
		v, _ := p.number(c.Number, usualPort[c.Number])
		e.Service.Lo, e.Service.Hi = uint16(v), uint16(v)
	}
	return e
}

// otherProto is the protocol of packets that do not say which (RFC 3692).
const otherProto = 253

var usualPort = map[field.Field]uint64{field.SrcPort: 40000, field.DstPort: 9}

// said is a packet as tests write it.
type said struct{ headers, rest, wayBack, sender []string }

func (s *said) String() string {
	return strings.Join(slices.Concat(s.headers, s.rest, s.wayBack, s.sender), " ")
}

// size returns the words for length and payload.
func (s *said) size() string {
	text := ""
	for i, word := range s.rest {
		switch {
		case word == "len":
			text += " len " + s.rest[i+1]
		case strings.HasPrefix(word, "payload"):
			text += " " + word
		}
	}
	return text
}

// words returns the packet in words.
func (p *point) words() said {
	out := p.family()
	if p.class.Family != ir.NonIP {
		for _, side := range []struct {
			word   string
			source bool
		}{{"from", true}, {"to", false}} {
			if a, asked := p.addr(side.source); asked {
				out = append(out, side.word, a.String())
			}
		}
	}
	out = append(out, p.numbers([]numberWord{
		{"from port", field.SrcPort, usualPort[field.SrcPort]},
		{"port", field.DstPort, usualPort[field.DstPort]},
	})...)
	out = append(out, p.hops()...)
	if v, asked := p.number(field.TCPFlags, ackFlag); asked {
		out = append(out, "flags", flagNames(uint8(v)))
	}
	for _, f := range []field.Field{field.ICMPType, field.ICMP6Type} {
		if v, asked := p.number(f, map[field.Field]uint64{
			field.ICMPType: 8 << 8, field.ICMP6Type: 128 << 8}[f]); asked {
			out = append(out, "type", fmt.Sprintf("%d/%d", v>>8, v&0xff))
		}
	}
	return said{out, p.rest(), p.wayBack(), p.sender()}
}

// numberWord is a numeric field in the words of tests.
type numberWord struct {
	word  string
	field field.Field
	usual uint64
}

// numbers returns the words for those of some fields that the box asks for.
func (p *point) numbers(of []numberWord) (out []string) {
	for _, f := range of {
		if v, asked := p.number(f.field, f.usual); asked {
			out = append(out, f.word, fmt.Sprint(v))
		}
	}
	return out
}

// hops returns the words for what hosts set and routers change.
func (p *point) hops() []string {
	return p.numbers([]numberWord{{"ttl", field.TTL, 64}, {"dscp", field.DSCP, 0},
		{"window", field.TCPWindow, 65535}})
}

// wayBack returns the words for what the kernel tells of routes.
func (p *point) wayBack() []string {
	strict, asked := p.number(field.StrictPath, 0)
	loose, asks := p.number(field.LoosePath, 1)
	switch {
	case !asked && !asks:
		return nil
	case strict == 1:
		return []string{"reverse-path", "strict"}
	case loose == 1:
		return []string{"reverse-path", "loose"}
	}
	return []string{"reverse-path", "none"}
}

const ackFlag = 0x10

// family returns the words for what the class says.
func (p *point) family() (out []string) {
	switch p.class.Family {
	case ir.NonIP:
		v, _ := p.number(field.EtherType, 0x0806)
		if v == 0x0806 {
			return []string{"arp"}
		}
		return []string{fmt.Sprintf("ether 0x%04x", v)}
	case ir.IPv4:
		out = append(out, "ipv4")
	default:
		out = append(out, "ipv6")
	}
	if p.class.Transport != ir.Other {
		return append(out, p.transport())
	}
	v, _ := p.number(field.Proto, otherProto)
	return append(out, "proto "+fmt.Sprint(v))
}

// transport returns the word for that of the class.
func (p *point) transport() string {
	if p.class.Transport == ir.ICMP && p.class.Family == ir.IPv6 {
		return "icmp6"
	}
	return map[ir.Transport]string{ir.TCP: "tcp", ir.UDP: "udp", ir.UDPLite: "udplite",
		ir.SCTP: "sctp", ir.DCCP: "dccp", ir.ICMP: "icmp"}[p.class.Transport]
}

// rest returns the words for length, tags, Ethernet, fragments and payload.
func (p *point) rest() (out []string) {
	bytes := p.bytes()
	if v, asked := p.number(field.Len, p.minLen()+uint64(len(bytes))); asked {
		out = append(out, "len", fmt.Sprint(v))
		bytes = p.filled(bytes, int(v-p.minLen()))
	}
	for i, f := range []struct {
		word  string
		field field.Field
	}{{"vlan", field.VLAN}, {"inner-vlan", field.InnerVLAN}} {
		if i < p.tags {
			v, _ := p.number(f.field, 1)
			out = append(out, f.word, fmt.Sprint(v))
		}
	}
	for _, f := range []struct {
		word  string
		field field.Field
	}{{"ether from", field.SrcMAC}, {"ether to", field.DstMAC}} {
		if v, asked := p.number(f.field, 0x02_00_00_00_00_01); asked {
			out = append(out, f.word, mac(v))
		}
	}
	switch {
	case p.later():
		out = append(out, "frag 64")
	case p.class.Fragment:
		out = append(out, "frag 0")
	}
	if len(bytes) > 0 {
		out = append(out, fmt.Sprintf("payload hex %q", hex.EncodeToString(bytes)))
	}
	return out
}

// laterBytes is the default number of bytes in later fragments: one without any is malformed where
// fragments are tracked.
const laterBytes = 8

// later says whether the packet is a fragment behind the first.
func (p *point) later() bool {
	v, _ := p.value(sideKey{about: ofLater}, 1)
	return v == 1 && p.class.Fragment && p.class.Transport == ir.Other
}

// bytes returns the payload, as long as the box asks for it.
func (p *point) bytes() (out []byte) {
	out = slices.Clone(p.quote)
	if p.later() {
		out = make([]byte, laterBytes)
	}
	for i := range p.sides {
		n := &p.sides[i]
		if n.about != ofByte || i >= len(p.box) || p.box[i] == nil {
			continue
		}
		v, _ := p.value(sideKey{about: ofByte, at: n.at}, 0)
		if v == noByte {
			continue
		}
		if more := n.at + 1 - len(out); more > 0 {
			out = append(out, make([]byte, more)...)
		}
		out[n.at] = byte(v)
	}
	out, is := p.query(out)
	return p.searchedFor(out, func(at int) bool { return is && p.free(at) })
}

func mac(v uint64) string {
	var out []string
	for shift := 40; shift >= 0; shift -= 8 {
		out = append(out, fmt.Sprintf("%02x", v>>shift&0xff))
	}
	return strings.Join(out, ":")
}
