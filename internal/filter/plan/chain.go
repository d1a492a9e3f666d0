package plan

import (
	"slices"
	"strings"

	"levee/internal/filter/ir"
	"levee/internal/filter/state"
	"levee/internal/lang/field"
)

// Chain is the rules of a class of packets, or of several of one family whose rules are the same.
type Chain struct {
	Node
	Classes []ir.Class
	Rules   []ir.Rule
	Do      []Block // in the order in which they are tried; the last decides

	Asks      Fields // what any block asks for
	Registers Fields // what blocks in the main function ask for
	// a block is a function or bytecode, which are given the decoded packet's address
	Calls bool
	// a connection is looked up for each packet, before the rules
	Tracked bool
	within  bool // of packets within tunnels
	groups  []*group
}

func (*Chain) Kind() string      { return "chain" }
func (c *Chain) Blocks() []Block { return c.Do }

// Family of the classes.
func (c *Chain) Family() ir.Family { return c.Classes[0].Family }

// Answers returns what memories tell of the sources of its packets.
func (c *Chain) Answers() []*state.Answer {
	return state.Answers(func(f field.Field) bool { return c.Asks[f] })
}

// shareChains gives each class that packets may have its chain.
func (p *planner) shareChains() {
	alike := p.Program.Alike()
	if p.Tracks() || len(p.Echoes) > 0 {
		alike = byTransport(alike)
	}
	asks := p.asksFlows()
	for _, classes := range alike {
		classes = slices.DeleteFunc(classes, func(c ir.Class) bool { return !p.Target.meets(c) })
		if len(classes) == 0 {
			continue
		}
		c := &Chain{Classes: classes, Rules: p.Program.Lists[classes[0].Index()]}
		names := make([]string, len(classes))
		for i, class := range classes {
			p.ChainOf[class.Index()] = c
			names[i] = class.String()
		}
		c.What = strings.Join(names, "; ")
		c.Asks.askAll(c.Rules)
		if c.Tracked = p.Tracks() && tracked(classes[0]); c.Tracked {
			c.Asks.askFlow(classes[0])
		}
		if len(c.Answers()) > 0 {
			c.Asks[field.SrcAddr] = true
		}
		c.Asks[field.Stream] = asksStreams(c.Rules)
		if classes[0].Transport == ir.UDP && asks[classes[0].Family] {
			c.Asks[field.ProvenFlow] = true
		}
		if c.Asks[field.ProvenFlow] || c.Asks[field.Stream] {
			c.Asks.askFlow(classes[0])
		}
		if c.AsksRoute() {
			c.Asks.askRoute()
		}
		p.Chains = append(p.Chains, c)
	}
}

// asksFlows returns the families in which a rule asks whose flow is proven. A packet proves its
// flow whether or not rules of its own class ask: a first fragment, say, which an earlier rule
// decides.
func (p *planner) asksFlows() (asks [ir.IPv6 + 1]bool) {
	for _, c := range ir.Classes() {
		if c.Transport != ir.UDP || !p.Target.meets(c) {
			continue
		}
		var f Fields
		f.askAll(p.Program.Lists[c.Index()])
		asks[c.Family] = asks[c.Family] || f[field.ProvenFlow]
	}
	return asks
}

// own returns how many rules from the start of the chain on are the policy's. What is built in is
// never in a rule tree or bytecode, so that chains whose other rules are the same share these.
func (p *planner) own(rules []ir.Rule) int {
	builtIn := p.Program.Policy.EssentialSlot(0)
	n := slices.IndexFunc(rules, func(r ir.Rule) bool { return r.Slot >= builtIn })
	if n < 0 {
		return len(rules)
	}
	return n
}

// sameRules reports whether two lists of one family are the same.
func sameRules(a, b []ir.Rule) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !a[i].Same(&b[i]) {
			return false
		}
	}
	return true
}
