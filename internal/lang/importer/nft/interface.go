package nft

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"levee/internal/lang/importer"
	"levee/internal/lang/importer/match"
)

// iface is a match on the incoming interface: a policy protects one.
func (p *nftRule) iface(r *importer.ChainRule, names []string, not bool) ([]match.Match, error) {
	dev, onlyLo := p.n.opts.Device, len(names) > 0
	for _, n := range names {
		onlyLo = onlyLo && n == "lo"
	}
	list := importer.Printable(strings.Join(names, ", "), 60)
	switch {
	case onlyLo && !not && dev != "lo":
		r.AboutLoopback()
		return never, nil
	case dev == "" && !onlyLo:
		r.Unknown = append(r.Unknown,
			importer.Reason{What: "asks for interface " + match.Quote(list) +
				", and a policy protects one interface", Instead: "choose one with --dev"})
		return nil, nil
	}
	alts := importer.Came(names, "*", dev, p.n.vlans, not)
	if len(alts) == 0 {
		p.elsewhere(r, names, not)
		return never, nil
	}
	p.vlanRemarks(r, names)
	return alts, nil
}

// vlanRemarks says of each name of a VLAN of the policy's interface that it is taken for one.
func (p *nftRule) vlanRemarks(r *importer.ChainRule, names []string) {
	for _, n := range names {
		if importer.VlanOf(n, p.n.opts.Device) != nil {
			r.Remarks = append(r.Remarks, r.Remark(importer.Changed,
				importer.VlanRemark(n, p.n.opts.Device), ""))
		}
	}
}

// here leaves those rows of a set whose field i is the policy's interface or a VLAN of it, and
// gives the names of the interfaces in all of them. In the place of the field the rows have the
// VLANs at their end, or none for all frames.
func (p *nftRule) here(i int, rows [][]value) (kept [][]value, names []string,
	why *importer.Reason) {
	dev := p.n.opts.Device
	for _, row := range rows {
		for _, n := range row[i].text {
			if names = append(names, n); dev == "" && n != "lo" {
				return nil, nil, &importer.Reason{What: "asks for interface " + match.Quote(n) +
					", and a policy protects one interface", Instead: "choose one with --dev"}
			}
			for _, m := range importer.Came([]string{n}, "*", dev, p.n.vlans, false) {
				kept = append(kept, append(slices.Delete(slices.Clone(row), i, i+1),
					value{nums: m.Fields[match.VLAN]}))
			}
		}
	}
	return kept, names, nil
}

// virtual are names of interfaces that are no card's.
var virtual = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(lo$|tun|tap|wg|tailscale|zt|ppp|docker|veth|virbr|vnet|br-|cali|` +
		`cni|flannel|lxc|lxd|ve-)`)
})

// elsewhere says that a rule is about other interfaces than the policy's.
func (p *nftRule) elsewhere(r *importer.ChainRule, names []string, not bool) {
	if !not && p.n.opts.Device != "lo" &&
		!slices.ContainsFunc(names, func(n string) bool { return n != "lo" }) {
		r.AboutLoopback()
		return
	}
	r.Absent = true
	p.n.others = p.n.others || slices.ContainsFunc(names, func(n string) bool {
		return !virtual().MatchString(n)
	})
	list := importer.Printable(strings.Join(names, ", "), 60)
	text := "is about interface " + match.Quote(list) + ", by which nothing comes to " +
		match.Quote(p.n.opts.Device)
	if not {
		text = importer.Others(list, p.n.opts.Device)
	}
	r.Remarks = append(r.Remarks, r.Remark(importer.LeftOut, text, ""))
}
