package defend

import (
	"context"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"time"

	"levee/internal/agent/detect"
	"levee/internal/agent/episode"
	"levee/internal/agent/evidence"
	"levee/internal/agent/incident"
	"levee/internal/agent/kind"
	"levee/internal/agent/known"
	"levee/internal/agent/part"
	"levee/internal/agent/peers"
	"levee/internal/agent/signature"
	"levee/internal/dataplane"
	"levee/internal/lang/action"
	"levee/internal/lang/policy"
	"levee/internal/packet"
	"levee/internal/quantity"
)

// job is the search for rules. It has copies of all that it reads.
type job struct {
	episode.Search
	dev      string
	base     *policy.Policy
	link     packet.Link
	peers    *peers.Table
	evidence *evidence.Store
	file     *part.Part // with the evidence
	flood    *signature.Sample
	passes   *signature.Sample // all that passes there now; nil: the sample of the flood has it
	good     *signature.Sample
	few      bool    // good packets are known: nobody knows what drops cost
	named    bool    // few are, and most of it comes in the names of who has done a handshake
	beyond   float64 // share of its flood that is more than usual
	kept     float64 // share of its flood that is protected, or essential
	kinds    int     // packets of the kind in the sample
	sources  int
	ports    []uint16                    // that the kind goes to, if they are few
	known    map[netip.Addr]known.Client // who came before the flood
	visits   []visit                     // of good traffic
	flows    *flows                      // the same; nil: none are known
	steps    []incident.Step
	unheard  error // why a cookie would be
}

func (w *Watcher) job(s *episode.Search, frames []frame, now time.Time) *job {
	j := &job{Search: *s, dev: w.Dev, base: w.base, link: w.link, peers: w.Peers,
		evidence: w.Evidence, file: w.files.evidence}
	with, err := compose(w.base, s.Live)
	if err != nil {
		with = w.base
	}
	j.good = w.good.sample(now, w.link, with)
	j.known, j.visits, j.flows = w.known(j.good), w.visits(now, &s.Alarm), w.flows.copied()
	all := frames
	j.few = j.good.Len() < minGood
	frames, crowd, named := w.apart(frames, &s.Alarm, j.few)
	j.named = named
	frames = w.strange(frames, sourcesOf(j.good), s.Alarm.Share)
	var buf []byte
	for i := range crowd {
		crowd[i].add(j.good, &buf)
	}
	j.beyond = min(1, s.Alarm.Share*float64(len(all))/float64(max(1, len(frames))))
	if len(frames) < len(all) {
		j.passes = w.sampleOf(all, with)
	}
	j.flood = w.sampleOf(frames, with)
	seen, ports := map[netip.Addr]bool{}, map[uint16]int{}
	for i := range frames {
		w.decode(&frames[i])
		if s.Alarm.Kind.Is(&w.packet) {
			j.kinds++
			seen[w.packet.Src] = true
			ports[w.packet.DstPort]++
		}
	}
	if s.Moved < mostMoved {
		j.ports = portsOf(ports)
	}
	j.sources = len(seen)
	return j
}

// sampleOf is a sample with all of some packets.
func (w *Watcher) sampleOf(frames []frame, with *policy.Policy) *signature.Sample {
	s := signature.NewSample(w.link, with, len(frames)+1)
	var buf []byte
	for i := range frames {
		frames[i].add(s, &buf)
	}
	return s
}

// sourcesOf are the sources that a sample has packets of, more than one of each.
func sourcesOf(s *signature.Sample) map[netip.Addr]bool {
	seen := map[netip.Addr]bool{} // true: often
	var p packet.Packet
	s.Each(func(b []byte) {
		p = packet.Packet{}
		s.Link().Decode(b, &p)
		if p.IsIP() {
			_, again := seen[p.Src]
			seen[p.Src] = again
		}
	})
	maps.DeleteFunc(seen, func(_ netip.Addr, often bool) bool { return !often })
	return seen
}

// apart has what a crowd of clients sends apart from a flood that comes beside it. Who came for
// seconds before the flood and was answered is one of them, as long as he sends what he did. Where
// few good packets are known, as the agent has just begun, so is who has done a handshake; where
// most of the flood comes in such names, nothing tells it from what these send.
func (w *Watcher) apart(frames []frame, a *detect.Alarm, few bool) (flood, crowd []frame,
	named bool) {
	few = few && w.Peers != nil
	if !a.Answered && !few {
		return frames, nil, false
	}
	of := map[netip.Addr]float64{}
	for i := range frames {
		w.decode(&frames[i])
		of[w.packet.Src] += a.All / float64(len(frames))
	}
	for i := range frames {
		w.decode(&frames[i])
		if from := w.packet.Src; few && w.Peers.Has(from) ||
			a.Answered && w.regulars.isCrowd(from, of[from]) {
			crowd = append(crowd, frames[i])
		} else {
			flood = append(flood, frames[i])
		}
	}
	if !isMost(len(flood), len(frames), a.Share) {
		return frames, nil, few
	}
	return flood, crowd, false
}

// isMost says whether so many packets are what is beyond the usual of a sample: half of it, as in
// the first moments that share is a guess.
func isMost(n, all int, beyond float64) bool {
	return n >= fewest && float64(n) >= 0.5*beyond*float64(all)
}

// strange leaves the packets of known sources out, which are more of what passes the fewer of the
// flood do. Where that leaves less than half of what is beyond the usual, they are the flood.
func (w *Watcher) strange(frames []frame, known map[netip.Addr]bool, beyond float64) []frame {
	out := make([]frame, 0, len(frames))
	for i := range frames {
		if w.decode(&frames[i]); !known[w.packet.Src] {
			out = append(out, frames[i])
		}
	}
	if !isMost(len(out), len(frames), beyond) {
		return frames
	}
	return out
}

// retain retains the sample of the first search: those after it lack what rules drop by then.
func (j *job) retain(frames []frame) {
	if j.evidence == nil || j.Round > 1 {
		return
	}
	all := make([]evidence.Packet, len(frames))
	for i := range frames {
		f := &frames[i]
		all[i] = evidence.Packet{At: f.at, Data: f.head[:f.n], Length: f.length}
	}
	wrote(j.file, j.evidence.Path(), j.evidence.Put(j.ID, j.dev, j.link, all))
}

// Searching.
const (
	mostPorts = 8    // of a cookie, or of a proof
	first     = 0.97 // share of a flood with which the first rules go into force
	looked    = 4000 // packets of each sample that a search looks at
	minDrop   = 0.5  // share of the excess that all rules together have to drop
	minOfRule = 0.1  // share of what those before leave of it that each of them has to,
	minRate   = 750  // with so many packets a second
	minPart   = 0.01 // and of the sample
	nearlyAll = 0.99 // of it, with which a flood of SYNs needs no cookie
	most      = 0.9  // of it, with which drops stand beside a cookie
	minGood   = 200
	mostMoved = 2 // times that a flood changes, until its patterns and ports tell nothing
)

// run finds rules.
func (j *job) run(ctx context.Context) (*episode.Found, error) {
	if j.Alarm.Kind.Row().Near {
		return j.near(), nil
	}
	r := &episode.Found{Good: j.good.Len(), Sources: j.sources}
	with, err := compose(j.base, j.Live)
	if err != nil {
		return nil, err
	}
	if j.good.Len() < minGood {
		r.Notes = append(r.Notes, fmt.Sprintf("only %s of good traffic known: what "+
			"rules cost is uncertain", quantity.Plural(j.good.Len(), "packet")))
	}
	limits := signature.Limits{Collateral: j.allowance(), Rules: episode.EachRound, Policy: with,
		Newer: newerThan(j.base), Label: "flood", Least: minPart, Searched: looked}
	if j.Round == 1 { // what these leave the next search finds, while they drop
		limits.Enough = first
	}
	if j.Alarm.Kind.Row().Cookie || j.proof().isCookie() {
		if j.unheard = dataplane.Unheard(ctx, j.dev); j.unheard != nil {
			r.Notes = append(r.Notes, fmt.Sprintf("no cookie: %v", j.unheard))
		}
	}
	pair, err := signature.NewPair(j.flood, j.good, limits)
	if err != nil {
		return nil, err
	}
	dropped, p, err := j.search(pair, limits.Collateral, r)
	if err == nil {
		j.kept = float64(p.Flood.Kept) / float64(max(1, p.Flood.Packets))
	}
	if most := j.byChance(); err == nil && dropped < j.minShare() &&
		!j.asks() && most > limits.Collateral {
		dropped, p, err = j.search(pair, most, r)
	}
	if err != nil {
		return nil, err
	}
	if j.named { // any pattern of it may be theirs
		r.Rules, dropped = nil, 0
	}
	var essential []incident.Rule
	if dropped < j.minShare() && !j.named { // else the next search finds it, in what drops leave
		essential, err = j.limitEssential(limits)
	}
	if err != nil {
		return nil, err
	}
	j.step("rules found")
	var why []string
	if len(essential) > 0 {
		r.Rules = essential
	} else {
		r.Rules, why = j.complete(r.Rules, dropped, r.Forged)
	}
	j.inFront(r.Rules)
	r.Steps, r.Notes = j.steps, append(r.Notes, why...)
	r.Kinds = j.beside(r.Rules)
	if len(r.Rules) == 0 {
		r.Notes = append(r.Notes, "no rule was found that drops it and spares good traffic: "+
			p.Sentence)
		return r, nil
	}
	if sum := predicted(r.Rules); sum > j.allowance() && !j.asks() {
		r.Notes = append(r.Notes, fmt.Sprintf("%.2g %% of %d good packets is more than may be "+
			"dropped, but so few may be alike by chance", 100*sum, j.good.Len()))
	}
	return r, nil
}

// mostJudged is the number of packets that say of which kind a rule is.
const mostJudged = 1000

// beside are the kinds of rules that are of floods beside this one, by their labels.
func (j *job) beside(rules []incident.Rule) map[string]string {
	live := slices.Clone(j.Live)
	for _, r := range rules {
		live = append(live, episode.Live{Rule: r, Of: j.Of})
	}
	with, err := compose(j.base, live)
	if len(rules) == 0 || j.Alarm.Kinds == 1<<j.Alarm.Kind || err != nil {
		return nil
	}
	counts := map[int]map[kind.Kind]int{} // by slot
	var p packet.Packet
	j.flood.Judge(with, newerThan(j.base), mostJudged, func(b []byte, slot int, _ action.Action) {
		p = packet.Packet{}
		j.link.Decode(b, &p)
		if counts[slot] == nil {
			counts[slot] = map[kind.Kind]int{}
		}
		for k := range kind.Num {
			if kind.Rows[k].Floor > 0 && k.Is(&p) {
				counts[slot][k]++
			}
		}
	})
	out := map[string]string{}
	for i, r := range with.Rules {
		of, all := counts[with.RuleSlot(i)], 0
		for _, n := range of {
			all += n
		}
		for k := range kind.Num {
			if of[k]*2 > all && j.Alarm.Kinds.Has(k) && !j.Alarm.Kind.Joins(k) {
				out[r.Label] = k.String()
			}
		}
	}
	return out
}

// search finds drops that are worth their place, and the share of the sample that they drop.
func (j *job) search(pair *signature.Pair, collateral float64, r *episode.Found) (dropped float64,
	p *signature.Proposal, err error) {
	if p, err = pair.Propose(collateral); err != nil {
		return 0, nil, err
	}
	r.Rules, r.Forged = nil, false
	for i := range p.Rules {
		rule := j.rule(&p.Rules[i], p, i)
		if rule.Coverage >= minOfRule || rule.Coverage >= minOfRule*(j.beyond-dropped) &&
			rule.Coverage*j.Alarm.All >= minRate {
			r.Forged = r.Forged || p.Rules[i].Forged
			r.Rules = append(r.Rules, rule)
			dropped += rule.Coverage
		}
	}
	return dropped, p, nil
}

// ofEssential is the part of what is too much that a limit leaves of a flood that is essential: it
// is no flood then, and path MTU discovery, DHCP and the like go on.
const ofEssential = 0.1

// minShare is the share of the sample that drops have to take, for nothing else to be tried: most
// of what is more than usual and is not kept, or so many packets a second. What is kept may be
// nearly all.
func (j *job) minShare() float64 {
	return max(minDrop*(j.beyond-j.kept), min(minOfRule, minRate/max(1, j.Alarm.All)))
}

// step ends a part of the way to a rule in force.
func (j *job) step(what string) { j.steps = append(j.steps, stepNow(what)) }

// rule is a rule of a proposal.
func (j *job) rule(r *signature.Rule, p *signature.Proposal, n int) incident.Rule {
	label := episode.Label(j.ID, j.Round, n)
	out := incident.Rule{Rule: written(r.Text, j.Of, label), Label: label,
		Action: "drop", State: incident.Waiting}
	if r.Before != nil {
		out.Before = r.Before.Text
	}
	one := signature.Judged{Packets: p.Good.Packets, Dropped: r.Good}
	out.Coverage = float64(r.Flood) / float64(max(1, p.Flood.Passed()+p.Flood.Kept))
	out.Predicted, out.AtMost = one.Collateral(), one.Highest()
	return out
}

// mayCost is the share of good packets that rules of this search may drop by themselves. What
// little is left of a flood may cost as little.
func (j *job) mayCost() float64 {
	c := j.Of.Collateral
	if j.Alarm.All < j.Peak/10 {
		c *= 10 * j.Alarm.All / j.Peak
	}
	return c
}

// allowance is mayCost without what rules in force cost already.
func (j *job) allowance() float64 {
	return max(0, min(j.mayCost(), j.Of.Collateral-j.spent()))
}

// byChance is the allowance where more of the sample may be chance.
func (j *job) byChance() float64 {
	return max(0, min(byChance(j.mayCost(), j.good), byChance(j.Of.Collateral, j.good)-j.spent()))
}

// spent is the share of good packets that the detector's rules in force drop, by what was predicted
// of them. Who is asked by a cookie asks again.
func (j *job) spent() (sum float64) {
	for _, l := range j.Live {
		if l.Of == j.Of && !episode.Asks(l.Rule.Action) {
			sum += l.Rule.Predicted
		}
	}
	return sum
}

// byChance is the greatest share of a sample of good packets that does not show, with 95 %
// confidence (Wilson's interval), that a rule drops more than a share of all. One packet never
// does.
func byChance(share float64, of *signature.Sample) float64 {
	n := float64(of.Len())
	if share <= 0 || n == 0 {
		return share
	}
	return math.Floor(max(1, share*n+1.96*math.Sqrt(share*n*(1-share)))) / n
}

// predicted is the share of good packets that rules drop together, at most.
func predicted(rules []incident.Rule) (sum float64) {
	for _, r := range rules {
		sum += r.Predicted
	}
	return sum
}

// asks says whether senders can be asked for a proof, which costs clients less than a drop.
func (j *job) asks() bool {
	switch {
	case j.Alarm.Kind.Row().Cookie, j.proof().isCookie():
		return j.unheard == nil && !j.tried(episode.Cookie)
	case j.proof() == byEcho:
		return !j.tried(episode.LimitUnproven)
	}
	return false
}

// tried says whether an answer was in force, and has not stopped it.
func (j *job) tried(answer string) bool { return slices.Contains(j.Tried, answer) }

// complete returns the answers to a flood, given rules that drop a share of the sample, and why
// other answers are not given. Of SYNs a cookie leaves clients what drops leave of the flood; drops
// that leave much of it only cost good packets then. Of UDP whose senders can prove themselves,
// forged or not told apart, a proof is asked for before anything is dropped. Limits are tried where
// drops leave too much, and of a flood that changes while rules are searched. Each answer is given
// once.
func (j *job) complete(rules []incident.Rule, dropped float64, forged bool) (_ []incident.Rule,
	why []string) {
	changes := j.Moved >= mostMoved // what it has in common will not hold
	if j.proof() != byNothing && (forged || changes || dropped < nearlyAll*j.beyond) {
		rule, fault := j.askProof()
		if fault == "" {
			return []incident.Rule{rule}, nil
		}
		why = append(why, fault)
	}
	if j.Alarm.Kind.Row().Cookie {
		if dropped >= nearlyAll*j.beyond && !((j.few || changes) && j.asks()) {
			return rules, nil
		}
		beside := rules
		if dropped < most*j.beyond || j.few {
			beside = nil
		}
		if rule, ok := j.cookie(len(beside)); ok {
			return append(beside, rule), nil
		}
		if j.tried(episode.Cookie) {
			why = append(why, "a cookie does not stop it: its senders are known, or have proven "+
				"that they are there")
		}
	}
	if j.named {
		return nil, append(why, "it comes in the names of who has done a handshake, and too few "+
			"good packets are known to tell it from what these send")
	}
	if dropped >= j.minShare() && !changes {
		return rules, why
	}
	if row := j.Alarm.Kind.Row(); row.Proves && j.proof() == byNothing {
		why = append(why,
			"no proof: the policy has no `prove`, `cookie dns` or `cookie a2s` for all ports of it")
	} else if !row.Cookie && !row.Proves {
		why = append(why, "no proof: who sends "+row.Words+" cannot be asked for one")
	}
	for _, answer := range []string{episode.LimitBySource, episode.LimitByName, episode.Greylist,
		episode.LimitStrangers, episode.LimitByDestination, episode.Limit} {
		if answer == episode.LimitByName && !j.asksNames() ||
			answer == episode.Greylist && j.Alarm.Kind.Row().Again == "" {
			continue
		}
		if j.tried(answer) {
			why = append(why, "a "+wordsOf(answer)+" does not stop it")
			continue
		}
		rule, fault := j.limit(answer)
		if fault == "" {
			return []incident.Rule{rule}, why
		}
		why = append(why, "no "+wordsOf(answer)+": "+fault)
	}
	if dropped >= j.minShare() { // though it may have changed by the time they are in force
		return rules, why
	}
	return nil, why
}

// strangers returns the number of sources unknown by address that have one packet in a sample.
// So many of its packets come from new ones (Good-Turing).
func strangers[K comparable](good *signature.Sample, known map[netip.Addr]bool,
	is func(*packet.Packet) bool, by func(*packet.Packet, []byte) K) (n int) {
	seen := map[K]int{}
	each(good, func(p *packet.Packet, b []byte) {
		if is(p) && !known[p.Src] {
			seen[by(p, b)]++
		}
	})
	for _, of := range seen {
		if of == 1 {
			n++
		}
	}
	return n
}

// each gives the packets of a sample. Both are valid until the next one.
func each(s *signature.Sample, look func(p *packet.Packet, b []byte)) {
	var p packet.Packet
	s.Each(func(b []byte) {
		p = packet.Packet{}
		s.Link().Decode(b, &p)
		look(&p, b)
	})
}
