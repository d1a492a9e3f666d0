// Package guard decides whether a policy may be put in force: not one that would cut a session over
// which somebody works on the machine.
//
// In go a policy and sessions; out comes the first session that the policy would drop, and by what.
// The oracle judges packets as they arrive from the other end of each session. Nothing is changed,
// and the machine is not looked at: package session does that.
package guard

import (
	"fmt"
	"slices"

	"levee/internal/filter/oracle"
	"levee/internal/host/session"
	"levee/internal/lang/action"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// CutError says that a policy would cut a session.
type CutError struct {
	Session session.Session
	Decider string // what would drop its packets, in words
}

func (e *CutError) Error() string {
	s := e.Session
	return fmt.Sprintf("%s, from %s to %s, would be dropped by %s; let it pass (`protect from %s tcp port %d`)",
		s.What, s.Remote, s.Local, e.Decider, s.Remote.Addr(), s.Local.Port())
}

// Check returns a *CutError for the first session of which the policy would drop a packet, on a
// device of that link layer.
func Check(p *policy.Policy, link packet.Link, sessions []session.Session) error {
	if len(sessions) == 0 {
		return nil
	}
	judge := oracle.NewOn(p, link)
	for _, s := range sessions {
		frames, err := arriving(s, link)
		if err != nil {
			return fmt.Errorf("make a packet of the session with %s: %w", s.Remote, err)
		}
		for _, frame := range frames {
			if r := judge.Eval(frame); r.Action == action.Drop {
				return &CutError{s, oracle.Decider(p, p.Slots()[r.Slot])}
			}
		}
	}
	return nil
}

// Fallbacks are what `on error` asks for, in the order in which they are tried: first with all
// dynamic sets and what is in them, then with none but those of protect rules, should their memory
// be what the machine lacks. If one of them would cut a session, none is used, and the error says
// why.
func Fallbacks(p *policy.Policy, link packet.Link, sessions []session.Session) ([]*policy.Policy, error) {
	if p.OnError == policy.KeepLast {
		return nil, nil
	}
	var all []*policy.Policy
	for _, keepSets := range []bool{true, false} {
		f := p.Fallback(keepSets)
		if err := Check(f, link, sessions); err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}

// Plain reports whether the last of the fallbacks may be in force without the careful decoder. Packets
// with tags then have the default, whatever protect rules say.
func Plain(p *policy.Policy, sessions []session.Session) bool {
	tagged := func(s session.Session) bool { return len(s.Tags) > 0 }
	return p.OnError == policy.ErrorPass || !slices.ContainsFunc(sessions, tagged)
}

// Lengths of IP packets that a session is tried with: a bare acknowledgement with time stamps, and a
// full segment.
var lengths = [...]int{72, 1400}

// arriving are frames of a session as they arrive from the other end.
func arriving(s session.Session, link packet.Link) ([][]byte, error) {
	var frames [][]byte
	for _, n := range lengths {
		spec := packet.Spec{
			From: s.Remote.Addr(), To: s.Local.Addr(), Proto: new(uint8(packet.ProtoTCP)),
			FromPort: new(s.Remote.Port()), ToPort: new(s.Local.Port()), Flags: new(uint8(packet.ACK)), Len: &n,
		}
		if len(s.Tags) > 0 {
			spec.VLAN = &s.Tags[0]
		}
		if len(s.Tags) > 1 {
			spec.InnerVLAN = &s.Tags[1]
		}
		frame, err := packet.Build(spec)
		if err != nil {
			return nil, err
		}
		if frame, err = link.Carry(frame); err != nil {
			return nil, err
		}
		frames = append(frames, frame)
	}
	return frames, nil
}
