package importer

import (
	"fmt"
	"strings"

	"levee/internal/lang/importer/match"
)

// Who sends is asked of what leaves alone: of packets with a socket, negated or not.

// ServiceText says why a rule about a cgroup is left out.
const ServiceText = "asks for a cgroup that is no unit of systemd, below slices alone"

// OfService returns what the unit sends whose cgroup has a path, or what others do; false if it is
// no unit: a slice has many, and below a unit there is a part of it.
func OfService(path string, not bool) (match.Match, bool) {
	names := strings.Split(strings.Trim(path, "/"), "/")
	for i, name := range names {
		slice := strings.HasSuffix(name, ".slice")
		if last := i == len(names)-1; slice == last || !last && !slice {
			return match.Match{}, false
		}
	}
	unit := names[len(names)-1]
	for _, kind := range []string{".service", ".scope", ".socket", ".mount", ".swap"} {
		if strings.HasSuffix(unit, kind) {
			term := fmt.Sprintf("service %q", unit)
			if not {
				term = "not " + term
			}
			return match.Match{Services: []string{term}}.Settle(), true
		}
	}
	return match.Match{}, false
}
