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
		dev + ", by its name; rules about " + dev + " itself judge tagged frames too"
}
