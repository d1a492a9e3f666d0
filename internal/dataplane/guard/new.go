package guard

import (
	"fmt"

	"levee/internal/filter/oracle"
	"levee/internal/host/session"
	"levee/internal/lang/action"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// CheckNew returns a *CutError for the first session that its other end could not begin again: of
// which the policy would drop the SYN. A policy that keeps no connections may well pass the packets
// of a session and drop the next one's first.
func CheckNew(p *policy.Policy, link packet.Link, sessions []session.Session) error {
	judge := oracle.NewOn(p, link)
	for _, s := range sessions {
		spec := packet.Spec{
			From: s.Remote.Addr(), To: s.Local.Addr(), Proto: new(uint8(packet.ProtoTCP)),
			FromPort: new(s.Remote.Port()), ToPort: new(s.Local.Port()),
			Flags: new(uint8(packet.SYN)), Len: new(60), // with usual options
		}
		if len(s.Tags) > 0 {
			spec.VLAN = &s.Tags[0]
		}
		if len(s.Tags) > 1 {
			spec.InnerVLAN = &s.Tags[1]
		}
		frame, err := packet.Build(spec)
		if err == nil {
			frame, err = link.Carry(frame)
		}
		if err != nil {
			return fmt.Errorf("make a first packet of the session with %s: %w", s.Remote, err)
		}
		if r := judge.Eval(frame); r.Action == action.Drop {
			s.What = "a new connection such as " + s.What
			return &CutError{Session: s, Decider: oracle.Decider(p, p.Slots()[r.Slot]),
				Keep: keep(s)}
		}
	}
	return nil
}
