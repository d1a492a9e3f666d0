package oracle

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// Trace is the story of one frame: what was parsed, which rules were tried, what decided.
type Trace struct {
	Layers []Layer // from the outside in
	Fault  string  // why the frame is malformed, as in policy.Malformed; "" if it is not
	Tried  []Tried // in the order in which they were looked at; the last may be what decided
	Result Result
	Slot   policy.Slot // of the Result
	Why    string      // the decision in a sentence
}

// Layer is one header of a frame.
type Layer struct {
	Name   string // "Ethernet", "802.1Q", "IPv4", "IPv6", "Hop-by-Hop", ..., "TCP", "payload"
	Offset int    // in the frame, bytes
	Length int    // bytes
	Fields []NamedValue
}

// NamedValue is one field of a header, in the words of the language where it has one.
type NamedValue struct{ Name, Value string }

// Tried is one rule that was tried.
type Tried struct {
	Slot    int
	Where   string // policy.Where
	Text    string // canonical text of the rule, or the name of a built-in
	Matched bool
	Term    string // if not Matched: the first term that does not hold
	Got     string // if not Matched: what the packet has in its place
	Effect  string // if Matched: what a limit does with the packet, or a cookie that lets it on
}

// Record is the judgement of one frame, from which Story makes words. It may be used again.
type Record struct {
	pkt    packet.Packet
	frame  []byte
	told   told
	tried  []tried
	result Result
}

// EvalInto judges frame like Eval, and records how. The record is valid as long as the frame is.
func (e *Evaluator) EvalInto(rec *Record, frame []byte) Result {
	*rec = Record{frame: frame, told: e.told, tried: rec.tried[:0]}
	e.link.Decode(frame, &rec.pkt)
	rec.result = e.judge(&rec.pkt, frame, func(t tried) { rec.tried = append(rec.tried, t) })
	return rec.result
}

// Explain judges frame like Eval, and tells how. Whoever has judged a frame and wants its story
// has to keep a Record: to judge it again opens connections, and uses up budgets, once more.
func (e *Evaluator) Explain(frame []byte) Trace {
	var rec Record
	e.EvalInto(&rec, frame)
	return e.Story(&rec)
}

// Story tells how a frame was judged. It changes nothing.
func (e *Evaluator) Story(rec *Record) Trace {
	pkt, frame := &rec.pkt, rec.frame
	tr := Trace{Layers: layers(frame, pkt), Result: rec.result}
	slots := e.p.Slots()
	for _, t := range rec.tried {
		if t.effect != "" {
			tr.Tried[len(tr.Tried)-1].Effect = t.effect
			continue
		}
		s := slots[t.slot]
		text := s.Name
		if s.Rule != nil {
			text = s.Rule.Text
		}
		one := Tried{Slot: t.slot, Where: e.p.Where(s), Text: text, Matched: t.failed == nil}
		if t.failed != nil {
			one.Term, one.Got = termText(t.failed), e.got(t.failed, pkt, frame, &rec.told)
		}
		tr.Tried = append(tr.Tried, one)
	}
	if bad := tr.Result.Malformed; bad != packet.WellFormed {
		tr.Fault = policy.Malformed[bad.Slot()]
	}
	tr.Slot = slots[tr.Result.Slot]
	tr.Why = e.why(&tr)
	return tr
}

func (e *Evaluator) why(tr *Trace) string {
	by := Decider(e.p, tr.Slot)
	switch {
	case tr.Result.Malformed.BesideOthers():
		return fmt.Sprintf("%s: malformed (%s), which `fragments track` finds", tr.Result.Action,
			tr.Fault)
	case tr.Slot.Reason == policy.ByMalformed:
		return fmt.Sprintf("%s: malformed (%s), and no rule says `pass malformed`",
			tr.Result.Action, tr.Fault)
	case tr.Fault != "":
		return fmt.Sprintf("%s: malformed (%s), decided by %s", tr.Result.Action, tr.Fault, by)
	case tr.Result.Answered:
		what := tr.Slot.Rule.Cookie.Answers.Info().One
		return fmt.Sprintf("%s: %s, answered in the host's place by %s", tr.Result.Action, what, by)
	case tr.Result.Ahead:
		return fmt.Sprintf("%s: a fragment whose first is not known, by %s; so do %d at once and "+
			"%d a second, and more are dropped (fragment-orphan)", tr.Result.Action, by,
			aheadBurst, time.Second/aheadCost)
	case tr.Slot.Rule != nil && tr.Slot.Rule.Limit != nil:
		return fmt.Sprintf("%s: above the rate of %s", tr.Result.Action, by)
	case tr.Slot.Rule != nil && tr.Slot.Rule.Greylist != nil:
		return fmt.Sprintf("%s: its client has not come before, by %s: who sends again from the "+
			"same port, %s to %s later, goes on", tr.Result.Action, by,
			tr.Slot.Rule.Greylist.After, tr.Slot.Rule.Greylist.Within)
	case tr.Result.Ring != nil:
		return fmt.Sprintf("%s: to ring %q, by %s; %s while nobody reads the ring",
			tr.Result.Action, tr.Result.Ring.Name, by, tr.Result.Ring.Else)
	case tr.Slot.Action.Info().Reason != "":
		return fmt.Sprintf("%s: by %s, which %s", tr.Result.Action, by,
			tr.Slot.Action.Info().Reason)
	case tr.Slot.Reason == policy.ByDefault:
		return fmt.Sprintf("%s: no rule decided, so %s", tr.Result.Action, by)
	}
	return fmt.Sprintf("%s: by %s", tr.Result.Action, by)
}

// got returns what a packet has in the field of a term that failed.
func (e *Evaluator) got(t *policy.Term, pkt *packet.Packet, frame []byte, is *told) string {
	var vs values
	vs.read(pkt)
	vs.tell(is)
	f := t.Field
	switch {
	case !vs[f].present:
		return "the packet has no " + f.Info().Name
	case f == field.Stream:
		return e.streams.gotStream(t, pkt, frame, e.now())
	case f == field.Flow && e.p.Leaves() && t.Not:
		return "the packet answers the other side"
	case f == field.Flow && e.p.Leaves():
		return "the packet answers nobody that is known"
	case f.Info().Kernel == field.Leaving:
		return e.gotSender(f, vs[f].lo)
	case f.Info().Remembered && t.Not: // which is not read off the packet
		return f.Info().Is
	case f.Info().Remembered:
		return f.Info().IsNot
	case f == field.Fragment:
		return "the packet is " + numberText(f, vs[f].lo)
	case f == field.Payload && pkt.UDPPayload < t.Bytes.At+len(t.Bytes.Value):
		return "payload ends after " + fmt.Sprint(pkt.UDPPayload) + " bytes"
	case f == field.Payload:
		at := frame[pkt.TransportOffset+8+t.Bytes.At:]
		return fmt.Sprintf("payload at %d is %x", t.Bytes.At, at[:len(t.Bytes.Value)])
	case f == field.Contents && t.Not:
		return "the payload contains it"
	case f == field.Contents:
		return fmt.Sprintf("the payload of %d bytes does not contain it", pkt.UDPPayload)
	case f.OfMessage():
		return gotMessage(t, pkt, frame)
	case f == field.Inner && !pkt.Inner(frame, new(packet.Packet)):
		return "the packet has no inner packet"
	case f == field.Inner && t.Not:
		return "the inner packet is one of these"
	case f == field.Inner:
		return "the inner packet is another"
	}
	return f.Info().Name + " is " + valueText(f, pkt, vs[f].lo)
}

// gotSender returns what the kernel tells of a packet that leaves.
func (e *Evaluator) gotSender(f field.Field, v uint64) string {
	switch name := e.p.Senders.Name(f, v); {
	case f == field.Local && v == 1:
		return f.Info().Is
	case f == field.Local:
		return f.Info().IsNot
	case name != "":
		return "its " + f.Word() + " is " + name
	case f == field.UID || f == field.GID:
		return fmt.Sprintf("its %s is %d", f.Word(), v)
	}
	return "its " + f.Word() + " is none that rules name"
}

// valueText prints the field of a packet that has it; v is its number, where it is one.
func valueText(f field.Field, pkt *packet.Packet, v uint64) string {
	switch f {
	case field.SrcAddr, field.DstAddr:
		return address(f, pkt).String()
	case field.SrcService:
		return fmt.Sprintf("%s/%d", protoName(uint64(pkt.Proto)), pkt.SrcPort)
	case field.DstService:
		return fmt.Sprintf("%s/%d", protoName(uint64(pkt.Proto)), pkt.DstPort)
	case field.SrcEndpoint:
		return endpointText(pkt, pkt.Src, pkt.SrcPort)
	case field.DstEndpoint:
		return endpointText(pkt, pkt.Dst, pkt.DstPort)
	case field.TCPFlags:
		return flagNames(pkt.Flags)
	}
	return numberText(f, v)
}

func endpointText(pkt *packet.Packet, addr netip.Addr, port uint16) string {
	if !pkt.HasPorts() {
		return fmt.Sprintf("%s %s", addr, protoName(uint64(pkt.Proto)))
	}
	return fmt.Sprintf("%s %s/%d", addr, protoName(uint64(pkt.Proto)), port)
}

// layers lists the headers of a frame as far as the decoder went. It reads the bytes a second
// time, but only those that the decoder has found to be there.
func layers(frame []byte, p *packet.Packet) []Layer {
	if len(frame) < max(1, p.Link.Header()) {
		return []Layer{{Name: "bytes", Length: len(frame)}}
	}
	var ls []Layer
	if p.Link == packet.Ethernet {
		ls = ethernetLayers(frame, p)
	}
	switch {
	case p.Malformed == packet.TruncatedEthernet || p.Malformed == packet.VLANDepth:
		return ls
	case p.Family == packet.IPv4:
		ls = append(ls, ipLayer("IPv4", p, p.TransportOffset-p.NetworkOffset))
	case p.Family == packet.IPv6:
		ls = append(ls, ipLayer("IPv6", p, 40))
		ls = append(ls, extensionLayers(frame, p)...)
	case p.Malformed != packet.WellFormed:
		return append(ls, refusedIP(p, frame[p.NetworkOffset:]))
	default:
		return append(ls, Layer{Name: "payload", Offset: p.NetworkOffset,
			Length: len(frame) - p.NetworkOffset})
	}
	end := p.NetworkOffset + p.Len
	if l, ok := transportLayer(p, end); ok {
		ls = append(ls, l)
	} else if end > p.TransportOffset {
		ls = append(ls, Layer{Name: "payload", Offset: p.TransportOffset,
			Length: end - p.TransportOffset})
	}
	if end < len(frame) {
		ls = append(ls, Layer{Name: "padding", Offset: end, Length: len(frame) - end})
	}
	return ls
}

// ethernetLayers returns the Ethernet header and the tags.
func ethernetLayers(frame []byte, p *packet.Packet) []Layer {
	ls := []Layer{{Name: "Ethernet", Length: 14, Fields: []NamedValue{
		{"from", numberText(field.SrcMAC, p.SrcMAC)}, {"to", numberText(field.DstMAC, p.DstMAC)},
		{"type", fmt.Sprintf("0x%04x", binary.BigEndian.Uint16(frame[12:]))},
	}}}
	for i := range p.AllTags {
		off := 14 + 4*i
		tci := binary.BigEndian.Uint16(frame[off:])
		ls = append(ls, Layer{Name: "VLAN tag", Offset: off, Length: 4, Fields: []NamedValue{
			{"id", fmt.Sprint(tci & 0xfff)}, {"priority", fmt.Sprint(tci >> 13)},
			{"type", fmt.Sprintf("0x%04x", binary.BigEndian.Uint16(frame[off+2:]))},
		}})
	}
	if off := 14 + 4*p.AllTags; p.Carried {
		name := "PPPoE"
		if binary.BigEndian.Uint16(frame[off-2:]) != packet.EtherPPPoE {
			name = "MPLS"
		}
		ls = append(ls, Layer{Name: name, Offset: off, Length: p.NetworkOffset - off})
	}
	return ls
}

// refusedIP returns what stands in an IP header that the decoder refused; b starts with it.
func refusedIP(p *packet.Packet, b []byte) Layer {
	l := Layer{Name: "IP", Offset: p.NetworkOffset, Length: len(b)}
	switch p.EtherType {
	case packet.EtherIPv4:
		l.Name = "IPv4"
	case packet.EtherIPv6:
		l.Name = "IPv6"
	}
	l.Fields = []NamedValue{{"bytes here", fmt.Sprint(len(b))}}
	switch {
	case p.Malformed == packet.TruncatedIP:
	case l.Name == "IP":
		l.Fields = append(l.Fields, NamedValue{"version", fmt.Sprint(b[0] >> 4)})
	case p.EtherType == packet.EtherIPv6:
		l.Fields = append(l.Fields, NamedValue{"version", fmt.Sprint(b[0] >> 4)},
			NamedValue{"payload length", fmt.Sprint(binary.BigEndian.Uint16(b[4:]))})
	default:
		l.Fields = append(l.Fields, NamedValue{"version", fmt.Sprint(b[0] >> 4)},
			NamedValue{"header length", fmt.Sprint(int(b[0]&15) * 4)},
			NamedValue{"total length", fmt.Sprint(binary.BigEndian.Uint16(b[2:]))},
			NamedValue{"fragment offset",
				fmt.Sprint(int(binary.BigEndian.Uint16(b[6:])&0x1fff) * 8)})
	}
	return l
}

func ipLayer(name string, p *packet.Packet, length int) Layer {
	fields := []NamedValue{
		{"from", p.Src.String()}, {"to", p.Dst.String()}, {"len", fmt.Sprint(p.Len)},
		{"ttl", fmt.Sprint(p.TTL)}, {"dscp", fmt.Sprint(p.DSCP)},
	}
	if p.Malformed == packet.WellFormed || p.Malformed >= packet.TruncatedL4 ||
		p.Family == packet.IPv4 {
		fields = append(fields, NamedValue{"proto", protoName(uint64(p.Proto))})
	}
	if p.LaterFragment {
		fields = append(fields, NamedValue{"fragment", "later"})
	} else if p.Fragment {
		fields = append(fields, NamedValue{"fragment", "first"})
	}
	return Layer{Name: name, Offset: p.NetworkOffset, Length: length, Fields: fields}
}

var extensionNames = map[uint8]string{
	packet.ProtoHopByHop: "Hop-by-Hop", packet.ProtoRouting: "Routing",
	packet.ProtoFragment: "Fragment",
	packet.ProtoAH:       "Authentication", packet.ProtoDestOpts: "Destination Options",
	packet.ProtoMobility: "Mobility",
}

func extensionLayers(frame []byte, p *packet.Packet) []Layer {
	var ls []Layer
	next, off := frame[p.NetworkOffset+6], p.NetworkOffset+40
	for range p.ExtensionHeaders {
		size := 8 + int(frame[off+1])*8
		fields := []NamedValue{{"next", protoName(uint64(frame[off]))}}
		switch next {
		case packet.ProtoFragment:
			size = 8
			f := binary.BigEndian.Uint16(frame[off+2:])
			fields = append(fields, NamedValue{"offset", fmt.Sprint(f &^ 7)},
				NamedValue{"more", fmt.Sprint(f&1 == 1)})
		case packet.ProtoAH:
			size = 8 + int(frame[off+1])*4
		}
		ls = append(ls, Layer{Name: extensionNames[next], Offset: off, Length: size,
			Fields: fields})
		next, off = frame[off], off+size
	}
	return ls
}

func transportLayer(p *packet.Packet, end int) (Layer, bool) {
	l := Layer{Offset: p.TransportOffset, Length: end - p.TransportOffset,
		Name: strings.ToUpper(protoName(uint64(p.Proto)))}
	switch {
	case p.HasPorts():
		l.Fields = []NamedValue{{"from port", fmt.Sprint(p.SrcPort)},
			{"port", fmt.Sprint(p.DstPort)}}
		if p.Transport == packet.TCPTransport {
			l.Fields = append(l.Fields, NamedValue{"flags", flagNames(p.Flags)})
		}
	case p.Transport == packet.ICMPTransport || p.Transport == packet.ICMP6Transport:
		l.Fields = []NamedValue{{"type", fmt.Sprintf("%d/%d", p.Type, p.Code)}}
	default:
		return l, false
	}
	return l, true
}

// Headers returns the headers of a frame in one line, as far as the decoder goes. The frame has
// length bytes, of which the last may be missing.
func Headers(frame []byte, length int, link packet.Link) string {
	var pkt packet.Packet
	frame, _ = packet.Record{Data: frame, Length: length}.Whole(nil)
	link.Decode(frame, &pkt)
	var parts []string
	for _, l := range layers(frame, &pkt) {
		text := l.Name
		for _, f := range l.Fields {
			text += " " + f.Name + " " + f.Value
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}
