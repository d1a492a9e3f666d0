package bench

import (
	"errors"
	"slices"

	"levee/internal/option"
	"levee/internal/peer"
)

// entry is a rung that the ladder knows.
type entry struct {
	peer.Defence
	group string
	udp   bool // it drops nothing but UDP to floodPort
}

// Groups of rungs.
const (
	groupPlace = "place"  // one rule or an empty program, or the application itself
	groupRules = "filter" // the rules of the demo policy
)

// known lists the rungs, roughly fastest first, which is of no consequence: reports sort by what
// was measured.
func (o *Options) known() []entry {
	return []entry{
		{peer.XDPDrop(), groupPlace, false},
		{peer.Levee(o.PolicyName, o.Policy), groupRules, false},
		{peer.XDPFilter(), groupRules, false},
		{peer.TCDrop(), groupPlace, false},
		{peer.XDPGenericDrop(), groupPlace, false},
		{peer.NFTOneRule(floodPort), groupPlace, true},
		{peer.NFT(), groupRules, false},
		{peer.IPTablesRaw(floodPort), groupPlace, true},
		{peer.IPTablesInput(floodPort), groupPlace, true},
		{peer.IPTables(), groupRules, false},
		{peer.SocketFilter(), groupPlace, true},
		{peer.RecvmmsgNotrack(), groupPlace, true},
		{peer.Recvmmsg(), groupPlace, true},
		{peer.RecvmmsgConntrack(), groupPlace, true},
	}
}

// rungs are those that the options ask for.
func (o *Options) rungs() ([]entry, error) {
	all := o.known()
	if len(o.Rungs) == 0 {
		return all, nil
	}
	var names []string
	for _, d := range all {
		names = append(names, d.Name())
	}
	if err := option.Known("rung", o.Rungs, names); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(d entry) bool { return !slices.Contains(o.Rungs, d.Name()) }), nil
}

// errOnlyUDP says why a rung is left out.
var errOnlyUDP = errors.New("it stands for UDP to one port only, and the flood has other packets")

// unfit says why a rung cannot be measured under the flood that is asked for, nil if it can.
func (o *Options) unfit(e entry) error {
	if e.udp && slices.ContainsFunc(o.Traffic, func(t string) bool { return t != "udp" }) {
		return errOnlyUDP
	}
	return nil
}

// tracks tells whether conntrack is in the path of a defence.
func tracks(d peer.Defence) bool {
	t, ok := d.(peer.Tracker)
	return ok && t.Tracks()
}
