package importer

import (
	"strconv"
	"strings"

	"levee/internal/lang/importer/match"
)

// VlanOf returns the VLAN id of an interface named as DEV.ID, which receives the tagged frames of
// dev; nil for any other name.
func VlanOf(name, dev string) match.Spans {
	id, ok := strings.CutPrefix(name, dev+".")
	n, err := strconv.ParseUint(id, 10, 12)
	if dev == "" || !ok || err != nil || n == 0 || n > 4094 || id[0] == '0' {
		return nil
	}
	return match.Just(n)
}

// VlanRemark says that an interface is taken for a VLAN.
func VlanRemark(name, dev string) string {
	return "interface " + match.Quote(name) + " is taken for VLAN " + name[len(dev)+1:] + " of " +
		dev + ", by its name, and " + dev + " for what has no tag"
}

// Came returns what came by one of some interfaces, or by none of them, as alternatives on the VLAN
// of a frame: none where nothing of dev did. An interface of dev itself has the frames without a
// tag, if the rules name VLANs of it; else it has all. A name that ends with wild is for all that
// begin so.
func Came(names []string, wild, dev string, vlans, not bool) (alts []match.Match) {
	var ids match.Spans
	for _, n := range names {
		stem, all := strings.CutSuffix(n, wild)
		switch {
		case n == dev && vlans:
			ids = append(ids, match.Just(match.Untagged)...)
		case n == dev, all && strings.HasPrefix(dev, stem):
			ids = append(ids, match.Between(0, match.Top[match.VLAN])...)
		case all && stem == dev+".":
			ids = append(ids, match.Tagged...)
		case all && VlanOf(stem, dev) != nil: // 20, 200 to 209, 2000 to 2099
			lo, most := VlanOf(stem, dev)[0].Lo, match.Tagged[0].Hi
			for hi := lo; lo <= most; lo, hi = 10*lo, 10*hi+9 {
				ids = append(ids, match.Between(lo, min(hi, most))...)
			}
		default:
			ids = append(ids, VlanOf(n, dev)...)
		}
	}
	if ids = match.JoinSpans(ids); not {
		ids = ids.Not(match.Top[match.VLAN])
	}
	if len(ids.Not(match.Top[match.VLAN])) == 0 {
		return []match.Match{{}}
	}
	for _, part := range []match.Spans{match.Just(match.Untagged), match.Tagged} {
		if of := ids.And(part); len(of) > 0 {
			alts = append(alts, match.Match{}.With(match.VLAN, of))
		}
	}
	return alts
}

// Others says that a rule is about other interfaces than those of a list, and dev is in it.
func Others(list, dev string) string {
	return "is about other interfaces than " + match.Quote(list) + ", and nothing comes to " +
		match.Quote(dev) + " by those"
}
