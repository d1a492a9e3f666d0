package plan

import (
	"levee/internal/filter/ir"
	"levee/internal/lang/field"
)

// Tracks reports whether a rule asks for connections; at ingress rules for what leaves count, too.
// Then each packet of TCP, UDP and ICMP is looked up once, before the rules, even if no rule of its
// chain asks: the memory must not depend on which rules the compiler has removed.
func (p *Plan) Tracks() bool { return p.State.Asks[field.Flow] }

// tracked reports whether packets of a class may belong to connections.
func tracked(c ir.Class) bool {
	return c.Transport == ir.TCP || c.Transport == ir.UDP || c.Transport == ir.ICMP
}

// askFlow notes the fields by which packets of a class are looked up.
func (f *Fields) askFlow(c ir.Class) {
	f[field.SrcAddr], f[field.DstAddr] = true, true
	switch {
	case c.Transport == ir.ICMP && c.Family == ir.IPv4:
		f[field.ICMPType] = true
	case c.Transport == ir.ICMP:
		f[field.ICMP6Type] = true
	default:
		f[field.SrcPort], f[field.DstPort] = true, true
	}
	f[field.TCPFlags] = f[field.TCPFlags] || c.Transport == ir.TCP
}

// byTransport parts classes of which connections are looked up from others: each transport has
// instructions of its own for that.
func byTransport(alike [][]ir.Class) (out [][]ir.Class) {
	for _, classes := range alike {
		of := map[ir.Transport]int{} // index into out
		for _, c := range classes {
			t := c.Transport
			if !tracked(c) {
				t = ir.Other
			}
			i, ok := of[t]
			if !ok {
				i = len(out)
				of[t] = i
				out = append(out, nil)
			}
			out[i] = append(out[i], c)
		}
	}
	return out
}
