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

// NewZones returns these names. Those of registries are nobody's; others of one label, as "lan",
// are.
func NewZones(names ...dnsname.Name) *Zones {
	z := &Zones{map[dnsname.Name]bool{}}
	for _, n := range names {
		z.add(n)
	}
	return z
}

func (z *Zones) add(n dnsname.Name) {
	if z.at[n] || n.Listed() {
		return
	}
	z.at[n] = true
	for n != "" {
		n = n.Parent()
		if _, there := z.at[n]; there {
			break
		}
		z.at[n] = false
	}
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

// OwnNames returns the names that rules of a policy pass: those that the machine serves or queries.
// Entries of dynamic sets do not count, since others may have put them there.
func OwnNames(p *policy.Policy) *Zones {
	rules := slices.Concat(p.Protect, p.Rules)
	if p.Out != nil {
		rules = slices.Concat(rules, p.Out.Protect, p.Out.Rules)
	}
	own, seen := NewZones(), map[*policy.NameList]bool{}
	for _, r := range rules {
		if r.Action != action.Pass && r.Action != action.Protect {
			continue
		}
		for i := range r.Match {
			t := &r.Match[i]
			if t.Names == nil || t.Not || t.Names.Dynamic() || seen[t.Names] {
				continue
			}
			seen[t.Names] = true
			for _, p := range t.Names.Patterns {
				own.add(p.Name)
			}
		}
	}
	return own
}
