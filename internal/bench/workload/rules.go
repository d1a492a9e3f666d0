package workload

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Rule is one rule of a set: IPv4 prefixes, ports and a protocol. Of two that match, the earlier
// decides.
type Rule struct {
	Src, Dst         netip.Prefix
	SrcPort, DstPort Ports
	Proto            uint8 // 0 for any
}

// Ports is inclusive.
type Ports struct{ Lo, Hi uint16 }

// AllPorts matches packets without ports too.
var AllPorts = Ports{0, 65535}

// HasPorts tells whether only packets with ports match.
func (r *Rule) HasPorts() bool { return r.SrcPort != AllPorts || r.DstPort != AllPorts }

// Matches is the meaning of a rule.
func (r *Rule) Matches(h *Header) bool {
	return r.Src.Contains(h.Src) && r.Dst.Contains(h.Dst) && (r.Proto == 0 || r.Proto == h.Proto) &&
		(!r.HasPorts() || h.hasPorts() &&
			r.SrcPort.Lo <= h.SrcPort && h.SrcPort <= r.SrcPort.Hi && r.DstPort.Lo <= h.DstPort &&
			h.DstPort <= r.DstPort.Hi)
}

// Rules draws n different rules of a shape, one of Shapes. As in ClassBench no rule is hidden by an
// earlier one that covers it: the more a rule asks for, the earlier it stands.
func Rules(name string, n int, seed uint64) ([]Rule, error) {
	s := shapes[name]
	if s == nil {
		return nil, fmt.Errorf("no shape of rules %q: the shapes are %s", name,
			strings.Join(Shapes, ", "))
	}
	if n < 1 || n > MaxRules {
		return nil, fmt.Errorf("%d rules: there must be 1 to %d", n, MaxRules)
	}
	d := newDrawer(s, seed)
	seen := make(map[Rule]bool, n)
	out := make([]Rule, 0, n)
	for len(out) < n {
		if r := d.rule(); !seen[r] {
			seen[r] = true
			out = append(out, r)
		}
	}
	slices.SortStableFunc(out, func(a, b Rule) int { return cmp.Compare(b.scope(), a.scope()) })
	return out, nil
}

// scope returns how many bits the rule asks for.
func (r *Rule) scope() float64 {
	n := float64(r.Src.Bits() + r.Dst.Bits())
	for _, p := range [2]Ports{r.SrcPort, r.DstPort} {
		for size := int(p.Hi-p.Lo) + 1; size < 65536; size *= 2 {
			n++
		}
		// of two ranges that double to the same, the smaller first
		n -= float64(p.Hi-p.Lo) / (1 << 20)
	}
	if r.Proto != 0 {
		n += 8
	}
	if r.HasPorts() {
		n++
	}
	return n
}

// pool is addresses, all of them and by the prefix length for which they were drawn: prefixes of
// real sets are nested a few levels deep, so that an address hardly comes again at another length.
type pool struct {
	all    []uint32
	length [33][]uint32
}

func (p *pool) add(a uint32, length int) {
	p.all = append(p.all, a)
	p.length[length] = append(p.length[length], a)
}

type drawer struct {
	*shape
	r           *rand.Rand
	pair, class weighted
	proto       weighted
	src, dst    pool
	// destinations by the first 16 bits of the sources that have rules with them
	partners      map[uint32]*pool
	ports, ranges []Ports
}

func newDrawer(s *shape, seed uint64) *drawer {
	d := &drawer{shape: s, r: stream(seed, 30), partners: map[uint32]*pool{}}
	var pairs, protos, classes []int
	for _, p := range s.pairs {
		pairs = append(pairs, p[2])
	}
	for _, p := range s.protos {
		protos = append(protos, p[1])
	}
	for _, row := range s.ports {
		classes = append(classes, row[:]...)
	}
	d.pair, d.proto, d.class = newWeighted(pairs), newWeighted(protos), newWeighted(classes)
	for range 200 { // beside the well known ones
		p := uint16(1024 + d.r.IntN(20000))
		d.ports = append(d.ports, Ports{p, p})
	}
	for range 40 {
		p := uint16(1024 + d.r.IntN(40000))
		d.ranges = append(d.ranges, Ports{p, p + uint16(1+d.r.IntN(1<<d.r.IntN(12)))})
	}
	return d
}

func (d *drawer) rule() Rule {
	pair := d.pairs[d.pair.draw(d.r)]
	class := d.class.draw(d.r)
	src := d.address(&d.src, d.newSrc, d.keep[0], pair[0])
	r := Rule{
		Src: prefixOf(src, pair[0]), Dst: prefixOf(d.partner(src, pair), pair[1]),
		SrcPort: d.port(class / numClasses), DstPort: d.port(class % numClasses),
	}
	switch {
	case !r.HasPorts():
		r.Proto = uint8(d.protos[d.proto.draw(d.r)][0])
	case d.r.IntN(100) < d.tcp:
		r.Proto = 6
	default:
		r.Proto = 17
	}
	return r
}

// address draws one of that length that is there, or a new one that shares leading bits, so many at
// least, with any, as networks of one site do.
func (d *drawer) address(p *pool, fresh, keep, length int) uint32 {
	var a uint32
	switch same := p.length[length]; {
	case len(p.all) == 0:
		a = d.r.Uint32()
	case len(same) > 0 && d.r.IntN(100) >= fresh:
		a = same[d.r.IntN(len(same))]
	default:
		a = p.all[d.r.IntN(len(p.all))] ^ d.r.Uint32()>>(keep+d.r.IntN(max(1, d.keep[1]-keep)))
	}
	if top := a >> 24; top == 0 || top == 10 || top == 127 || top >= 224 {
		a = a&0xffffff | uint32(16+d.r.IntN(100))<<24
	}
	p.add(a, length)
	return a
}

// loyal is the chance, in percent, that a source has its next rule with a network it has rules with
// already: in the filter sets sources of one /16 have rules with three to seven /16 of
// destinations.
const loyal = 90

// partner draws a destination for a source, given the lengths of both.
func (d *drawer) partner(src uint32, pair [3]int) uint32 {
	known := d.partners[src>>16]
	if pair[0] < 16 || known == nil || d.r.IntN(100) >= loyal {
		a := d.address(&d.dst, d.newDst, d.keep[0], pair[1])
		if pair[0] >= 16 {
			if known == nil {
				known = new(pool)
				d.partners[src>>16] = known
			}
			known.add(a, pair[1])
		}
		return a
	}
	return d.address(known, d.newDst, 16, pair[1])
}

func prefixOf(a uint32, length int) netip.Prefix {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], a)
	return netip.PrefixFrom(netip.AddrFrom4(b), length).Masked()
}

func (d *drawer) port(class int) Ports {
	known := d.r.IntN(10) < 6
	switch class {
	case high:
		return Ports{1024, 65535}
	case low:
		return Ports{0, 1023}
	case someRange:
		if known {
			p := d.shape.ranges[d.r.IntN(len(d.shape.ranges))]
			return Ports{p[0], p[1]}
		}
		return d.ranges[d.r.IntN(len(d.ranges))]
	case exact:
		if known {
			p := d.exact[d.r.IntN(len(d.exact))]
			return Ports{p, p}
		}
		return d.ports[d.r.IntN(len(d.ports))]
	}
	return AllPorts
}

// ReadClassBench reads a ClassBench filter set, packed with gzip or not. Filters that no packet can
// match (ports of a protocol without ports) and those with part of a protocol are left out and
// counted; the flags column is ignored, as all users of these sets do.
func ReadClassBench(in io.Reader, name string) (rules []Rule, left int, err error) {
	in, err = unpack(in)
	if err != nil {
		return nil, 0, fmt.Errorf("reading %s: %w", name, err)
	}
	lines := bufio.NewScanner(in)
	for n := 1; lines.Scan(); n++ {
		col := strings.Fields(lines.Text())
		if len(col) == 0 {
			continue
		}
		r, ok, err := parseFilter(col)
		switch {
		case err != nil:
			return nil, 0, fmt.Errorf("%s:%d: %w", name, n, err)
		case !ok:
			left++
		case len(rules) == MaxRules:
			return nil, 0, fmt.Errorf("%s:%d: more than %d filters", name, n, MaxRules)
		default:
			rules = append(rules, r)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, 0, fmt.Errorf("reading %s: %w", name, err)
	}
	if len(rules) == 0 {
		return nil, 0, fmt.Errorf("%s holds no filters", name)
	}
	return rules, left, nil
}

// parseFilter reads @SRC/LEN DST/LEN LO : HI LO : HI 0xPROTO/0xMASK [FLAGS/MASK].
func parseFilter(col []string) (r Rule, ok bool, err error) {
	if len(col) < 9 || len(col) > 10 || !strings.HasPrefix(col[0], "@") || col[3] != ":" ||
		col[6] != ":" {
		return r, false, fmt.Errorf("not a ClassBench filter: @SRC/LEN DST/LEN LO : HI LO : HI " +
			"PROTO/MASK is expected")
	}
	if r.Src, err = netip.ParsePrefix(col[0][1:]); err != nil {
		return r, false, err
	}
	if r.Dst, err = netip.ParsePrefix(col[1]); err != nil {
		return r, false, err
	}
	if !r.Src.Addr().Is4() || !r.Dst.Addr().Is4() {
		return r, false, fmt.Errorf("filters are of IPv4")
	}
	r.Src, r.Dst = r.Src.Masked(), r.Dst.Masked()
	var v [6]uint64
	value, mask, _ := strings.Cut(col[8], "/")
	for i, s := range []string{col[2], col[4], col[5], col[7], value, mask} {
		bits := 16
		if i >= 4 {
			bits = 8
		}
		if v[i], err = strconv.ParseUint(s, 0, bits); err != nil {
			return r, false, err
		}
	}
	r.SrcPort, r.DstPort = Ports{uint16(v[0]), uint16(v[1])}, Ports{uint16(v[2]), uint16(v[3])}
	if v[0] > v[1] || v[2] > v[3] {
		return r, false, fmt.Errorf("a range of ports runs backwards")
	}
	r.Proto = uint8(v[4] & v[5])
	whole := v[5] == 0 || v[5] == 0xff && r.Proto != 0
	return r, whole && (!r.HasPorts() || r.Proto == 0 || hasPorts(r.Proto)), nil
}
