package detect

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"levee/internal/packet"
)

// Words of floods that take a template.
const (
	anywhere = "from 16.0.0.0/4 random "
	anyPort  = "from port 1024-65535 random "
)

// vectors are floods of other forms than those of the demo. Services that the lab has no clients of
// show what can be told without any: what is in front of real ones is for a proof by the client.
var vectors = []kind{
	words("too-big", "forged path MTU messages", 0, "ipv4 icmp type 3 code 4 "+anywhere+
		"to TO ttl 40-128 random payload hex "+
		"\"45000054000040004011 0000 c6120001c6120002 01bbc35000400000\""),
	words("stray", "ACKs of 256 flows that nobody began", 60_000, "ipv4 tcp flags ack from "+
		"16.1.0.0-16.1.0.255 counting to TO ttl 50 from port 2000 port 80 len 40"),
	{name: "link", what: "LLDP from a neighbour", mimics: true,
		waves: wordsOf("LLDP", 0, "ether lldp len 200")},
	words("carpet", "UDP to all addresses of a /24", 0,
		"ipv4 udp "+anywhere+"to 198.19.0.0/24 random "+anyPort+"port 1024-65535 random len 90"),
	{name: "carpets", what: "ten /24, one behind the other", waves: carpets},
	words("vlan", "UDP with a VLAN tag", 0,
		"ipv4 udp vlan 7 "+anywhere+"to TO "+anyPort+"port 1024-65535 random len 90"),
	words("ipv6", "UDP over IPv6", 0,
		"ipv6 udp from 2400::/8 random to TO6 "+anyPort+"port 1024-65535 random len 110"),
	words("reflection-16", "answers of 16 protocols", 0, sixteen()),
	{name: "few-reflectors", what: "answers of 53 open resolvers, most in fragments",
		waves: func(o *Options, to netip.Addr) ([]wave, error) {
			text, err := reflection(o.Seed, to, 53)
			return replayed(o, text), err
		}},
	{name: "mimic", what: "UDP that nothing but its source tells from clients'",
		waves: drawnBy(datagram)},
	{name: "resolver", what: "answers in the name of the host's resolvers", mimics: true,
		forges: true, waves: drawnBy(answer)},
	{name: "quic", what: "QUIC Initials to the port of clients' datagrams",
		waves: drawnBy(initial)},
	{name: "dns-names", what: "questions for random names", waves: drawnBy(question)},
	words("raknet", "RakNet, the first question of a client", 0, "ipv4 udp "+anywhere+"to TO "+
		"ttl 40-128 random "+anyPort+"port 19132 payload hex "+
		"\"05 00ffff00fefefefefdfdfdfd12345678 0b\" len 1492"),
	words("a2s", "A2S, the question for what a server is", 0, "ipv4 udp "+anywhere+"to TO "+
		"ttl 40-128 random "+anyPort+"port 27015 payload hex "+
		"\"ffffffff 54 536f7572636520456e67696e6520517565727900\""),
	{name: "replaced", what: "UDP, the policy replaced six times meanwhile",
		waves: func(o *Options, to netip.Addr) ([]wave, error) {
			return []wave{{what: "UDP", lasts: 14 * time.Second, share: 1, replaced: 6,
				floods: forged("udp", to)}}, nil
		}},
	words("vectors", "seven kinds at once", 0, strings.Join([]string{
		"ipv4 tcp syn " + anywhere + "to TO " + anyPort + "port 80 seq random",
		"ipv4 tcp flags ack " + anywhere + "to TO " + anyPort + "port 80 seq random",
		"ipv4 udp " + anywhere + "to TO " + anyPort + "port 1024-65535 random len 90",
		"ipv4 udp " + anywhere + "to TO from port 123 port 1024-65535 random len 468",
		"ipv4 icmp type 8 " + anywhere + "to TO len 1052",
		"ipv4 udp " + anywhere + "to TO frag-offset 185 len 1400",
		"ipv4 proto 47 " + anywhere + "to TO len 90"}, "\n")),
}

// sixteen are answers of services that answer with more than they are asked, a line each.
func sixteen() string {
	var lines []string
	for _, port := range []int{17, 19, 53, 69, 111, 123, 137, 161, 389, 1434, 1900, 3283, 3702,
		5353, 11211, 37810} {
		lines = append(lines, fmt.Sprintf("ipv4 udp %sto TO ttl 40-128 random from port %d "+
			"port 1024-65535 random len 200-1400 random", anywhere, port))
	}
	return strings.Join(lines, "\n")
}

// Of floods of networks, one behind the other.
const (
	carpetCount = 10
	carpetLasts = 4 * time.Second
)

func carpets(_ *Options, to netip.Addr) (w []wave, _ error) {
	for i := range carpetCount {
		v, err := wordy(fmt.Sprintf("ipv4 udp %sto 198.19.%d.0/24 random %sport 1024-65535 random "+
			"len 90", anywhere, i+1, anyPort), to, netip.Addr{})
		if err != nil {
			return nil, err
		}
		v.what, v.at = fmt.Sprintf("network %d", i+1), time.Duration(i)*carpetLasts
		v.lasts, v.share = carpetLasts, 1
		w = append(w, v)
	}
	return w, nil
}

// drawnBy sends packets that a function draws, again and again.
func drawnBy(draw func(*rand.Rand) packet.Spec) func(*Options, netip.Addr) ([]wave, error) {
	return func(o *Options, to netip.Addr) ([]wave, error) {
		text, err := drawn(o.Seed, func(r *rand.Rand) packet.Spec {
			s := draw(r)
			if s.To, s.Proto = to, new(uint8(packet.ProtoUDP)); !s.From.IsValid() {
				s.From = hostOf(r)
			}
			s.Fields = []packet.FieldValue{{Word: "id", Value: uint64(r.Uint32() & 0xffff)}}
			return s
		})
		return replayed(o, text), err
	}
}

// between draws a port.
func between(r *rand.Rand, low, high int) *uint16 { return new(uint16(low + r.IntN(high-low+1))) }

// someTTL is that of a packet from somewhere in the Internet.
func someTTL(r *rand.Rand) *uint8 { return new(uint8(40 + r.IntN(85))) }

// random is so many bytes.
func random(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// datagram is one as the lab's clients send: what differs is its source.
func datagram(r *rand.Rand) packet.Spec {
	size := 40 + r.IntN(200)
	if r.IntN(3) == 0 {
		size = 1200 + r.IntN(150)
	}
	b := make([]byte, size)
	binary.BigEndian.PutUint64(b, r.Uint64())
	return packet.Spec{TTL: new(uint8(64)), FromPort: between(r, 32768, 60999),
		ToPort: new(uint16(443)), Payload: b}
}

// answer is one in the name of one of four clients, which are resolvers of the host, too.
func answer(r *rand.Rand) packet.Spec {
	b, err := amplified(uint16(r.Uint32()), 10+r.IntN(400))
	if err != nil {
		panic(err) // a name is valid
	}
	return packet.Spec{From: netip.AddrFrom4([4]byte{198, 18, 0, byte(2 + r.IntN(4))}),
		TTL: new(uint8(64)), FromPort: new(uint16(53)), ToPort: between(r, 1024, 65535),
		Payload: b}
}

// initial is the first packet of a connection of QUIC version 1 (RFC 9000 section 17.2.2).
func initial(r *rand.Rand) packet.Spec {
	b := append([]byte{0xc0 | byte(r.IntN(4)), 0, 0, 0, 1, 8}, random(r, 1194)...)
	b[14], b[15] = 0, 0 // no connection ID of its own, no token
	return packet.Spec{TTL: someTTL(r), FromPort: between(r, 1024, 65535),
		ToPort: new(uint16(443)), Payload: b}
}

// question asks for a name that nobody has.
func question(r *rand.Rand) packet.Spec {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	label := make([]byte, 6+r.IntN(10))
	for i := range label {
		label[i] = letters[r.IntN(len(letters))]
	}
	m := dnsmessage.Message{
		Header: dnsmessage.Header{ID: uint16(r.Uint32()), RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(string(label) + ".example."),
			Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
	b, err := m.Pack()
	if err != nil {
		panic(err) // a label is valid
	}
	return packet.Spec{TTL: someTTL(r), FromPort: between(r, 1024, 65535),
		ToPort: new(uint16(53)), Payload: b}
}
