package importer

// dhcpFate is what the rules so far do with the answers of a DHCP server in IPv4: UDP from port 67
// to port 68. A DHCP client reads them from the device, before netfilter's INPUT, so that a ruleset
// that drops all it does not know never dropped these; levee stands before both.
type dhcpFate uint8

const (
	dhcpOpen dhcpFate = iota // no rule is about them yet
	dhcpPassed
	dhcpCut
)

// meet takes the next rule that is written.
func (d *dhcpFate) meet(action string, m *match) {
	if *d != dhcpOpen || !m.takesDHCP() {
		return
	}
	switch action {
	case "pass":
		if len(m.to.neg) == 0 && len(m.from.neg) == 0 {
			*d = dhcpPassed
		}
	case "drop":
		*d = dhcpCut
	}
}

// takesDHCP tells whether the match holds for answers of DHCP from and to any address, but those
// that are taken out.
func (m *match) takesDHCP() bool {
	for f, v := range [numFields]uint64{fEther: etherIPv4, fProto: 17, fFromPort: 67, fPort: 68,
		fFragment: whole} {
		s := m.f[f]
		switch numField(f) {
		case fEther, fProto, fFromPort, fPort, fFragment:
			if s != nil && len(s.and(just(v))) == 0 {
				return false
			}
		default:
			if s != nil {
				return false
			}
		}
	}
	return m.fromDyn == nil && m.toDyn == nil && m.from.pos == nil && m.to.pos == nil &&
		m.flags == nil && len(m.notFlags) == 0 && len(m.finds) == 0 &&
		!m.never
}
