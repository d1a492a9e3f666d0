// Package nat reads which packets to this machine its rules send elsewhere, and whether they filter
// what it forwards.
//
// In go the rules of nftables and of iptables of both kinds, as the programs that are installed
// print them. Out come forwards, by what arrives, before it is translated, and in words what could
// not be read. It must never change a rule, load a module, or call a part of the rules all of them.
package nat

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Forward is traffic that a rule sends elsewhere: to another machine, a container, another port.
type Forward struct {
	Proto    uint8        // of IP; 0: all
	Ports    Range        // of the destination; zero: all
	From, To netip.Prefix // not valid: any
	Rule     string       // the rule that does it
}

// Range is of ports, both ends included.
type Range struct{ Low, High uint16 }

// Rules lists the rules that were found.
type Rules struct {
	Forwards []Forward
	Filters  bool     // some rule drops packets that are forwarded, whatever state they have
	Unread   []string // why rules could not be read, a sentence each
}

// ruleset is a ruleset as far as it matters.
type ruleset struct {
	chains  map[string][]step
	arrive  []string // chains that packets meet before they are routed
	forward []string // that packets meet which are forwarded
	closed  bool     // a chain of these drops what no rule has passed
}

// step is a rule, or one entry of the map that it asks.
type step struct {
	when   []cond // any of them
	into   string // the chain that goes on, or ""
	sends  bool   // elsewhere
	drops  bool
	states bool // it asks for a state of conntrack
	text   string
}

// cond holds the conditions of a rule. An empty list asks for nothing. A rule may have conditions
// that are not here: a forward is never smaller than the rule's.
type cond struct {
	protos   []uint8
	ports    []Range
	from, to []netip.Prefix
	devs     []string // by which it comes; a + at the end stands for any rest
}

// both returns what meets two conditions; ok is false if nothing does.
func (c cond) both(d cond) (out cond, ok bool) {
	var o [5]bool
	out.protos, o[0] = common(c.protos, d.protos, func(a, b uint8) (uint8, bool) {
		return a, a == b
	})
	out.ports, o[1] = common(c.ports, d.ports, func(a, b Range) (Range, bool) {
		r := Range{max(a.Low, b.Low), min(a.High, b.High)}
		return r, r.Low <= r.High
	})
	narrower := func(a, b netip.Prefix) (netip.Prefix, bool) {
		if b.Bits() > a.Bits() {
			return b, a.Overlaps(b)
		}
		return a, a.Overlaps(b)
	}
	out.from, o[2] = common(c.from, d.from, narrower)
	out.to, o[3] = common(c.to, d.to, narrower)
	out.devs, o[4] = common(c.devs, d.devs, func(a, b string) (string, bool) {
		return a, a == b || named(b, a)
	})
	return out, !slices.Contains(o[:], false)
}

func common[T any](a, b []T, of func(a, b T) (T, bool)) (out []T, ok bool) {
	switch {
	case len(a) == 0:
		return b, true
	case len(b) == 0:
		return a, true
	}
	for _, x := range a {
		for _, y := range b {
			if z, ok := of(x, y); ok {
				out = append(out, z)
			}
		}
	}
	return out, len(out) > 0
}

// named tells whether a name of an interface in a rule stands for one.
func named(in, dev string) bool {
	stem, any := strings.CutSuffix(in, "+")
	return in == dev || any && strings.HasPrefix(dev, stem)
}

// Bounds of a walk: the rules of a cluster are long, and most are for services that no packet from
// outside can reach.
const (
	mostSteps    = 1 << 20
	mostDepth    = 32
	mostForwards = 1024
)

// walk follows the chains that packets meet as they arrive by one of some interfaces.
type walk struct {
	*ruleset
	devs  []string
	steps int
	out   []Forward
	seen  map[Forward]bool
	full  bool
}

// forwards lists what a ruleset sends elsewhere of what arrives by one of some interfaces. all is
// false if there is more.
func (r *ruleset) forwards(devs []string) (out []Forward, all bool) {
	w := &walk{ruleset: r, devs: devs, seen: map[Forward]bool{}}
	for _, chain := range r.arrive {
		w.chain(chain, cond{}, 0)
	}
	return w.out, !w.full
}

func (w *walk) chain(name string, so cond, depth int) {
	for _, s := range w.chains[name] {
		for _, c := range s.when {
			if w.steps++; w.steps > mostSteps || depth > mostDepth || len(w.out) >= mostForwards {
				w.full = true
				return
			}
			met, ok := so.both(c)
			if !ok || len(met.devs) > 0 && !slices.ContainsFunc(w.devs, func(dev string) bool {
				return slices.ContainsFunc(met.devs, func(in string) bool { return named(in, dev) })
			}) {
				continue
			}
			if s.sends {
				w.add(met, s.text)
			} else if s.into != "" {
				w.chain(s.into, met, depth+1)
			}
		}
	}
}

// add notes what a rule sends elsewhere, each once whatever rules do it. What comes from or goes to
// loopback alone does not come from outside.
func (w *walk) add(c cond, text string) {
	for _, proto := range orZero(c.protos) {
		for _, ports := range orZero(c.ports) {
			for _, from := range orZero(c.from) {
				for _, to := range orZero(c.to) {
					f := Forward{Proto: proto, Ports: ports, From: from, To: to}
					if w.seen[f] || to.Addr().IsLoopback() || from.Addr().IsLoopback() {
						continue
					}
					w.seen[f] = true
					f.Rule = text
					w.out = append(w.out, f)
				}
			}
		}
	}
}

func orZero[T any](all []T) []T {
	if len(all) == 0 {
		return make([]T, 1)
	}
	return all
}

// filters tells whether anything drops what is forwarded, be it new or of a connection: who drops
// invalid states alone keeps nobody out.
func (r *ruleset) filters() bool {
	seen := map[string]bool{}
	var drops func(chain string) bool
	drops = func(chain string) bool {
		if seen[chain] {
			return false
		}
		seen[chain] = true
		return slices.ContainsFunc(r.chains[chain], func(s step) bool {
			return s.drops && !s.states || s.into != "" && drops(s.into)
		})
	}
	return r.closed || slices.ContainsFunc(r.forward, drops)
}

// Numbers of protocols (IANA) by the names that rules use.
var protos = map[string]uint8{"icmp": 1, "igmp": 2, "tcp": 6, "udp": 17, "dccp": 33, "gre": 47,
	"esp": 50, "ah": 51, "ipv6-icmp": 58, "icmpv6": 58, "sctp": 132, "udplite": 136}

func protoOf(word string) (uint8, bool) {
	if p, ok := protos[word]; ok {
		return p, true
	}
	var n uint8
	_, err := fmt.Sscanf(word, "%d", &n)
	return n, err == nil
}

// prefixOf reads an address or a prefix; a mask may be written out.
func prefixOf(word string) (netip.Prefix, bool) {
	if a, err := netip.ParseAddr(word); err == nil {
		return netip.PrefixFrom(a, a.BitLen()), true
	}
	p, err := netip.ParsePrefix(word)
	return p.Masked(), err == nil
}
