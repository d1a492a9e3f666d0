package probe

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/bpf"

	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
	"levee/internal/packet"
)

// twoFamilies is a plan for three addresses, two of which are confirmed.
func twoFamilies(t *testing.T) *plan {
	t.Helper()
	p := &plan{cookies: newCookies(Key{7, 8})}
	o, ds := parseOwned("mine", `198.51.100.0/30 of "A" by "ssh b"
2001:db8::7 of "A" by "ssh b"
`)
	if o == nil {
		t.Fatal(ds.Err())
	}
	p.addrs = o.Addresses()
	p.from = [2]netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8:9::1")}
	p.seenAs = p.from
	for proto, words := range map[uint8]string{packet.ProtoTCP: "22-25,80",
		packet.ProtoUDP: "53,123,3478,9"} {
		s, err := ParseServices(proto, strings.Split(words, ","))
		if err != nil {
			t.Fatal(err)
		}
		p.services = append(p.services, s...)
	}
	slices.SortFunc(p.services, compareServices)
	of := parsePolicy(t, "pass tcp port 20-30\npass udp port { 7, 53 }\npass icmp\n"+
		"pass icmp6 type 128\ndrop tcp flags fin,urg/fin,urg,ack,syn\ndefault drop\n")
	p.confirm(func(n int) bool { return n != 1 })
	p.addCanaries(func(netip.Addr) *policy.Policy { return of })
	for family, addrs := range [][]netip.Addr{{p.addrs[0].Addr}, {p.addrs[2].Addr}} {
		text := "pass tcp port 20-30\npass udp port { 7, 53 }\npass icmp\npass icmp6 type 128\n" +
			"drop tcp flags fin,urg/fin,urg,ack,syn\ndefault drop\n"
		if _, err := p.addClasses("x.levee", []byte(text), nil, of, family, addrs); err != nil {
			t.Fatal(err)
		}
	}
	p.index()
	return p
}

func parsePolicy(t *testing.T, text string) *policy.Policy {
	t.Helper()
	p, ds := resolve.Parse("x.levee", []byte(text), nil)
	if p == nil {
		t.Fatal(ds.Err())
	}
	return p
}

// TestAnAnswerFindsItsProbe, whatever the probe was and in whatever form it is answered; and no
// answer from elsewhere, to elsewhere or with another number does.
func TestAnAnswerFindsItsProbe(t *testing.T) {
	p := twoFamilies(t)
	if len(p.classes) < 12 {
		t.Fatalf("only %d classes", len(p.classes))
	}
	ours := func(a netip.Addr) bool { return a == p.from[six(a)] }
	left := func(port uint16) bool { return port >= firstPort || slices.Contains(p.ports, port) }
	answers := 0
	for n := range p.total() {
		for try := range mostTries {
			_, ip, err := build(p.spec(n, try))
			if err != nil {
				t.Fatalf("probe %d: %v", n, err)
			}
			for form, reply := range repliesTo(t, ip) {
				a, ok := read(reply, ours, left)
				if !ok {
					t.Fatalf("probe %d (%+v): %s is not read", n, p.target(n), form)
				}
				got, ok := p.number(&a.known)
				isClass := p.target(n).kind == aClass
				if isChallenge := p.target(n).kind == aChallenge; isChallenge {
					continue // what comes back for it says nothing
				}
				if !ok || got.number != n || !isClass && got.try != try {
					t.Fatalf("probe %d, try %d (%+v): %s is for %v, %v", n, try, p.target(n),
						form, got, ok)
				}
				answers++
				if f := a.known; f.proto == packet.ProtoTCP {
					for i := range f.seqs {
						f.seqs[i] ^= 0x5a5a0000
					}
					if got, ok := p.number(&f); ok {
						t.Errorf("probe %d: a forged number is one of %v", n, got)
					}
				}
				f := a.known
				f.to = f.to.Next()
				if got, ok := p.number(&f); ok && got.number == n {
					t.Errorf("probe %d: another address answers for it", n)
				}
				if _, ok := read(reply, func(netip.Addr) bool { return false }, left); ok {
					t.Errorf("probe %d: %s for somebody else is read", n, form)
				}
			}
		}
	}
	if answers < 300 {
		t.Errorf("only %d answers", answers)
	}
}

// repliesTo returns the replies of a host or a router to a packet, by their kind.
func repliesTo(t *testing.T, ip []byte) map[string][]byte {
	t.Helper()
	var p packet.Packet
	packet.L3.Decode(ip, &p)
	if p.Malformed != packet.WellFormed {
		t.Fatalf("a malformed probe: %v", p.Malformed)
	}
	l4 := ip[p.TransportOffset:]
	out := map[string][]byte{}
	add := func(form string, s packet.Spec) {
		s.From, s.To = p.Dst, p.Src
		_, reply, err := build(s)
		if err != nil {
			t.Fatal(err)
		}
		out[form] = reply
	}
	switch p.Transport {
	case packet.TCPTransport:
		seq, ack := binary.BigEndian.Uint32(l4[4:]), binary.BigEndian.Uint32(l4[8:])
		s := packet.Spec{FromPort: &p.DstPort, ToPort: &p.SrcPort}
		if p.Flags&packet.ACK != 0 {
			s.Flags, s.Fields = new(uint8(packet.RST)), []packet.FieldValue{{Word: "seq",
				Value: uint64(ack)}}
			add("a reset", s)
			break
		}
		end := seq
		if p.Flags&packet.SYN != 0 {
			end++
			s.Flags = new(uint8(packet.SYN | packet.ACK))
			s.Fields = []packet.FieldValue{{Word: "ack-number", Value: uint64(end)}}
			add("an acceptance", s)
		}
		if p.Flags&packet.FIN != 0 {
			end++
		}
		s.Flags = new(uint8(packet.RST | packet.ACK))
		s.Fields = []packet.FieldValue{{Word: "ack-number", Value: uint64(end)}}
		add("a refusal", s)
	case packet.ICMPTransport, packet.ICMP6Transport:
		s := packet.Spec{Type: new(uint8(0)), Fields: []packet.FieldValue{
			{Word: "icmp-id", Value: uint64(binary.BigEndian.Uint16(l4[4:]))},
			{Word: "icmp-seq", Value: uint64(binary.BigEndian.Uint16(l4[6:]))}}}
		if p.Src.Is6() {
			s.Type = new(uint8(129))
		}
		add("an echo", s)
	}
	if p.Proto == packet.ProtoUDP {
		add("a datagram", packet.Spec{FromPort: &p.DstPort, ToPort: &p.SrcPort,
			Payload: answerTo(p.DstPort, l4[8:])})
	}
	unreachable := packet.Spec{Type: new(uint8(3)), Code: 3, Payload: ip[:min(len(ip),
		p.TransportOffset+8)]}
	if p.Src.Is6() {
		unreachable.Type, unreachable.Code, unreachable.Payload = new(uint8(1)), 4, ip
	}
	add("an error", unreachable)
	return out
}

// answerTo returns the answer of a service of DNS, NTP or STUN, and else anything.
func answerTo(port uint16, asked []byte) []byte {
	b := bytes.Clone(asked)
	switch {
	case port == 53 && len(b) > 12:
		b[2], b[3] = 0x81, 0x83 // no such name
	case port == 123 && len(b) == 48:
		b[0] = 4<<3 | 4
		copy(b[24:], asked[40:])
		clear(b[40:])
	case port == 3478 && len(b) == 20:
		b[0] = 1
	default:
		return []byte("answer")
	}
	return b
}

// TestADatagramThatRepeatsNothingWasAnAnswer: whoever sent one to each of 4,096 ports in the name
// of a target had a port of DNS, NTP or STUN called open, without seeing what was asked.
func TestADatagramThatRepeatsNothingWasAnAnswer(t *testing.T) {
	p := twoFamilies(t)
	ours := func(a netip.Addr) bool { return a == p.from[six(a)] }
	left := func(port uint16) bool { return port >= firstPort }
	seen := 0
	for n := range p.total() {
		at := p.target(n)
		if at.kind != aService || at.Proto != packet.ProtoUDP || at.Port == 9 {
			continue
		}
		seen++
		_, ip, err := build(p.spec(n, 0))
		if err != nil {
			t.Fatal(err)
		}
		var d packet.Packet
		packet.L3.Decode(ip, &d)
		asked := ip[d.TransportOffset+8:]
		refused := bytes.Clone(asked[:12]) // by DNS, without the question
		refused[2], refused[3], refused[5] = 0x80, 1, 0
		_, other, err := build(p.spec(n, 1))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			name    string
			payload []byte
			is      bool
		}{
			{"answer", answerTo(at.Port, asked), true},
			{"refused", refused, at.Port == 53},
			{"question", asked, true},
			{"of another try", answerTo(at.Port, other[len(other)-len(asked):]), false},
			{"cut", answerTo(at.Port, asked)[:8], false},
			{"empty", nil, false},
			{"anything", make([]byte, 48), false},
		} {
			_, reply, err := build(packet.Spec{From: d.Dst, To: d.Src, FromPort: &d.DstPort,
				ToPort: &d.SrcPort, Proto: &d.Proto, Payload: c.payload})
			if err != nil {
				t.Fatal(err)
			}
			a, ok := read(reply, ours, left)
			if !ok {
				t.Fatalf("%v, %s: it is not read", at.Service, c.name)
			}
			if got, ok := p.number(&a.known); ok != c.is || ok && got.number != n {
				t.Errorf("%v, %s: %v, %v", at.Service, c.name, got, ok)
			}
		}
	}
	if seen != 6 {
		t.Errorf("%d questions", seen)
	}
}

// TestAMarkSurvivesNAT: a witness knows a probe whose addresses and ports were translated.
func TestAMarkSurvivesNAT(t *testing.T) {
	p := twoFamilies(t)
	seen := map[uint64]string{}
	for n := range p.total() {
		for try := range mostTries {
			s := p.spec(n, try)
			_, ip, err := build(s)
			if err != nil {
				t.Fatal(err)
			}
			var d packet.Packet
			packet.L3.Decode(ip, &d)
			mark := p.key.mark(ip, &d)
			name := fmt.Sprintf("probe %d, try %d", n, try)
			if with, twice := seen[mark]; twice || mark == 0 {
				t.Errorf("%s has the mark %x, as %s", name, mark, with)
			}
			seen[mark] = name
			s.From, s.To = s.From.Next(), s.To.Next()
			if packet.HasPorts(s.Protocol()) {
				s.FromPort, s.ToPort = new(uint16(1)), new(uint16(2))
			}
			if _, ip, err = build(s); err != nil {
				t.Fatal(err)
			}
			packet.L3.Decode(ip, &d)
			if got := p.key.mark(ip, &d); got != mark {
				t.Errorf("%s has another mark behind NAT", name)
			}
		}
	}
}

// TestCanariesArePassed where the policy passes any port: others tell nothing of what is behind.
func TestCanariesArePassed(t *testing.T) {
	p := twoFamilies(t)
	if len(p.canary) != 2*len(p.confirmed) {
		t.Fatalf("%d canaries", len(p.canary))
	}
	for _, port := range p.canary {
		if port < 20 || port > 30 || port >= 22 && port <= 25 {
			t.Errorf("port %d is asked for, or not passed", port)
		}
	}
}

// TestNothingIsSentToWhatIsExcluded, nor to networks and broadcasts.
func TestNothingIsSentToWhatIsExcluded(t *testing.T) {
	o, ds := parseOwned("mine", `198.51.100.0/28 of "A" by "ssh b" on eth0
exclude 198.51.100.4/30
exclude 198.51.100.1`)
	if o == nil {
		t.Fatal(ds.Err())
	}
	var got []string
	for _, a := range o.Addresses() {
		got = append(got, strings.TrimPrefix(a.String(), "198.51.100."))
	}
	if want := "2 3 8 9 10 11 12 13 14"; strings.Join(got, " ") != want {
		t.Errorf("%v, want %s", got, want)
	}
}

// FuzzRead: nothing that comes in has the reader fail, or take what is not for this machine.
func FuzzRead(f *testing.F) {
	us := netip.MustParseAddr("192.0.2.1")
	for _, s := range []packet.Spec{
		{From: us.Next(), To: us, Flags: new(uint8(packet.SYN | packet.ACK)),
			ToPort: new(uint16(firstPort))},
		{From: us.Next(), To: us, ToPort: new(uint16(firstPort))},
		{From: us.Next(), To: us, Type: new(uint8(3)), Payload: make([]byte, 28)},
	} {
		_, ip, err := build(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(ip)
	}
	f.Fuzz(func(t *testing.T, ip []byte) {
		a, ok := read(ip, func(to netip.Addr) bool { return to == us },
			func(uint16) bool { return true })
		if ok && (a.kind == silent || !a.from.IsValid() || !a.known.to.IsValid()) {
			t.Errorf("%+v", a)
		}
	})
}

// FuzzOwned: no file has the reader fail, nor more addresses than may be.
func FuzzOwned(f *testing.F) {
	f.Add("198.51.100.0/24 of \"A\" by \"ssh b\" on eth0 # x\nexclude 198.51.100.13\n")
	f.Fuzz(func(t *testing.T, text string) {
		o, ds := parseOwned("mine", text)
		if (o == nil) != ds.HasErrors() {
			t.Fatal("neither prefixes nor errors")
		}
		if o != nil && (len(o.Addresses()) == 0 || len(o.Addresses()) > mostAddresses) {
			t.Fatalf("%d addresses", len(o.Addresses()))
		}
	})
}

// TestTheFilterTakesAnswers: of what comes in, ICMP and what is for ports of probes.
func TestTheFilterTakesAnswers(t *testing.T) {
	filter := answersTo([]uint16{53, 67})
	if _, err := bpf.Assemble(filter); err != nil {
		t.Fatal(err)
	}
	us := [2]netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
	for _, to := range us {
		for _, c := range []struct {
			s     packet.Spec
			taken bool
		}{
			{packet.Spec{ToPort: new(uint16(firstPort))}, true},
			{packet.Spec{ToPort: new(uint16(0xffff)), Flags: new(uint8(packet.RST))}, true},
			{packet.Spec{ToPort: new(uint16(67))}, true},
			{packet.Spec{ToPort: new(uint16(53)), Flags: new(uint8(packet.RST))}, true},
			{packet.Spec{ToPort: new(uint16(68))}, false},
			{packet.Spec{ToPort: new(uint16(firstPort - 1))}, false},
			{packet.Spec{Type: new(uint8(0))}, true},
			{packet.Spec{Proto: new(uint8(packet.ProtoGRE))}, false},
		} {
			c.s.From, c.s.To = to.Next(), to
			frame, ip, err := build(c.s)
			if err != nil {
				t.Fatal(err)
			}
			// The machine of package bpf does not know protocols of frames: it loads them.
			for i := range filter {
				if _, is := filter[i].(bpf.LoadExtension); is {
					filter[i] = bpf.LoadConstant{Dst: bpf.RegA,
						Val: uint32(binary.BigEndian.Uint16(frame[12:]))}
				} else if _, is := filter[i].(bpf.LoadConstant); is {
					filter[i] = bpf.LoadConstant{Dst: bpf.RegA,
						Val: uint32(binary.BigEndian.Uint16(frame[12:]))}
				}
			}
			vm, err := bpf.NewVM(filter)
			if err != nil {
				t.Fatal(err)
			}
			if n, err := vm.Run(ip); err != nil || (n > 0) != c.taken {
				t.Errorf("%+v: %d, %v; taken is to be %v", c.s, n, err, c.taken)
			}
		}
	}
}
