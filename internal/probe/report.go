package probe

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	"levee/internal/lang/action"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/packet"
	"levee/internal/quantity"
)

// Report is the result of a run.
type Report struct {
	Seconds       float64        `json:"seconds"`
	Sent          int            `json:"sent"`  // packets, also those of challenges
	Asked         int            `json:"asked"` // questions, each by up to some packets
	Prefixes      []PrefixReport `json:"prefixes"`
	Loss          Loss           `json:"loss"`
	Targets       []Target       `json:"targets"`
	Classes       []Class        `json:"classes"`
	Skipped       []Skipped      `json:"skipped"`
	Disagreements []Disagreement `json:"disagreements"`
	// Notes are remarks on the figures.
	Notes []string `json:"notes"`
}

// PrefixReport is the result for one prefix.
type PrefixReport struct {
	Prefix      string   `json:"prefix"`
	Owner       string   `json:"owner"`
	Witness     string   `json:"witness"`
	Dev         string   `json:"dev"`
	Policy      string   `json:"policy"` // in force there
	Addresses   int      `json:"addresses"`
	Confirmed   int      `json:"confirmed"`
	Unconfirmed []string `json:"unconfirmed"` // as prefixes
	Stopped     string   `json:"stopped,omitempty"`
}

// Loss is measured by probes that got through with one of their tries: how many of their tries did
// not.
type Loss struct {
	There     Share  `json:"there"`     // to the witness
	AndBack   Share  `json:"and_back"`  // from there to the target and back
	Unread    uint64 `json:"unread"`    // answers for which there was no room here
	Unwatched uint64 `json:"unwatched"` // packets of which no witness could tell
}

// Share is some of many.
type Share struct {
	Lost int `json:"lost"`
	Of   int `json:"of"`
}

// chance returns the chance of so many tries all being lost. Laplace's rule of succession has few
// probes prove little: without any it is one half a try.
func (s Share) chance(tries int) float64 {
	return math.Pow(float64(s.Lost+1)/float64(s.Of+2), float64(tries))
}

func (s Share) String() string {
	if s.Of == 0 {
		return "not measured"
	}
	return fmt.Sprintf("%.2g %% (%d of %d)", 100*float64(s.Lost)/float64(s.Of), s.Lost, s.Of)
}

// State says whether a service is open.
type State string

// States.
const (
	Open     State = "open"
	Closed   State = "closed"
	Filtered State = "filtered"
	Unknown  State = "unknown"
)

// Seen are the three views of a probe; nil where there is none.
type Seen struct {
	Predicted *Judged `json:"predicted,omitempty"`
	Counted   *Judged `json:"counted,omitempty"`
	Observed  string  `json:"observed"`
}

// Target is a service of an address.
type Target struct {
	Address string `json:"address"`
	Proto   string `json:"proto"`
	Port    uint16 `json:"port"`
	State   State  `json:"state"`
	Why     string `json:"why,omitempty"`
	Banner  string `json:"banner,omitempty"`
	Seen
}

// Class is a packet that stands for a class of a policy's.
type Class struct {
	Kind   string `json:"kind"`
	Packet string `json:"packet"`
	Seen
}

// Disagreement is probes about which two of the views differ in the same way.
type Disagreement struct {
	Seen
	Why string `json:"why"`
	// RunTime: only run time knows which of them is right, so that nothing is wrong.
	RunTime bool   `json:"run_time"`
	Probes  int    `json:"probes"`
	Example string `json:"example"`
}

// few is the chance of being wrong by loss that is taken for a result.
const few = 1e-3

// reporter is a run that has ended.
type reporter struct {
	*run
	*Report
	found map[string]*Disagreement
}

func (r *run) report(unread uint64, took time.Duration) *Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	rep := &reporter{r, &Report{Seconds: math.Round(took.Seconds()*1000) / 1000, Sent: r.sent,
		Targets: []Target{}, Classes: []Class{}, Skipped: append([]Skipped{}, r.skipped...),
		Notes: []string{}, Disagreements: []Disagreement{}},
		map[string]*Disagreement{}}
	rep.prefixes()
	rep.Loss = r.loss()
	rep.Loss.Unread = unread
	for _, e := range r.eyes {
		rep.eye(e)
	}
	for n := r.begin(aService); n < len(r.results); n++ {
		rep.number(n)
	}
	rep.blind()
	for _, d := range rep.found {
		rep.Disagreements = append(rep.Disagreements, *d)
	}
	slices.SortFunc(rep.Disagreements, func(a, b Disagreement) int {
		return cmp.Or(cmp.Compare(b.Probes, a.Probes), cmp.Compare(a.Example, b.Example),
			cmp.Compare(a.Why, b.Why))
	})
	return rep.Report
}

func (r *reporter) prefixes() {
	for i := range r.Owned.Prefixes {
		p := &r.Owned.Prefixes[i]
		e := r.eyes[keyOf(p)]
		out := PrefixReport{Prefix: p.Prefix.String(), Owner: p.Owner, Witness: e.name,
			Dev: e.first.Dev, Policy: e.first.Name, Unconfirmed: []string{},
			Stopped: r.ended[p]}
		var not []netip.Addr
		for at := range r.addrs {
			switch {
			case r.addrs[at].Of != p:
				continue
			case r.results[at].seen != 0:
				out.Confirmed++
			default:
				not = append(not, r.addrs[at].Addr)
			}
			out.Addresses++
		}
		for _, q := range aggregate(not) {
			out.Unconfirmed = append(out.Unconfirmed, q.String())
		}
		r.Prefixes = append(r.Prefixes, out)
	}
}

// eye tells what makes the figures of a witness less than whole.
func (r *reporter) eye(e *eye) {
	switch {
	case e.last == nil:
		r.note("the witness %s did not say what it has lost%s", e.name, e.lastWords())
	default:
		r.Report.Loss.Unwatched += e.last.Lost
	}
	if e.changed {
		r.note("on %s another policy came into force meanwhile: probes before it are held "+
			"against the first", e.first.Dev)
	}
	if f := r.Policy; f != nil && string(f.Text) != e.first.Source {
		r.note("the policy in force on %s is not %s as it is here: levee diff says which packets "+
			"that changes", e.first.Dev, f.Name)
	}
}

// blind notes for how many addresses with open ports the policy lets no other port through.
func (r *reporter) blind() {
	opens := map[string]bool{}
	for i := range r.Targets {
		t := &r.Targets[i]
		if t.State == Open && t.Proto == protoName(packet.ProtoTCP) {
			opens[t.Address] = true
		}
	}
	blind := 0
	for i, at := range r.confirmed {
		told := !opens[r.addrs[at].String()] || len(r.canary) == 0
		for k := range canaries {
			res := &r.results[r.begin(aCanary)+i*canaries+k]
			told = told || res.rule > 0 && r.rules[res.rule-1].Verdict != "drop"
		}
		if !told {
			blind++
		}
	}
	if blind > 0 {
		r.note("of %s with open ports the policy lets no other port through: what answers for "+
			"every port there looks like that, too (--banners shows what answers)",
			quantity.Plural(blind, "address"))
	}
}

func (r *reporter) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// loss returns the loss of tries before one got through.
func (r *run) loss() (l Loss) {
	for n := range r.results {
		res := &r.results[n]
		if res.seen == 0 {
			continue
		}
		for try := range mostTries {
			bit := uint8(1) << try
			if res.sent&bit == 0 {
				continue
			}
			l.There.Of++
			if res.seen&bit == 0 {
				l.There.Lost++
			}
			// Those behind the answered one were sent before the answer came.
			if n < len(r.addrs) || res.kind == silent || res.seen&bit == 0 ||
				try > int(res.try) {
				continue
			}
			l.AndBack.Of++
			if try < int(res.try) {
				l.AndBack.Lost++
			}
		}
	}
	return l
}

// tries returns how many of a probe were sent, and how many of these a witness saw.
func (res *result) tries() (sent, seen int) {
	for try := range mostTries {
		sent += int(res.sent >> try & 1)
		seen += int(res.seen >> try & 1)
	}
	return sent, seen
}

// number reports a probe.
func (r *reporter) number(n int) {
	t, res := r.target(n), &r.results[n]
	seen := Seen{Observed: r.observed(n)}
	if res.rule > 0 {
		seen.Counted = &r.rules[res.rule-1]
	}
	of := r.policyOf(t.to)
	seen.Predicted = r.predict(of, n)
	example := fmt.Sprintf("%s %s", t.to, t.Service)
	if t.kind == aClass {
		example = "packet " + r.classes[t.class].text
	}
	unwatched := res.seen == 0 && r.eyeOf(t.to).broke // nobody could have told of it
	if res.sent != 0 && !unwatched {
		r.Asked++
		if why, runTime := r.disagree(n, &t, &seen, of); why != "" {
			r.add(seen, why, runTime, example)
		}
	}
	switch t.kind {
	case aService:
		out := Target{Address: t.to.String(), Proto: protoName(t.Proto), Port: t.Port, Seen: seen,
			Banner: r.contacts[n].banner}
		out.State, out.Why = r.state(n, &t, &seen)
		r.Targets = append(r.Targets, out)
	case aClass:
		c := &r.classes[t.class]
		r.Classes = append(r.Classes, Class{c.kind, c.text, seen})
	}
}

// observed returns what came back, in words.
func (r *reporter) observed(n int) string {
	res := &r.results[n]
	switch res.kind {
	case accepts:
		return "accepted"
	case resets:
		return "reset"
	case replies:
		return "answer"
	case icmpSays:
		by := ""
		if !res.own {
			by = " by " + r.by[n].String()
		}
		return icmpWords(res.icmpType, res.icmpCode, r.target(n).to.Is6()) + by
	}
	if res.sent == 0 {
		return "not asked"
	}
	return "silence"
}

// icmpWords are errors of ICMP as RFC 792, RFC 1812 and RFC 4443 name them.
func icmpWords(t, code uint8, six bool) string {
	names := map[[2]uint8]string{{3, 0}: "net unreachable", {3, 1}: "host unreachable",
		{3, 2}: "protocol unreachable", {3, 3}: "port unreachable", {3, 9}: "net prohibited",
		{3, 10}: "host prohibited", {3, 13}: "administratively prohibited",
		{11, 0}: "TTL exceeded"}
	if six {
		names = map[[2]uint8]string{{1, 0}: "no route", {1, 1}: "administratively prohibited",
			{1, 3}: "address unreachable", {1, 4}: "port unreachable",
			{1, 5}: "source address policy", {1, 6}: "reject route",
			{3, 0}: "hop limit exceeded", {4, 1}: "next header unknown"}
	}
	if name := names[[2]uint8{t, code}]; name != "" {
		return name
	}
	return fmt.Sprintf("ICMP %d/%d", t, code)
}

// portUnreachable says that the target itself told of a port on which nobody listens.
func (res *result) portUnreachable(six bool) bool {
	if six {
		return res.own && res.icmpType == 1 && res.icmpCode == 4
	}
	return res.own && res.icmpType == 3 && res.icmpCode == 3
}

// hostSays says that an error of ICMP is what a host answers to what nobody takes: a port of UDP,
// or a protocol.
func (res *result) hostSays(t *target) bool {
	six := t.to.Is6()
	switch {
	case t.Proto == packet.ProtoTCP || isICMP(t.Proto, six):
		return false
	case res.portUnreachable(six):
		return true
	}
	kind := [2]uint8{res.icmpType, res.icmpCode}
	return res.own && (six && kind == [2]uint8{4, 1} || !six && kind == [2]uint8{3, 2})
}

// state returns what a service is, and why where that does not say itself.
func (r *reporter) state(n int, t *target, seen *Seen) (State, string) {
	res := &r.results[n]
	sent, saw := res.tries()
	switch res.kind {
	case accepts:
		return r.accepted(n, t, seen)
	case replies:
		return Open, ""
	case resets:
		if ttl, ok := r.ttls[t.to]; ok && ttl != res.ttl {
			return Filtered, fmt.Sprintf("the reset has TTL %d, and what accepts there %d: "+
				"another machine sends it", res.ttl, ttl)
		}
		return Closed, ""
	case icmpSays:
		if t.Proto == packet.ProtoUDP && res.portUnreachable(t.to.Is6()) {
			return Closed, ""
		}
		return Filtered, seen.Observed
	}
	chance := 1.0
	switch {
	case sent == 0:
		return Unknown, "not asked: " + cmp.Or(r.left(t.to), "it ended before")
	case r.left(t.to) != "" && seen.Counted == nil:
		return Unknown, "not asked again: " + r.left(t.to)
	case seen.Counted != nil && seen.Counted.Verdict == "drop":
		return Filtered, "dropped by " + seen.Counted.Rule
	case saw == 0:
		chance = r.Report.Loss.There.chance(sent)
		if chance <= few {
			return Filtered, "it does not arrive: something on the way drops it"
		}
		return Unknown, fmt.Sprintf("it did not arrive %s, which by loss alone may have a chance "+
			"of %.2g", times(sent), chance)
	case t.Proto != packet.ProtoTCP:
		return Unknown, fmt.Sprintf("passed by %s, and nothing answered: nobody listens and says "+
			"so, or a service that does not know the datagram", seen.Counted.Rule)
	}
	chance = r.Report.Loss.AndBack.chance(saw)
	if chance <= few {
		return Filtered, fmt.Sprintf("passed by %s, and dropped behind it", seen.Counted.Rule)
	}
	return Unknown, fmt.Sprintf("passed by %s %s, and silence may have a chance of %.2g by loss "+
		"alone", seen.Counted.Rule, times(saw), chance)
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// accepted returns what a port is that accepts a SYN.
func (r *reporter) accepted(n int, t *target, seen *Seen) (State, string) {
	first := r.begin(aCanary) + r.confirmedAt(t.addr)*canaries
	for k := range canaries {
		if first+k < len(r.results) && r.results[first+k].kind == accepts {
			return Unknown, fmt.Sprintf("port %d accepts, too, where nothing should listen: "+
				"something answers for every port", r.target(first+k).Port)
		}
	}
	cookie := seen.Counted != nil && seen.Counted.Verdict == answered
	switch c := r.contacts[n]; {
	case cookie && c.state == untried:
		return Unknown, "a cookie of levee's answered, and nobody connected"
	case c.state == refused:
		return Closed, "it accepts a SYN, and refuses the connection: a proxy of SYNs answers"
	case c.state == resetAtOnce:
		return Unknown, "connections are made and reset: a proxy of SYNs in front of a closed " +
			"port, or a service that resets"
	case c.state == noneMade:
		return Unknown, "it accepts a SYN, and no connection comes of it"
	case c.state == untried:
		return Open, "it accepts a SYN, and nobody connected"
	}
	return Open, ""
}

func (r *reporter) confirmedAt(addr int) int {
	at, _ := slices.BinarySearch(r.confirmed, addr)
	return at
}

// disagree says which of the views of a probe differ and what that means, or "".
func (r *reporter) disagree(n int, t *target, seen *Seen, of *policy.Policy) (why string,
	runTime bool) {
	res := &r.results[n]
	_, saw := res.tries()
	switch {
	case saw == 0:
		return r.neverSeen(n), false
	case seen.Predicted != nil && seen.Predicted.ID != seen.Counted.ID:
		return r.otherRule(n, seen, of)
	case seen.Counted.Verdict == "drop" && res.kind != silent:
		return "it was dropped there, and answered all the same: by another machine", false
	case seen.Counted.Verdict == "pass":
		return r.behind(n, t), false
	}
	return "", false
}

// neverSeen says what it means that a witness saw no try of a probe, or "".
func (r *reporter) neverSeen(n int) string {
	res := &r.results[n]
	sent, _ := res.tries()
	switch {
	case res.kind != silent:
		return "another machine answers in the target's place, in front of its levee"
	case r.Report.Loss.There.chance(sent) > few:
		return ""
	}
	return "it does not arrive: an upstream filter, or another way"
}

// behind says what befell a probe behind the policy that passed it, or "".
func (r *reporter) behind(n int, t *target) string {
	res := &r.results[n]
	_, saw := res.tries()
	ttl, accepts := r.ttls[t.to]
	switch {
	case res.kind == icmpSays && !res.hostSays(t):
		return "it was passed, and refused behind it: another firewall, or no way to the target"
	case res.kind == resets && accepts && ttl != res.ttl:
		return "it was passed, and another machine than the target resets it: another firewall"
	case res.kind == silent && t.Proto == packet.ProtoTCP && r.begins(t) &&
		r.Report.Loss.AndBack.chance(saw) <= few:
		return "it was passed, and nothing came back: another firewall behind it, or no host"
	}
	return ""
}

// begins says whether a probe of TCP is a SYN, which a host answers.
func (r *reporter) begins(t *target) bool {
	if t.kind != aClass {
		return true
	}
	f := r.classes[t.class].spec.Flags
	return f != nil && *f == packet.SYN
}

// otherRule says why another rule than the predicted one counted a probe.
func (r *reporter) otherRule(n int, seen *Seen, of *policy.Policy) (why string, atRunTime bool) {
	if to := r.arrived[n]; to != "" {
		return "it arrived for " + to + ": NAT in front of the policy", false
	}
	for _, id := range []string{seen.Counted.ID, seen.Predicted.ID} {
		if what := runTime(of, id); what != "" {
			return "it depends on " + what + ", which only run time knows", true
		}
	}
	if r.Policy != nil {
		return "another policy is in force: a stale one there, or here", false
	}
	return "the packet was changed on the way, or the policy replaced meanwhile", false
}

// runTime returns what of a rule only run time knows, or "".
func runTime(of *policy.Policy, id string) string {
	slots := of.Slots()
	i := slices.IndexFunc(slots, func(s policy.Slot) bool { return s.ID == id })
	if i < 0 || slots[i].Rule == nil {
		return ""
	}
	rule := slots[i].Rule
	switch rule.Action {
	case action.Limit:
		return "a limit"
	case action.Cookie:
		return "a cookie"
	case action.Greylist:
		return "a greylist"
	}
	for k := range rule.Match {
		t := &rule.Match[k]
		switch {
		case t.Set != nil && t.Set.Kind == policy.Dynamic:
			return "what set " + t.Set.Name + " holds"
		case slices.Contains(field.Remembered(), t.Field):
			return "what was before"
		}
	}
	return ""
}

// add adds a probe to the disagreements.
func (r *reporter) add(seen Seen, why string, runTime bool, example string) {
	key := why + "\n" + seen.Observed
	for _, j := range []*Judged{seen.Predicted, seen.Counted} {
		if j != nil {
			key += "\n" + j.Rule + " " + j.Verdict
		} else {
			key += "\n-"
		}
	}
	d := r.found[key]
	if d == nil {
		d = &Disagreement{Seen: seen, Why: why, RunTime: runTime, Example: example}
		r.found[key] = d
	}
	d.Probes++
}
