package fingerprint

import (
	"cmp"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"levee/internal/packet"
)

// Fingerprint is one flood. The names and types of its fields are those of the dissector's files
// from captures.
type Fingerprint struct {
	Vectors  []Vector `json:"attack_vectors"`
	Target   string   `json:"target"` // or Anonymous
	Tags     []string `json:"tags"`
	Key      string   `json:"key"` // MD5 of all else, which the format has as its name
	Start    string   `json:"time_start"`
	End      string   `json:"time_end"`
	Duration int64    `json:"duration_seconds"`
	MB       uint64   `json:"total_megabytes"`
	Packets  uint64   `json:"total_packets"`
	IPs      int      `json:"total_ips"`
	AvgBps   uint64   `json:"avg_bps"`
	AvgPps   uint64   `json:"avg_pps"`
	AvgBpp   uint64   `json:"avg_Bpp"`
}

// Vector is the part of a flood that has a protocol, and a source port where that names a service.
type Vector struct {
	Service  *string  `json:"service"`
	Protocol string   `json:"protocol"`
	Fraction *float64 `json:"fraction_of_attack"` // null for fragments
	Source   any      `json:"source_port"`        // a number, a Spread, or "random"
	Ports    any      `json:"destination_ports"`  // a Spread, or "random"
	Flags    Spread   `json:"tcp_flags"`          // null where there are none
	Packets  uint64   `json:"nr_packets"`
	MB       uint64   `json:"nr_megabytes"`
	Start    string   `json:"time_start"`
	Duration int64    `json:"duration_seconds"`
	IPs      []string `json:"source_ips"`
	// each a Spread, or "random"
	EtherType any `json:"ethernet_type"`
	Length    any `json:"frame_len"`
	Offset    any `json:"fragmentation_offset,omitempty"`
	TTL       any `json:"ttl,omitempty"`
	QueryName any `json:"dns_query_name,omitempty"`
	QueryType any `json:"dns_query_type,omitempty"`
	URI       any `json:"http_uri,omitempty"`
	Method    any `json:"http_method,omitempty"`
	Agent     any `json:"http_user_agent,omitempty"`
	Request   any `json:"ntp_requestcode,omitempty"`
	ICMPType  any `json:"icmp_type,omitempty"`
}

// Spread are values that stand out, with their shares of the packets; "others" is the rest.
type Spread map[string]float64

// Options say what is known of a flood besides its packets.
type Options struct {
	// Target is the address that it hit; zero: the one that got most, or the /24 or /64 that did.
	Target netip.Prefix
	// ShowTarget writes the target into the fingerprint; without it, it is "Anonymous".
	ShowTarget bool
	// Each counts the packets behind each that is given, at least 1.
	Each uint64
	// Total counts all packets, where that is known; Each follows from it then.
	Total uint64
	// Began and Ended are when the flood did, where samples do not say it.
	Began, Ended time.Time
}

// Bounds of what is kept.
const (
	maxSources = 1 << 20
	maxValues  = 1 << 14 // of one field of one vector; others are counted together
	maxVectors = 64
	maxText    = 255
)

// ErrNothing is wrapped where there is no packet to describe.
var ErrNothing = errors.New("no packet of the flood")

// Collector takes packets. It is made by New.
type Collector struct {
	o       Options
	vectors map[vectorKey]*collected
	targets counts
	nets    counts
	all     collected
	buf     []byte
}

type vectorKey struct {
	proto   uint8
	port    uint16 // of the source, where it names a service
	service bool
	later   bool // later fragments
	icmp6   bool
}

// New makes a collector.
func New(o Options) *Collector {
	o.Each = max(o.Each, 1)
	return &Collector{o: o, vectors: map[vectorKey]*collected{}}
}

// Add takes a frame as far as it was captured, with its length on the wire.
func (c *Collector) Add(at time.Time, frame []byte, length int) {
	frame, missing := packet.Record{Data: frame, Length: length}.Whole(c.buf)
	if missing > 0 {
		c.buf = frame
	}
	var p packet.Packet
	packet.Decode(frame, &p)
	if !p.IsIP() || !p.Dst.IsValid() || c.o.Target.IsValid() && !c.o.Target.Contains(p.Dst) {
		return
	}
	c.targets.add(p.Dst.String())
	bits := 24
	if p.Dst.Is6() {
		bits = 64
	}
	net, _ := p.Dst.Prefix(bits)
	c.nets.add(net.String())
	k := keyOf(&p)
	v := c.vectors[k]
	if v == nil {
		if len(c.vectors) >= maxVectors {
			k = vectorKey{proto: p.Proto}
			v = c.vectors[k]
		}
		if v == nil {
			v = &collected{}
			c.vectors[k] = v
		}
	}
	v.add(at, &p, frame, length)
	c.all.time(at)
	c.all.packets++
	c.all.bytes += uint64(length)
	c.all.source(p.Src)
}

func keyOf(p *packet.Packet) vectorKey {
	k := vectorKey{proto: p.Proto, icmp6: p.Transport == packet.ICMP6Transport}
	switch {
	case p.LaterFragment:
		return vectorKey{later: true}
	case p.Proto == protoUDP && amplifiers[p.SrcPort] != "",
		p.Proto == protoTCP && services[p.SrcPort] != "":
		k.port, k.service = p.SrcPort, true
	}
	return k
}

// Of the packets of a flood, a vector has at least this share. What has less came along.
const minShare = 0.05

// Fingerprint returns what was collected.
func (c *Collector) Fingerprint() (*Fingerprint, error) {
	if c.all.packets == 0 {
		return nil, fmt.Errorf("%w: is the target right?", ErrNothing)
	}
	each := float64(c.o.Each)
	if c.o.Total > 0 {
		each = float64(c.o.Total) / float64(c.all.packets)
	}
	if !c.o.Began.IsZero() {
		c.all.first = c.o.Began
	}
	if c.o.Ended.After(c.all.first) {
		c.all.last = c.o.Ended
	}
	out := &Fingerprint{Vectors: []Vector{}, Tags: []string{}, Target: "Anonymous",
		Start: stamp(c.all.first), End: stamp(c.all.last), Duration: c.all.seconds(),
		Packets: times(c.all.packets, each), MB: times(c.all.bytes, each) / 1e6,
		IPs: len(c.all.sources), AvgBpp: c.all.bytes / c.all.packets}
	seconds := max(c.all.last.Sub(c.all.first).Seconds(), 1)
	out.AvgPps = uint64(float64(out.Packets) / seconds)
	out.AvgBps = uint64(float64(c.all.bytes) * each * 8 / seconds)
	var keys []vectorKey
	var unfragmented uint64 // bytes without fragments, of which vectors have their fractions
	for k, v := range c.vectors {
		if float64(v.packets) < minShare*float64(c.all.packets) {
			continue
		}
		keys = append(keys, k)
		if !k.later {
			unfragmented += v.bytes
		}
	}
	slices.SortFunc(keys, func(a, b vectorKey) int {
		return cmp.Or(-cmp.Compare(c.vectors[a].bytes, c.vectors[b].bytes),
			cmp.Compare(a.proto, b.proto), cmp.Compare(a.port, b.port))
	})
	for _, k := range keys {
		out.Vectors = append(out.Vectors, c.vectors[k].vector(k, unfragmented, each))
	}
	target := c.target()
	out.Tags = tags(out.Vectors, !target.IsSingleIP())
	if c.o.ShowTarget {
		out.Target = targetText(target)
	}
	text, err := json.Marshal(out)
	if err != nil {
		return nil, err
	}
	sum := md5.Sum(text)
	out.Key = hex.EncodeToString(sum[:])
	return out, nil
}

// target returns whom the flood hit.
func (c *Collector) target() netip.Prefix {
	if c.o.Target.IsValid() {
		return c.o.Target.Masked()
	}
	best, n := c.targets.most()
	if a, err := netip.ParseAddr(best); err == nil && float64(n) > 0.7*float64(c.all.packets) {
		return netip.PrefixFrom(a, a.BitLen())
	}
	best, _ = c.nets.most()
	p, _ := netip.ParsePrefix(best)
	return p
}

func targetText(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// tags returns the words by which members of the coalition search.
func tags(vectors []Vector, carpet bool) []string {
	out := []string{}
	add := func(tag string) {
		if !slices.Contains(out, tag) {
			out = append(out, tag)
		}
	}
	n := 0
	for i := range vectors {
		if vectors[i].Fraction != nil {
			n++
		}
	}
	if n > 1 {
		add("Multi-vector attack")
	}
	if carpet {
		add("Carpet bombing attack")
	}
	for i := range vectors {
		v := &vectors[i]
		add(v.Protocol)
		if v.Service == nil {
			add(v.Protocol + " flood attack")
		}
		switch {
		case v.Protocol == "TCP":
			add("TCP " + flagNames(v.Flags) + "attack")
		case v.Service != nil && *v.Service == fragments:
			add("Fragmentation attack")
		case v.Service != nil && isAmplifier(*v.Service):
			add("Amplification attack")
		}
	}
	return out
}

// flagNames returns the flags of TCP, where all packets have the same.
func flagNames(s Spread) string {
	if len(s) != 1 {
		return "flag "
	}
	var names []string
	for set := range s {
		for i, letter := range flagLetters {
			if strings.ContainsRune(set, letter) && flagWords[i] != "" {
				names = append(names, flagWords[i])
			}
		}
	}
	if len(names) == 0 {
		return "no flag "
	}
	slices.Reverse(names)
	return strings.Join(names, " ") + " flag "
}

// times returns a number of packets or bytes, of those that stand behind each.
func times(n uint64, each float64) uint64 { return uint64(math.Round(float64(n) * each)) }

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.999999-07:00") }
