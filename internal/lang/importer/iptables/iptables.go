// Package iptables reads the rulesets of iptables, and the sets of ipset beside them, as policies.
//
// In goes what iptables-save, ip6tables-save, `iptables -S` and `ipset save` print, out comes a
// policy with remarks. It must never take an option that it does not know for one that says
// nothing.
package iptables

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"levee/internal/lang/importer"
	"levee/internal/lang/importer/match"
	"levee/internal/lang/pattern"
)

// maxRuleLine is the longest line of iptables-save: 64 KiB hold all options of a rule, a comment of
// 256 bytes and 15 ports a multiport many times over.
const maxRuleLine = 64 << 10

// Import reads what iptables-save, ip6tables-save, `iptables -S` and `ipset save` print, in any
// number of inputs and in any mixture, and writes one policy that judges the packets of a chain as
// these rules do.
//
// It returns *importer.Errors when lines cannot be read, and has then written nothing.
func Import(in []importer.Source, w io.Writer, opts importer.Rulesets) (importer.Imported, error) {
	out := importer.NewOutput(importer.SourceNames(in), "iptables", opts)
	t := &ipTables{opts: opts, out: out, recent: map[string][]*importer.ChainRule{},
		sets: ipSets{byName: map[string]*ipSet{}, files: map[string]*match.Set{}, out: out}}
	for _, s := range in {
		if err := t.read(s); err != nil {
			return importer.Imported{}, err
		}
	}
	t.vlans = t.namesVlans()
	bases, err := t.bases()
	if err != nil {
		return importer.Imported{}, err
	}
	for _, tab := range t.tables {
		if c := tab.byName["PREROUTING"]; tab.name == "nat" && c != nil && t.onlyInput() {
			out.Nats = append(out.Nats, c)
		}
	}
	return out.Policy(w, bases, t.rules, opts, t.leaving, t.remarkOnRest)
}

// ipTables holds the tables and sets that were read.
type ipTables struct {
	opts   importer.Rulesets
	out    *importer.Output
	sets   ipSets
	tables []*ipTable
	rules  int
	recent map[string][]*importer.ChainRule // by the names of lists of -m recent
	leaves bool                             // the rules are about what leaves
	vlans  bool                             // rules name VLANs of the policy's interface

	searching pattern.Work // of -m string
}

// ipTable is one table of one family.
type ipTable struct {
	importer.Origin
	name   string
	six    bool
	known  bool // six is known
	chains []*importer.Chain
	byName map[string]*importer.Chain
	lines  []ipLine
	done   bool // COMMIT was read
	bare   bool // without *table and COMMIT, as `iptables -S` prints
}

// ipLine is a rule that is not understood yet.
type ipLine struct {
	line  int
	chain *importer.Chain
	words []word
	text  string
	// flushes of the chain before the line: the line counts while the chain has no more
	flushes int
}

// word is one word of a line. A quoted one is a value, whatever it looks like.
type word struct {
	text   string
	quoted bool
}

// option tells whether the word may be an option or the exclamation mark before one.
func (w word) option() bool {
	return !w.quoted &&
		(w.text == "!" || strings.HasPrefix(w.text, "-"))
}

// texts returns the words without their quotes.
func texts(in []word) (out []string) {
	for _, w := range in {
		out = append(out, w.text)
	}
	return out
}

// bases returns the chains to import, in the order in which packets meet them.
func (t *ipTables) bases() ([]*importer.Chain, error) {
	if len(t.tables) == 0 {
		return nil, fmt.Errorf("no rules: this is not the output of iptables-save, " +
			"ip6tables-save or iptables -S")
	}
	if err := t.parseRules(); err != nil {
		return nil, err
	}
	want := t.opts.Chains
	if len(want) == 0 {
		out := append(t.toInput(false), t.toInput(true)...)
		if len(out) > 0 {
			return out, nil
		}
		want = []string{"filter/INPUT"}
	}
	var out []*importer.Chain
	for _, six := range []bool{false, true} {
		for _, w := range want {
			if c := t.find(w, six); c != nil && !slices.Contains(out, c) {
				out = append(out, c)
			}
		}
	}
	for _, w := range want {
		if t.find(w, false) == nil && t.find(w, true) == nil {
			return nil, fmt.Errorf("there is no chain %s with a policy; there are: %s; choose "+
				"with --chain", match.Quote(w), strings.Join(t.baseNames(), ", "))
		}
	}
	return out, nil
}

// toInput are the chains of one family that judge what comes to INPUT of the table filter, that
// one, and the one behind it.
func (t *ipTables) toInput(six bool) []*importer.Chain {
	var chains []*importer.Chain
	rewrites := slices.ContainsFunc(t.tables, func(tab *ipTable) bool {
		c := tab.byName["PREROUTING"]
		return tab.name == "nat" && tab.six == six && c != nil && c.Rewrites()
	})
	raw := t.find("raw/PREROUTING", six)
	for _, w := range []string{"raw/PREROUTING", "mangle/PREROUTING", "mangle/INPUT"} {
		if c := t.find(w, six); c != nil {
			chains = append(chains, c)
		}
	}
	var last []*importer.Chain
	for _, w := range []string{"filter/INPUT", "security/INPUT"} {
		if c := t.find(w, six); c != nil && (w == "filter/INPUT" || c.Drop || len(c.Rules) > 0) {
			last = append(last, c)
		}
	}
	return importer.Early(chains, last, func(c *importer.Chain) bool {
		return rewrites && c.Name == "PREROUTING"
	}, func(c *importer.Chain) bool { return c != raw })
}

var ofInterfaces = []string{"-i", "--in-interface", "-o", "--out-interface"}

// namesVlans tells whether a rule is about a VLAN of the policy's interface.
func (t *ipTables) namesVlans() bool {
	dev := t.opts.Device
	is := func(name string) bool {
		return importer.VlanOf(name, dev) != nil || dev != "" &&
			strings.HasPrefix(name, dev+".") && strings.HasSuffix(name, "+")
	}
	return slices.ContainsFunc(t.tables, func(tab *ipTable) bool {
		return slices.ContainsFunc(tab.lines, func(l ipLine) bool {
			about := false // the word before is an option for interfaces
			return slices.ContainsFunc(l.words, func(w word) bool {
				found := about && is(w.text)
				about = slices.Contains(ofInterfaces, w.text)
				return found
			})
		})
	})
}

// parseRules makes rules of the lines of all tables; the sets are known by now.
func (t *ipTables) parseRules() error {
	errs := map[string]*importer.Errors{}
	var first *importer.Errors
	for _, tab := range t.tables {
		for _, l := range tab.lines {
			if l.flushes != l.chain.Flushes {
				continue // -F came behind it
			}
			r, err := t.rule(tab, l, len(l.chain.Rules)+1)
			if err == nil {
				l.chain.Rules = append(l.chain.Rules, r)
				continue
			}
			if errs[tab.File] == nil {
				errs[tab.File] = &importer.Errors{Name: tab.File}
				if first == nil {
					first = errs[tab.File]
				}
			}
			errs[tab.File].Add(l.line, err.Error())
		}
	}
	if first != nil {
		return first
	}
	t.settleMarks()
	t.settleRecent()
	return nil
}

// find returns the base chain that --chain names, of one family.
func (t *ipTables) find(want string, six bool) *importer.Chain {
	table, name, has := strings.Cut(want, "/")
	if !has {
		table, name = "", want
	}
	for _, order := range []string{"filter", "raw", "mangle", "security"} {
		for _, tab := range t.tables {
			if c := tab.byName[name]; tab.name == order && (table == "" || table == order) &&
				tab.six == six && c != nil && c.Base {
				return c
			}
		}
	}
	return nil
}

func (t *ipTables) baseNames() (names []string) {
	for _, tab := range t.tables {
		for _, c := range tab.chains {
			if n := tab.name + "/" + c.Name; c.Base && tab.name != "nat" &&
				!slices.Contains(names, n) {
				names = append(names, n)
			}
		}
	}
	return names
}
