package oracle

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"levee/internal/packet"
)

// story prints a trace for comparing.
func story(tr Trace) string {
	var b strings.Builder
	for _, l := range tr.Layers {
		fmt.Fprintf(&b, "%d+%d %s", l.Offset, l.Length, l.Name)
		for _, f := range l.Fields {
			fmt.Fprintf(&b, " %s=%s", f.Name, f.Value)
		}
		b.WriteByte('\n')
	}
	for _, t := range tr.Tried {
		if t.Matched {
			fmt.Fprintf(&b, "%s matched: %s\n", t.Where, t.Text)
		} else {
			fmt.Fprintf(&b, "%s `%s`: %s\n", t.Where, t.Term, t.Got)
		}
	}
	return b.String() + tr.Why + "\n"
}

// tcp4Layers are the headers of a SYN of IPv4 to port 80.
const tcp4Layers = `0+14 Ethernet from=02:00:00:00:00:01 to=02:00:00:00:00:02 type=0x0800
14+20 IPv4 from=192.0.2.1 to=198.51.100.1 len=40 ttl=64 dscp=0 proto=tcp
34+20 TCP from port=40000 port=80 flags=syn
`

func TestExplain(t *testing.T) {
	tests := []struct{ name, policy, frame, want string }{
		{"a decision and the terms before it", `set nets = { 10.0.0.0/8 }
protect from nets
count udp
drop tcp port { 1, 3, 5, 7, 9 }
drop not syn
drop port > 1023
pass tcp port 80 as "web"
default drop
`, "tcp4", tcp4Layers + `test.levee:2 ` + "`from nets`" + `: source address is 192.0.2.1
test.levee:3 ` + "`proto udp`" + `: IP protocol is tcp
test.levee:4 ` + "`port { 1, 3, 5, 7, ... 1 more }`" + `: destination port is 80
test.levee:5 ` + "`not flags syn/fin,syn,rst,ack`" + `: TCP flags is syn
test.levee:6 ` + "`port 1024-65535`" + `: destination port is 80
test.levee:7 matched: pass tcp port 80 as "web"
pass: by "web" (test.levee:7)
`},
		{"a field that is not there", "drop icmp type 8\ndrop fragments port 80\ndefault pass\n", "later", `0+14 Ethernet from=02:00:00:00:00:01 to=02:00:00:00:00:02 type=0x86dd
14+40 IPv6 from=2001:db8::1 to=2001:db8:1::1 len=64 ttl=64 dscp=0 proto=udp fragment=later
54+8 Destination Options next=44
62+8 Fragment next=udp offset=1480 more=false
70+8 payload
test.levee:1 ` + "`icmp type 8`" + `: the packet has no ICMP type
test.levee:2 ` + "`port 80`" + `: the packet has no destination port
pass: no rule decided, so the default (test.levee:3)
`},
		{"connections and fragments", "drop fragments\ndrop established\npass not fragments " +
			"not established\ndefault drop\n", "tcp4", tcp4Layers +
			"test.levee:1 `fragments`: the packet is not a fragment\n" +
			"test.levee:2 `established`: the packet is of no known connection\n" +
			"test.levee:3 matched: pass not fragments not established\n" +
			"pass: by `pass not fragments not established` (test.levee:3)\n"},
		{"tags, padding and a built-in", "default drop\n", "arp", `0+14 Ethernet from=02:00:00:00:00:01 to=02:00:00:00:00:02 type=0x88a8
14+4 VLAN tag id=7 priority=0 type=0x8100
18+4 VLAN tag id=8 priority=0 type=0x0806
22+28 payload
essential:arp matched: arp
pass: by essential:arp
`},
		{"malformed", "drop tcp\ndefault pass\n", "cut", `0+14 Ethernet from=02:00:00:00:00:01 to=02:00:00:00:00:02 type=0x0800
14+20 IPv4 bytes here=20 version=4 header length=20 total length=40 fragment offset=0
drop: malformed (ip-length), and no rule says ` + "`pass malformed`" + `
`},
		{"malformed, and a rule for it", "drop tcp\npass malformed\ndefault drop\n", "short", `0+13 bytes
test.levee:2 matched: pass malformed
pass: malformed (truncated-ethernet), decided by ` + "`pass malformed`" + ` (test.levee:2)
`},
	}
	tcp := build(t, packet.Spec{Flags: new(uint8(packet.SYN)), ToPort: new(uint16(80))})
	frames := map[string][]byte{
		"tcp4": tcp,
		"later": build(t, packet.Spec{Family: packet.IPv6, ToPort: new(uint16(80)),
			Frag: new(uint16(185)), Options: true, Len: new(64)}),
		"arp": build(t, packet.Spec{Family: packet.ARP, VLAN: new(uint16(7)),
			InnerVLAN: new(uint16(8))}),
		"cut":   tcp[:34],
		"short": tcp[:13],
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := story(New(parse(t, tt.policy)).Explain(frames[tt.frame]))
			if got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

// Terms about bytes and tunnels say what is there in place of what they ask for.
func TestExplainBytesAndTunnels(t *testing.T) {
	const p = "drop udp port 4789 inner( tcp )\ndrop udp port 4789 not inner( udp )\n" +
		"drop udp payload at 1 ff\ndrop udp payload at 200 00\n" +
		"drop udp payload contains \"x\"\n" +
		"drop udp not payload contains /[\\x01-\\xff]/ any case\ndefault pass\n"
	vxlan := packet.Spec{Proto: new(uint8(packet.ProtoUDP)), ToPort: new(uint16(4789)),
		Inner: &packet.Spec{ToPort: new(uint16(90))}}
	plain := packet.Spec{ToPort: new(uint16(4789)), Payload: []byte{1, 2, 3}}
	for _, tt := range []struct {
		name string
		spec packet.Spec
		want [6]string
	}{
		{"a tunnel", vxlan, [6]string{"the inner packet is another",
			"the inner packet is one of these", "payload at 1 is 00",
			"payload ends after 50 bytes", "the payload of 50 bytes does not contain it",
			"the payload contains it"}},
		{"none", plain, [6]string{"the packet has no inner packet",
			"the packet has no inner packet", "payload at 1 is 02",
			"payload ends after 3 bytes", "the payload of 3 bytes does not contain it",
			"the payload contains it"}},
	} {
		tr := New(parse(t, p)).Explain(build(t, tt.spec))
		for i, want := range tt.want {
			if i >= len(tr.Tried) || tr.Tried[i].Got != want {
				t.Errorf("%s: rule %d: got %+v, want %q", tt.name, i, tr.Tried, want)
			}
		}
	}
}

// A term about connections says what the story knew of the packet, not what its bytes tell.
func TestExplainKnownConnection(t *testing.T) {
	e := New(parse(t, "drop not established\npass established\ndefault drop\n"))
	client, server := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("198.51.100.1")
	udp := packet.Spec{From: client, To: server, FromPort: new(uint16(53)),
		ToPort: new(uint16(40000))}
	out := packet.Spec{From: server, To: client, FromPort: new(uint16(40000)),
		ToPort: new(uint16(53))}
	e.Leave(build(t, out))
	tr := e.Explain(build(t, udp))
	if got, want := tr.Tried[0].Got, "the packet is of a known connection"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := tr.Tried[0].Term, "not established"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The ACK that completes a handshake comes from a source that is proven by it, and so does what the
// source sends else.
func TestExplainProvenSource(t *testing.T) {
	e := New(parse(t, "count tcp established\ndrop proven\npass not proven\ndefault drop\n"))
	client, server := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("198.51.100.1")
	ack := packet.Spec{From: client, To: server, FromPort: new(uint16(40000)),
		ToPort: new(uint16(80)), Flags: new(uint8(packet.ACK))}
	udp := packet.Spec{From: client, To: server, FromPort: new(uint16(9)), ToPort: new(uint16(9))}
	tr := e.Explain(build(t, udp))
	if got, want := tr.Tried[1].Got, "its source has not proven itself"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	e.Leave(build(t, packet.Spec{From: server, To: client, FromPort: ack.ToPort,
		ToPort: ack.FromPort, Flags: new(uint8(packet.SYN | packet.ACK)),
		Fields: []packet.FieldValue{{Word: "seq", Value: 5}}}))
	ack.Fields = []packet.FieldValue{{Word: "ack-number", Value: 6}}
	for _, s := range []packet.Spec{ack, udp} {
		if tr := e.Explain(build(t, s)); !tr.Tried[1].Matched {
			t.Errorf("%+v", tr.Tried)
		}
	}
	e = New(parse(t, "count tcp established\ndrop not proven\ndefault pass\n"))
	e.cookies.proven[client] = e.now().Add(provenFor)
	tr = e.Explain(build(t, udp))
	if got, want := tr.Tried[1].Got, "its source has proven itself"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := tr.Tried[1].Term, "not proven"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Explain reads frames a second time: none may make it go wrong, nor judge otherwise than Eval.
func FuzzExplain(f *testing.F) {
	for _, frame := range packets(f) {
		f.Add(frame)
	}
	e := New(parse(f,
		"count tcp port 80\ndrop from 192.0.2.0/24 port > 1023\npass icmp6 type 135\npass "+
			"malformed\ndefault drop\n"))
	f.Fuzz(func(t *testing.T, frame []byte) {
		tr := e.Explain(frame)
		if r := e.Eval(frame); r.Slot != tr.Result.Slot || r.Action != tr.Result.Action {
			t.Fatalf("Eval: %+v, Explain: %+v", r, tr.Result)
		}
		for _, l := range tr.Layers {
			if l.Offset < 0 || l.Length < 0 || l.Offset+l.Length > len(frame) {
				t.Fatalf("layer %+v of a frame of %d bytes", l, len(frame))
			}
		}
	})
}

// The line of a limit said of each packet only that it matches, also of one that it dropped.
func TestTheStoryOfALimitSaysWhatItDidWithThePacket(t *testing.T) {
	e := New(parse(t, "limit tcp rate 1/s burst 5 by source as \"few\"\ndefault pass\n"))
	now := time.Now()
	e.SetClock(func() time.Time { return now })
	frame := build(t, packet.Spec{Flags: new(uint8(packet.SYN)), ToPort: new(uint16(80))})
	for range 5 {
		tr := e.Explain(frame)
		if got := tr.Tried[0].Effect; got != "goes on: it is within the rate" {
			t.Fatalf("%q", got)
		}
	}
	tr := e.Explain(frame)
	if got := tr.Tried[0].Effect; got != "is dropped: it is above the rate" {
		t.Errorf("%q", got)
	}
	if want := `drop: above the rate of "few" (test.levee:1)`; tr.Why != want {
		t.Errorf("%q, want %q", tr.Why, want)
	}
}
