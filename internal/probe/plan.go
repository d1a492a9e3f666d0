package probe

import (
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"levee/internal/filter/oracle"
	"levee/internal/filter/region"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/packet"
	"levee/internal/packet/template"
)

// Numbers of probes, in this order: a challenge for each address; then, for each address that is
// confirmed, each service, and the canaries; then a packet for each class of a policy.
type plan struct {
	*cookies
	addrs    []Address
	from     [2]netip.Addr // of IPv4 and IPv6, as probes leave
	seenAs   [2]netip.Addr // as they arrive
	services []Service

	confirmed []int // of addrs
	place     map[netip.Addr]int
	canary    []uint16 // ports, canaries for each that is confirmed
	classes   []classProbe
	byFlow    map[flowKey]int // of classes
	ports     []uint16        // from which they leave besides those of all probes
	skipped   []Skipped
	judges    map[*policy.Policy]*judge // of policies of which something was asked
}

// canaries is the number of ports of each address that are asked although nothing should listen.
const canaries = 2

// classProbe is a packet for a class.
type classProbe struct {
	spec packet.Spec
	kind string // in words
	text string // the packet in words
}

type flowKey struct {
	proto      uint8
	to         netip.Addr
	port, from uint16
}

func six(a netip.Addr) int {
	if a.Is6() {
		return 1
	}
	return 0
}

// kindOf says what a number is.
type kindOf uint8

const (
	aChallenge kindOf = iota
	aService
	aCanary
	aClass
)

// target is the destination of a probe.
type target struct {
	kind  kindOf
	addr  int // of addrs; -1: of a class
	class int
	Service
	to netip.Addr
}

// counts returns how many numbers of each kind there are.
func (p *plan) counts() [4]int {
	n := len(p.confirmed)
	c := [4]int{len(p.addrs), n * len(p.services), len(p.canary), len(p.classes)}
	return c
}

func (p *plan) total() (n int) {
	for _, c := range p.counts() {
		n += c
	}
	return n
}

// begin returns the first number of a kind.
func (p *plan) begin(k kindOf) (n int) {
	for i, c := range p.counts() {
		if i < int(k) {
			n += c
		}
	}
	return n
}

// target returns the target of a number below the total.
func (p *plan) target(number int) target {
	c := p.counts()
	n := number
	switch {
	case n < c[aChallenge]:
		return target{aChallenge, n, 0, Service{}, p.addrs[n].Addr}
	case n-c[aChallenge] < c[aService]:
		n -= c[aChallenge]
		at := p.confirmed[n/len(p.services)]
		return target{aService, at, 0, p.services[n%len(p.services)], p.addrs[at].Addr}
	case n-c[aChallenge]-c[aService] < c[aCanary]:
		n -= c[aChallenge] + c[aService]
		at := p.confirmed[n/canaries]
		return target{aCanary, at, 0, Service{packet.ProtoTCP, p.canary[n]},
			p.addrs[at].Addr}
	}
	n -= c[aChallenge] + c[aService] + c[aCanary]
	s := &p.classes[n].spec
	port := uint16(0)
	if s.ToPort != nil {
		port = *s.ToPort
	}
	return target{aClass, -1, n, Service{s.Protocol(), port}, s.To}
}

// asksTCP says whether ports of TCP are asked for.
func asksTCP(services []Service) bool {
	return slices.ContainsFunc(services, func(s Service) bool {
		return s.Proto == packet.ProtoTCP
	})
}

// Questions returns how many services and canaries of so many addresses are asked for, without
// classes.
func (o *Options) Questions(addresses int) int {
	each := len(o.Services)
	if asksTCP(o.Services) {
		each += canaries
	}
	return addresses * each
}

// canaryTries is the number of ports that are tried before one is found that a policy passes.
const canaryTries = 16

// addCanaries chooses ports without listeners that the options do not name: of those in the ranges
// that a policy names, and of high ones, some that it passes, as others tell nothing of what is
// behind it.
func (p *plan) addCanaries(policyOf func(netip.Addr) *policy.Policy) {
	if !asksTCP(p.services) {
		return
	}
	ranges := map[*policy.Policy][]field.Range{}
	for _, at := range p.confirmed {
		to := p.addrs[at].Addr
		of := policyOf(to)
		if ranges[of] == nil {
			ranges[of] = portsOf(of)
		}
		for range canaries {
			p.canary = append(p.canary, p.canaryOf(to, of, ranges[of]))
		}
	}
}

func (p *plan) canaryOf(to netip.Addr, of *policy.Policy, ranges []field.Range) (port uint16) {
	n := uint64(len(p.canary))
	for i := range uint64(canaryTries) {
		in := ranges[i%uint64(len(ranges))]
		port = uint16(in.Lo + p.key.hash(5<<40, n, i)%(in.Hi-in.Lo+1))
		s := Service{packet.ProtoTCP, port}
		if _, asked := slices.BinarySearchFunc(p.services, s, compareServices); asked {
			continue
		}
		spec := p.request(p.seenAs[six(to)], to, s, 0, 0)
		if frame, _, err := build(spec); err == nil && p.judge(of, frame).Verdict == "pass" {
			return port
		}
	}
	return uint16(highPorts.Lo + p.key.hash(5<<40, n)%(highPorts.Hi-highPorts.Lo+1))
}

// highPorts are below those of probes.
var highPorts = field.Range{Lo: 0xc000, Hi: firstPort - 1}

// portsOf are high ports, and the ranges of ports that a policy names.
func portsOf(of *policy.Policy) []field.Range {
	out := []field.Range{highPorts}
	for _, r := range of.Rules {
		for i := range r.Match {
			if t := &r.Match[i]; t.Field == field.DstPort {
				for _, in := range t.Ranges {
					if in.Hi > in.Lo { // that is more than what is asked for anyway
						out = append(out, in)
					}
				}
			}
		}
	}
	return out
}

// spec returns the packet of a number and try.
func (p *plan) spec(number, try int) packet.Spec {
	t := p.target(number)
	from := p.from[six(t.to)]
	switch t.kind {
	case aChallenge:
		return p.cookies.challenge(from, t.to, number, try)
	case aClass:
		s := p.classes[t.class].spec
		s.From = from
		s.Fields = slices.Clip(s.Fields)
		p.stamp(&s, number, try)
		if s.Protocol() == packet.ProtoUDP && s.Len == nil && s.Payload == nil {
			s.Payload = datagram(0, p.tag(number, try))
		}
		return s
	}
	return p.request(from, t.to, t.Service, number, try)
}

// number returns the number of the probe that an answer is for.
func (p *plan) number(f *flow) (n sealed, ok bool) {
	for _, seq := range f.seqs {
		if n, ok = p.open(seq); ok && p.fits(n, f) {
			return n, true
		}
	}
	if f.proto == packet.ProtoTCP {
		return n, false
	}
	key := flowKey{f.proto, f.to, f.port, f.from}
	if number, ok := p.byFlow[key]; ok {
		return sealed{number, p.tryOf(number, f)}, true
	}
	at, ok := p.place[f.to]
	if !ok {
		return n, false
	}
	if f.port == traceroute && p.fits(sealed{at, 0}, f) {
		return sealed{at, 0}, true
	}
	k, found := slices.BinarySearchFunc(p.services, Service{f.proto, f.port}, compareServices)
	of, known := slices.BinarySearch(p.confirmed, at)
	if !found || !known {
		return n, false
	}
	number := p.begin(aService) + of*len(p.services) + k
	for try := range mostTries {
		if !p.fits(sealed{number, try}, f) {
			continue
		}
		if f.said != nil && !repeats(f.port, p.tag(number, try), f.said) {
			return n, false
		}
		return sealed{number, try}, true
	}
	return n, false
}

// tryOf returns the try of a class's probe whose port says it; else the first.
func (p *plan) tryOf(number int, f *flow) int {
	for try := range mostTries {
		if p.port(number, try) == f.from {
			return try
		}
	}
	return 0
}

// fits says whether a probe has the addresses and ports of an answer.
func (p *plan) fits(n sealed, f *flow) bool {
	if n.number >= p.total() {
		return false
	}
	t := p.target(n.number)
	if t.to != f.to {
		return false
	}
	if t.kind == aChallenge {
		return f.port == traceroute && f.from == p.port(n.number, n.try)
	}
	from := p.port(n.number, n.try)
	if t.kind == aClass {
		if s := &p.classes[t.class].spec; s.FromPort != nil {
			from = *s.FromPort
		}
	}
	return t.Proto == f.proto && t.Port == f.port && from == f.from
}

// confirm notes which addresses their witness has seen challenged.
func (p *plan) confirm(is func(number int) bool) {
	p.place = map[netip.Addr]int{}
	for i := range p.addrs {
		p.place[p.addrs[i].Addr] = i
		if is(i) {
			p.confirmed = append(p.confirmed, i)
		}
	}
}

// Skipped is packets of a policy of which none is sent.
type Skipped struct {
	Rule string `json:"rule"` // that decides them
	Kind string `json:"kind"`
	Why  string `json:"why"`
}

// addClasses adds a packet for each class of those that a policy may be sent from here.
func (p *plan) addClasses(name string, text []byte, open func(string) (io.ReadCloser, error),
	of *policy.Policy, family int, addrs []netip.Addr) (skipped []Skipped, err error) {
	from := p.seenAs[family]
	match := fmt.Sprintf("from %s to %s", from, listed(aggregate(addrs)))
	q, ds := region.Ask(name, text, match, open)
	if q == nil {
		return nil, fmt.Errorf("ask %s for packets %s: %w", name, match, ds.Err())
	}
	reps, cut := q.Representatives()
	if cut {
		skipped = append(skipped, Skipped{"", "others", "there are more kinds of packets than " +
			"can be followed"})
	}
	slots := q.Policy.Slots()
	for i := range reps {
		r := &reps[i]
		kind := region.ClassWords(r.Class)
		c, why := p.classOf(r, of, slots[r.Slot].ID, from)
		if why != "" {
			skipped = append(skipped, Skipped{oracle.Decider(q.Policy, slots[r.Slot]), kind,
				why})
			continue
		}
		if s := &c.spec; s.FromPort != nil && *s.FromPort < firstPort &&
			!slices.Contains(p.ports, *s.FromPort) {
			if len(p.ports) == mostOtherPorts {
				skipped = append(skipped, Skipped{oracle.Decider(q.Policy, slots[r.Slot]), kind,
					"it is one of more source ports than are listened to"})
				continue
			}
			p.ports = append(p.ports, *s.FromPort)
		}
		c.kind = kind
		p.classes = append(p.classes, *c)
	}
	return skipped, nil
}

// classOf makes the probe of a representative, or says why none is sent.
func (p *plan) classOf(r *region.Representative, of *policy.Policy, id string, from netip.Addr) (
	c *classProbe, why string) {
	switch e := r.Example; {
	case e == nil && len(r.Unknown) > 0:
		return nil, "it needs: " + strings.Join(r.Unknown, ", ")
	case e == nil:
		return nil, "no packet of it was found"
	case len(e.Entries) > 0:
		return nil, fmt.Sprintf("it needs %s in set %s", e.Entries[0].Element, e.Entries[0].Set)
	case len(e.Before) > 0:
		return nil, "it needs a connection that the target has begun"
	}
	words, _ := template.One("packet", r.Example.Packet)
	if words == nil {
		return nil, "no packet of it was found"
	}
	s := words.Spec
	switch {
	case words.Tells != nil:
		return nil, "it depends on the routes of the target"
	case !harmless(&s):
		return nil, "such a message may change what hosts believe of the network"
	case s.VLAN != nil || s.EtherFrom != nil || s.EtherTo != nil || s.TTL != nil:
		return nil, "it asks for what changes at the next router"
	case s.From != from || !s.To.IsValid():
		return nil, "it comes from elsewhere"
	}
	if packet.HasPorts(s.Protocol()) && s.ToPort == nil {
		s.ToPort = new(uint16(discard)) // as packet.Build does
	}
	n := p.total()
	p.classes = append(p.classes, classProbe{})
	defer func() { p.classes = p.classes[:n-p.begin(aClass)] }()
	for _, v := range variants(s) {
		p.classes[n-p.begin(aClass)].spec = v
		if judged := p.predict(of, n); judged != nil && judged.ID == id {
			text := r.Example.Packet
			if s.Flags == nil && v.Flags != nil && *v.Flags == packet.SYN {
				text += " syn"
			}
			return &classProbe{spec: v, text: text}, ""
		}
	}
	return nil, "what a probe is known by has another rule decide"
}

// variants returns a packet with what more is learned by, and as it was found: a SYN, which a host
// answers by whether somebody listens, and a payload by which it is known behind NAT.
func variants(s packet.Spec) []packet.Spec {
	as, more := s, s
	switch {
	case s.Protocol() == packet.ProtoTCP && s.Flags == nil:
		as.Flags, more.Flags = new(uint8(packet.ACK)), new(uint8(packet.SYN))
		if s.TCPOptions == nil && s.Len == nil {
			more.TCPOptions = synOptions
		}
	case s.Protocol() == packet.ProtoUDP && s.Len == nil && s.Payload == nil:
		as.Payload = []byte{} // and none is added
	}
	return []packet.Spec{more, as}
}

// discard is the port of packets that do not say which.
const discard = 9

// harmless says whether a host that gets the packet does no more than answer it: of ICMP, what asks
// for an echo.
func harmless(s *packet.Spec) bool {
	switch s.Protocol() {
	case packet.ProtoICMP:
		return s.Type == nil || *s.Type == 8
	case packet.ProtoICMP6:
		return s.Type == nil || *s.Type == 128
	}
	return true
}

// index makes answers find the probes of classes.
func (p *plan) index() {
	p.byFlow = map[flowKey]int{}
	first := p.begin(aClass)
	for i := range p.classes {
		t := p.target(first + i)
		for try := range mostTries {
			key := flowKey{t.Proto, t.to, t.Port, p.port(first+i, try)}
			switch s := &p.classes[i].spec; {
			case isICMP(t.Proto, t.to.Is6()):
				key.port = uint16(try)
			case !packet.HasPorts(t.Proto):
				key.port, key.from = 0, 0
			case s.FromPort != nil:
				key.from = *s.FromPort
			}
			p.byFlow[key] = first + i
		}
	}
}

// Judged is a decision: what decided, and how.
type Judged struct {
	ID      string `json:"-"`
	Rule    string `json:"rule"`    // in words
	Verdict string `json:"verdict"` // pass, drop, answer or redirect
}

// predict returns what a policy says of the first try of a probe as it arrives; nil if there is no
// such packet.
func (p *plan) predict(of *policy.Policy, number int) *Judged {
	s := p.spec(number, 0)
	s.From = p.seenAs[six(s.To)]
	frame, _, err := build(s)
	if err != nil {
		return nil
	}
	return p.judge(of, frame)
}

// judge is a policy that is asked of single packets.
type judge struct {
	*oracle.Evaluator
	slots []policy.Slot
}

// judge returns what a policy says of a packet before which there was none.
func (p *plan) judge(of *policy.Policy, frame []byte) *Judged {
	by := p.judges[of]
	if by == nil {
		if p.judges == nil {
			p.judges = map[*policy.Policy]*judge{}
		}
		by = &judge{oracle.New(of), of.Slots()}
		p.judges[of] = by
	}
	by.Forget()
	r := by.Eval(frame)
	s := by.slots[r.Slot]
	verdict := r.Action.String()
	if r.Answered {
		verdict = answered
	}
	return &Judged{s.ID, oracle.Decider(of, s), verdict}
}

// answered is the verdict of a packet that levee answers in the host's place.
const answered = "answer"

// aggregate are prefixes that hold these addresses and no others, in order.
func aggregate(addrs []netip.Addr) (out []netip.Prefix) {
	sorted := slices.Clone(addrs)
	slices.SortFunc(sorted, netip.Addr.Compare)
	for _, a := range sorted {
		out = append(out, netip.PrefixFrom(a, a.BitLen()))
		for n := len(out); n > 1; n = len(out) { // two halves of one prefix are that
			a, b := out[n-2], out[n-1]
			up := netip.PrefixFrom(a.Addr(), a.Bits()-1)
			if a.Bits() != b.Bits() || up.Masked() != up || !up.Contains(b.Addr()) {
				break
			}
			out = append(out[:n-2], up)
		}
	}
	return out
}

// listed are prefixes as a match has them.
func listed(all []netip.Prefix) string {
	var words []string
	for _, p := range all {
		words = append(words, p.String())
	}
	return "{ " + strings.Join(words, ", ") + " }"
}
