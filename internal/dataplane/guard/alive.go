package guard

import (
	"slices"

	"levee/internal/filter/ir"
	"levee/internal/host/session"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// An ordinary segment of a session: the ACK of what was typed, with the option of timestamps.
const (
	usualTTL    = 64
	usualWindow = 501
	usualOption = 12
)

// Alive returns the sessions that the policy in force lets live. A session whose ordinary packets
// this policy drops counts as over, even if the kernel still lists it: no further policy can cut
// it. An attacker's address that is in a set by now is the usual case.
func Alive(p *policy.Policy, link packet.Link, sessions []session.Session,
	entries Entries) []session.Session {
	if len(sessions) == 0 {
		return nil
	}
	prog := ir.Build(p)
	over := func(s session.Session) bool {
		if len(s.Tags) > 2 {
			return false // Check knows
		}
		k := ordinary(arriving(s, link)[0], entries)
		if prog.Drops(&k.Traffic) {
			return true
		}
		if prog.Out == nil {
			return false
		}
		k = ordinary(answers(p, s, link)[0], entries)
		return prog.Out.Drops(&k.Traffic)
	}
	return slices.DeleteFunc(slices.Clone(sessions), over)
}

// ordinary returns the ordinary segment among packets of a session.
func ordinary(k packets, entries Entries) packets {
	k.Has = entries.has
	k.Known[field.TCPFlags] = one(packet.ACK)
	k.Known[field.TTL] = one(usualTTL)
	k.Known[field.TCPWindow] = one(usualWindow)
	k.Known[field.DSCP] = one(0)
	k.Known[field.Len] = one(k.Known[field.Len][0].Lo + usualOption)
	return k
}
