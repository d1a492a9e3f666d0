package importer

import (
	"errors"
	"io"
	"slices"
	"strings"

	"levee/internal/lang/importer/match"
)

// Source is one input: a file or standard input.
type Source struct {
	Name string // base name, for remarks and errors
	R    io.Reader
}

// Rulesets say how the rules of netfilter are imported. The zero value takes the chain INPUT.
type Rulesets struct {
	// NAME or TABLE/NAME, one behind the other; none: what judges packets to this machine
	Chains []string
	Device string // the interface that the policy is for, or ""
	// read connection states off headers, instead of keeping connections
	Stateless bool
	Strict    bool // write nothing if the policy would pass what the source drops
}

// Policy writes the policy of the base chains of a ruleset of so many rules; leaving reads those
// about what leaves, and rest adds what is to be said of the other chains.
func (o *Output) Policy(w io.Writer, bases []*Chain, rules int, opts Rulesets,
	leaving LeavingChains, rest func([]*Chain)) (Imported, error) {
	fl := &flattener{bases: bases, given: rules, out: o}
	if err := fl.run(); err != nil {
		return Imported{}, err
	}
	if len(opts.Chains) == 0 {
		if err := o.takeSide(rules, leaving); err != nil {
			return Imported{}, err
		}
	}
	rest(bases)
	if opts.Strict && o.Report.widens() {
		return *o.Report, ErrWidens
	}
	if err := o.write(w); err != nil {
		return Imported{}, err
	}
	return *o.Report, nil
}

// ErrWidens says that Strict was asked for, and that the policy would pass more than its source.
var ErrWidens = errors.New("the policy would pass packets that the source drops")

// SourceNames returns the names of inputs, with commas between them.
func SourceNames(in []Source) string {
	var names []string
	for _, s := range in {
		names = append(names, Heading(s.Name))
	}
	text := strings.Join(names, ", ")
	if text == "" {
		text = "input"
	}
	return Printable(text, 200)
}

// What is said of a chain for packets that are routed through, when another one is imported.
const (
	ForwardWhy = "levee judges packets before they are routed, so that those which this machine " +
		"forwards are judged by the imported rules, and dropped where these drop"
	ForwardHint = "where it forwards (containers, virtual machines, a router), pass these by a " +
		"rule at the top: pass to NETWORKS"
	// of a chain without rules
	ForwardDrops = "what its policy drops of packets that are forwarded the kernel drops still"
)

// RemarkOnFragments says that netfilter may see packets whole that levee sees in fragments.
func RemarkOnFragments(o *Output, bases []*Chain) {
	if !o.keeps && usesTransport(bases) {
		o.Report.Add(Remark{File: bases[0].File, Kind: Changed,
			Text: "netfilter reassembles IPv4 fragments before INPUT, and everywhere once " +
				"connections are tracked; levee judges each fragment, and one that is not the " +
				"first has no ports, flags or ICMP type",
			Instead: "where large UDP or IPsec packets are expected, look at `levee check`'s " +
				"warnings and pass fragments"})
	}
}

// usesTransport tells whether a rule of the chains asks for what only the first fragment has.
func usesTransport(bases []*Chain) bool {
	return slices.ContainsFunc(Reached(bases...), func(c *Chain) bool {
		return slices.ContainsFunc(c.Rules, func(r *ChainRule) bool {
			return slices.ContainsFunc(r.Alts, func(m match.Match) bool { return m.HasTransport() })
		})
	})
}

// LeavesHint says how a policy judges what leaves.
const LeavesHint = "write rules for what leaves by the interface as `out RULE`"
