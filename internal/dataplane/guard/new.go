package guard

import (
	"levee/internal/filter/ir"
	"levee/internal/filter/oracle"
	"levee/internal/host/session"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// What systems begin connections with: options of 4 to 40 bytes (RFC 9293 section 3.1), windows
// from 5,840 on, and DSCP 0, since programs choose another when the connection is there. Scanners
// send other windows, and rules that drop these cut nobody.
const (
	minOptions, maxOptions = 4, 40
	minWindow              = 5840
	firstPort              = 1024
)

// beginning returns the first packet of a connection like a session, from any port that a system
// takes by itself.
func beginning(s session.Session, link packet.Link) packets {
	k := arriving(s, link)[0]
	k.Known[field.SrcPort] = span(firstPort, 1<<16-1)
	k.Known[field.Flow] = one(0)
	k.first(packet.SYN, packet.SYN|packet.ECE|packet.CWR)
	return k
}

// welcome returns the packet by which this machine answers the first one of such a connection. It
// is established by its form.
func welcome(p *policy.Policy, s session.Session, link packet.Link) packets {
	k := answers(p, s, link)[0]
	k.Known[field.DstPort] = span(firstPort, 1<<16-1)
	k.first(packet.SYN|packet.ACK, packet.SYN|packet.ACK|packet.ECE)
	return k
}

// first has packets be those that begin a connection, with one of the flags.
func (k *packets) first(flags ...uint64) {
	headers := k.Known[field.Len][0].Lo // a packet of nothing else
	k.Known[field.TCPFlags] = nil
	for _, v := range flags {
		k.Known[field.TCPFlags] = append(k.Known[field.TCPFlags], one(v)...)
	}
	k.Known[field.Len] = span(headers+minOptions, headers+maxOptions)
	k.Known[field.TCPWindow] = span(minWindow, 1<<16-1)
	k.Known[field.DSCP] = one(0)
}

// CheckNew returns a *CutError for the first session that its other end could not begin again: of
// which the policy would drop a first packet, or the answer to it, though it may well pass all
// others. What this machine began by itself, as a tunnel to whom it works for, nobody begins at its
// port.
func CheckNew(p *policy.Policy, link packet.Link, sessions []session.Session,
	entries Entries) error {
	if len(sessions) == 0 {
		return nil
	}
	prog := ir.Build(p)
	for _, s := range sessions {
		if !s.Again || len(s.Tags) > 2 { // Check says that its packets are malformed
			continue
		}
		k := beginning(s, link)
		k.Has = entries.has
		k.Known[field.Proven] = one(0)
		d := prog.FirstUnanswered(&k.Traffic)
		if d == nil && prog.Answered(&k.Traffic) { // who is asked shows that he is there
			k.Known[field.Proven] = one(1)
			d = prog.FirstDropped(&k.Traffic)
		}
		cut := func(d *ir.Dropped, needs, packet, remedy string) error {
			s.What = "a new connection such as " + s.What
			return &CutError{Session: s, Needs: needs, Packet: packet, Remedy: remedy,
				Decider: oracle.Decider(p, p.Slots()[d.Slot])}
		}
		if d != nil {
			return cut(d, "", k.words(d), remedy(s))
		}
		if prog.Out == nil {
			continue
		}
		k = welcome(p, s, link)
		k.Has = entries.has
		if d := prog.Out.FirstDropped(&k.Traffic); d != nil {
			return cut(d, "the answer to its first packet", "", k.remedy)
		}
	}
	return nil
}
