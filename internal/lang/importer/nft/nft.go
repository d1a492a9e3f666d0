// Package nft reads rulesets of nftables as policies.
//
// In goes what `nft -j list ruleset` prints, out comes a policy with remarks. It must never take a
// statement or an expression that it does not know for one that says nothing.
package nft

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"sort"
	"strings"

	"levee/internal/lang/importer"
	"levee/internal/lang/importer/match"
	"levee/internal/lang/syntax"
	"levee/internal/quantity"
)

// Import reads what `nft -j list ruleset` prints (libnftables-json(5)) and writes a policy that
// judges the packets of its chains as these rules do: all filter chains at the hook input in the
// order of their priorities, or those that opts names.
//
// It returns *importer.Errors when the input is no ruleset, and has then written nothing.
func Import(in importer.Source, w io.Writer, opts importer.Rulesets) (importer.Imported, error) {
	out := importer.NewOutput(importer.SourceNames([]importer.Source{in}), "nftables", opts)
	n := &nftables{opts: opts, out: out, name: in.Title(),
		tables: map[string]*nftTable{}, limits: map[string]json.RawMessage{}}
	if err := in.Belongs("nft"); err != nil {
		return importer.Imported{}, err
	}
	if err := n.read(in.R); err != nil {
		return importer.Imported{}, err
	}
	bases, err := n.bases()
	if err != nil {
		return importer.Imported{}, err
	}
	out.Nats = n.nats(bases)
	return out.Policy(w, bases, n.rules, opts, n.leaving, n.remarkOnRest)
}

// nftables is a ruleset that was read.
type nftables struct {
	opts   importer.Rulesets
	out    *importer.Output
	name   string
	tables map[string]*nftTable
	limits map[string]json.RawMessage // by family, table and name
	chains []*nftChain
	rules  int
	leaves bool // the chains are about what leaves
	others bool // a rule is about another interface than the policy's
	vlans  bool // rules name VLANs of the policy's interface
}

// nftTable is one table; its key is family and name.
type nftTable struct {
	family, name string
	chains       map[string]*nftChain
	sets         map[string]*nftSet
	dormant      bool // its chains are not at their hooks
}

// nftChain is a chain with what only nft says of it.
type nftChain struct {
	importer.Chain
	table *nftTable
	kind  string // filter, nat, route
	hook  string
	prio  int
	dev   string
	raw   []nftRaw
}

// nftRaw is a rule that is not understood yet.
type nftRaw struct {
	line    int
	handle  uint64
	comment string
	expr    []json.RawMessage
}

// What libnftables-json(5) prints; only what is read here.
type (
	jsonTable struct {
		Family, Name string
		Flags        json.RawMessage
	}
	jsonChain struct {
		Family, Table, Name, Type, Hook, Policy string
		Prio                                    int
		Dev                                     json.RawMessage
	}
	jsonSet struct {
		Family, Table, Name string
		Elem                []json.RawMessage
		Flags               json.RawMessage
		Timeout             int64
		Size                uint64
	}
	jsonRule struct {
		Family, Table, Chain, Comment string
		Handle                        uint64
		Index                         *uint64 // of the rule that an added one stands behind
		Expr                          []json.RawMessage
	}
	jsonElement struct {
		Family, Table, Name string
		Elem                []json.RawMessage
	}
)

// notJSON says what to give instead of a text.
func notJSON(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	if what := importer.NoText(line); what != "" {
		return what
	}
	for line := range strings.Lines(text) {
		w := strings.Fields(line)
		if len(w) == 0 || w[0][0] == '#' && !strings.HasSuffix(w[0], "/nft") {
			continue
		}
		switch w[0] {
		case "#!/usr/sbin/nft", "#!/sbin/nft", "#!/usr/bin/nft", "table", "define", "include",
			"flush", "add", "create", "delete", "destroy":
			return "this is a file for nft -f: load it where it does no harm, and give what is " +
				"listed: unshare -n sh -c 'nft -f FILE; nft -j list ruleset'"
		}
		break
	}
	return "this is not JSON: give the output of `nft -j list ruleset`, with -j"
}

// read takes the objects of a ruleset one by one.
func (n *nftables) read(r io.Reader) error {
	text, err := io.ReadAll(io.LimitReader(r, syntax.MaxSource+1))
	if err != nil {
		return fmt.Errorf("reading %s: %w", n.name, err)
	}
	if len(text) > syntax.MaxSource {
		return n.fail(1, fmt.Sprintf("the input is larger than %d MiB", syntax.MaxSource>>20))
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff")) // a byte order mark
	if t := bytes.TrimSpace(text); len(t) == 0 || t[0] != '{' {
		return n.fail(1, notJSON(string(t)))
	}
	names := regexp.MustCompile(`"` + regexp.QuoteMeta(n.opts.Device) + `\.([1-9]\d{0,3}|\d*\*)"`)
	n.vlans = n.opts.Device != "" && names.Match(text)
	dec := json.NewDecoder(bytes.NewReader(text))
	line, at := 1, 0
	here := func() int { // the decoder's offset only grows
		off := int(dec.InputOffset())
		line += bytes.Count(text[at:off], []byte{'\n'})
		at = off
		return line
	}
	for _, want := range []any{json.Delim('{'), "nftables", json.Delim('[')} {
		if t, err := dec.Token(); err != nil || t != want {
			return n.fail(here(), "this is not a ruleset of nft: it begins with {\"nftables\": [")
		}
	}
	for dec.More() {
		var o map[string]json.RawMessage
		if err := dec.Decode(&o); err != nil {
			return n.fail(here(),
				"reading an object of the ruleset: "+importer.Printable(err.Error(), 200))
		}
		here()
		for key, inner := range o {
			if len(o) > 1 {
				return n.fail(line, "an object of several parts, "+match.Quote(key)+" among them")
			}
			if err := n.object(key, inner, line); err != nil {
				return n.fail(line, err.Error())
			}
		}
	}
	for range 2 {
		if _, err := dec.Token(); err != nil {
			return n.fail(here(), "the ruleset ends too early")
		}
	}
	if len(bytes.TrimSpace(text[dec.InputOffset():])) > 0 {
		return n.fail(here(), "something stands behind the ruleset")
	}
	return nil
}

func (n *nftables) fail(line int, text string) error {
	return &importer.Errors{Name: n.name, Lines: []importer.LineError{{Line: line, Text: text}}}
}

func (n *nftables) table(family, name string) (*nftTable, error) {
	if t := n.tables[family+" "+name]; t != nil {
		return t, nil
	}
	return nil, fmt.Errorf("there is no table %s", match.Quote(family+" "+name))
}

func (n *nftables) chain(j *jsonChain, line int) error {
	t, err := n.table(j.Family, j.Table)
	if err != nil {
		return err
	}
	if t.chains[j.Name] != nil {
		return fmt.Errorf("chain %s of table %s is defined twice", match.Quote(j.Name),
			match.Quote(j.Table))
	}
	c := &nftChain{table: t, kind: j.Type, hook: j.Hook, prio: j.Prio, dev: devices(j.Dev)}
	c.Chain = importer.Chain{
		Name: importer.Printable(j.Name, 64), Base: j.Hook != "", Drop: j.Policy == "drop",
		Family: familyMatch(j.Family, j.Hook),
		Origin: importer.Origin{File: n.name, Line: line,
			Text: importer.Printable("chain "+j.Family+" "+j.Table+" "+j.Name, 160)},
	}
	t.chains[j.Name] = c
	n.chains = append(n.chains, c)
	return nil
}

// devices is the name of the device of an ingress chain, or several with commas between them.
func devices(raw json.RawMessage) string {
	var one string
	var many []string
	if json.Unmarshal(raw, &one) == nil {
		return one
	}
	_ = json.Unmarshal(raw, &many)
	return strings.Join(many, ",")
}

// familyMatch is the frames that a chain sees.
func familyMatch(family, hook string) match.Match {
	switch {
	case family == "ip":
		return match.Match{}.With(match.Ether, match.Only4)
	case family == "ip6":
		return match.Match{}.With(match.Ether, match.Only6)
	case family == "inet" && hook != "ingress":
		return match.Match{}.With(match.Ether, match.BothIP)
	}
	return match.Match{}
}

func (n *nftables) rule(j *jsonRule, line int) error {
	t, err := n.table(j.Family, j.Table)
	if err != nil {
		return err
	}
	c := t.chains[j.Chain]
	if c == nil {
		return fmt.Errorf("there is no chain %s in table %s", match.Quote(j.Chain),
			match.Quote(j.Table))
	}
	if j.Index != nil {
		return commandError("add rule with an index")
	}
	if n.rules++; n.rules > importer.MaxRules {
		return fmt.Errorf("more than %d rules", importer.MaxRules)
	}
	c.raw = append(c.raw, nftRaw{line, j.Handle, j.Comment, j.Expr})
	return nil
}

// parseRules makes rules of all expressions; chains and sets are known by now.
func (n *nftables) parseRules() {
	for _, c := range n.chains {
		for i, raw := range c.raw {
			c.Rules = append(c.Rules, n.parseRule(c, raw, i+1)...)
		}
	}
}

// bases are the chains to import, in the order in which packets meet them.
func (n *nftables) bases() ([]*importer.Chain, error) {
	n.parseRules()
	var picked []*nftChain
	if len(n.opts.Chains) == 0 {
		picked = n.toInput()
	}
	for _, want := range n.opts.Chains {
		c := n.find(want)
		if c == nil {
			return nil, fmt.Errorf("there is no filter chain %s at a hook before this machine's "+
				"programs; there are: %s", match.Quote(want), n.baseNames())
		}
		if !slices.Contains(picked, c) {
			picked = append(picked, c)
		}
	}
	if len(picked) == 0 {
		switch {
		case len(n.chains) == 0:
			return nil, errors.New("no chains: the ruleset is empty")
		case slices.ContainsFunc(n.chains, (*nftChain).leaves),
			slices.ContainsFunc(n.chains, (*nftChain).meetsFirst):
			return []*importer.Chain{n.noInput()}, nil
		}
		if !slices.ContainsFunc(n.chains, (*nftChain).usable) {
			return nil, errors.New("no filter chain that sees what arrives: only chains of " +
				"nat, of what leaves, of bridge and arp tables or of dormant ones are here; " +
				"give the whole ruleset, as `nft -j list ruleset` prints it")
		}
		return nil, fmt.Errorf("no filter chain is at the hook input; choose with --chain from: %s",
			n.baseNames())
	}
	var out []*importer.Chain
	for _, c := range picked {
		out = append(out, &c.Chain)
		if c.dev != "" && c.dev != n.opts.Device {
			n.out.Report.Add(c.Remark(importer.Noticed,
				"the chain is for the interface "+match.Quote(c.dev),
				"put the policy onto it: levee up FILE --dev "+importer.Printable(c.dev, 40)))
		} else if c.hook == "ingress" && c.dev == "" && len(n.opts.Chains) == 0 {
			n.out.Report.Add(c.Remark(importer.Changed, "the listing does not say whose ingress "+
				"this is, as nft 1.0.6 does not, and no rule names another interface than "+
				match.Quote(n.opts.Device)+": it is taken for that one's", "nft list chains says "+
				"it; where it is another one, name the other chains with --chain"))
		}
	}
	return out, nil
}

// noInput is the chain of a ruleset that has none at the hook input: all that comes there passes.
func (n *nftables) noInput() *importer.Chain {
	n.out.Report.Add(importer.Remark{Kind: importer.Noticed, File: n.name,
		Text: "no filter chain is at the hook input: what arrives passes, but for what chains " +
			"in front of it drop"})
	return &importer.Chain{Name: "input", Base: true}
}

// meetsFirst tells whether packets of all interfaces meet the chain before the hook input.
func (c *nftChain) meetsFirst() bool { return c.usable() && c.hook == "prerouting" }

// hookOrder is the order in which packets come to the hooks.
var hookOrder = map[string]int{"ingress": 0, "prerouting": 1, "input": 2}

// toInput are the filter chains at the hook input, in the order of their priorities, behind those
// before it that drop. Those between nat and the hook are about other destinations.
func (n *nftables) toInput() (picked []*nftChain) {
	const connections = -200 // the priority at which they are looked up
	all := map[*importer.Chain]*nftChain{}
	var early, input []*importer.Chain
	chains := slices.Clone(n.chains)
	sort.SliceStable(chains, func(i, j int) bool {
		a, b := chains[i], chains[j]
		if a.hook != b.hook {
			return hookOrder[a.hook] < hookOrder[b.hook]
		}
		return a.prio < b.prio
	})
	rewrites := math.MaxInt // the priority at which nat does
	for _, c := range slices.Backward(chains) {
		if c.Base && c.kind == "nat" && c.hook == "prerouting" && !c.table.dormant &&
			c.Rewrites() {
			rewrites = c.prio
		}
	}
	for _, c := range chains {
		if all[&c.Chain] = c; !c.usable() {
			continue
		}
		switch {
		case c.hook == "input":
			input = append(input, &c.Chain)
		case c.hook == "prerouting" && c.prio >= rewrites && c.AsksDestinations():
		case c.hook == "prerouting", c.hook == "ingress" && n.opts.Device != "" &&
			(c.dev == n.opts.Device || c.dev == "" && !n.others):
			early = append(early, &c.Chain)
		}
	}
	for _, c := range importer.Early(early, input, func(*importer.Chain) bool {
		return rewrites != math.MaxInt
	}, func(c *importer.Chain) bool {
		return all[c].hook == "prerouting" && all[c].prio > connections
	}) {
		picked = append(picked, all[c])
	}
	return picked
}

func (c *nftChain) usable() bool {
	return c.Base && c.kind == "filter" && !c.table.dormant && c.table.family != "bridge" &&
		c.table.family != "arp" &&
		slices.Contains([]string{"ingress", "prerouting", "input", "forward"}, c.hook)
}

// find is the chain that --chain names: CHAIN, TABLE/CHAIN or FAMILY/TABLE/CHAIN.
func (n *nftables) find(want string) *nftChain {
	for _, c := range n.chains {
		if short := c.table.name + "/" + c.Name; c.usable() &&
			(want == c.Name || want == short || want == c.table.family+"/"+short) {
			return c
		}
	}
	return nil
}

func (n *nftables) baseNames() string {
	var names []string
	for _, c := range n.chains {
		if c.usable() {
			names = append(names, c.table.family+"/"+c.table.name+"/"+c.Name)
		}
	}
	if names == nil {
		return "none"
	}
	return importer.Printable(strings.Join(names, ", "), 400)
}

// onlyInput tells whether all imported chains see packets to this machine alone.
func (n *nftables) onlyInput(bases []*importer.Chain) bool {
	return !slices.ContainsFunc(n.chains,
		func(c *nftChain) bool { return c.hook != "input" && slices.Contains(bases, &c.Chain) })
}

// nats are the chains that rewrite what comes to the base chains.
func (n *nftables) nats(bases []*importer.Chain) (out []*importer.Chain) {
	chains := slices.Clone(n.chains)
	slices.SortStableFunc(chains, func(a, b *nftChain) int { return a.prio - b.prio })
	for _, c := range chains {
		if c.Base && c.kind == "nat" && c.hook == "prerouting" && !c.table.dormant &&
			(len(n.opts.Chains) == 0 || n.onlyInput(bases)) {
			out = append(out, &c.Chain)
		}
	}
	return out
}

// remarkOnRest says which chains were not imported.
func (n *nftables) remarkOnRest(bases []*importer.Chain) {
	for _, c := range n.chains {
		if n.out.Side != nil && c.leaves() {
			c.MarkMet()
		}
	}
	for _, c := range n.chains {
		if c.Met || slices.Contains(bases, &c.Chain) || len(c.Rules) == 0 && !c.Drop {
			continue
		}
		k, why, hint := importer.LeftOut, "", ""
		switch {
		case c.table.dormant:
			why = "the table is dormant"
		case !c.Base:
			why = "no imported rule jumps to it"
		case c.kind == "nat" && c.hook == "prerouting":
			n.out.Translates(&c.Chain, "not imported, "+quantity.Plural(len(c.Rules), "rule")+": ")
			continue
		case c.leaves() && len(n.opts.Chains) == 0:
			n.out.AboutSide(&c.Chain)
			continue
		case c.table.family == "bridge":
			why, hint = "it is about frames that a bridge passes on", "put levee onto its ports"
		case c.table.family == "arp":
			why, hint = "it is about ARP", "write rules with `arp`"
		case c.kind != "filter" || !c.usable():
			why = "it is about no packets that arrive, and levee rewrites nothing"
			if c.hook == "output" || c.hook == "egress" {
				hint = importer.LeavesHint
			}
		case c.hook == "forward" && len(c.Rules) > 0 &&
			(len(n.opts.Chains) == 0 || n.onlyInput(bases)):
			k, why, hint = importer.Changed, importer.ForwardWhy, importer.ForwardHint
		case c.hook == "forward" && len(n.opts.Chains) == 0: // a policy alone
			why = importer.ForwardDrops
		case c.hook == "prerouting" || c.hook == "ingress":
			n.out.Early(&c.Chain, len(n.opts.Chains) > 0 || c.dev != "" && c.dev != n.opts.Device,
				"not imported, "+quantity.Plural(len(c.Rules), "rule")+": ",
				"name all of them with --chain, in their order")
			continue
		default:
			why, hint = "another chain was asked for",
				"--chain "+importer.Printable(c.table.family+"/"+c.table.name+"/"+c.Name,
					100)+" imports it"
		}
		n.out.Report.Add(c.Remark(k, fmt.Sprintf("not imported, %s: %s",
			quantity.Plural(len(c.Rules), "rule"), why), hint))
	}
	for _, c := range n.chains {
		if c.hook == "forward" && slices.Contains(bases, &c.Chain) {
			n.out.Report.Add(c.Remark(importer.Changed,
				"levee judges packets before they are routed: the rules of a forward chain also "+
					"judge those to this machine itself",
				"pass these by a rule at the top: pass to ADDRESSES"))
		}
	}
	importer.RemarkOnFragments(n.out, bases)
}
