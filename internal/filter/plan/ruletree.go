package plan

import (
	"fmt"
	"math"
	"net/netip"
	"slices"

	"levee/internal/filter/ir"
	"levee/internal/filter/prefix"
	"levee/internal/filter/ruletree"
	"levee/internal/lang/action"
	"levee/internal/lang/field"
	"levee/internal/lang/syntax"
)

// MinTree is from how many rules in a row on that ask for addresses and numbers only they are
// looked up in a rule tree instead of being compared.
const MinTree = 48

// maxBoxes is the largest number of boxes that the lists of one rule may multiply to in a rule
// tree.
const maxBoxes = 16

// RuleTree is rules that are looked up all at once (package ruletree): those behind it are tried
// where none of them matches.
type RuleTree struct {
	Node
	Family ir.Family
	Rules  []ir.Rule
	Asks   Fields
	Tree   *Tree
	// InPlace has the first walks be code of their own.
	InPlace bool
}

func (*RuleTree) Kind() string    { return "rule tree" }
func (*RuleTree) Blocks() []Block { return nil }

// Tree is a table that a rule tree or a look-up of endpoints walks.
type Tree struct {
	*ruletree.Table
	Pool *Pool
	For  string
	Why  string

	family ir.Family
	rules  []ir.Rule // that it is of, none if it is of endpoints
}

// Pool holds the trees of a family, which one function walks.
type Pool struct {
	*ruletree.Pool
	Name string       // of the function
	Any  netip.Prefix // all addresses
}

// These constants compile only if every slot of the largest policy fits into a result, and every
// pair of ports of the largest pool has a number.
const (
	_ = uint(ruletree.MaxResult - SlotBytes*(syntax.MaxStatements+1000))
	_ = uint(ruletree.MaxSize - prefix.MaxBytes)
)

// fits counts the rules from the start of the list that a rule tree can hold.
func (p *planner) fits(c *Chain, rules []ir.Rule) int {
	for i := range rules {
		if !boxable(c.Family(), &rules[i]) || len(p.extension.further(&rules[i])) > 0 {
			return i
		}
	}
	return len(rules)
}

// boxable reports whether a rule tree can hold a rule: it only decides, and is a product of lists
// of addresses and numbers.
func boxable(f ir.Family, r *ir.Rule) bool {
	if !r.Action.Decides() || !r.Action.May(action.MayBeTree) || len(r.Conds) == 0 ||
		f == ir.NonIP {
		return false
	}
	var seen [field.NumFields]bool
	for i := range r.Conds {
		q := &r.Conds[i]
		if seen[q.Field] || q.Dynamic() {
			return false
		}
		seen[q.Field] = true
		if q.Field.Info().Box == field.NoBox || q.Not {
			return false
		}
	}
	return boxesOf(r) <= maxBoxes
}

// boxesOf returns how many boxes the lists of a rule multiply to, or one more than maxBoxes if they
// are more.
func boxesOf(r *ir.Rule) int {
	n := 1
	for i := range r.Conds {
		n = min(n*max(len(r.Conds[i].Prefixes), len(r.Conds[i].Ranges)), maxBoxes+1)
	}
	return n
}

// boxes multiplies the lists of a rule out. The second number of a box is the destination port,
// the ICMP type or the protocol, of which no class of packets has two.
func boxes(r *ir.Rule, any netip.Prefix, out []ruletree.Box) []ruletree.Box {
	first := len(out)
	out = append(out, ruletree.Box{
		Src: any, Dst: any, Ports: [2]ruletree.Span{ruletree.Any, ruletree.Any},
		Result: ResponseOf(r).Word(),
	})
	for i := range r.Conds {
		q := &r.Conds[i]
		bases, values := len(out)-first, len(q.Prefixes)+len(q.Ranges)
		out = slices.Grow(out, bases*max(0, values-1))[:first+bases*values]
		for n := bases - 1; n >= 0; n-- { // from the last on, as they lie where results will
			b := out[first+n]
			for v := range values {
				narrow(&b, q, v)
				out[first+n*values+v] = b
			}
		}
	}
	return out
}

// narrow narrows a box to one of the values of a condition: of its prefixes, or of its ranges.
func narrow(b *ruletree.Box, q *ir.Cond, value int) {
	switch side := q.Field.Info().Box; {
	case side == field.BoxSrc:
		b.Src = q.Prefixes[value]
	case side == field.BoxDst:
		b.Dst = q.Prefixes[value]
	default:
		n, r := 1, q.Ranges[value]
		if side == field.BoxNumber0 {
			n = 0
		}
		b.Ports[n] = ruletree.Span{Lo: uint16(r.Lo), Hi: uint16(min(r.Hi, math.MaxUint16))}
	}
}

func (p *planner) ruleTree(f ir.Family, rules []ir.Rule) *RuleTree {
	t := &RuleTree{Family: f, Rules: rules}
	t.What = count(len(rules), "rule")
	t.Why = fmt.Sprintf("%d rules or more in a row on addresses and ports: the cost does not "+
		"grow with their number", MinTree)
	t.Asks.askAll(rules)
	return t
}

// pool gives the pool of a family, which is made when the first rule needs it.
func (p *planner) pool(f ir.Family) *Pool {
	if p.Pools[f] == nil {
		top := Response{ir.Pass, len(p.Slots)}.Word()
		if f == ir.IPv4 {
			p.Pools[f] = &Pool{ruletree.NewPool(32, top), "rule_trees4",
				netip.PrefixFrom(netip.IPv4Unspecified(), 0)}
		} else {
			p.Pools[f] = &Pool{ruletree.NewPool(128, top), "rule_trees6",
				netip.PrefixFrom(netip.IPv6Unspecified(), 0)}
		}
	}
	return p.Pools[f]
}

// growTree builds the tree of rules, or finds it. Classes of packets whose rules are the same share
// it.
func (p *planner) growTree(c *Chain, t *RuleTree) {
	for _, known := range p.Trees {
		if known.family == t.Family && known.rules != nil && sameRules(known.rules, t.Rules) {
			known.For += "; " + c.Classes[0].String()
			t.Tree = known
			return
		}
	}
	pool, n := p.pool(t.Family), 0
	for i := range t.Rules {
		n += boxesOf(&t.Rules[i])
	}
	list := make([]ruletree.Box, 0, n)
	for i := range t.Rules {
		list = boxes(&t.Rules[i], pool.Any, list)
	}
	t.Tree = p.addGrown(&Tree{
		Table: pool.Add(list), Pool: pool, family: t.Family, rules: t.Rules,
		For: fmt.Sprintf("%d rules, %s", len(t.Rules), c.Classes[0]), Why: t.Why,
	})
	t.Cost.Bytes = t.Tree.Bytes()
}

// growEndpoints builds the tree of a list of endpoints, or finds it.
func (p *planner) growEndpoints(l *Lookup, class ir.Class) {
	if t := p.endpoints[l.Cond.List]; t != nil {
		l.Tree = t
		return
	}
	pool := p.pool(l.Family)
	list := make([]ruletree.Box, len(l.Cond.Pairs))
	for i, pair := range l.Cond.Pairs {
		ports := ruletree.Span{Lo: uint16(pair.Range.Lo), Hi: uint16(pair.Range.Hi)}
		list[i] = ruletree.Box{Src: pool.Any, Dst: pair.Prefix,
			Ports: [2]ruletree.Span{ruletree.Any, ports}, Result: 1}
	}
	l.Tree = p.addGrown(&Tree{
		Table: pool.Add(list), Pool: pool, family: l.Family,
		For: l.What + ", " + class.String(), Why: l.Why,
	})
	p.endpoints[l.Cond.List] = l.Tree
	l.Cost.Bytes = l.Tree.Bytes()
}

func (p *planner) addGrown(t *Tree) *Tree {
	p.Trees = append(p.Trees, t)
	return t
}

// inPlace takes what a look-up's trees need of maxTreesInPlace, if there is as much left.
func (p *planner) inPlace(t *Tree) bool {
	if p.treesInPlace+t.Trees() > maxTreesInPlace {
		return false
	}
	p.treesInPlace += t.Trees()
	return true
}
