package importer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

var errPktType = errors.New("asks for a type of frame that a policy has no word for")

// nftRule reads the statements of one rule.
type nftRule struct {
	ruleReader
	n       *nftables
	c       *nftChain
	done    bool // a verdict was read
	counts  bool
	logs    bool
	quiet   []reason // statements that decide nothing
	guards  []reason // what statements that decide nothing ask of a packet before the rule goes on
	split   []*chainRule
	anyPort bool // `th dport`: of whatever protocol
}

// parseRule makes rules of one rule of nft: more than one where it has a verdict map. What a policy
// has no words for, or cannot be read, is remembered.
func (n *nftables) parseRule(c *nftChain, raw nftRaw, number int) []*chainRule {
	text := fmt.Sprintf("%s %s %s handle %d:%s", c.table.family, c.table.name, c.name, raw.handle,
		ruleText(raw.expr))
	p := &nftRule{n: n, c: c, ruleReader: ruleReader{n.out, &chainRule{
		origin: origin{file: n.name, line: raw.line, text: printable(text, 160),
			place: fmt.Sprintf("handle %d", raw.handle)}, label: raw.comment,
		alts: []match{{}},
	}}}
	if p.r.named = p.r.label != ""; !p.r.named {
		p.r.label = fmt.Sprintf("%s:%d", c.name, number)
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
				p.unknown("has the statement "+quote(key)+", which cannot be read: "+
					printable(err.Error(), 200), "")
				p.done = true
			}
			if len(m) > 1 {
				p.unknown("has a statement of several parts", "")
				break
			}
		}
	}
	p.finish()
	if p.split != nil {
		return p.split
	}
	return []*chainRule{p.r}
}

// unreadable notes a statement that is no object: text where this nft has no JSON for a statement,
// as 1.0.6 for `jump { ... }`. What it decides is not known.
func (p *nftRule) unreadable(e json.RawMessage) {
	text, ok := scalar(e)
	if !ok {
		text = string(e)
	}
	p.unknown("has the statement "+quote(strings.Join(strings.Fields(text), " "))+
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
			return fmt.Errorf("%s is not a match", quote(string(inner)))
		}
		if p.left(m.Left).state {
			p.r.stateLast = p.r.rate != nil
		} else {
			p.moreBehind()
		}
		return p.match(m.Op, m.Left, m.Right)
	case "accept", "drop", "return", "continue", "jump", "goto", "reject":
		p.done = true
		return p.verdict(p.r, key, inner)
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
		p.logs, p.r.logs = true, l.Prefix
	case "notrack", "dup", "last", "ct helper", "ct timeout", "ct expectation", "secmark":
		p.quietly(key)
	case "xt":
		p.unknown("holds a match or target of iptables that nft cannot show",
			"import the output of iptables-save instead: levee import iptables")
	case "queue":
		p.unknown("queue lets a program decide", "")
		p.done = true
	case "dnat", "redirect":
		p.natTo(key, inner)
		p.unknown(key+" does what levee does not", "keep it in nft")
		p.done = true
	case "synproxy":
		p.answersSYNs(key)
		p.done = true
	case "tproxy":
		p.quietly(key)
		p.remark(Changed, tproxyText, "")
	case "fwd", "snat", "masquerade":
		p.unknown(key+" does what levee does not", "keep it in nft")
		p.done = true
	default:
		p.unknown("has the statement "+quote(key)+", which levee does not know", "")
	}
	return nil
}

// limitKey is the field by which elements of a set have limits of their own, as hashlimit names it;
// none for a limit of all packets.
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
	if p.r.rate != nil {
		p.r.rate.standsEarly()
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
		p.countsIn("limit " + id)
	}
	_ = json.Unmarshal(inner, &l)
	by, ok := limitKey(key)
	if ok && l.Rate > 0 && (l.Unit == "" || l.Unit == "packets") {
		if l.Burst == 0 {
			l.Burst = 5
		}
		p.r.rate = newRate(fmt.Sprintf("%d/%s", l.Rate, l.Per), fmt.Sprint(l.Burst))
		if p.r.rate != nil {
			p.r.rate.by = by
		}
	}
	hint := limitHint
	if kind != "limit" {
		hint = countHint
	}
	p.limited(map[bool]limit{false: upTo, true: above}[l.Inv], "has the statement "+what+
		", which counts packets or connections", hint)
}

// verdict gives r what key says.
func (p *nftRule) verdict(r *chainRule, key string, inner json.RawMessage) error {
	switch key {
	case "accept":
		r.verb = doAccept
	case "drop":
		r.verb = doDrop
	case "reject":
		r.verb = doDrop
		r.remarks = append(r.remarks, r.remark(Changed,
			"reject becomes a drop: levee sends no answer",
			"clients wait for a timeout; let the packets pass to the kernel where they should be "+
				"refused"))
	case "return":
		r.verb = doReturn
	case "queue":
		r.unknown = append(r.unknown, reason{"queue lets a program decide", ""})
	case "jump", "goto":
		var t struct{ Target string }
		if json.Unmarshal(inner, &t) != nil || p.c.table.chains[t.Target] == nil {
			return fmt.Errorf("%s to the chain %s, which is not in the table", key, quote(t.Target))
		}
		target := p.c.table.chains[t.Target]
		if target.base {
			return fmt.Errorf("%s to the base chain %s", key, quote(t.Target))
		}
		r.verb, r.target = doJump, &target.chain
		if key == "goto" {
			r.verb = doGoto
		}
	}
	return nil
}

// finish decides what a rule without a verdict is.
func (p *nftRule) finish() {
	if p.split != nil {
		return
	}
	r := p.r
	p.finishQuiet()
	if r.verb != doNothing || p.counts {
		r.unknown = append(r.unknown, p.guards...)
	}
	switch {
	case r.verb != doNothing && p.logs && len(r.unknown) == 0:
		p.logged("log")
	case r.verb != doNothing:
	case p.done || p.unknownVerdict():
	case p.logs:
		r.unknown = append(r.unknown, p.guards...)
		p.isLog("log")
	case p.counts:
		r.verb = doCount
	default:
		r.unknown = nil
		if len(r.remarks) == 0 {
			p.remark(LeftOut, "decides nothing", "")
		}
		return
	}
	p.checkPorts(r)
	r.checkFragment()
}

// unknownVerdict tells whether a statement that is not known may decide.
func (p *nftRule) unknownVerdict() bool {
	return slices.ContainsFunc(p.r.unknown, func(u reason) bool {
		return strings.HasPrefix(u.what, "has the statement \"") ||
			strings.HasPrefix(u.what, "holds a match or target")
	})
}

// checkPorts says where `th dport` asks for ports of protocols that have none.
func (p *nftRule) checkPorts(r *chainRule) {
	if !p.anyPort {
		return
	}
	for i := range r.alts {
		if proto := r.alts[i].f[fProto]; slices.Equal(proto, withPorts) {
			r.remarks = append(r.remarks, r.remark(Changed,
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
	if alts := p.direction(l, op, right); alts != nil {
		p.both(alts...)
		return nil
	}
	if p.fibType(l, op, right) || p.fibPath(l, op, right) {
		return nil
	}
	d := p.left(l)
	if d.why != nil {
		p.unknown(d.why.what, d.why.instead)
		return nil
	}
	p.headerNotes(l)
	alts, err := p.compare(p.r, &d, op, right)
	if err != nil {
		return p.soften(err)
	}
	if alts != nil {
		p.both(alts...)
	}
	return nil
}

// soften remembers err as the reason why the rule is left out: it is about a value that a policy
// has no words for, not about JSON that is broken.
func (p *nftRule) soften(err error) error {
	p.unknown(printable(err.Error(), 200), "")
	return nil
}

// headerNotes says where a field of nft is not quite that of a policy.
func (p *nftRule) headerNotes(l json.RawMessage) {
	_, inner := object(l)
	var h struct{ Protocol, Field string }
	_ = json.Unmarshal(inner, &h)
	if h.Protocol == "ip6" && h.Field == "nexthdr" {
		p.remark(Changed, "ip6 nexthdr is the first header behind that of IPv6, a policy has the "+
			"last one", "they differ for packets with extension headers only")
	}
	p.anyPort = p.anyPort || h.Protocol == "th"
}

// compare is the alternatives for a match of one dimension; nil without an error when what is asked
// is remembered as unknown.
func (p *nftRule) compare(r *chainRule, d *dim, op string, right json.RawMessage) ([]match, error) {
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
func (p *nftRule) compareValue(r *chainRule, d *dim, op string, v value) ([]match, error) {
	not := op == "!="
	switch {
	case d.iface:
		return p.iface(r, v.text, not)
	case d.state:
		p.state(r, v.text, not)
		return nil, nil
	case d.dir != "":
		if op != "==" && op != "!=" && op != "in" && op != "" {
			return nil, fmt.Errorf("compares addresses with %s", quote(op))
		}
		return addressMatch(d, &addrSet{addrs: joinAddrs(v.addrs)}, not)
	}
	top := fieldTop[d.num]
	s := joinSpans(v.nums).and(between(0, top))
	if len(s) == 0 && !not {
		return nil, fmt.Errorf("asks for a value that the field cannot have")
	}
	switch op {
	case "==", "in", "":
	case "!=":
		s = s.not(top)
		if d.num == fLen && d.after != nil { // only lengths that are there
			s = s.and(between(40, top))
		}
	case "<", ">", "<=", ">=":
		s = ordered(op, s, top)
	default:
		return nil, fmt.Errorf("compares with %s", quote(op))
	}
	return fieldMatch(d, s, "")
}

// ordered is what is below or above a value.
func ordered(op string, s spans, top uint64) spans {
	lo, hi := s[0].Lo, s[len(s)-1].Hi
	switch op {
	case "<":
		return between(0, lo).and(just(lo).not(top))
	case "<=":
		return between(0, hi)
	case ">":
		return between(hi, top).and(just(hi).not(top))
	}
	return between(lo, top)
}

// never is the alternatives of what no packet has.
var never = []match{{never: true}}

// errPriorityTag says why nothing is made of a match that holds for tags with id 0. To a policy
// they only carry a priority.
var errPriorityTag = errors.New("asks for tags with id 0 too, which a policy takes for none: " +
	"write `vlan` with ids from 1 to 4095 if these are meant")

// fieldMatch is one number field in s, with the name of a set of ports.
func fieldMatch(d *dim, s spans, name string) ([]match, error) {
	if len(s) == 0 {
		return never, nil
	}
	// To a policy a tag has no EtherType: it is looked through.
	tags := len(s.and(just(0x8100))) > 0 || len(s.and(just(0x88a8))) > 0
	named := len(s) < len(s.not(fieldTop[d.num])) // and not what is left of all when others are
	if d.num == fEther && tags && named || d.num == fVLAN && len(s.and(just(0))) > 0 {
		return nil, errPriorityTag
	}
	m := d.dep.with(d.num, s)
	if name != "" && !m.never {
		m.name[d.num] = name
	}
	if d.num == fEtherFrom || d.num == fEtherTo {
		if _, ok := macs(s); !ok {
			if _, ok = macs(s.not(1<<48 - 1)); !ok {
				return nil, errors.New("asks for a range of Ethernet addresses")
			}
		}
	}
	return []match{m.settle()}, nil
}

func addressMatch(d *dim, s *addrSet, not bool) ([]match, error) {
	if s.addrs.mapped() {
		return nil, errors.New("has an IPv4-mapped IPv6 address, which no policy has")
	}
	m := d.dep
	if not {
		side(&m, d.dir).neg = []*addrSet{s}
		for _, a := range s.addrs {
			if a.hi.Next().IsValid() || a.lo.Prev().IsValid() {
				return []match{m.settle()}, nil
			}
		}
		if !s.dynamic {
			return never, nil
		}
		return []match{m.settle()}, nil
	}
	side(&m, d.dir).pos = s
	return []match{m.settle()}, nil
}

// lookup is a match against a named set.
func (p *nftRule) lookup(d *dim, op, name string) ([]match, error) {
	s := p.c.table.sets[name]
	if s == nil {
		return nil, fmt.Errorf("asks for the set %s, which is not in the input", quote(name))
	}
	not := op == "!="
	isPort := (d.num == fPort || d.num == fFromPort) && !d.iface && !d.state && d.dir == ""
	switch {
	case d.dir != "":
		a, err := p.n.addresses(s, d)
		if err != nil {
			return nil, err
		}
		if a.dynamic {
			p.r.filled = append(p.r.filled, begins(quote(name), a.name, len(s.elems)))
		}
		return addressMatch(d, a, not)
	case isPort && (s.leases || len(s.elems) == 0):
		a, err := p.n.services(s, d)
		if err != nil {
			return nil, err
		}
		if not {
			return nil, fmt.Errorf("asks for what is not in set %s, which is filled at run time",
				quote(name))
		}
		p.r.filled = append(p.r.filled, begins(quote(name), a.name, len(s.elems)))
		return []match{d.dep.withDyn(map[bool]string{true: "dst", false: "src"}[d.num == fPort],
			a)}, nil
	}
	if s.leases {
		p.r.filled = append(p.r.filled, stays("entries of set "+quote(name)))
	}
	v, err := d.elements(s)
	if err != nil {
		return nil, err
	}
	if v.any {
		return nil, fmt.Errorf("set %s has the element *", quote(name))
	}
	if isPort && !not && len(v.nums) > 4 {
		if s.ports == "" {
			s.ports = uniqueName(name, p.n.out.taken)
			p.n.out.addSet(s.ports, portsText(joinSpans(v.nums)))
		}
		return fieldMatch(d, joinSpans(v.nums), s.ports)
	}
	if len(s.elems) == 0 && !d.iface && !d.state {
		if not {
			return fieldMatch(d, between(0, fieldTop[d.num]), "")
		}
		p.remark(Noticed, "set "+quote(name)+" is empty: nothing matches", "")
		return never, nil
	}
	return p.compareValue(p.r, d, map[bool]string{true: "!=", false: "=="}[not], v)
}
