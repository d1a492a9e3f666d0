package profile

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"levee/internal/dataplane/judge"
	"levee/internal/kernel"
	"levee/internal/lang/action"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
	"levee/internal/packet"
	"levee/profiles"
)

// recording is an exchange of real clients and servers: one of levee's by what recorded it, in
// profiles/captures, or one of others where it is at hand, in LEVEE_DATA.
type recording struct {
	file   string
	policy string
	ports  []uint16 // of the services
	proves bool     // some packet of a client's proves it
}

var recorded = []recording{
	{"wireguard-go.pcap", "use wireguard", []uint16{51820}, true},
	{"openvpn-plain.pcap", "use openvpn", []uint16{1194}, true},
	{"openvpn-tls-auth-sha1.pcap", "use openvpn", []uint16{1194}, true},
	{"openvpn-tls-auth-sha256.pcap", "use openvpn", []uint16{1194}, true},
	{"openvpn-tls-auth-sha512.pcap", "use openvpn", []uint16{1194}, true},
	// The identifier is encrypted.
	{"openvpn-tls-crypt.pcap", "use openvpn", []uint16{1194}, false},
	{"openvpn-tls-crypt-v2.pcap", "use openvpn", []uint16{1194}, false},
	{"raknet-go.pcap", "use raknet", []uint16{19132}, true},
	{"enet.pcap", "use fivem", []uint16{30120}, false}, // of which FiveM's sessions are
	{"quic-go-retry.pcap", "use quic", []uint16{443}, true},
	// quic-go takes an ID that nobody else has seen as soon as it is given one.
	{"quic-go-zero.pcap", "use quic", []uint16{443}, false},
	{"dtls-openssl.pcap", dtlsPolicy, []uint16{4433}, true},
	{"ikev2-libreswan.pcap", ikePolicy, []uint16{500}, true},
	{"protocols/quic-29.pcap", "use quic", []uint16{443}, true},
	{"protocols/quic-34.pcap", "use quic port 4443", []uint16{4443}, false}, // one Initial
	{"streams/quic-tls-handshake.pcapng", "use quic", []uint16{443}, false}, // one Initial
	// Without cookies.
	{"protocols/raknet.pcap", "use raknet port 60030", []uint16{60030}, false},
	{"protocols/source_engine.pcap", "use source-engine", []uint16{27015}, false},
	// Without a handshake.
	{"protocols/mullvad_wireguard.pcap", "use wireguard port 5060", []uint16{5060}, false},
	{"protocols/openvpn.pcap", "use openvpn port { 443, 1194, 1234, 13680 }",
		[]uint16{443, 1194, 1234, 13680}, true},
	{"protocols/sip.pcap", "use sip", []uint16{5060}, false},
	// But for that of a client of a server of media, which has DTLS at the same port.
	{"protocols/stun.pcap", "use turn", []uint16{3478}, false},
	{"protocols/ssh.pcap", "use ssh", []uint16{22}, false},
	{"streams/ssh2.pcapng", "use ssh", []uint16{22}, false},
	{"protocols/dns.pcap", "use dns-authoritative", []uint16{53}, false},
	{"protocols/dns_fragmented.pcap", "use dns-authoritative", []uint16{53}, false},
	{"protocols/dns_long_domainname.pcap", "use dns-authoritative", []uint16{53}, false},
}

// Policies for what has no profile, as docs/reference/profiles.md has them.
const (
	dtlsPolicy = `prove "dtls" udp port 4433 reply payload at 0 16 payload at 13 03 ` +
		`echo 16 bytes at 28 in request at 61, 93
pass udp port 4433 proven flow as "proven"
pass udp port 4433 as "stranger"`
	ikePolicy = `prove "ike" udp port 500 reply payload at 16 29 payload at 34 4006 ` +
		`echo 8 bytes at 36 in request at 36
pass udp port 500 proven flow as "proven"
pass udp port 500 as "stranger"`
)

// TestRecordedClientsAreServed replays exchanges: each packet of a client's passes, and those
// behind the proof as proven. The same packets from another port, where no answer went, prove
// nobody.
func TestRecordedClientsAreServed(t *testing.T) {
	for _, r := range recorded {
		t.Run(filepath.Base(r.file), func(t *testing.T) {
			t.Parallel()
			p, all := r.policyOf(t), r.conversation(t)
			engine := judge.Both
			if os.Getuid() != 0 || kernel.Privileged() != nil {
				engine = judge.Oracle
			}
			if got := replay(t, p, all, engine); slices.Contains(got, "proven") != r.proves {
				t.Errorf("packets are decided by %q", got)
			}
			alone := slices.DeleteFunc(slices.Clone(all), func(m message) bool { return m.reply })
			if got := judged(t, p, alone, judge.Oracle); slices.Contains(labels(p, got), "proven") {
				t.Errorf("a replay where no answer goes is decided by %q", labels(p, got))
			}
		})
	}
}

// TestConversationsTakeAnotherTurn: what clients and networks do besides what was recorded loses
// nobody a packet, and who is proven by the exchange is so in another family, and a second time.
func TestConversationsTakeAnotherTurn(t *testing.T) {
	const wait = time.Hour
	for _, r := range recorded {
		if strings.Contains(r.file, "ssh") || strings.Contains(r.file, "dns") {
			continue // of TCP, or a query and its answer
		}
		t.Run(filepath.Base(r.file), func(t *testing.T) {
			t.Parallel()
			p, all := r.policyOf(t), r.conversation(t)
			middle := all[len(all)/2].at
			first := all[0].later(-time.Second)
			for _, c := range []struct {
				name   string
				turn   []message
				proves bool
			}{
				{"over the other family", changed(all, message.otherFamily), r.proves},
				{"the first packet is said twice", slices.Concat([]message{first}, all), r.proves},
				{"the router takes another port in between", changed(all,
					func(m message) message {
						if m.at.After(middle) {
							return m.moved(1)
						}
						return m
					}), false},
				{"nothing is said for an hour in between", changed(all, func(m message) message {
					if m.at.After(middle) {
						return m.later(wait)
					}
					return m
				}), false},
				{"the same ports once more, as the server begins anew", slices.Concat(all,
					changed(all, func(m message) message { return m.later(wait) })), r.proves},
				{"the same at once, as the client begins anew", slices.Concat(all,
					changed(all, func(m message) message {
						return m.later(all[len(all)-1].at.Sub(all[0].at))
					})), r.proves},
				{"the server ends in the middle, and is there again later", slices.Concat(
					slices.DeleteFunc(slices.Clone(all), func(m message) bool {
						return m.reply && m.at.After(middle)
					}), changed(all, func(m message) message { return m.later(wait) })), r.proves},
				{"with options of IP", changed(all, message.withOptions), r.proves},
				{"with options of IP, over the other family", changed(all,
					func(m message) message { return m.otherFamily().withOptions() }), r.proves},
				{"from the port of the service", changed(all, message.fromItsPort), r.proves},
				{"another client behind the same router", besides(all, changed(all,
					func(m message) message { return m.moved(1).later(time.Millisecond) })),
					r.proves},
				{"the first packet is said twice, longer at first", slices.Concat(
					[]message{first.longer(100)}, all), r.proves},
				{"the second bit of QUIC is cleared at another port", changed(all,
					func(m message) message {
						if m.at.After(middle) && strings.HasPrefix(r.policy, "use quic") {
							return m.moved(1).cleared()
						}
						return m
					}), false},
			} {
				got := replay(t, p, c.turn, judge.Oracle)
				if t.Failed() {
					t.Fatal(c.name)
				}
				if c.proves && !slices.Contains(got, "proven") {
					t.Errorf("%s: packets are decided by %q", c.name, got)
				}
			}
		})
	}
}

// TestRecordedClientsComeAgain: where a flood has strangers come again, each packet of a client
// passes at the third try, a second later each time, if not before.
func TestRecordedClientsComeAgain(t *testing.T) {
	const again, most = 1100 * time.Millisecond, 2
	const before, flood = 3 * time.Second, 50 * time.Millisecond
	for _, r := range recorded {
		text, err := profiles.Text(strings.Fields(r.policy)[1])
		if err != nil || !bytes.Contains(text, []byte("parameter first ")) {
			continue
		}
		t.Run(filepath.Base(r.file), func(t *testing.T) {
			t.Parallel()
			r.policy += " first 1/s"
			p, all := r.policyOf(t), r.conversation(t)
			j, err := judge.New(p, judge.Oracle)
			if err != nil {
				t.Fatal(err)
			}
			defer j.Close()
			first := all[slices.IndexFunc(all, func(m message) bool { return !m.reply })]
			at := all[0].at.Add(-before)
			waits, tries := map[netip.AddrPort]time.Duration{}, map[netip.AddrPort]int{}
			for port := uint16(2); len(all) > 0; {
				if next := all[0].at.Add(waits[all[0].client()]); next.After(at) {
					if at.Before(next.Add(-before)) {
						at = next.Add(-before)
					}
					j.At(at)
					if _, err := j.Frame(first.moved(port).frame); err != nil {
						t.Fatal(err)
					}
					at, port = at.Add(flood), port+1
					continue
				}
				m, who := all[0], all[0].client()
				j.At(m.at.Add(waits[who]))
				if m.reply {
					if _, err := j.Leave(m.frame); err != nil {
						t.Fatal(err)
					}
				} else if v, err := j.Frame(slices.Clone(m.frame)); err != nil {
					t.Fatal(err)
				} else if v.Action != action.Pass {
					if tries[who]++; tries[who] > most {
						t.Fatalf("packet %d of %v is decided by %q", m.number, who,
							p.LabelOf(p.Slots()[v.Slot]))
					}
					waits[who] += again
					slices.SortStableFunc(all, func(a, b message) int {
						return a.at.Add(waits[a.client()]).Compare(b.at.Add(waits[b.client()]))
					})
					continue
				} else {
					tries[who] = 0
				}
				all = all[1:]
			}
		})
	}
}

// client returns the origin of a client's packets.
func (m message) client() netip.AddrPort {
	var p packet.Packet
	packet.Decode(m.frame, &p)
	if m.reply {
		return netip.AddrPortFrom(p.Dst, p.DstPort)
	}
	return netip.AddrPortFrom(p.Src, p.SrcPort)
}

// message is a packet of a conversation.
type message struct {
	at     time.Time
	frame  []byte
	reply  bool // of the service
	number int  // in its file
}

func (m message) later(by time.Duration) message {
	m.at = m.at.Add(by)
	return m
}

func changed(all []message, change func(message) message) (out []message) {
	for _, m := range all {
		out = append(out, change(m))
	}
	return out
}

// moved is the packet with the client at another port.
func (m message) moved(by uint16) message {
	return m.anew(func(s *packet.Spec) {
		if port := s.FromPort; m.reply {
			s.ToPort = new(*s.ToPort + by)
		} else {
			s.FromPort = new(*port + by)
		}
	})
}

// otherFamily is the packet over IPv6 if it was over IPv4, and the other way around.
func (m message) otherFamily() message {
	other := func(a netip.Addr) netip.Addr {
		b := a.As16()
		if a.Is6() {
			return netip.AddrFrom4([4]byte{198, b[1], b[14], b[15]})
		}
		copy(b[:], []byte{0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0})
		return netip.AddrFrom16(b)
	}
	return m.anew(func(s *packet.Spec) { s.From, s.To = other(s.From), other(s.To) })
}

// withOptions is the packet with options that mean nothing: of IPv4, or in a header of IPv6, which
// has a flow label then.
func (m message) withOptions() message {
	return m.anew(func(s *packet.Spec) {
		s.Options = true
		if s.To.Is6() {
			s.Fields = []packet.FieldValue{{Word: "flow-label", Value: 0x5a5a5}}
		}
	})
}

// fromItsPort is the packet with the client at the port of the service.
func (m message) fromItsPort() message {
	return m.anew(func(s *packet.Spec) {
		if m.reply {
			s.ToPort = s.FromPort
		} else {
			s.FromPort = s.ToPort
		}
	})
}

// longer is the packet with n more bytes behind it.
func (m message) longer(n int) message {
	return m.anew(func(s *packet.Spec) { s.Payload = slices.Concat(s.Payload, make([]byte, n)) })
}

// cleared is the packet with the second bit of its payload cleared, as RFC 9287 has peers of QUIC
// do.
func (m message) cleared() message {
	return m.anew(func(s *packet.Spec) {
		s.Payload = slices.Clone(s.Payload)
		s.Payload[0] &^= 0x40
	})
}

// besides is two conversations at the same time.
func besides(a, b []message) []message {
	all := slices.Concat(a, b)
	slices.SortStableFunc(all, func(x, y message) int { return x.at.Compare(y.at) })
	return all
}

// anew is the packet of UDP with something else in it; others stay.
func (m message) anew(change func(*packet.Spec)) message {
	var p packet.Packet
	packet.Decode(m.frame, &p)
	if p.Proto != packet.ProtoUDP || p.Transport != packet.PortTransport {
		return m
	}
	const header = 8
	at := p.TransportOffset + header
	s := packet.Spec{Proto: &p.Proto, From: p.Src, To: p.Dst, FromPort: &p.SrcPort,
		ToPort: &p.DstPort, Payload: m.frame[at : at+p.UDPPayload]}
	change(&s)
	frame, err := packet.Build(s)
	if err != nil {
		panic(err) // a packet of the same length
	}
	m.frame = frame
	return m
}

// noTURN is the port of a client that is none of TURN, in a capture of it.
const noTURN = 49153

func dataDir() string {
	if dir := os.Getenv("LEVEE_DATA"); dir != "" {
		return dir
	}
	return "../../../shared/data"
}

// conversation reads what goes between services at some ports and their clients, over TCP or over
// UDP.
func (r *recording) conversation(t *testing.T) (all []message) {
	t.Helper()
	path := filepath.Join("../../profiles/captures", r.file)
	if strings.Contains(r.file, "/") {
		path = filepath.Join(dataDir(), r.file)
		if _, err := os.Stat(path); err != nil {
			t.Skip("this capture is not at hand")
		}
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c, err := packet.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	services := map[netip.AddrPort]bool{} // of some protocols the client has the same port
	clients := map[netip.AddrPort]bool{}
	for {
		rec, err := c.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		var p packet.Packet
		packet.Decode(rec.Data, &p)
		if (p.Transport == packet.TCPTransport) != (r.policy == "use ssh") {
			continue
		}
		if p.SrcPort == noTURN || p.DstPort == noTURN {
			continue
		}
		from := netip.AddrPortFrom(p.Src, p.SrcPort)
		to := netip.AddrPortFrom(p.Dst, p.DstPort)
		switch {
		case services[from]:
		case services[to], slices.Contains(r.ports, p.DstPort) && !clients[to]:
			services[to], clients[from] = true, true
		case slices.Contains(r.ports, p.SrcPort) && !clients[from]: // its end alone was recorded
			services[from], clients[to] = true, true
		default:
			continue
		}
		all = append(all, message{rec.Time, slices.Clone(rec.Data), services[from], rec.Number})
	}
}

// policyOf is the policy that a recording is judged by.
func (r *recording) policyOf(t *testing.T) *policy.Policy {
	t.Helper()
	text := r.policy + "\npass fragments\ndefault drop\n"
	p, ds := resolve.Parse("edge.levee", []byte(text), nil)
	if p == nil {
		t.Fatal(ds)
	}
	return p
}

// replay judges a conversation, and returns by which rules packets to the service pass.
func replay(t *testing.T, p *policy.Policy, all []message, engine judge.Engine) []string {
	t.Helper()
	got := judged(t, p, all, engine)
	by := labels(p, got)
	for i, v := range got {
		if v.Action != action.Pass || v.Differs {
			t.Errorf("packet %d is decided by %q: %v", v.number, by[i], v.Verdict)
		}
	}
	return by
}

// decided is the outcome of a packet to the service.
type decided struct {
	judge.Verdict
	number int
}

func judged(t *testing.T, p *policy.Policy, all []message, engine judge.Engine) (got []decided) {
	t.Helper()
	j, err := judge.New(p, engine)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	for _, m := range all {
		j.At(m.at)
		frame := slices.Clone(m.frame) // a cookie answers in its place
		if m.reply {
			if _, err := j.Leave(frame); err != nil {
				t.Fatal(err)
			}
			continue
		}
		v, err := j.Frame(frame)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, decided{v, m.number})
	}
	return got
}

// labels are those of the rules that decided, without the name of the profile.
func labels(p *policy.Policy, got []decided) (by []string) {
	slots := p.Slots()
	for _, v := range got {
		label := p.LabelOf(slots[v.Slot])
		if _, name, ok := strings.Cut(label, "/"); ok {
			label = name
		}
		by = append(by, label)
	}
	return by
}
