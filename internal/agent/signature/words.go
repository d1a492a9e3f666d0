package signature

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"levee/internal/agent/spread"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// highest returns the upper end of Wilson's interval for a share of k in n at 95 %.
func highest(k, n int) float64 {
	if n == 0 {
		return 1
	}
	if k == 0 {
		return min(3/float64(n), 1)
	}
	const z = 1.96
	p, m := float64(k)/float64(n), float64(n)
	return min((p+z*z/2/m+z*math.Sqrt(p*(1-p)/m+z*z/4/m/m))/(1+z*z/m), 1)
}

// proposal puts together what was found.
func (w *work) proposal() *Proposal {
	p := &Proposal{}
	p.Flood = Judged{Seen: w.flood.Seen(), Packets: w.flood.Len(), LeftOut: w.flood.LeftOut(),
		Already: w.already, Kept: w.kept}
	p.Good = Judged{Seen: w.good.Seen(), Packets: w.good.Len(), LeftOut: w.good.LeftOut()}
	dropped, harmed := w.measure(w.chosen)
	label := w.labels()
	for i, c := range w.chosen {
		r := Rule{Flood: dropped[i], Good: harmed[i]}
		r.Text = fmt.Sprintf("%s as %q", c.resolved.Text, label())
		if c.at < len(w.base.Rules) {
			r.Before = w.base.Rules[c.at]
		}
		r.seen, r.Forged = w.describe(c.rule)
		p.Flood.Dropped += r.Flood
		p.Good.Dropped += r.Good
		p.Rules = append(p.Rules, r)
	}
	if w.tail && len(p.Rules) > 0 {
		p.Tail = passFragments
	}
	p.Sentence, p.Notes = w.sentence(p), w.notes(p)
	return p
}

// labels gives one label after the other that the policy does not have.
func (w *work) labels() func() string {
	used := map[string]bool{}
	for _, r := range slices.Concat(w.base.Protect, w.base.Rules) {
		used[r.Label] = true
	}
	n := 0
	return func() string {
		for {
			n++
			label := fmt.Sprintf("%s %d", w.Label, n)
			if n == 1 && len(w.chosen) == 1 {
				label = w.Label
			}
			if !used[label] {
				return label
			}
		}
	}
}

func (w *work) sentence(p *Proposal) string {
	passed := p.Flood.Passed()
	switch {
	case passed == 0 && p.Flood.Kept == 0:
		return fmt.Sprintf("No rule is needed: all %d packets of the flood are dropped already.",
			p.Flood.Packets)
	case passed == 0:
		return fmt.Sprintf("No rule is proposed: what passes of the flood, %d of %d packets, is "+
			"protected or essential.", p.Flood.Kept, p.Flood.Packets)
	case len(p.Rules) == 0 && p.Good.Packets == 0:
		return "No rule is proposed: the packets have too little in common for a rule that is " +
			"narrow, and no good traffic was given to compare with."
	case len(p.Rules) == 0 && p.Good.Packets < fewGood:
		return "No rule is proposed: the packets have too little in common for a rule that is " +
			"narrow, and too few good packets were given to compare with."
	case len(p.Rules) == 0:
		return fmt.Sprintf("No rule is proposed: the flood looks like the good traffic, and no "+
			"rule drops %.0f %% of it and at most %s of the good packets.", 100*w.Least,
			percent(w.Collateral))
	}
	var kinds []string
	for _, r := range p.Rules {
		if len(p.Rules) == 1 {
			kinds = append(kinds, r.seen)
			continue
		}
		kinds = append(kinds, percent(float64(r.Flood)/float64(passed))+" "+r.seen)
	}
	rules := "1 rule drops"
	if len(p.Rules) > 1 {
		rules = fmt.Sprintf("%d rules drop", len(p.Rules))
	}
	cost := fmt.Sprintf("%d of %d good packets", p.Good.Dropped, p.Good.Packets)
	if p.Good.Packets == 0 {
		cost = "an unknown share of the good traffic"
	}
	return fmt.Sprintf("The flood is %s; %s %s of it and %s.", strings.Join(kinds, ", "), rules,
		percent(p.Flood.Coverage()), cost)
}

func (w *work) notes(p *Proposal) (notes []string) {
	add := func(when bool, format string, args ...any) {
		if when {
			notes = append(notes, fmt.Sprintf(format, args...))
		}
	}
	add(p.Good.Packets == 0, "No good traffic was given: the collateral is unknown, and only "+
		"narrow rules are proposed.")
	scarce := p.Good.Packets > 0 && highest(0, p.Good.Packets) > max(w.Collateral, 0.0001)
	blind := w.flood.blind || w.good.blind
	for _, f := range field.Remembered() {
		add(blind && w.base.Asks(f), "%s", f.Info().Untold)
	}
	add(scarce, "%d good packets are few: one that none of them shows may be up to %s of all.",
		p.Good.Packets, percent(highest(0, p.Good.Packets)))
	add(p.Flood.Already > 0, "%d of %d packets of the flood are dropped already, and do not count.",
		p.Flood.Already, p.Flood.Packets)
	add(p.Flood.Kept > 0, "%d of %d packets of the flood are protected or essential, and do not "+
		"count.", p.Flood.Kept, p.Flood.Packets)
	add(w.forgot, "Limits, cookies and fragments track were left out: a sample has too few "+
		"packets for them.")
	var empty []string
	for _, s := range w.base.Sets {
		if s.Kind == policy.Dynamic {
			empty = append(empty, s.Name)
		}
	}
	add(blind && len(empty) > 0, "Dynamic sets were taken as empty: %s.",
		strings.Join(empty, ", "))
	add(p.Flood.LeftOut+p.Good.LeftOut > 0, "Packets were left out, as their headers are longer "+
		"than %d bytes: %d of the flood, %d good ones.", headers, p.Flood.LeftOut, p.Good.LeftOut)
	return notes
}

// percent writes a share.
func percent(share float64) string {
	switch p := 100 * share; {
	case p == 0 || p == 100:
		return fmt.Sprintf("%.0f %%", p)
	case p < 0.1:
		return fmt.Sprintf("%.2g %%", p)
	default: // nothing but all is 100 %
		return fmt.Sprintf("%.1f %%", math.Floor(10*p)/10)
	}
}

// describe says in words what most packets of a rule are, and whether their sources look forged.
func (w *work) describe(r *rule) (words string, forged bool) {
	v := w.views[0]
	n := 0
	var from []netip.Addr
	names, protocols, hosts, nets := counts{}, counts{}, counts{}, counts{}
	ports, services := counts{}, counts{}
	for at := range v.len() {
		if !r.flood.has(at) {
			continue
		}
		p := &v.packets[at]
		n++
		names[nameOf(p)]++
		if p.HasPorts() {
			ports[fmt.Sprint(p.SrcPort)]++
			services[fmt.Sprint(p.DstPort)]++
		}
		if p.IsIP() {
			from = append(from, p.Src)
			protocols[protocolName(p.Proto)]++
			hosts[p.Dst.String()]++
			bits := 24
			if p.Dst.Is6() {
				bits = 64
			}
			net, _ := p.Dst.Prefix(bits)
			nets[net.String()]++
		}
	}
	words = "of many kinds"
	if name := cmp.Or(names.most(n), protocols.most(n)); name != "" {
		words = name
	}
	if port := ports.most(n); port != "" {
		words += " from port " + port
	}
	if to := hosts.most(n); to != "" {
		words += " to " + to
	} else if to := nets.most(n); to != "" {
		words += " to " + to
	}
	if port := services.most(n); port != "" {
		words += " port " + port
	}
	s := spread.Of(from)
	switch {
	case s.Forged:
		words += fmt.Sprintf(" from sources that look forged (%s of the packets have one of "+
			"their own)", percent(float64(s.Different)/float64(s.Packets)))
	case s.Different == 1:
		words += " from " + from[0].String()
	case s.Different > 1:
		words += fmt.Sprintf(" from %d sources", s.Different)
	}
	return words, s.Forged
}

type counts map[string]int

// most returns what nine of ten packets have, or "".
func (c counts) most(n int) string {
	for k, m := range c {
		if 10*m >= 9*n && m > 0 {
			return k
		}
	}
	return ""
}

// nameOf returns a packet's kind.
func nameOf(p *packet.Packet) string {
	switch {
	case !p.IsIP():
		return fmt.Sprintf("EtherType 0x%04x", p.EtherType)
	case p.Fragment:
		return "fragments of " + protocolName(p.Proto)
	case p.Transport == packet.TCPTransport:
		names := strings.ToUpper(flagNames(field.TCPFlags, uint64(p.Flags&^flagsAside)))
		return "TCP " + strings.ReplaceAll(names, ",", "+")
	case p.Transport == packet.ICMPTransport:
		return "ICMP " + typeName(field.ICMPType, p.Type)
	case p.Transport == packet.ICMP6Transport:
		return "ICMPv6 " + typeName(field.ICMP6Type, p.Type)
	}
	return protocolName(p.Proto)
}

func protocolName(proto uint8) string {
	for _, n := range field.Proto.Info().Names {
		if n.Lo == uint64(proto) {
			return strings.ToUpper(n.Word)
		}
	}
	return fmt.Sprintf("protocol %d", proto)
}

func typeName(f field.Field, of uint8) string {
	for _, n := range f.Info().Names {
		if n.Lo == uint64(of) {
			return n.Word
		}
	}
	return fmt.Sprintf("type %d", of)
}
