package fingerprint

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"levee/internal/packet"
)

const (
	protoICMP   = 1
	protoTCP    = 6
	protoUDP    = 17
	protoICMPv6 = 58
)

const fragments = "Fragmented IP packets"

// protocols are names of protocols that floods have (IANA, assigned Internet protocol numbers).
var protocols = map[uint8]string{protoICMP: "ICMP", 2: "IGMP", 4: "IPIP", protoTCP: "TCP",
	protoUDP: "UDP", 41: "IPV6", 47: "GRE", 50: "ESP", 51: "AH", protoICMPv6: "ICMPV6",
	132: "SCTP", 136: "UDPLITE"}

// amplifiers are services over UDP that reflect, by their port, as the clearing house calls them.
var amplifiers = map[uint16]string{17: "Quote of the Day", 19: "Chargen", 53: "DNS", 69: "TFTP",
	111: "TPC", 123: "NTP", 137: "NetBios", 161: "SNMP", 177: "XDMCP", 389: "LDAP", 500: "ISAKMP",
	520: "RIPv1", 623: "IPMI", 1434: "MS SQL", 1900: "SSDP", 3283: "Apple Remote Desktop",
	3389: "Windows Remote Desktop", 3702: "WS-Discovery", 5093: "Sentinel", 5351: "NAT-PMP",
	5353: "mDNS", 5683: "CoAP", 10074: "Mitel MiColab", 11211: "MEMCACHED", 27015: "Steam",
	32414: "Plex Media", 33848: "Jenkins", 37810: "DHDiscover"}

// services are those over TCP.
var services = map[uint16]string{22: "SSH", 25: "SMTP", 53: "DNS", 80: "HTTP", 179: "BGP",
	443: "HTTPS"}

func isAmplifier(service string) bool {
	return slices.Contains(slices.Collect(maps.Values(amplifiers)), service)
}

// Flags of TCP, the lowest first, with the letters that tshark shows for them and their names.
var flagWords = [...]string{"FIN", "SYN", "RESET", "PUSH", "ACK", "URGENT", "", ""}

const flagLetters = "FSRPAUEC"

func flagsText(f uint8) string {
	b := []byte("........")
	for i := range flagLetters {
		if f&(1<<i) != 0 {
			b[7-i] = flagLetters[i]
		}
	}
	return string(b)
}

// etherTypes are as the clearing house calls them.
func etherType(p *packet.Packet) string {
	if p.Family == packet.IPv4 {
		return "IPv4"
	}
	return "IPv6"
}

// counts are values and how many packets have each.
type counts map[string]uint64

func (c *counts) add(value string) {
	if *c == nil {
		*c = counts{}
	}
	if len(value) > maxText {
		value = value[:maxText]
	}
	value = strings.ToValidUTF8(value, "?")
	if _, there := (*c)[value]; !there && len(*c) >= maxValues {
		value = ""
	}
	(*c)[value]++
}

func (c counts) most() (value string, n uint64) {
	for v, m := range c {
		if m > n || m == n && v < value {
			value, n = v, m
		}
	}
	return value, n
}

// spread returns the values that stand out: with more than a share of all, or with more than two
// standard deviations above the mean share.
func (c counts) spread(share float64, deviations bool) Spread {
	total := 0.0
	for _, n := range c {
		total += float64(n)
	}
	mean, variance := 1/float64(len(c)), 0.0
	for _, n := range c {
		variance += (float64(n)/total - mean) * (float64(n)/total - mean)
	}
	deviation := math.Sqrt(variance / float64(max(len(c)-1, 1)))
	out, explained := Spread{}, 0.0
	for v, n := range c {
		f := float64(n) / total
		if v == "" || f <= share && !(deviations && deviation > 0 && (f-mean)/deviation > 2) {
			continue
		}
		out[v] = math.Round(f*1000) / 1000
		explained += f
	}
	if len(out) > 0 && explained < 0.99 {
		out["others"] = math.Round((1-explained)*1000) / 1000
	}
	return out
}

// or returns a spread, or "random" where no value stands out.
func (c counts) or(share float64, deviations bool) any {
	if s := c.spread(share, deviations); len(s) > 0 {
		return s
	}
	return "random"
}

// collected counts the packets of one vector, and keeps their sources.
type collected struct {
	packets, bytes uint64
	first, last    time.Time
	sources        map[netip.Addr]struct{}

	sourcePorts, ports, flags, ether, lengths, offsets, ttls counts
	names, types, uris, methods, agents, requests, icmp      counts
}

func (c *collected) time(at time.Time) {
	if c.packets == 0 || at.Before(c.first) {
		c.first = at
	}
	if c.packets == 0 || at.After(c.last) {
		c.last = at
	}
}

func (c *collected) seconds() int64 { return int64(c.last.Sub(c.first).Seconds()) }

func (c *collected) source(a netip.Addr) {
	if c.sources == nil {
		c.sources = map[netip.Addr]struct{}{}
	}
	if len(c.sources) < maxSources {
		c.sources[a] = struct{}{}
	}
}

func (c *collected) add(at time.Time, p *packet.Packet, frame []byte, length int) {
	c.time(at)
	c.packets++
	c.bytes += uint64(length)
	c.source(p.Src)
	c.ether.add(etherType(p))
	c.lengths.add(strconv.Itoa(length))
	c.offsets.add(strconv.Itoa(p.FragmentAt))
	c.ttls.add(strconv.Itoa(int(p.TTL)))
	if p.LaterFragment {
		return
	}
	if p.HasPorts() {
		c.sourcePorts.add(strconv.Itoa(int(p.SrcPort)))
		c.ports.add(strconv.Itoa(int(p.DstPort)))
	}
	var payload []byte
	if p.TransportOffset > 0 && p.TransportOffset <= len(frame) {
		payload = frame[p.TransportOffset:]
	}
	switch {
	case p.Transport == packet.TCPTransport:
		c.flags.add(flagsText(p.Flags))
		c.http(payload)
	case p.Proto == protoUDP && len(payload) >= 8:
		c.datagram(p, payload[8:])
	case p.Transport == packet.ICMPTransport, p.Transport == packet.ICMP6Transport:
		c.icmp.add(icmpName(p))
	}
}

func (c *collected) datagram(p *packet.Packet, payload []byte) {
	switch {
	case p.SrcPort == 53 || p.DstPort == 53:
		var d dnsmessage.Parser
		if _, err := d.Start(payload); err != nil {
			return
		}
		q, err := d.Question()
		if err != nil {
			return
		}
		c.names.add(strings.TrimSuffix(q.Name.String(), "."))
		c.types.add(queryType(q.Type))
	case p.SrcPort == 123 && len(payload) >= 4 && payload[0]&7 == 7: // private mode (RFC 9327)
		c.requests.add(strconv.Itoa(int(payload[3])))
	}
}

// questions are types of questions that golang.org/x/net has no names for (IANA, DNS parameters).
var questions = map[dnsmessage.Type]string{dnsmessage.TypeALL: "ANY", 35: "NAPTR", 43: "DS",
	44: "SSHFP", 46: "RRSIG", 47: "NSEC", 48: "DNSKEY", 50: "NSEC3", 52: "TLSA", 99: "SPF",
	257: "CAA"}

func queryType(t dnsmessage.Type) string {
	if name := questions[t]; name != "" {
		return name
	}
	return strings.TrimPrefix(t.String(), "Type")
}

// http reads the beginning of a request.
func (c *collected) http(segment []byte) {
	if len(segment) < 20 {
		return
	}
	at := int(segment[12]>>4) * 4
	if at < 20 || at >= len(segment) {
		return
	}
	head := string(segment[at:min(len(segment), at+2048)])
	line, rest, _ := strings.Cut(head, "\r\n")
	words := strings.Fields(line)
	if len(words) != 3 || !strings.HasPrefix(words[2], "HTTP/1.") {
		return
	}
	c.methods.add(words[0])
	c.uris.add(words[1])
	for field := range strings.SplitSeq(rest, "\r\n") {
		if name, value, ok := strings.Cut(field, ":"); ok && strings.EqualFold(name, "User-Agent") {
			c.agents.add(strings.TrimSpace(value))
		}
	}
}

var icmpNames = map[uint8]string{0: "Echo Reply", 3: "Destination Unreachable", 5: "Redirect",
	8: "Echo", 9: "Router Advertisement", 10: "Router Solicitation", 11: "Time Exceeded",
	12: "Parameter Problem", 13: "Timestamp", 14: "Timestamp Reply", 40: "Photuris",
	42: "Extended Echo Request", 43: "Extended Echo Reply"}

func icmpName(p *packet.Packet) string {
	if name := icmpNames[p.Type]; name != "" && p.Transport == packet.ICMPTransport {
		return name
	}
	return strconv.Itoa(int(p.Type))
}

// vector returns what was collected, in the form of the clearing house. Shares above which a value
// stands out are those of its dissector.
func (c *collected) vector(k vectorKey, unfragmented uint64, each float64) Vector {
	v := Vector{Protocol: protocols[k.proto], Packets: times(c.packets, each),
		MB:    times(c.bytes, each) / 1e6,
		Start: stamp(c.first), Duration: c.seconds(), IPs: []string{},
		Source: c.sourcePorts.or(0.1, false), Ports: c.ports.or(0.1, false),
		EtherType: c.ether.or(0.05, true), Length: c.lengths.or(0.05, true),
		Offset: c.offsets.or(0.1, true), TTL: c.ttls.or(0.1, true)}
	if v.Protocol == "" {
		v.Protocol = fmt.Sprintf("PROTOCOL %d", k.proto)
	}
	sources := slices.SortedFunc(maps.Keys(c.sources), netip.Addr.Compare)
	for _, a := range sources {
		v.IPs = append(v.IPs, a.String())
	}
	service := ""
	switch {
	case k.later:
		service = fragments
		v.Protocol = "IP"
	case k.service && k.proto == protoUDP:
		service = amplifiers[k.port]
	case k.service:
		service = services[k.port]
	}
	if service != "" {
		v.Service = &service
	}
	if k.service {
		v.Source = int(k.port)
	}
	if !k.later && unfragmented > 0 {
		f := math.Round(float64(c.bytes)/float64(unfragmented)*1000) / 1000
		v.Fraction = &f
	}
	if k.proto == protoTCP {
		if s := c.flags.spread(0.2, true); len(s) > 0 {
			v.Flags = s
		}
	}
	c.payload(&v, service)
	return v
}

func (c *collected) payload(v *Vector, service string) {
	switch {
	case service == "DNS" && len(c.names) > 0:
		v.QueryName, v.QueryType = c.names.or(0.1, true), c.types.or(0.1, true)
	case service == "NTP" && len(c.requests) > 0:
		v.Request = c.requests.or(0.1, true)
	case len(c.icmp) > 0:
		v.ICMPType = c.icmp.or(0.1, true)
	case len(c.methods) > 0:
		v.URI, v.Method = c.uris.or(0.05, true), c.methods.or(0.1, true)
		if len(c.agents) > 0 {
			v.Agent = c.agents.or(0.05, true)
		}
	}
}
