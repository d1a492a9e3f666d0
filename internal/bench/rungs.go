package bench

import (
	"errors"
	"slices"

	"levee/internal/bench/option"
	"levee/internal/lab/contender"
)

// entry is a rung that the ladder knows.
type entry struct {
	contender.Defence
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
		{contender.XDPDrop(), groupPlace, false},
		{contender.Levee(o.PolicyName, o.Policy), groupRules, false},
		{contender.XDPFilter(), groupRules, false},
		{contender.TCDrop(), groupPlace, false},
		{contender.XDPGenericDrop(), groupPlace, false},
		{contender.NFTOneRule(floodPort), groupPlace, true},
		{contender.NFT(), groupRules, false},
		{contender.IPTablesRaw(floodPort), groupPlace, true},
		{contender.IPTablesInput(floodPort), groupPlace, true},
		{contender.IPTables(), groupRules, false},
		{contender.SocketFilter(), groupPlace, true},
		{contender.RecvmmsgNotrack(), groupPlace, true},
		{contender.Recvmmsg(), groupPlace, true},
		{contender.RecvmmsgConntrack(), groupPlace, true},
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
func tracks(d contender.Defence) bool {
	t, ok := d.(contender.Tracker)
	return ok && t.Tracks()
}
