// Package oracle judges packets by a policy, slowly and obviously. It is the reference: what it
// says is what docs/reference/language.md means, and every compiled program is compared with it.
//
// In go a resolved policy, entries of its dynamic sets and frames; out comes the slot (of
// policy.Slots) that decided, or the whole story of how. It needs no privileges. It must never
// share matching code with the compiler, nor be made faster at the price of being less plain.
package oracle

import (
	"fmt"
	"sync"
	"time"

	"levee/internal/lang/action"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// Evaluator judges frames by one policy. Several goroutines may use Eval and Explain at the same
// time, but not while entries change or the clock is set, and not if the policy has limits or
// cookies or asks for connections: these depend on the packets before.
type Evaluator struct {
	p       *policy.Policy
	link    packet.Link
	protect []rule
	rules   []rule
	sets    map[*policy.Set]*addressSet
	ends    map[*policy.Set]*endpointSet
	names   map[*policy.NameList]*nameSet
	filled  map[*policy.Set]*nameSet // at run time
	limits  map[*policy.Limit]*budgets
	tracks  bool // a rule asks for connections, of what arrives also one of what leaves
	flows   map[connectionKey]*connection
	cookies *cookies
	echoes  *echoes
	greys   map[*policy.Greylist]*greylist
	streams streams
	tunnels bool       // a rule looks into them
	frags   *datagrams // nil unless a rule follows them
	told    told       // of the packets that follow
	leaving *Evaluator // of what leaves; nil where the policy says nothing of that
	now     func() time.Time
}

// Result is the judgement on a frame.
type Result struct {
	Slot      int              // what decided: an index into policy.Slots
	Action    action.Action    // Pass, Drop or Redirect
	Ring      *policy.Ring     // of a packet that is redirected
	Answered  bool             // dropped, and answered in the host's place
	Malformed packet.Malformed // 0: well-formed
	Counted   []int            // slots of the rules that matched and went on, in order
	Within    []int            // slots of rules that acted and let it on, in order
	Ahead     bool             // a fragment that passes though its first is not known
}

// New makes an evaluator of p on Ethernet with empty dynamic sets and the wall clock. p must not be
// changed while the evaluator is in use.
func New(p *policy.Policy) *Evaluator { return NewOn(p, packet.Ethernet) }

// NewOn is New for frames of a device of that link layer.
func NewOn(p *policy.Policy, link packet.Link) *Evaluator {
	sets, ends := map[*policy.Set]*addressSet{}, map[*policy.Set]*endpointSet{}
	names := map[*policy.Set]*nameSet{}
	for _, s := range p.Sets {
		switch {
		case s.Type == policy.Addresses:
			sets[s] = newAddressSet(s.Prefixes)
		case s.Type == policy.Names && s.Kind == policy.Dynamic:
			names[s] = newNameSet(nil)
		case s.Type == policy.Endpoints, s.Kind == policy.Dynamic:
			ends[s] = newEndpointSet(s.Endpoints)
		}
	}
	e := newSide(p, link, sets, ends, names)
	if out := p.Leaving(); out != nil {
		e.leaving = newSide(out, link, sets, ends, names)
		e.leaving.flows = e.flows
		e.tracks = p.Tracks()
	}
	return e
}

// newSide makes an evaluator of what arrives or of what leaves. Both have the same sets.
func newSide(p *policy.Policy, link packet.Link, sets map[*policy.Set]*addressSet,
	ends map[*policy.Set]*endpointSet, names map[*policy.Set]*nameSet) *Evaluator {
	e := &Evaluator{p: p, link: link, sets: sets, ends: ends, filled: names,
		names:  map[*policy.NameList]*nameSet{},
		limits: map[*policy.Limit]*budgets{},
		greys:  map[*policy.Greylist]*greylist{},
		tracks: p.Asks(field.Flow), cookies: newCookies(), echoes: newEchoes(p),
		streams: newStreams(p), now: time.Now}
	if p.Has(action.Track) {
		e.frags = &datagrams{}
	}
	for _, r := range p.Limits() {
		e.limits[r.Limit] = nil
	}
	for _, r := range p.Greylists() {
		e.greys[r.Greylist] = nil
	}
	e.forget()
	for _, l := range p.NameLists {
		if e.names[l] = names[l.Set]; l.Set == nil || e.names[l] == nil {
			e.names[l] = newNameSet(l.Patterns)
		}
	}
	e.tunnels = p.Asks(field.Inner)
	e.protect, e.rules = e.prepare(p.Protect), e.prepare(p.Rules)
	return e
}

// SetClock makes now the clock of leases, limits and connections.
func (e *Evaluator) SetClock(now func() time.Time) {
	e.now = now
	if e.leaving != nil {
		e.leaving.SetClock(now)
	}
}

// AddEntry puts an entry into the dynamic set of that name, until expires; the zero time is for
// good. An entry that is there already gets the new time. It fails when the policy has no such
// dynamic set, the entry is not of its type or has host bits, or the set is full.
func (e *Evaluator) AddEntry(set string, entry policy.Element, expires time.Time) error {
	s, err := e.dynamic(set)
	if err != nil {
		return err
	}
	if err := entry.Check(s.Type); err != nil {
		return fmt.Errorf("add %s to set %s: %w", entry, set, err)
	}
	switch s.Type {
	case policy.Addresses:
		return addTo(e.sets[s], entry.Prefix, expires, e.now(), s)
	case policy.Names:
		return addTo(e.filled[s], patternOf(entry), expires, e.now(), s)
	}
	return addTo(e.ends[s], entry, expires, e.now(), s)
}

// holder is a set of entries with leases.
type holder[E comparable] interface {
	has(E) bool
	add(E, time.Time)
	size() int           // with entries whose lease has ended
	inUse(time.Time) int // looks at all
}

func addTo[E comparable](h holder[E], entry E, expires, now time.Time, s *policy.Set) error {
	if !h.has(entry) && h.size() >= s.Max && h.inUse(now) >= s.Max {
		return fmt.Errorf("add %v to set %s: it is full, with %d entries", entry, s.Name, s.Max)
	}
	h.add(entry, expires)
	return nil
}

// DelEntry takes an entry out of the dynamic set of that name. Taking out what is not there is no
// error.
func (e *Evaluator) DelEntry(set string, entry policy.Element) error {
	s, err := e.dynamic(set)
	if err != nil {
		return err
	}
	switch s.Type {
	case policy.Addresses:
		e.sets[s].del(entry.Prefix)
	case policy.Names:
		e.filled[s].del(patternOf(entry))
	default:
		e.ends[s].del(entry)
	}
	return nil
}

func (e *Evaluator) dynamic(name string) (*policy.Set, error) {
	for _, s := range e.p.Sets {
		if s.Name == name {
			if s.Kind != policy.Dynamic {
				return nil, fmt.Errorf("set %s is not dynamic: its entries stand in the policy",
					name)
			}
			return s, nil
		}
	}
	return nil, fmt.Errorf("the policy has no set %s", name)
}

// Eval judges one frame without FCS, which begins as the link layer has it.
func (e *Evaluator) Eval(frame []byte) Result {
	var pkt packet.Packet
	e.link.Decode(frame, &pkt)
	return e.judge(&pkt, frame, nil)
}

// tried is told of each rule that was looked at, in order.
type tried struct {
	slot   int
	failed *policy.Term // the first term that did not hold; nil: the rule matched
	effect string       // what a rule that matched has done, which was told of before
}

// judge judges a packet, and notes the fate of one that is the first fragment of a datagram.
func (e *Evaluator) judge(pkt *packet.Packet, frame []byte, watch func(tried)) Result {
	if e.tunnels && pkt.Malformed == packet.WellFormed {
		var in packet.Packet
		if pkt.Inner(frame, &in) {
			pkt.Malformed = in.Malformed
		}
	}
	known := e.tracks && pkt.Malformed == packet.WellFormed && e.known(pkt, frame)
	res := e.decide(pkt, frame, known, watch)
	if e.frags != nil && res.Malformed == packet.WellFormed && pkt.Fragment &&
		!pkt.LaterFragment {
		e.noteFirst(pkt, &res)
	}
	if e.tracks && !e.p.Leaves() && !known && pkt.Malformed == packet.WellFormed && isUDP(pkt) &&
		res.passes() {
		e.met(pkt)
	}
	return res
}

// decide walks the five steps of docs/reference/language.md "How a packet is judged". watch, if
// there is one, is told of each rule.
func (e *Evaluator) decide(pkt *packet.Packet, frame []byte, known bool,
	watch func(tried)) Result {
	res := Result{Malformed: pkt.Malformed}
	if pkt.Malformed != packet.WellFormed {
		e.judgeMalformed(pkt, &res, watch)
		return res
	}
	vs := e.valuesOf(pkt, frame, known)
	for i := range e.protect {
		if e.matches(&e.protect[i], pkt, frame, &vs, e.p.ProtectSlot(i), watch) {
			res.act(e.p.Protect[i], e.p.ProtectSlot(i))
			return res
		}
	}
	for i := range e.rules {
		r := &e.rules[i]
		if r.malformed || !e.matches(r, pkt, frame, &vs, e.p.RuleSlot(i), watch) {
			continue
		}
		if e.act(i, pkt, frame, &res, watch) {
			return res
		}
	}
	if slot, ok := e.essential(pkt); ok {
		if watch != nil {
			watch(tried{slot: slot})
		}
		res.Slot, res.Action = slot, action.Pass
		return res
	}
	res.Slot, res.Action = e.p.DefaultSlot(), e.p.Default.Action
	return res
}

// valuesOf returns the values of a packet's fields, with what memories tell of its connection, flow
// and source.
func (e *Evaluator) valuesOf(pkt *packet.Packet, frame []byte, known bool) (vs values) {
	vs.read(pkt)
	vs.tell(&e.told)
	if known {
		vs[field.Flow].lo = 1
	}
	// The clock takes as long as ten rules, and is asked where something has a time.
	if e.echoes != nil && e.echoes.meet(pkt, frame, e.now()) {
		vs[field.ProvenFlow].lo = 1
	}
	// By this very packet, too.
	if until, ok := e.cookies.proven[pkt.Src]; ok && e.now().Before(until) {
		vs[field.Proven].lo = 1
	}
	return vs
}

// act does to a packet what rule i does, which matches it, and reports whether that decides it.
func (e *Evaluator) act(i int, pkt *packet.Packet, frame []byte, res *Result,
	watch func(tried)) bool {
	r, slot := e.p.Rules[i], e.p.RuleSlot(i)
	effect := "" // in words, for the story of a packet
	decides := false
	switch {
	case e.limits[r.Limit] != nil:
		within := e.limits[r.Limit].charge(pkt, frame, e.now())
		effect, decides = charged[within], !within
	case r.Cookie != nil:
		is := e.cookies.judge(r.Cookie, pkt, frame, e.now())
		if decides = is.decides(); decides {
			res.Answered = is == replied
		} else {
			effect = fates[is]
		}
	case e.greys[r.Greylist] != nil:
		is := e.greys[r.Greylist].judge(pkt, frame, e.now())
		effect, decides = comes[is], is.decides()
	case r.Action == action.Track:
		return e.track(pkt, slot, res)
	default:
		return res.act(r, slot)
	}
	if watch != nil && effect != "" {
		watch(tried{slot: slot, effect: effect})
	}
	if decides {
		res.Slot, res.Action = slot, action.Drop
	} else {
		res.Within = append(res.Within, slot)
	}
	return decides
}

// copies are packets that functions of a table get. For all that the compiler knows they keep them,
// so that each packet that is judged would otherwise be memory of its own.
var copies = sync.Pool{New: func() any { return new(packet.Packet) }}

// essential returns the slot of what makes a packet essential.
func (e *Evaluator) essential(pkt *packet.Packet) (slot int, ok bool) {
	if !e.p.Essential {
		return 0, false
	}
	p := copies.Get().(*packet.Packet)
	defer copies.Put(p)
	*p = *pkt
	for i, holds := range essentialOf(e.p) {
		if holds(p) {
			return e.p.EssentialSlot(i), true
		}
	}
	return 0, false
}

// act does what a rule does to a packet that meets it, and says whether that decides the packet.
func (res *Result) act(r *policy.Rule, slot int) (decided bool) {
	if r.Action.Decides() {
		res.Slot, res.Action, res.Ring = slot, r.Action.Verdict(), r.Ring
		return true
	}
	res.Counted = append(res.Counted, slot)
	return false
}

// passes says whether a packet goes on to the machine: of a ring, while nobody reads it.
func (r *Result) passes() bool {
	return r.Action == action.Pass || r.Ring != nil && r.Ring.Else == action.Pass
}

// judgeMalformed looks at the rules that say `malformed`, and at no other.
func (e *Evaluator) judgeMalformed(pkt *packet.Packet, res *Result, watch func(tried)) {
	for i := range e.rules {
		r := &e.rules[i]
		if !r.malformed {
			continue
		}
		if watch != nil {
			watch(tried{slot: e.p.RuleSlot(i)})
		}
		if res.act(e.p.Rules[i], e.p.RuleSlot(i)) {
			return
		}
	}
	res.Slot, res.Action = e.p.MalformedSlot(pkt.Malformed.Slot()), action.Drop
}

// matches says whether all terms of r hold for a well-formed packet.
func (e *Evaluator) matches(r *rule, pkt *packet.Packet, frame []byte, vs *values, slot int,
	watch func(tried)) bool {
	for i := range r.terms {
		if !e.holds(&r.terms[i], pkt, frame, vs) {
			if watch != nil {
				watch(tried{slot: slot, failed: r.terms[i].of})
			}
			return false
		}
	}
	if watch != nil {
		watch(tried{slot: slot})
	}
	return true
}

// essential are the built-in rules in the order of policy.Essential.
var essential = [len(policy.Essential)]func(*packet.Packet) bool{
	func(p *packet.Packet) bool { return p.EtherType == packet.EtherARP },
	func(p *packet.Packet) bool { // RFC 4861: router and neighbour discovery, redirect
		return p.Transport == packet.ICMP6Transport && p.Type >= 133 && p.Type <= 137 &&
			p.Code == 0 &&
			p.TTL == 255 && !p.Fragment
	},
	func(p *packet.Packet) bool { // RFC 1191, RFC 8201
		return p.Transport == packet.ICMPTransport && p.Type == 3 && p.Code == 4 ||
			p.Transport == packet.ICMP6Transport && p.Type == 2
	},
	func(p *packet.Packet) bool { // RFC 2131 section 4.1, RFC 8415 section 7.2
		if p.Proto != packet.ProtoUDP || !p.HasPorts() {
			return false
		}
		return p.Family == packet.IPv4 && p.SrcPort == 67 && p.DstPort == 68 ||
			p.Family == packet.IPv6 && p.DstPort == 546 && (p.SrcPort == 547 ||
				p.Src.IsLinkLocalUnicast() && p.Dst.IsLinkLocalUnicast())
	},
	func(p *packet.Packet) bool { // RFC 3810 section 5.1: a query of multicast listeners
		return p.Transport == packet.ICMP6Transport && p.Type == 130 && p.TTL == 1 &&
			!p.Fragment && p.Src.IsLinkLocalUnicast()
	},
	func(p *packet.Packet) bool { // slow protocols of IEEE 802.3, EAPOL of IEEE 802.1X
		return p.EtherType == 0x8809 || p.EtherType == 0x888e
	},
}
