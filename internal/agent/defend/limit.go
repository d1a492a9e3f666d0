package defend

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"

	"levee/internal/agent/episode"
	"levee/internal/agent/incident"
	"levee/internal/agent/kind"
	"levee/internal/agent/signature"
	"levee/internal/packet"
)

// limitEssential finds limits on a flood of packets that the policy passes as essential, as forged
// path MTU messages: a drop would take all of these.
func (j *job) limitEssential(limits signature.Limits) ([]incident.Rule, error) {
	if j.kept < max(minOfRule, minDrop*j.beyond) || j.tried(episode.Limit) {
		return nil, nil
	}
	off := *limits.Policy
	off.Essential, limits.Policy = false, &off
	pair, err := signature.NewPair(j.flood, j.good, limits)
	if err != nil {
		return nil, err
	}
	var found episode.Found
	if dropped, _, err := j.search(pair, limits.Collateral, &found); err != nil ||
		dropped < j.minShare() {
		return nil, err
	}
	for i := range found.Rules {
		r := &found.Rules[i]
		r.Rule = episode.Loosened(r.Rule, ofEssential*j.Alarm.Kind.Row().Floor)
		r.Action, r.Why = episode.Limit, "it looks essential: some of it goes on"
	}
	return found.Rules, nil
}

// cookie has clients prove that they are there, at the destination ports of SYNs.
func (j *job) cookie(n int) (incident.Rule, bool) {
	if !j.asks() {
		return incident.Rule{}, false
	}
	text, ok := valid("cookie tcp" + j.target())
	if !ok {
		return incident.Rule{}, false
	}
	label := episode.Label(j.ID, j.Round, n)
	known := j.peers.All()
	// a SYN of each, and the RST that proves it, which a sample of SYNs alone lacks
	one := signature.Judged{Packets: j.good.Len(),
		Dropped: min(j.good.Len(), 2*strangers(j.good, known, kind.SYN.Is, sourceOf))}
	why := "no drop is clean"
	if j.few {
		why = "too few good packets are known for a drop"
	}
	return incident.Rule{Rule: written(text, j.Of, label), Label: label,
		Action: episode.Cookie, State: incident.Waiting, Coverage: 1, Predicted: one.Collateral(),
		AtMost: one.Highest(),
		Why:    why + ": who sends a SYN has to prove once that he is there"}, true
}

// target returns the terms of a rule for the flood's destination: its host, and its ports if they
// are few.
func (j *job) target() (text string) {
	if to := hostText(j.Alarm.To); to != "" {
		text += " to " + to
	}
	if len(j.ports) > 0 {
		text += " port " + portList(j.ports)
	}
	return text
}

// portsOf are the ports that most of a kind goes to, if they are few.
func portsOf(counts map[uint16]int) (out []uint16) {
	all := 0
	for _, n := range counts {
		all += n
	}
	covered := 0
	for _, port := range slices.Sorted(maps.Keys(counts)) {
		if n := counts[port]; n*50 >= all {
			out, covered = append(out, port), covered+n
		}
	}
	if len(out) > mostPorts || covered*10 < all*9 {
		return nil
	}
	return out
}

// portList is ports as a rule lists them.
func portList(ports []uint16) string {
	words := make([]string, len(ports))
	for i, p := range ports {
		words[i] = fmt.Sprint(p)
	}
	return "{ " + strings.Join(words, ", ") + " }"
}

// ofNobody is the part of a flood that a limit leaves of a rare kind, of which no packet is good.
const ofNobody = 0.005

// limit is a limit on the kind of the flood, of what it usually has and as much again: of each
// source, of each destination, or of all together. Where it is not worth its cost, fault says why.
func (j *job) limit(answer string) (out incident.Rule, fault string) {
	switch answer {
	case episode.LimitStrangers:
		return j.limitStrangers()
	case episode.Greylist:
		return j.greylist()
	}
	label := episode.Label(j.ID, j.Round, 0)
	least := j.tooMuch() / 10
	if j.Alarm.Kind.Row().Rare {
		if _, all := countKind(j.good, j.Alarm.Kind, sourceOf); all == 0 {
			least = max(minOfSource, min(least, ofNobody*j.Alarm.All))
		}
	}
	rate := max(2*j.Alarm.UsualAll, least)
	var n int // of good packets
	switch answer {
	case episode.LimitBySource:
		rate, out.Coverage, n = ofEach(j, sourceOf, minOfSource)
	case episode.LimitByName:
		rate, out.Coverage, n = ofEach(j, zoneOf, minOfZone)
	case episode.LimitByDestination:
		rate, out.Coverage, n = ofEach(j, destinationOf, least)
	}
	text := j.Alarm.Kind.Row().LimitTo(hostText(j.Alarm.To), rateText(rate))
	if answer == episode.LimitByName {
		text = "limit udp" + j.target() + " dns query" + rateText(rate)
	}
	text, ok := valid(text + strings.TrimPrefix(answer, episode.Limit))
	if !ok {
		return out, "the language has none for this kind"
	}
	out.Rule, out.Label, out.Action = written(text, j.Of, label), label, episode.Limit
	out.State = incident.Waiting
	if answer == episode.Limit {
		drop := out
		drop.Rule, drop.Before = episode.Tightened(out.Rule), j.passedBy() // as inFront has it
		p, err := compose(j.base, []episode.Live{{Rule: drop, Of: j.Of}})
		if err != nil {
			return out, err.Error()
		}
		// Of the good packets that it is about, a limit drops as many as of the others.
		share := harm(j.base, p, label, j.good)
		n = int(share * float64(j.good.Len()) * max(0, 1-rate/max(1, j.Alarm.All)))
		out.Coverage = float64(j.kinds) / float64(max(1, j.flood.Len()))
	}
	one := signature.Judged{Packets: j.good.Len(), Dropped: n}
	out.Predicted, out.AtMost = one.Collateral(), one.Highest()
	return out, j.worth(&out)
}

// worth returns why a limit is not worth its cost, "" where it is.
func (j *job) worth(r *incident.Rule) string {
	switch {
	case r.Coverage <= minDrop*j.beyond:
		return fmt.Sprintf("it would drop %.0f %% of the flood", 100*r.Coverage)
	case r.Predicted > j.byChance():
		return fmt.Sprintf("it would drop %.2g %% of %d good packets", 100*r.Predicted,
			j.good.Len())
	}
	return ""
}

// tooMuch is the rate that limits are a part of: what is too much, and a quarter of that at least
// beside a large flood, of which less is.
func (j *job) tooMuch() float64 {
	return max(j.Alarm.Threshold, 0.25*j.Alarm.Kind.Row().Floor)
}

// minOfSource is a rate that any client may have, in packets a second. Fewer packets of a source
// than fewOfSource show no rate: forged ones have one each.
const (
	minOfSource = 20
	fewOfSource = 4
)

// ofEach is a limit for each source, destination or zone: a rate, four times what the busiest of
// good packets has of the kind, and at least so much. It takes a share of the flood, and of good
// packets those of such that are above it now. Whoever floods in the names of clients uses up what
// the limit leaves them.
func ofEach[K comparable](j *job, by func(*packet.Packet, []byte) K, least float64) (rate,
	coverage float64, good int) {
	var none K // what has no key is not limited
	flood, all := countKind(j.flood, j.Alarm.Kind, by)
	counts := flood
	if j.passes != nil {
		counts, all = countKind(j.passes, j.Alarm.Kind, by)
	}
	usual, calm := countKind(j.good, j.Alarm.Kind, by)
	busiest := 0
	for _, n := range usual {
		busiest = max(busiest, n)
	}
	rate = max(least, 4*j.Alarm.UsualAll*float64(busiest)/float64(max(1, calm)))
	for from, n := range counts {
		have := j.Alarm.All * float64(n) / float64(max(1, all))
		if n >= fewOfSource && have > rate && from != none {
			coverage += float64(flood[from]) * (1 - rate/have)
			good += int(math.Ceil(float64(usual[from]) * (1 - rate/have)))
		}
	}
	return rate, coverage / float64(max(1, j.flood.Len())), good
}

// countKind counts the packets of a kind, by their sources, destinations or zones.
func countKind[K comparable](s *signature.Sample, k kind.Kind,
	by func(*packet.Packet, []byte) K) (counts map[K]int, all int) {
	counts = map[K]int{}
	each(s, func(p *packet.Packet, b []byte) {
		if k.Is(p) {
			counts[by(p, b)]++
			all++
		}
	})
	return counts, all
}

// sourceOf and destinationOf are by whom packets are counted.
func sourceOf(p *packet.Packet, _ []byte) netip.Addr { return p.Src }

func destinationOf(p *packet.Packet, _ []byte) netip.Addr { return p.Dst }

func hostText(p netip.Prefix) string {
	if !p.IsValid() {
		return ""
	}
	return strings.TrimSuffix(strings.TrimSuffix(p.String(), "/32"), "/128")
}
