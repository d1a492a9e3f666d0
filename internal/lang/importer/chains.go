package importer

import (
	"slices"

	"levee/internal/lang/importer/match"
)

// Verb is the action of a rule of a chain.
type Verb uint8

const (
	DoNothing Verb = iota // goes on; the rule is left out
	DoCount
	doLog
	DoAccept
	DoDrop
	DoJump
	DoGoto
	DoReturn
)

// watches tells whether a rule looks at packets and decides nothing.
func (v Verb) watches() bool { return v == DoCount || v == doLog }

// takesBare tells whether segments that conntrack picks up in the midst of a connection count as
// new ones: those that pass are of new connections by the SYN alone.
func (v Verb) takesBare() bool { return v != DoAccept && !v.watches() }

// Origin is the place of a rule in its source.
type Origin struct {
	File string
	Line int
	Text string // the rule as its tool writes it, cut short, printable

	Place string // see Remark
}

// Remark is one about the place of the source.
func (o Origin) Remark(k Kind, text, instead string) Remark {
	return Remark{File: o.File, Line: o.Line, Rule: o.Text, Kind: k, Text: text, Instead: instead,
		place: o.Place}
}

// ChainRule is one rule of a netfilter chain, of any front end.
type ChainRule struct {
	Origin
	Label    string
	Alts     []match.Match // it holds where one of them does; none: for no packet
	Verb     Verb
	Target   *Chain   // of DoJump and DoGoto
	Unknown  []Reason // conditions, or an action, that no policy has: the rule is left out
	Remarks  []Remark // what else is to be said when the rule is met
	States   []string // connection states that are asked for, nil for any
	Limit    Limit
	Limits   []Reason // what the limits are
	Rate     *Rate    // what they are as a limit of a policy, if that is known
	Cookie   bool     // SYNs are answered, and those of clients that are there pass
	Logs     string   // the label of a log in front of it, "" if it has none
	nat      *natTo   // of a nat chain
	Seen     *SeenLately
	Mark     *MarkAsk
	SetsMark uint32 // bits of the mark that it may set
	rated    bool   // it becomes one
	// a limit stands before the states that it asks for
	StateLast bool
	opens     []match.Match // of a limit: those of Alts that begin something
	budget    string        // the name of what it is counted in, which other rules may share
	Filled    []Filled      // sets that change while the source runs
	passes    []match.Match // packets that the policy may pass because of remarks that widen
	about     []match.Match // left out for its states: which packets may have these, nil if all may
	Named     bool          // Label is one of the source, not made from the chain
	Absent    bool          // nothing is lost with it: about another interface
	loopback  bool          // absent, as it is about the machine's packets to itself
	Implied   bool          // no line of the source says it
	AtInput   bool          // it is as it is because its chain is at the hook input
	widens    bool          // left out, and packets pass that it would have dropped
}

// Reason says why a rule is left out, and what to do instead.
type Reason struct{ What, Instead string }

// Chain is one chain. Base chains have a policy and a family.
type Chain struct {
	Name   string // as remarks and labels have it
	Rules  []*ChainRule
	Base   bool
	Drop   bool        // the policy of a base chain
	Family match.Match // of a base chain: the frames it sees
	Origin             // where it is defined
	Met    bool        // rules were looked at
	before bool        // packets meet it before nat does
	loses  bool        // of nat, not imported: more may pass

	Flushes int // -F so far, while a file is read
}

// Reached are chains and those that their rules lead to, each once; nil among them is none.
func Reached(from ...*Chain) (order []*Chain) {
	seen := map[*Chain]bool{}
	var visit func(c *Chain)
	visit = func(c *Chain) {
		if c == nil || seen[c] {
			return
		}
		seen[c] = true
		order = append(order, c)
		for _, r := range c.Rules {
			visit(r.Target)
		}
	}
	for _, c := range from {
		visit(c)
	}
	return order
}

// idle tells whether the rule decides nothing.
func (r *ChainRule) idle() bool {
	return r.Verb == DoNothing && len(r.Unknown) == 0 || r.Verb.watches()
}

// idle tells whether a packet that comes to these rules leaves them as at their end.
func idle(rules []*ChainRule) bool {
	return !slices.ContainsFunc(rules, func(r *ChainRule) bool {
		return !r.idle() && (r.Verb != DoReturn || len(r.Unknown) > 0)
	})
}

// dropsAll tells whether the chain drops each packet that comes to it.
func (c *Chain) dropsAll() bool {
	for _, r := range c.Rules {
		switch {
		case r.idle():
		case r.Verb != DoDrop:
			return false
		case r.isDrop() && r.States == nil && r.Alts[0].Equal(&match.Match{}):
			return true
		}
	}
	return false
}

// isDrop tells whether the rule drops all packets of its one alternative.
func (r *ChainRule) isDrop() bool {
	return r.Verb == DoDrop && len(r.Unknown) == 0 && r.Limit == NoLimit && len(r.Filled) == 0 &&
		len(r.Alts) == 1
}

// unseen returns m without the frames that base chain b sees.
func unseen(m match.Match, b *Chain) match.Match {
	if b.Family.Fields[match.Ether] == nil {
		m.Never = true
		return m
	}
	others := match.Match{}.With(match.Ether, b.Family.Fields[match.Ether].Not(0xffff))
	return m.And(&others)
}

// covering returns the alternative that holds for all packets of c alone, or all alternatives.
func (r *ChainRule) covering(c *match.Match) (first, last int) {
	for i := range r.Alts {
		if c.Compatible(&r.Alts[i]) && c.Within(r.Alts[i]) {
			return i, i + 1
		}
	}
	return 0, len(r.Alts)
}

// allOrNone tells whether each rule from n on is, of the packets of c, about packets of m only or
// about none of them: then what returns with m needs no copy of what follows the chain, as rules
// about m are left away. It looks at a few rules.
func (ch *Chain) allOrNone(n int, c, m *match.Match) bool {
	if len(ch.Rules)-n > 32 {
		return false
	}
	for _, r := range ch.Rules[n:] {
		for i := range r.Alts {
			if !c.Compatible(&r.Alts[i]) {
				return false
			}
			x := c.And(&r.Alts[i])
			if both := x.And(m); !both.Never && !x.Within(*m) {
				return false
			}
		}
	}
	return true
}

// MaxAlternatives bounds the rules that one rule becomes.
const MaxAlternatives = 4096

// CheckFragment leaves out a rule about fragments that a policy has no words for.
func (r *ChainRule) CheckFragment() {
	for i := range r.Alts {
		m := &r.Alts[i]
		switch {
		case !m.Vague():
		case r.Verb == DoDrop && m.Fields[match.Fragment][0].Lo == match.Later:
			r.Remarks = append(r.Remarks, r.Remark(Changed,
				"asks for second and later fragments, `fragments` is the first one too; where "+
					"netfilter reassembles (INPUT, or with conntrack) it never sees any",
				"look whether fragments are expected at all"))
			return
		default:
			r.Unknown = append(r.Unknown, Reason{"tells first fragments from later ones, which " +
				"no policy does", "write `fragments` or `not fragments` if that is meant"})
			return
		}
	}
}
