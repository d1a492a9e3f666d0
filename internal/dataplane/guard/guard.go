// Package guard decides whether a policy may be put in force: not one that would cut a session over
// which somebody works on the machine.
//
// In go a policy and sessions; out comes the first session of which the policy would drop a packet,
// and by what. The lowered rules are asked which packets that may arrive of a session they drop: of
// a session some fields are known, and all others may be anything. It changes nothing and does not
// read the machine: package session does that.
package guard

import (
	"fmt"
	"slices"

	"levee/internal/filter/ir"
	"levee/internal/filter/oracle"
	"levee/internal/host/session"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// CutError says that a policy would cut a session.
type CutError struct {
	Session session.Session
	Needs   string // "" for its own packets, else those that it cannot do without
	Decider string // what would drop them, in words
	Packet  string // what is unusual about those, in words; "" if nothing is
	Remedy  string // the rule that lets them pass
	// Next is the table's word for the fate of the next session of this kind; the session itself
	// goes on. It is "" if neither ends.
	Next string
	// Limit is the rate that the session would be held to, "" if it would be dropped.
	Limit string
}

func (e *CutError) Error() string {
	s := e.Session
	text := fmt.Sprintf("%s, from %s to %s, would be dropped", s.What, s.Remote, s.Local)
	if e.Needs != "" {
		text = fmt.Sprintf("%s, from %s to %s, would end: %s would be dropped", s.What, s.Remote,
			s.Local, e.Needs)
	}
	if e.Next != "" {
		text = fmt.Sprintf("a new connection such as %s, from %s to %s, would be %s", s.What,
			s.Remote, s.Local, e.Next)
	}
	if e.Limit != "" {
		text = fmt.Sprintf("%s, from %s to %s, would be held to %s", s.What, s.Remote, s.Local,
			e.Limit)
		if e.Needs != "" {
			text = fmt.Sprintf("%s, from %s to %s, would end: %s would be held to %s", s.What,
				s.Remote, s.Local, e.Needs, e.Limit)
		}
	}
	text += " by " + e.Decider
	if e.Packet != "" {
		text += " where it has " + e.Packet
	}
	return fmt.Sprintf("%s; let it pass (`%s`)", text, e.Remedy)
}

// Entries holds the elements of dynamic sets that the policy will find, by the sets' names.
type Entries map[string][]policy.Element

// has says whether a set holds an element: one that covers it.
func (entries Entries) has(set *policy.Set, e policy.Element) bool {
	for _, of := range entries[set.Name] {
		if of.Check(set.Type) == nil && covers(of, e) {
			return true
		}
	}
	return false
}

func covers(of, e policy.Element) bool {
	if of.Prefix.IsValid() && !of.Prefix.Contains(e.Prefix.Addr()) {
		return false
	}
	return of.Service.Proto == e.Service.Proto && of.Service.Lo <= e.Service.Lo &&
		e.Service.Hi <= of.Service.Hi
}

// Check returns a *CutError for the first session that the policy would cut on a device of a link
// layer. A policy cuts a session if it drops a packet of it that arrives or leaves, or the ARP or
// neighbour discovery of its next hop; if it limits the session below what one takes; or if it
// leads the first packet of a new such session elsewhere.
func Check(p *policy.Policy, link packet.Link, sessions []session.Session, entries Entries) error {
	if len(sessions) == 0 {
		return nil
	}
	prog := ir.Build(p)
	for _, s := range sessions {
		if len(s.Tags) > 2 {
			tooDeep := slices.Index(policy.Malformed[:], "vlan-depth")
			if slot, drops := prog.DropsMalformed(tooDeep); drops {
				return &CutError{Session: s, Decider: oracle.Decider(p, p.Slots()[slot]),
					Remedy: "pass malformed"}
			}
			continue
		}
		all := arriving(s, link)
		for _, k := range all {
			k.Has = entries.has
			if d := prog.FirstDropped(&k.Traffic); d != nil {
				return &CutError{Session: s, Needs: k.needs,
					Decider: oracle.Decider(p, p.Slots()[d.Slot]), Packet: k.words(d),
					Remedy: k.remedy}
			}
		}
		if err := starved(p, prog, s, &all[0], entries); err != nil {
			return err
		}
		if err := checkAnswers(p, prog, s, link, entries); err != nil {
			return err
		}
		next := beginning(s, link)
		next.Has = entries.has
		if d := prog.FirstElsewhere(&next.Traffic); d != nil {
			by := p.Slots()[d.Slot]
			return &CutError{Session: s, Decider: oracle.Decider(p, by), Remedy: remedy(s),
				Next: by.Action.Info().Next}
		}
	}
	return nil
}

// enoughPackets and enoughBits are what a session takes in a second: at ten keys a second, each is
// a segment and the ACK of its echo, of 66 bytes and more each.
const (
	enoughPackets = 20
	enoughBits    = 20 * 8 * 100
)

// starved is a *CutError if a limit would leave a session, of which own is the packets of one
// direction, less than somebody at its other end needs to type.
func starved(p *policy.Policy, prog *ir.Program, s session.Session, own *packets,
	entries Entries) error {
	own.Has = entries.has
	d := prog.FirstLimited(&own.Traffic, func(l *policy.Limit) bool {
		if l = ofSession(l, own); l == nil {
			return false
		}
		enough := float64(enoughPackets)
		if l.Rate.Bits {
			enough = enoughBits
		}
		return float64(l.Rate.Amount)*float64(l.Times())/l.Rate.Per.Seconds() < enough
	})
	if d == nil {
		return nil
	}
	by := p.Slots()[d.Slot]
	return &CutError{Session: s, Needs: own.needs, Limit: ofSession(by.Rule.Limit, own).Rate.Text,
		Decider: oracle.Decider(p, by), Packet: own.words(d), Remedy: own.remedy}
}

// ofSession returns what a limit lets through of packets of a session, nil if it does not limit
// them.
func ofSession(l *policy.Limit, k *packets) *policy.Limit {
	if l.Rates == nil {
		return l
	}
	a := k.Dst
	if l.Rates.Field == field.SrcAddr {
		a = k.Src
	}
	if e := l.Rates.Of(a); e != nil {
		return e.Limit
	}
	return nil
}

// Fallbacks returns what `on error` asks for, in the order in which they are tried: first with all
// dynamic sets and what is in them, then with none but those of protect rules, should their memory
// be what the machine lacks. If one of them would cut a session, none is used, and the error says
// why.
func Fallbacks(p *policy.Policy, link packet.Link, sessions []session.Session,
	entries Entries) ([]*policy.Policy, error) {
	if p.OnError == policy.KeepLast {
		return nil, nil
	}
	var all []*policy.Policy
	for _, keepSets := range []bool{true, false} {
		f := p.Fallback(keepSets)
		if err := Check(f, link, sessions, entries); err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}

// Plain reports whether the last of the fallbacks may be in force without the careful decoder.
// Packets with tags then have the default, whatever protect rules say.
func Plain(p *policy.Policy, sessions []session.Session) bool {
	tagged := func(s session.Session) bool { return len(s.Tags) > 0 }
	return p.OnError == policy.ErrorPass || !slices.ContainsFunc(sessions, tagged)
}
