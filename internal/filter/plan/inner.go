package plan

import (
	"strings"

	"levee/internal/filter/tunnel"
)

// LooksInside reports whether packets within tunnels are decoded.
func (p *Plan) LooksInside() bool { return len(p.Program.Inners) > 0 && !p.Target.Plain }

// within plans what matches on packets within tunnels ask: functions of straight code, which note
// for each match whether it holds.
func (p *planner) within() {
	p.Within = nil
	if !p.LooksInside() {
		return
	}
	for _, l := range p.Program.Inners {
		if len(l.Rules) == 0 {
			continue
		}
		c := &Chain{Classes: l.Classes, Rules: l.Rules, Calls: true, within: true}
		names := make([]string, len(l.Classes))
		for i, class := range l.Classes {
			names[i] = class.String()
		}
		c.What = "within tunnels: " + strings.Join(names, "; ")
		g := &group{chain: c, do: []Block{p.straight(c, l.Rules)}}
		for _, part := range p.split(g) {
			s := part[0].(*Straight)
			f := &Function{Number: len(p.Functions), Family: c.Family(), Rules: s.rules, Do: part,
				Within: true, bound: sizeFunction + s.bound}
			f.What = count(len(s.rules), "inner term")
			f.Asks.askAll(s.rules)
			p.Functions = append(p.Functions, f)
			c.Do = append(c.Do, f)
		}
		p.Within = append(p.Within, c)
	}
}

// sizeWithin returns the functions and instructions of decoding packets within tunnels, without the
// matches.
func (p *planner) sizeWithin() (functions, size int) {
	if !p.LooksInside() {
		return 0, 0
	}
	return 1, tunnel.MaxInstructions + sizeLookInside + sizeChain*len(p.Within)
}
