package attach

import (
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"

	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/host/card"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
)

func NeedsOf(p *codegen.Program) (n store.Needs) {
	line := func(such func(*policy.Term) bool) int {
		for _, s := range p.Slots {
			if s.Rule == nil {
				continue
			}
			for i := range s.Rule.Match {
				if such(&s.Rule.Match[i]) {
					return max(1, s.Line) // rules of the agent have no line
				}
			}
		}
		return 0
	}
	for _, s := range p.Slots {
		if n.Ring == 0 && s.Rule != nil && s.Rule.Ring != nil {
			n.Ring = max(1, s.Line)
		}
	}
	n.Tags = line((*policy.Term).AsksTags)
	n.Length = line(func(t *policy.Term) bool { return t.Looks(field.Len) })
	return n
}

// TooLarge says that packets may be larger than a native program takes, "" if they are not.
func TooLarge(c *card.Card, frags bool) string {
	limit, ok := c.LargestMTU(LinearMTU)
	if !ok || c.MTU <= limit || frags && c.Fragments() {
		return ""
	}
	return fmt.Sprintf("the MTU is %d, and a native program takes packets of up to about %d: the "+
		"driver drops larger ones, or refuses the program", c.MTU, limit)
}

// Misfit returns why a program with such needs would judge wrongly in a mode, nil if it judges
// rightly.
func Misfit(l netlink.Link, c *card.Card, m store.Mode, n store.Needs, asked bool) error {
	switch why := c.Forgets(); {
	case m.AtTC() && n.Ring > 0:
		return Unfit("a ring takes packets from XDP alone, and line %d redirects to one", n.Ring)
	case m.AtTC():
		return nil
	case m == store.XDPGeneric:
		if err := refuseMerged(l, c, n); err != nil {
			return err
		}
	case c.Unasked() != "":
		return Unfit("%s", c.Unasked())
	case why != "" && !asked:
		return Unfit("%s", why)
	}
	if devs, _ := tagless(c, m); len(devs) > 0 && n.Tags > 0 && !asked {
		return Unfit("%s takes VLAN tags off frames before XDP sees them, and line %d asks for "+
			"them",
			strings.Join(devs, ", "), n.Tags)
	}
	return nil
}

// Amiss lists settings of an interface that were changed since its policy came and make it judge
// wrongly.
func Amiss(l netlink.Link, c *card.Card, g *store.Description) (all []string) {
	if err := Misfit(l, c, g.Mode, g.Needs, g.Asked); err != nil {
		all = append(all, err.Error())
	}
	if why := TooLarge(c, g.Frags); why != "" && g.Mode == store.XDPNative {
		all = append(all, why)
	}
	return all
}

// tagless says which devices give XDP programs frames without their outermost VLAN tag, and what
// ends that. In the network stack all tags lie beside frames: the device has taken them off, or has
// never put them in.
func tagless(c *card.Card, m store.Mode) (devs, mend []string) {
	switch {
	case m.AtTC():
		return nil, nil
	case m == store.XDPGeneric && c.Stacked():
		return []string{c.Name}, nil
	}
	return c.TakesTagsOff()
}

// Tagless says which devices take VLAN tags off frames before the program on an interface sees
// them, and the commands that end it.
func Tagless(dev string, m store.Mode) (devs, mend []string) { return tagless(card.Read(dev), m) }

// refuseMerged refuses a policy for generic XDP that would judge merged packets otherwise than
// those on the wire: generic XDP is behind what merges, and is not told; native XDP is in front of
// it, and TCX is told.
func refuseMerged(l netlink.Link, c *card.Card, n store.Needs) error {
	// Where it cannot be ended, the kernel complains with a call trace
	// (net/core/dev.c, dev_disable_gro_hw).
	if why := c.Merges(); why != "" {
		return Unfit("it sees merged packets, as %s", why)
	}
	if !c.Offloads[card.GRO].On {
		return nil
	}
	merged := func(what string) error {
		return Unfit("it sees packets that %s has merged (GRO), and %s: ethtool -K %[1]s gro off",
			c.Name, what)
	}
	if n.Length > 0 {
		return merged(fmt.Sprintf("line %d asks for their length", n.Length))
	}
	const bigTCP = 1 << 16
	if a := l.Attrs(); a.GROMaxSize > bigTCP || a.GROIPv4MaxSize > bigTCP {
		return merged("those above 64 KiB (BIG TCP) are malformed")
	}
	return nil
}
