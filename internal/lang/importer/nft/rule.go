package nft

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"levee/internal/lang/importer"
	"levee/internal/lang/importer/match"
)

var errPktType = errors.New("asks for a type of frame that a policy has no word for")

// nftRule reads the statements of one rule.
type nftRule struct {
	importer.RuleReader
	n      *nftables
	c      *nftChain
	done   bool // a verdict was read
	counts bool
	logs   bool
	quiet  []importer.Reason // statements that decide nothing
	// what statements that decide nothing ask of a packet before the rule goes on
	guards  []importer.Reason
	split   []*importer.ChainRule
	anyPort bool // `th dport`: of whatever protocol
}

// parseRule makes rules of one rule of nft: more than one where it has a verdict map. What a policy
// has no words for, or cannot be read, is remembered.
func (n *nftables) parseRule(c *nftChain, raw nftRaw, number int) []*importer.ChainRule {
	text := fmt.Sprintf("%s %s %s handle %d:%s", c.table.family, c.table.name, c.Name, raw.handle,
		ruleText(raw.expr))
	p := &nftRule{n: n, c: c, RuleReader: importer.RuleReader{Out: n.out, Rule: &importer.ChainRule{
		Origin: importer.Origin{File: n.name, Line: raw.line, Text: importer.Printable(text, 160),
			Place: fmt.Sprintf("handle %d", raw.handle)}, Label: raw.comment,
		Alts: []match.Match{{}},
	}}}
	if p.Rule.Named = p.Rule.Label != ""; !p.Rule.Named {
		p.Rule.Label = fmt.Sprintf("%s:%d", c.Name, number)
	}
	for _, e := range raw.expr {
		var m map[string]json.RawMessage
		if p.done {
			break // nft refuses statements behind a verdict
		}
		if err := json.Unmarshal(e, &m); err != nil || len(m) == 0 {
			p.unreadable(e)
			continue
		}
		for key, inner := range m {
			if err := p.statement(key, inner); err != nil {
				p.Unknown("has the statement "+match.Quote(key)+", which cannot be read: "+
					importer.Printable(err.Error(), 200), "")
				p.done = true
			}
			if len(m) > 1 {
				p.Unknown("has a statement of several parts", "")
				break
			}
		}
	}
	p.finish()
	if p.split != nil {
		return p.split
	}
	return []*importer.ChainRule{p.Rule}
}

// unreadable notes a statement that is no object: text where this nft has no JSON for a statement,
// as 1.0.6 for `jump { ... }`. What it decides is not known.
func (p *nftRule) unreadable(e json.RawMessage) {
	text, ok := scalar(e)
	if !ok {
		text = string(e)
	}
	p.Unknown("has the statement "+match.Quote(strings.Join(strings.Fields(text), " "))+
		", for which this version of nft has no JSON",
		"give a chain without a name one, and list the ruleset again")
}

// statement reads one statement.
func (p *nftRule) statement(key string, inner json.RawMessage) error {
	switch key {
	case "match":
		var m struct {
			Op          string
			Left, Right json.RawMessage
		}
		if json.Unmarshal(inner, &m) != nil || len(m.Left) == 0 || len(m.Right) == 0 {
			return fmt.Errorf("%s is not a match", match.Quote(string(inner)))
		}
		if p.left(m.Left).state {
			p.Rule.StateLast = p.Rule.Rate != nil
		} else {
			p.moreBehind()
		}
		return p.match(m.Op, m.Left, m.Right)
	case "accept", "drop", "return", "continue", "jump", "goto", "reject":
		p.done = true
		return p.verdict(p.Rule, key, inner)
	case "vmap":
		p.done = true
		p.moreBehind()
		return p.vmap(inner)
	case "counter":
		p.counts = true
	case "limit", "quota", "ct count", "connlimit":
		p.limit(key, key, inner, nil)
	case "meter":
		var m struct{ Key, Stmt json.RawMessage }
		_ = json.Unmarshal(inner, &m)
		key, inner := object(m.Stmt)
		p.limit(key, "meter with "+key, inner, m.Key)
		p.has(m.Key, "counts")
	case "set", "map":
		p.quietly(key)
		p.update(key, inner)
	case "mangle":
		p.quietly(key)
		p.mangle(inner)
	case "flow":
		p.quietly(key)
		p.guard("goes on behind the statement flow, which ends the rule for most packets")
	case "log":
		var l struct{ Prefix string }
		_ = json.Unmarshal(inner, &l)
		p.logs, p.Rule.Logs = true, l.Prefix
	case "notrack", "dup", "last", "ct helper", "ct timeout", "ct expectation", "secmark":
		p.quietly(key)
	case "xt":
		p.Unknown("holds a match or target of iptables that nft cannot show",
			"import the output of iptables-save instead: levee import iptables")
	case "queue":
		p.Unknown("queue lets a program decide", importer.QueueText)
		p.done = true
	case "dnat", "redirect":
		p.nat(key, inner)
	case "synproxy":
		p.AnswersSYNs(key)
		p.done = true
	case "tproxy":
		p.quietly(key)
		p.Remark(importer.Changed, importer.TproxyText, "")
	case "fwd", "snat", "masquerade":
		p.Unknown(key+" does what levee does not", "keep it in nft")
		p.done = true
	default:
		p.Unknown("has the statement "+match.Quote(key)+", which levee does not know", "")
	}
	return nil
}

// limitKey returns the field by which elements of a set have limits of their own, as hashlimit
// names it; none for a limit of all packets.
func limitKey(key json.RawMessage) (by []string, ok bool) {
	if len(key) == 0 {
		return nil, true
	}
	var wrapped struct{ Elem struct{ Val json.RawMessage } }
	if json.Unmarshal(key, &wrapped) == nil && len(wrapped.Elem.Val) > 0 {
		key = wrapped.Elem.Val
	}
	var k struct {
		Payload struct{ Protocol, Field string }
	}
	if json.Unmarshal(key, &k) != nil {
		return nil, false
	}
	name := map[string]string{"saddr": "srcip", "daddr": "dstip", "sport": "srcport",
		"dport": "dstport"}[k.Payload.Field]
	return []string{name}, name != "" && k.Payload.Protocol != "ether"
}

// moreBehind notes that conditions stand behind a limit.
func (p *nftRule) moreBehind() {
	if p.Rule.Rate != nil {
		p.Rule.Rate.StandsEarly()
	}
}

// limit is a statement of a kind that goes on up to a number of packets, or above it.
func (p *nftRule) limit(kind, what string, inner, key json.RawMessage) {
	var l struct {
		Inv         bool
		Rate, Burst uint64
		Per         string
		Unit        string `json:"rate_unit"`
	}
	if name, named := scalar(inner); named { // an object, of which all rules that name it are one
		id := p.c.table.family + " " + p.c.table.name + " " + name
		inner = p.n.limits[id]
		p.CountsIn("limit " + id)
	}
	_ = json.Unmarshal(inner, &l)
	by, ok := limitKey(key)
	if ok && l.Rate > 0 && (l.Unit == "" || l.Unit == "packets") {
		if l.Burst == 0 {
			l.Burst = 5
		}
		p.Rule.Rate = importer.NewRate(fmt.Sprintf("%d/%s", l.Rate, l.Per), fmt.Sprint(l.Burst))
		if p.Rule.Rate != nil {
			p.Rule.Rate.By, p.Rule.Rate.Counts = by, p.Rule.Alts
		}
	}
	hint := importer.LimitHint
	if kind != "limit" {
		hint = importer.CountHint
	}
	p.Limited(map[bool]importer.Limit{false: importer.UpTo, true: importer.Above}[l.Inv],
		"has the statement "+what+
			", which counts packets or connections", hint)
}

// verdict gives r what key says.
func (p *nftRule) verdict(r *importer.ChainRule, key string, inner json.RawMessage) error {
	switch key {
	case "accept":
		r.Verb = importer.DoAccept
	case "drop":
		r.Verb = importer.DoDrop
	case "reject":
		r.Verb = importer.DoDrop
		r.Remarks = append(r.Remarks, r.Remark(importer.Changed,
			"reject becomes a drop: levee sends no answer",
			"clients wait for a timeout; let the packets pass to the kernel where they should be "+
				"refused"))
	case "return":
		r.Verb = importer.DoReturn
	case "queue":
		r.Unknown = append(r.Unknown, importer.Reason{What: "queue lets a program decide",
			Instead: importer.QueueText})
	case "jump", "goto":
		var t struct{ Target string }
		if json.Unmarshal(inner, &t) != nil || p.c.table.chains[t.Target] == nil {
			return fmt.Errorf("%s to the chain %s, which is not in the table", key,
				match.Quote(t.Target))
		}
		target := p.c.table.chains[t.Target]
		if target.Base {
			return fmt.Errorf("%s to the base chain %s", key, match.Quote(t.Target))
		}
		r.Verb, r.Target = importer.DoJump, &target.Chain
		if key == "goto" {
			r.Verb = importer.DoGoto
		}
	}
	return nil
}

// finish decides what a rule without a verdict is.
func (p *nftRule) finish() {
	if p.split != nil {
		return
	}
	r := p.Rule
	p.finishQuiet()
	if r.Verb != importer.DoNothing || p.counts {
		r.Unknown = append(r.Unknown, p.guards...)
	}
	switch {
	case r.Verb != importer.DoNothing && p.logs && len(r.Unknown) == 0:
		p.Logged("log")
	case r.Verb != importer.DoNothing:
	case p.done || p.unknownVerdict():
	case p.logs:
		r.Unknown = append(r.Unknown, p.guards...)
		p.IsLog("log")
	case p.counts:
		r.Verb = importer.DoCount
	default:
		r.Unknown = nil
		if len(r.Remarks) == 0 {
			p.Remark(importer.LeftOut, "decides nothing", "")
		}
		return
	}
	p.checkPorts(r)
	r.CheckFragment()
}

// unknownVerdict tells whether a statement that is not known may decide.
func (p *nftRule) unknownVerdict() bool {
	return slices.ContainsFunc(p.Rule.Unknown, func(u importer.Reason) bool {
		return strings.HasPrefix(u.What, "has the statement \"") ||
			strings.HasPrefix(u.What, "holds a match or target")
	})
}

// checkPorts says where `th dport` asks for ports of protocols that have none.
func (p *nftRule) checkPorts(r *importer.ChainRule) {
	if !p.anyPort {
		return
	}
	for i := range r.Alts {
		if proto := r.Alts[i].Fields[match.Proto]; slices.Equal(proto, match.WithPorts) {
			r.Remarks = append(r.Remarks, r.Remark(importer.Changed,
				"th reads ports of whatever protocol; in a policy TCP, UDP, UDP-Lite, SCTP and "+
					"DCCP have ports", ""))
			return
		}
	}
}

// match reads one comparison.
func (p *nftRule) match(op string, l, right json.RawMessage) error {
	if mask, ok := fragmentOffset(l); ok {
		return p.fragment(mask, op, right)
	}
	if inner, ok := flagsLeft(l); ok {
		return p.flags(inner, op, right)
	}
	if key, parts := object(l); key == "concat" {
		return p.concat(array(parts), op, right)
	}
	for _, read := range [...]func(json.RawMessage, string, json.RawMessage) []match.Match{
		p.direction, p.sent} {
		if alts := read(l, op, right); alts != nil {
			p.Both(alts...)
			return nil
		}
	}
	if p.fibType(l, op, right) || p.fibPath(l, op, right) ||
		p.cgroup(l, op, right) {
		return nil
	}
	if r, ok := rawOf(l); ok {
		return p.raw(r, op, right)
	}
	d := p.left(l)
	if d.why != nil {
		p.Unknown(d.why.What, d.why.Instead)
		return nil
	}
	p.headerNotes(l)
	alts, err := p.compare(p.Rule, &d, op, right)
	if err != nil {
		return p.soften(err)
	}
	if alts != nil {
		p.Both(alts...)
	}
	return nil
}

// soften remembers err as the reason why the rule is left out: it is about a value that a policy
// has no words for, not about JSON that is broken.
func (p *nftRule) soften(err error) error {
	p.Unknown(importer.Printable(err.Error(), 200), "")
	return nil
}

// headerNotes says where a field of nft is not quite that of a policy.
func (p *nftRule) headerNotes(l json.RawMessage) {
	_, inner := object(l)
	var h struct{ Protocol, Field string }
	_ = json.Unmarshal(inner, &h)
	if h.Protocol == "ip6" && h.Field == "nexthdr" {
		p.Remark(importer.Changed,
			"ip6 nexthdr is the first header behind that of IPv6, a policy has the "+
				"last one", "they differ for packets with extension headers only")
	}
	p.anyPort = p.anyPort || h.Protocol == "th"
}

// compare returns the alternatives for a match of one dimension; nil without an error when what is
// asked is remembered as unknown.
func (p *nftRule) compare(r *importer.ChainRule, d *dim, op string,
	right json.RawMessage) ([]match.Match, error) {
	if s, ok := scalar(right); ok && strings.HasPrefix(s, "@") {
		return p.lookup(d, op, s[1:])
	}
	v, err := d.value(right, 0)
	if err != nil {
		return nil, err
	}
	if v.any {
		return nil, errors.New("asks for `*` in a set without a name")
	}
	return p.compareValue(r, d, op, v)
}

// compareValue is compare with a value that was read.
func (p *nftRule) compareValue(r *importer.ChainRule, d *dim, op string, v value) ([]match.Match,
	error) {
	not := op == "!="
	switch {
	case d.iface:
		return p.iface(r, v.text, not)
	case d.state:
		p.state(r, v.text, not)
		return nil, nil
	case d.dir != "":
		if op != "==" && op != "!=" && op != "in" && op != "" {
			return nil, fmt.Errorf("compares addresses with %s", match.Quote(op))
		}
		s := &match.Set{Addresses: match.JoinAddrs(v.addrs)}
		if s.TakeMapped(); !p.LacksMapped(s, not) {
			return nil, errMapped
		}
		return addressMatch(d, s, not)
	}
	top := match.Top[d.num]
	s := match.JoinSpans(v.nums).And(match.Between(0, top))
	if len(s) == 0 && !not {
		return nil, fmt.Errorf("asks for a value that the field cannot have")
	}
	switch op {
	case "==", "in", "":
	case "!=":
		s = s.Not(top)
		if d.num == match.Len && d.after != nil { // only lengths that are there
			s = s.And(match.Between(40, top))
		}
	case "<", ">", "<=", ">=":
		s = importer.Ordered(op, s, top)
	default:
		return nil, fmt.Errorf("compares with %s", match.Quote(op))
	}
	return fieldMatch(d, s, "")
}

// never is the alternatives of what no packet has.
var never = []match.Match{{Never: true}}

// errPriorityTag says why nothing is made of a match that holds for tags with id 0. To a policy
// they only carry a priority.
var errPriorityTag = errors.New("asks for tags with id 0 too, which a policy takes for none: " +
	"write `vlan` with ids from 1 to 4095 if these are meant")

// fieldMatch is one number field in s, with the name of a set of ports.
func fieldMatch(d *dim, s match.Spans, name string) ([]match.Match, error) {
	if len(s) == 0 {
		return never, nil
	}
	// To a policy a tag has no EtherType: it is looked through.
	tags := len(s.And(match.Just(0x8100))) > 0 || len(s.And(match.Just(0x88a8))) > 0
	named := len(s) < len(s.Not(match.Top[d.num])) // and not what is left of all when others are
	if d.num == match.Ether && tags && named || d.num == match.VLAN &&
		len(s.And(match.Just(0))) > 0 {
		return nil, errPriorityTag
	}
	m := d.dep.With(d.num, s)
	if name != "" && !m.Never {
		m.Name[d.num] = name
	}
	if d.num == match.EtherFrom || d.num == match.EtherTo {
		if _, ok := match.Macs(s); !ok {
			if _, ok = match.Macs(s.Not(1<<48 - 1)); !ok {
				return nil, errors.New("asks for a range of Ethernet addresses")
			}
		}
	}
	return []match.Match{m.Settle()}, nil
}

// errMapped says why nothing is made of such addresses alone.
var errMapped = errors.New(importer.MappedText)

func addressMatch(d *dim, s *match.Set, not bool) ([]match.Match, error) {
	if s.Addresses.Mapped() {
		return nil, errMapped
	}
	m := d.dep
	if not {
		importer.Side(&m, d.dir).Not = []*match.Set{s}
		for _, a := range s.Addresses {
			if a.Hi.Next().IsValid() || a.Lo.Prev().IsValid() {
				return []match.Match{m.Settle()}, nil
			}
		}
		if !s.Dynamic {
			return never, nil
		}
		return []match.Match{m.Settle()}, nil
	}
	importer.Side(&m, d.dir).In = s
	return []match.Match{m.Settle()}, nil
}

// lookup returns a match against a named set.
func (p *nftRule) lookup(d *dim, op, name string) ([]match.Match, error) {
	s := p.c.table.sets[name]
	if s == nil {
		return nil, fmt.Errorf("asks for the set %s, which is not in the input", match.Quote(name))
	}
	not := op == "!="
	isPort := (d.num == match.Port || d.num == match.FromPort) && !d.iface && !d.state &&
		d.dir == ""
	switch {
	case d.dir != "":
		a, err := p.n.addresses(s, d)
		if err != nil {
			return nil, err
		}
		if a.Dynamic {
			p.Rule.Filled = append(p.Rule.Filled,
				importer.Begins(match.Quote(name), a.Name, len(s.elems)))
		}
		if !p.LacksMapped(a, not) {
			return nil, errMapped
		}
		return addressMatch(d, a, not)
	case isPort && (s.leases || len(s.elems) == 0):
		a, err := p.n.services(s, d)
		if err != nil {
			return nil, err
		}
		if not {
			return nil, fmt.Errorf("asks for what is not in set %s, which is filled at run time",
				match.Quote(name))
		}
		p.Rule.Filled = append(p.Rule.Filled, importer.Begins(match.Quote(name), a.Name,
			len(s.elems)))
		return []match.Match{d.dep.WithDyn(map[bool]string{true: "dst",
			false: "src"}[d.num == match.Port],
			a)}, nil
	}
	if s.leases {
		p.Rule.Filled = append(p.Rule.Filled, importer.Stays("entries of set "+match.Quote(name)))
	}
	v, err := d.elements(s)
	if err != nil {
		return nil, err
	}
	if v.any {
		return nil, fmt.Errorf("set %s has the element *", match.Quote(name))
	}
	if isPort && !not && len(v.nums) > 4 {
		if s.ports == "" {
			s.ports = match.UniqueName(name, p.n.out.Taken)
			p.n.out.AddSet(s.ports, match.PortsText(match.JoinSpans(v.nums)))
		}
		return fieldMatch(d, match.JoinSpans(v.nums), s.ports)
	}
	if len(s.elems) == 0 && !d.iface && !d.state {
		if not {
			return fieldMatch(d, match.Between(0, match.Top[d.num]), "")
		}
		p.Remark(importer.Noticed, "set "+match.Quote(name)+" is empty: nothing matches", "")
		return never, nil
	}
	return p.compareValue(p.Rule, d, map[bool]string{true: "!=", false: "=="}[not], v)
}
