package iptables

import "levee/internal/lang/importer/match"

// rpfilter holds the options of -m rpfilter.
type rpfilter struct{ used, loose, invert, local, marked bool }

// option reads one of its options; false for any other.
func (f *rpfilter) option(o string) bool {
	switch o {
	case "--loose":
		f.loose = true
	case "--invert":
		f.invert = true
	case "--accept-local":
		f.local = true
	case "--validmark":
		f.marked = true
	default:
		return false
	}
	return true
}

// finishPath turns -m rpfilter into a question for the way back, or for none.
func (p *ipRule) finishPath() {
	switch f := p.path; {
	case !f.used:
	case p.t.leaves:
		p.Unknown("asks the routing table", "")
	case f.local:
		p.Unknown("takes packets from own addresses for such that have a way back "+
			"(--accept-local)", "")
	case f.loose:
		p.AskPath(match.Loose, !f.invert, f.marked)
	default:
		p.AskPath(match.Strict, !f.invert, f.marked)
	}
}
