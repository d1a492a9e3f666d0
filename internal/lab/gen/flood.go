package gen

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	"levee/internal/lab"
	"levee/internal/lang/field"
	"levee/internal/lang/spec"
	"levee/internal/packet"
	"levee/internal/usage"
)

// Kind is a kind of flood.
type Kind uint8

const (
	UDP Kind = iota
	SYN
	ACK
	ICMPEcho
	Fragment // non-first fragments of UDP
)

func (k Kind) String() string {
	return [...]string{"udp", "syn", "ack", "icmp", "fragment"}[k]
}

// ParseKind reads what String prints.
func ParseKind(s string) (Kind, error) {
	var names []string
	for k := UDP; k <= Fragment; k++ {
		if k.String() == s {
			return k, nil
		}
		names = append(names, k.String())
	}
	return 0, fmt.Errorf("no kind %q: it is one of %s", s, strings.Join(names, ", "))
}

// DefaultTo returns where a flood from a device of a lab goes if nothing else is asked for: the
// IPv4 address of the device's other end. The error wraps lab.ErrForeign for a device of no lab.
func DefaultTo(namespace, device string) (to netip.Addr, err error) {
	err = lab.Inside(namespace, func() error {
		d, err := lab.Owned(device)
		if err == nil {
			to = d.Peer.IPv4
		}
		return err
	})
	return to, err
}

// DefaultSources are large blocks of the destination's family.
func DefaultSources(to netip.Addr) []netip.Prefix {
	if to.Is6() {
		return []netip.Prefix{netip.MustParsePrefix("2a00::/12")}
	}
	return []netip.Prefix{netip.MustParsePrefix("16.0.0.0/4")}
}

// Flood describes packets that differ in source, ports, length and what the protocol varies.
type Flood struct {
	Kind Kind
	// Sources are walked in a seeded permutation: no address comes again before all have come.
	// Prefixes of the destination's family, at most 64, not overlapping.
	Sources []netip.Prefix
	// To is the destination; it decides the family.
	To netip.Addr
	// FromPorts and Ports are walked in the order given, each by itself. Empty is 40000 and 9.
	FromPorts, Ports []uint16
	// Lengths in bytes of the IP packet are walked in the order given, at most 256. Empty is the
	// headers with 18 (IPv4 UDP) or 0 bytes of payload.
	Lengths []int
	// Flags are the TCP flags of a SYN or ACK flood, 0 for those of its name.
	Flags uint8
	// NoFlags leaves a SYN or ACK flood without any, whatever Flags says.
	NoFlags bool
	// TCPOptions are those of a SYN or ACK flood, of 40 bytes at most and a multiple of 4.
	TCPOptions []byte
	// Linux makes a SYN flood as Linux begins connections: with SYNOptions, its window, and
	// timestamps that differ.
	Linux bool
	// NoChecksum leaves the UDP checksum zero.
	NoChecksum bool
	// VLANs are the ids of tags, outermost first, at most two.
	VLANs []uint16
	// TTL or hop limit, 0 for 64.
	TTL uint8
	// FromMAC and ToMAC default to the device's and its lab peer's.
	FromMAC, ToMAC [6]byte
}

// PortRange lists lo to hi, ascending.
func PortRange(lo, hi uint16) []uint16 {
	ports := make([]uint16, 0, max(0, int(hi)-int(lo)+1))
	for p := int(lo); p <= int(hi); p++ {
		ports = append(ports, uint16(p))
	}
	return ports
}

// SYNOptions are those with which Linux begins a connection: maximum segment size, SACK,
// timestamps, window scale (tcp_syn_options in net/ipv4/tcp_output.c).
var SYNOptions = []byte{2, 4, 5, 180, 4, 2, 8, 10, 0, 16, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7}

// linuxWindow is that of the first SYN over a link of an MTU of 1500 (tcp_select_initial_window of
// net/ipv4/tcp_output.c).
const linuxWindow = 64240

// Shuffled returns ports in an order chosen by seed.
func Shuffled(ports []uint16, seed uint64) []uint16 {
	out := append([]uint16(nil), ports...)
	r := rand.New(rand.NewPCG(seed, 0))
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

const (
	maxSources = 64
	maxShapes  = 256
	// maxFrame is the length of the longest live frame, in bytes: a page without the kernel's own
	// head (up to 256 bytes), XDP headroom (256) and skb_shared_info (up to 512)
	// (net/bpf/test_run.c).
	maxFrame = 4096 - 256 - 256 - 512
)

// complete checks a flood for a device and fills what was left out.
func (f *Flood) complete(dev device) error {
	if !f.To.IsValid() || f.To.Zone() != "" || f.To.Is4In6() {
		return usage.Wrongf("no destination address (IPv4 or IPv6, without zone)")
	}
	if f.Kind > Fragment {
		return usage.Wrongf("unknown kind of flood %d", f.Kind)
	}
	if len(f.Sources) == 0 || len(f.Sources) > maxSources {
		return usage.Wrongf("%d source prefixes: there must be 1 to %d", len(f.Sources), maxSources)
	}
	for i, p := range f.Sources {
		if !p.IsValid() || p.Addr().BitLen() != f.To.BitLen() || p.Addr().Is4In6() {
			return usage.Wrongf("source %s and destination %s are of different families", p, f.To)
		}
		for _, q := range f.Sources[:i] {
			if p.Overlaps(q) {
				return usage.Wrongf("sources %s and %s overlap: addresses would repeat", q, p)
			}
		}
	}
	if len(f.FromPorts) == 0 {
		f.FromPorts = []uint16{40000}
	}
	if len(f.Ports) == 0 {
		f.Ports = []uint16{9}
	}
	if len(f.FromPorts) > 65536 || len(f.Ports) > 65536 {
		return usage.Wrongf("more than 65536 ports in a list")
	}
	if len(f.VLANs) > 2 {
		return usage.Wrongf("%d VLAN tags: there may be two", len(f.VLANs))
	}
	for _, v := range f.VLANs {
		if v > 4094 {
			return usage.Wrongf("VLAN id %d: must be 0 to 4094", v)
		}
	}
	if f.Linux {
		if f.Kind != SYN {
			return usage.Wrongf("a %s flood does not begin connections", f.Kind)
		}
		f.TCPOptions = SYNOptions
	}
	if n := len(f.TCPOptions); n > 0 && (n > 40 || n%4 != 0 || f.Kind != SYN && f.Kind != ACK) {
		return usage.Wrongf("%d bytes of TCP options in a %s flood: TCP takes 4, 8, ... 40", n,
			f.Kind)
	}
	if f.NoFlags {
		f.Flags = 0
	} else if f.Flags == 0 {
		f.Flags = [...]uint8{SYN: 0x02, ACK: 0x10, Fragment: 0}[f.Kind]
	}
	if f.TTL == 0 {
		f.TTL = 64
	}
	if f.FromMAC == ([6]byte{}) {
		f.FromMAC = dev.mac
	}
	if f.ToMAC == ([6]byte{}) {
		if !dev.inLab {
			return usage.Wrongf("no destination Ethernet address: name one by --to-mac")
		}
		f.ToMAC = dev.dst
	}
	return f.completeLengths(dev)
}

func (f *Flood) completeLengths(dev device) error {
	least := f.ipHeader() + f.l4Header()
	if len(f.Lengths) == 0 {
		n := least
		if f.Kind == UDP && f.To.Is4() || f.Kind == Fragment {
			n += 18 // fills the least Ethernet frame, 60 bytes without FCS
		}
		f.Lengths = []int{n}
	}
	if len(f.Lengths) > maxShapes {
		return usage.Wrongf("%d lengths: there may be %d", len(f.Lengths), maxShapes)
	}
	for _, n := range f.Lengths {
		if n < least {
			return usage.Wrongf("length %d: a packet of this kind has at least %d bytes", n, least)
		}
		if n > dev.mtu || n+22 > maxFrame {
			return usage.Wrongf("length %d: the device takes %d bytes, a live frame %d", n, dev.mtu,
				maxFrame-22)
		}
	}
	return nil
}

// ipHeader returns the length of the IP header with extension headers.
func (f *Flood) ipHeader() int {
	switch {
	case f.To.Is4():
		return 20
	case f.Kind == Fragment:
		return 48
	}
	return 40
}

// l4Header returns the length of the transport header.
func (f *Flood) l4Header() int {
	n := [...]int{UDP: 8, SYN: 20, ACK: 20, ICMPEcho: 8, Fragment: 0}[f.Kind]
	return n + len(f.TCPOptions)
}

// fragmentOffset, in units of 8 bytes, is behind a full first fragment at MTU 1500.
const fragmentOffset = 185

// packet returns a complete flood in the terms of templates.
func (f *Flood) packet() spec.Packet {
	p := spec.Packet{Spec: packet.Spec{
		Family: packet.IPv4, To: f.To, From: f.Sources[0].Addr(), TTL: &f.TTL,
		EtherFrom: &f.FromMAC, EtherTo: &f.ToMAC,
	}}
	s := &p.Spec
	if f.To.Is6() {
		s.Family = packet.IPv6
	}
	for i, to := range []**uint16{&s.VLAN, &s.InnerVLAN} {
		if i < len(f.VLANs) {
			*to = &f.VLANs[i]
		}
	}
	vary := func(word string, mode spec.Mode, ranges ...field.Range) {
		p.Vary = append(p.Vary, spec.Vary{Word: word, Mode: mode, Ranges: ranges, Step: 1,
			Every: 1})
	}
	p.Vary = append(p.Vary, spec.Vary{Word: "from", Mode: spec.Permuted, Prefixes: f.Sources,
		Step: 1, Every: 1})
	if f.To.Is4() {
		vary("id", spec.Counting, field.Range{Lo: 0, Hi: 0xffff})
	}
	all32 := field.Range{Lo: 0, Hi: 0xffffffff}
	switch f.Kind {
	case UDP:
		s.Proto = new(uint8(packet.ProtoUDP))
		if f.NoChecksum {
			s.Fields = append(s.Fields, packet.FieldValue{Word: packet.WordChecksum})
		}
	case SYN, ACK:
		s.Flags, s.TCPOptions = &f.Flags, f.TCPOptions
		vary("seq", spec.Random, all32)
		if f.Linux {
			s.Fields = append(s.Fields, packet.FieldValue{Word: "window", Value: linuxWindow})
			if f.To.Is4() {
				s.Fields = append(s.Fields, packet.FieldValue{Word: "df", Value: 1})
			}
			vary("timestamp", spec.Random, all32)
		}
	case ICMPEcho:
		s.Proto = new(uint8(packet.ProtoICMP))
		if f.To.Is6() {
			s.Proto = new(uint8(packet.ProtoICMP6))
		}
		vary("icmp-rest", spec.Random, all32)
	case Fragment:
		s.Proto, s.Frag = new(uint8(packet.ProtoUDP)), new(uint16(fragmentOffset))
		if f.To.Is6() {
			vary("id", spec.Random, all32)
		}
	}
	if f.Kind == UDP || f.Kind == SYN || f.Kind == ACK {
		vary("from port", spec.Counting, values(f.FromPorts)...)
		vary("port", spec.Counting, values(f.Ports)...)
	}
	longest := slices.Max(f.Lengths)
	s.Len = &longest
	vary(spec.WordLen, spec.Counting, values(f.Lengths)...)
	return p
}

// values lists numbers as ranges.
func values[N uint16 | int](list []N) []field.Range {
	out := make([]field.Range, len(list))
	for i, v := range list {
		out[i] = field.Range{Lo: uint64(v), Hi: uint64(v)}
	}
	return out
}
