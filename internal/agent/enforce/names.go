package enforce

import (
	"slices"

	"levee/internal/lang/action"
	"levee/internal/lang/dnsname"
	"levee/internal/lang/policy"
)

// Zones are names that no entry of a set of names may hold, nor be below.
type Zones struct {
	at map[dnsname.Name]bool // false of those above them
}

// NewZones are the names of patterns. One that a registry has is nobody's.
func NewZones(all []dnsname.Pattern) *Zones {
	z := &Zones{make(map[dnsname.Name]bool, len(all))}
	for _, p := range all {
		if p.Name.Registry() {
			continue
		}
		z.at[p.Name] = true
		for n := p.Name; n != ""; {
			n = n.Parent()
			if _, there := z.at[n]; there {
				break
			}
			z.at[n] = false
		}
	}
	return z
}

// overlap tells whether an entry of a name holds one of them, or is below one.
func (z *Zones) overlap(n dnsname.Name) bool {
	if _, there := z.at[n]; there {
		return true
	}
	for n != "" {
		n = n.Parent()
		if z.at[n] {
			return true
		}
	}
	return false
}

type keptZones struct {
	*Zones
	why string
}

// AddZones protects names, for a reason in words.
func (k *Protected) AddZones(z *Zones, why string) {
	if len(z.at) > 0 {
		k.names = append(k.names, keptZones{z, why})
	}
}

// RefusesName says why a name may be no entry, "" if it may. It is a name as sets list it.
func (k *Protected) RefusesName(text string) string {
	if len(k.names) == 0 {
		return ""
	}
	p, err := dnsname.Parse(text)
	if err != nil {
		return ""
	}
	for _, z := range k.names {
		if z.overlap(p.Name) {
			return z.why
		}
	}
	return ""
}

// OwnNames are the lists of names that rules of a policy pass: those that it serves, or asks for.
// Entries of sets that change are whatever others have put there.
func OwnNames(p *policy.Policy) (own []*policy.NameList) {
	rules := slices.Concat(p.Protect, p.Rules)
	if p.Out != nil {
		rules = slices.Concat(rules, p.Out.Protect, p.Out.Rules)
	}
	for _, r := range rules {
		if r.Action != action.Pass && r.Action != action.Protect {
			continue
		}
		for i := range r.Match {
			if t := &r.Match[i]; t.Names != nil && !t.Not && !t.Names.Dynamic() {
				own = append(own, t.Names)
			}
		}
	}
	return own
}
