package importer

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
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

// maxRuleLine is the longest line of iptables-save: 64 KiB hold all options of a rule, a comment of
// 256 bytes and 15 ports a multiport many times over.
const maxRuleLine = 64 << 10

// IPTables reads what iptables-save, ip6tables-save, `iptables -S` and `ipset save` print, in any
// number of inputs and in any mixture, and writes one policy that judges the packets of a chain as
// these rules do.
//
// It returns *Errors when lines cannot be read, and has then written nothing.
func IPTables(in []Source, w io.Writer, opts Rulesets) (Imported, error) {
	out := newOutput(sourceNames(in), "iptables", opts)
	t := &ipTables{opts: opts, out: out, recent: map[string][]*chainRule{},
		sets: ipSets{byName: map[string]*ipSet{}, files: map[string]*addrSet{}, out: out}}
	for _, s := range in {
		if err := t.read(s); err != nil {
			return Imported{}, err
		}
	}
	bases, err := t.bases()
	if err != nil {
		return Imported{}, err
	}
	for _, tab := range t.tables {
		if c := tab.byName["PREROUTING"]; tab.name == "nat" && c != nil && t.onlyInput() {
			out.nats = append(out.nats, c)
		}
	}
	return out.policy(w, bases, t.rules, opts, t.leaving, t.remarkOnRest)
}

// policy writes the policy of the base chains of a ruleset of so many rules; leaving reads those
// about what leaves, and rest adds what is to be said of the other chains.
func (o *output) policy(w io.Writer, bases []*chain, rules int, opts Rulesets,
	leaving leavingChains, rest func([]*chain)) (Imported, error) {
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
	if opts.Strict && o.rep.widens() {
		return *o.rep, ErrWidens
	}
	if err := o.write(w); err != nil {
		return Imported{}, err
	}
	return *o.rep, nil
}

// ErrWidens says that Strict was asked for, and that the policy would pass more than its source.
var ErrWidens = errors.New("the policy would pass packets that the source drops")

func sourceNames(in []Source) string {
	var names []string
	for _, s := range in {
		names = append(names, heading(s.Name))
	}
	text := strings.Join(names, ", ")
	if text == "" {
		text = "input"
	}
	return printable(text, 200)
}

// ipTables is what was read.
type ipTables struct {
	opts   Rulesets
	out    *output
	sets   ipSets
	tables []*ipTable
	rules  int
	recent map[string][]*chainRule // by the names of lists of -m recent
	leaves bool                    // the rules are about what leaves
}

// ipTable is one table of one family.
type ipTable struct {
	origin
	name   string
	six    bool
	known  bool // six is known
	chains []*chain
	byName map[string]*chain
	lines  []ipLine
	done   bool // COMMIT was read
	bare   bool // without *table and COMMIT, as `iptables -S` prints
}

// ipLine is a rule that is not understood yet.
type ipLine struct {
	line  int
	chain *chain
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

// texts are the words without their quotes.
func texts(in []word) (out []string) {
	for _, w := range in {
		out = append(out, w.text)
	}
	return out
}

// bases are the chains to import, in the order in which packets meet them.
func (t *ipTables) bases() ([]*chain, error) {
	if len(t.tables) == 0 {
		return nil, fmt.Errorf("no rules: this is not the output of iptables-save, " +
			"ip6tables-save or iptables -S")
	}
	want := t.opts.Chains
	if len(want) == 0 {
		want = []string{"filter/INPUT"}
	}
	var out []*chain
	for _, six := range []bool{false, true} {
		for _, w := range want {
			if c := t.find(w, six); c != nil && !slices.Contains(out, c) {
				out = append(out, c)
			}
		}
	}
	for _, w := range want {
		if t.find(w, false) == nil && t.find(w, true) == nil {
			return nil, fmt.Errorf("there is no chain %s with a policy; there are: %s", quote(w),
				strings.Join(t.baseNames(), ", "))
		}
	}
	return out, t.parseRules()
}

// parseRules makes rules of the lines of all tables; the sets are known by now.
func (t *ipTables) parseRules() error {
	errs := map[string]*Errors{}
	var first *Errors
	for _, tab := range t.tables {
		for _, l := range tab.lines {
			if l.flushes != l.chain.flushes {
				continue // -F came behind it
			}
			r, err := t.rule(tab, l, len(l.chain.rules)+1)
			if err == nil {
				l.chain.rules = append(l.chain.rules, r)
				continue
			}
			if errs[tab.file] == nil {
				errs[tab.file] = &Errors{Name: tab.file}
				if first == nil {
					first = errs[tab.file]
				}
			}
			errs[tab.file].add(l.line, err.Error())
		}
	}
	if first != nil {
		return first
	}
	t.settleMarks()
	t.settleRecent()
	return nil
}

// find is the base chain that --chain names, of one family.
func (t *ipTables) find(want string, six bool) *chain {
	table, name, has := strings.Cut(want, "/")
	if !has {
		table, name = "", want
	}
	for _, order := range []string{"filter", "raw", "mangle", "security"} {
		for _, tab := range t.tables {
			if c := tab.byName[name]; tab.name == order && (table == "" || table == order) &&
				tab.six == six && c != nil && c.base {
				return c
			}
		}
	}
	return nil
}

func (t *ipTables) baseNames() (names []string) {
	for _, tab := range t.tables {
		for _, c := range tab.chains {
			if n := tab.name + "/" + c.name; c.base && tab.name != "nat" &&
				!slices.Contains(names, n) {
				names = append(names, n)
			}
		}
	}
	return names
}
