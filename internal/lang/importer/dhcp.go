package importer

import (
	"levee/internal/lang/importer/match"
)

// dhcpFate is the verdict of the rules so far on the answers of a DHCP server in IPv4: UDP from
// port 67 to port 68. A DHCP client reads them from the device, before netfilter's INPUT, so that a
// ruleset that drops all it does not know never dropped these; levee stands before both.
type dhcpFate uint8

const (
	dhcpOpen dhcpFate = iota // no rule is about them yet
	dhcpPassed
	dhcpCut
)

// meet takes the next rule that is written.
func (d *dhcpFate) meet(action string, m *match.Match) {
	if *d != dhcpOpen || !m.TakesDHCP() {
		return
	}
	switch action {
	case "pass":
		if len(m.To.Not) == 0 && len(m.From.Not) == 0 {
			*d = dhcpPassed
		}
	case "drop":
		*d = dhcpCut
	}
}
