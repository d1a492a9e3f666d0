package workload

import (
	"errors"
	"math/rand/v2"
	"net/netip"
)

// Header holds the fields of a packet that rules ask for.
type Header struct {
	Src, Dst         netip.Addr
	SrcPort, DstPort uint16 // 0 where the protocol has none
	Proto            uint8
}

func (h *Header) hasPorts() bool { return hasPorts(h.Proto) }

// hasPorts: TCP, UDP, DCCP, SCTP, UDP-Lite.
func hasPorts(proto uint8) bool {
	switch proto {
	case 6, 17, 33, 132, 136:
		return true
	}
	return false
}

// strangers is the share of headers, in percent, that are made from no rule.
const strangers = 10

// Headers draws n headers for the rules: most inside a rule, at its corners half of the time, as
// ClassBench's trace generator does; a tenth from nowhere. A header that is made from a rule may
// match an earlier one.
func Headers(rules []Rule, n int, skew Skew, seed uint64) ([]Header, error) {
	if len(rules) == 0 {
		return nil, errors.New("no rule to draw packets from")
	}
	r := stream(seed, 40)
	pick, err := skew.picker(r, len(rules))
	if err != nil {
		return nil, err
	}
	out := make([]Header, n)
	for i := range out {
		rule := &Rule{Src: any4, Dst: any4, SrcPort: AllPorts, DstPort: AllPorts}
		if r.IntN(100) >= strangers {
			rule = &rules[pick()]
		}
		out[i] = headerOf(r, rule)
	}
	return out, nil
}

var any4 = netip.PrefixFrom(netip.IPv4Unspecified(), 0)

func headerOf(r *rand.Rand, rule *Rule) Header {
	h := Header{Src: point(r, rule.Src), Dst: point(r, rule.Dst), Proto: rule.Proto}
	if h.Proto == 0 {
		h.Proto = []uint8{6, 17}[r.IntN(2)]
	}
	if h.hasPorts() {
		h.SrcPort, h.DstPort = portOf(r, rule.SrcPort), portOf(r, rule.DstPort)
	}
	return h
}

// point returns the first or last address of a prefix, or one between; of wide prefixes one that a
// host may have.
func point(r *rand.Rand, p netip.Prefix) netip.Addr {
	if p.Bits() >= 8 {
		hi, _ := Split(p.Addr())
		switch r.IntN(4) {
		case 0:
			return p.Addr()
		case 1:
			m, _ := mask(p.Bits())
			return join(hi|^m, 0, 32)
		}
		return within(r, p)
	}
	for range 100 {
		if a := within(r, p); usable(netip.PrefixFrom(a, 32)) {
			return a
		}
	}
	return p.Addr()
}

func portOf(r *rand.Rand, p Ports) uint16 {
	switch r.IntN(4) {
	case 0:
		return p.Lo
	case 1:
		return p.Hi
	}
	return p.Lo + uint16(r.IntN(int(p.Hi-p.Lo)+1))
}
