package ladder

import (
	"slices"

	"levee/internal/bench"
	"levee/internal/bench/flood"
	"levee/internal/lab/contender"
)

// Groups of rungs.
const (
	groupPlace = "place"  // one rule or an empty program, or the application itself
	groupRules = "filter" // the rules of the demo policy
)

// known lists the rungs, roughly fastest first, which is of no consequence: reports sort by what
// was measured.
func (o *Options) known() []*Rung {
	rung := func(d contender.Defence, group string, udp bool) *Rung {
		return &Rung{Rung: flood.NewRung(d), Group: group, Rules: d.Rules(), udp: udp}
	}
	return []*Rung{
		rung(contender.XDPDrop(), groupPlace, false),
		rung(contender.Levee(o.PolicyName, o.Policy), groupRules, false),
		rung(contender.XDPRead(), groupPlace, false),
		rung(contender.XDPFilter(), groupRules, false),
		rung(contender.TCDrop(), groupPlace, false),
		rung(contender.XDPGenericDrop(), groupPlace, false),
		rung(contender.NFTOneRule(flood.Port), groupPlace, true),
		rung(contender.NFT(), groupRules, false),
		rung(contender.IPTablesRaw(flood.Port), groupPlace, true),
		rung(contender.IPTablesInput(flood.Port), groupPlace, true),
		rung(contender.IPTables(), groupRules, false),
		rung(contender.SocketFilter(), groupPlace, true),
		rung(contender.RecvmmsgNotrack(), groupPlace, true),
		rung(contender.Recvmmsg(), groupPlace, true),
		rung(contender.RecvmmsgConntrack(), groupPlace, true),
	}
}

func nameOf(g *Rung) string { return g.Name }

// RungNames returns the names of all rungs.
func RungNames() []string { return bench.Names(new(Options).known(), nameOf) }

// rungs returns the rungs of the options. One that cannot be measured under the floods asked for
// says so.
func (o *Options) rungs() ([]*Rung, error) {
	chosen, err := bench.Choose("rung", o.Rungs, o.known(), nameOf)
	for _, g := range chosen {
		if g.udp && slices.ContainsFunc(o.Traffic, func(t string) bool { return t != "udp" }) {
			g.Missing, g.Absent = "it stands for UDP to one port only, and the flood has other "+
				"packets", true
		}
	}
	return chosen, err
}
