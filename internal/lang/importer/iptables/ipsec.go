package iptables

import "levee/internal/lang/importer"

// ipsec holds the options of -m policy.
type ipsec struct {
	used, odd bool
	dir, pol  string
}

// secured reads an option of -m policy.
func (p *ipRule) secured(o string) bool {
	f := &p.ipsec
	f.odd = f.odd || p.not
	switch o {
	case "--dir":
		f.dir = p.value()
	case "--pol":
		f.pol = p.value()
	default:
		f.odd = true
		for len(p.w) > 0 && !p.w[0].option() {
			p.w = p.w[1:]
		}
	}
	return true
}

// finishIPsec says what is asked of IPsec: as a packet arrives it has come out of none yet.
func (p *ipRule) finishIPsec() {
	switch f := p.ipsec; {
	case !f.used:
	case f.dir == "in" && f.pol == "none" && !f.odd && !p.t.leaves:
		p.Remark(importer.Changed, "--pol none holds for each packet as it arrives: what IPsec "+
			"decrypts in transport mode goes on without coming here, and what it does in tunnel "+
			"mode comes once more at tc, where this rule judges it, too", "")
	default:
		p.Unknown("-m policy asks for IPsec", "")
	}
}
