package importer

import (
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"levee/internal/syntax"
)

// Source is one input: a file or standard input.
type Source struct {
	Name string // base name, for remarks and errors
	R    io.Reader
}

// Rulesets say how the rules of netfilter are imported. The zero value takes the chain INPUT.
type Rulesets struct {
	Chains    []string // NAME or TABLE/NAME, one behind the other; none: what judges packets to this machine
	Device    string   // the interface that the policy is for, or ""
	Stateless bool     // write the stateless approximation of rules about connections as rules
}

// maxRuleLine is the longest line of iptables-save: 64 KiB hold all options of a rule, a comment of 256 bytes and
// 15 ports a multiport many times over.
const maxRuleLine = 64 << 10

// IPTables reads what iptables-save, ip6tables-save, `iptables -S` and `ipset save` print, in any
// number of inputs and in any mixture, and writes one policy that judges the packets of a chain as these rules do.
//
// It returns *Errors when lines cannot be read, and has then written nothing.
func IPTables(in []Source, w io.Writer, opts Rulesets) (Imported, error) {
	out := newOutput(sourceNames(in), "iptables")
	out.device = opts.Device
	t := &ipTables{opts: opts, out: out, sets: ipSets{byName: map[string]*ipSet{}, out: out, names: map[string]bool{}}}
	for _, s := range in {
		if err := t.read(s); err != nil {
			return Imported{}, err
		}
	}
	bases, err := t.bases()
	if err != nil {
		return Imported{}, err
	}
	fl := &flattener{bases: bases, given: t.rules, out: out, stateless: opts.Stateless}
	if err := fl.run(); err != nil {
		return Imported{}, err
	}
	t.remarkOnRest(bases)
	if err := out.write(w); err != nil {
		return Imported{}, err
	}
	return *out.rep, nil
}

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
}

// ipTable is one table of one family.
type ipTable struct {
	place
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
func (w word) option() bool { return !w.quoted && (w.text == "!" || strings.HasPrefix(w.text, "-")) }

// texts are the words without their quotes.
func texts(in []word) (out []string) {
	for _, w := range in {
		out = append(out, w.text)
	}
	return out
}

// ipReader is the state while one input is read.
type ipReader struct {
	t      *ipTables
	name   string
	now    *ipTable
	family string // "ip6tables" or "iptables" by the comment at the top, or ""
	errs   Errors
}

func (t *ipTables) read(s Source) error {
	name := heading(s.Name)
	if name == "" {
		name = "input"
	}
	r := &ipReader{t: t, name: name, errs: Errors{Name: name}}
	limited := &io.LimitedReader{R: s.R, N: syntax.MaxSource + 1}
	last := 0
	err := eachLine(limited, maxRuleLine, func(n int, line string, long bool) error {
		last = n
		if n == 1 {
			line = strings.TrimPrefix(line, "\ufeff") // a byte order mark
		}
		if limited.N == 0 {
			r.errs.add(n, fmt.Sprintf("the input is larger than %d MiB", syntax.MaxSource>>20))
			return errStop
		}
		if long {
			r.errs.add(n, fmt.Sprintf("longer than %d bytes: not a rule", maxRuleLine))
			return nil
		}
		if err := r.line(n, line); err != nil {
			r.errs.add(n, err.Error())
		}
		if t.rules > MaxRules {
			r.errs.add(n, fmt.Sprintf("more than %d rules", MaxRules))
			return errStop
		}
		return nil
	})
	if err != nil && !errors.Is(err, errStop) {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	if r.now != nil && !r.now.done && !r.now.bare && len(r.errs.Lines) == 0 {
		r.errs.add(last, fmt.Sprintf("table %s of line %d has no COMMIT: the input ends too early", r.now.name, r.now.line))
	}
	for _, tab := range t.tables {
		if tab.file == name && len(r.errs.Lines) == 0 {
			r.understand(tab)
		}
	}
	if len(r.errs.Lines) > 0 {
		return &r.errs
	}
	return nil
}

// line reads one line of any of the formats.
func (r *ipReader) line(n int, line string) error {
	line = strings.TrimSpace(line)
	switch {
	case line == "":
		return nil
	case line[0] == '#':
		r.missing(n, line)
		if strings.Contains(line, "ip6tables") && strings.Contains(line, "-save") {
			r.family = "ip6tables"
		} else if strings.Contains(line, "iptables") && strings.Contains(line, "-save") {
			r.family = "iptables"
		}
		return nil
	case line[0] == '*':
		return r.table(n, strings.TrimSpace(line[1:]), false)
	case line == "COMMIT" && (r.now == nil || r.now.done) && len(r.t.sets.byName) > 0: // of ipset restore
		return nil
	case line == "COMMIT":
		if r.now == nil || r.now.done || r.now.bare {
			return errors.New("COMMIT without a table before it")
		}
		r.now.done = true
		return nil
	}
	text := line
	if line[0] == '[' { // counters
		_, rest, ok := strings.Cut(line, "]")
		if !ok {
			return fmt.Errorf("%s is not a rule", quote(line))
		}
		text = strings.TrimSpace(rest)
	}
	w, err := splitWords(text)
	if err != nil || len(w) == 0 {
		return fmt.Errorf("%s is not a rule: %w", quote(line), err)
	}
	return r.words(n, text, w)
}

// missing passes on what iptables-save says in a comment of rules that it does not show.
func (r *ipReader) missing(n int, line string) {
	what, instead := "", ""
	switch {
	case strings.Contains(line, "legacy tables present"):
		what, instead = "the machine has rules of the other iptables too, which are not in this file", "give the output of iptables-legacy-save and ip6tables-legacy-save as well, with --chain for one of the tables"
	case strings.Contains(line, "is incompatible, use 'nft' tool"):
		what, instead = "iptables-save cannot show this table, and its rules are not in this file", "import the output of `nft -j list ruleset`: levee import nft"
	default:
		return
	}
	r.t.out.rep.add(Remark{File: r.name, Line: n, Rule: printable(line, 160), Kind: LeftOut, Text: what, Instead: instead})
}

// words reads a line of several words.
func (r *ipReader) words(n int, text string, all []word) error {
	at := place{r.name, n, printable(text, 160)}
	w := texts(all)
	switch {
	case strings.HasPrefix(text, ":"):
		if r.now == nil || r.now.done || len(w) < 2 {
			return fmt.Errorf("%s is not a chain of a table", quote(text))
		}
		return r.chain(at, strings.TrimPrefix(w[0], ":"), w[1])
	case w[0] == "create":
		return r.create(at, texts(withoutExist(all)))
	case w[0] == "add":
		return r.add(withoutExist(all))
	case w[0] == "flush" && len(w) == 2 && r.t.sets.byName[w[1]] != nil:
		s := r.t.sets.byName[w[1]]
		s.elems, s.list, s.mixed = nil, nil, false
		return nil
	case w[0] == "swap", w[0] == "destroy", w[0] == "rename", w[0] == "del", w[0] == "test", w[0] == "flush":
		return fmt.Errorf("%s changes sets: restore the file where it does no harm, and give what is saved: unshare -n sh -c 'ipset restore < FILE; ipset save'", quote(text))
	case len(w) >= 3 && w[0] == "-P", len(w) >= 2 && (w[0] == "-N" || w[0] == "-A"):
		if r.now == nil || r.now.done {
			if err := r.table(n, "filter", true); err != nil {
				return err
			}
		}
	}
	switch {
	case w[0] == "-P" && len(w) >= 3:
		return r.chain(at, w[1], w[2])
	case w[0] == "-N" && len(w) >= 2:
		return r.chain(at, w[1], "-")
	case w[0] == "-F" && r.now != nil && !r.now.done:
		return r.flush(w[1:])
	case w[0] == "-A" && len(w) >= 2:
		c := r.now.byName[w[1]]
		if c == nil {
			return fmt.Errorf("there is no chain %s in table %s", quote(w[1]), r.now.name)
		}
		r.t.rules++
		r.now.lines = append(r.now.lines, ipLine{line: n, chain: c, words: all[2:], text: at.text, flushes: c.flushes})
		return nil
	}
	return fmt.Errorf("%s is nothing that iptables-save or ipset save print%s", quote(text), loadFirst(w))
}

// withoutExist leaves out the option of files for ipset restore that says what to do about sets and elements that are there already.
func withoutExist(w []word) []word {
	return slices.DeleteFunc(slices.Clone(w), func(x word) bool { return x == word{text: "-exist"} || x == word{text: "-!"} })
}

// loadFirst says how to have a file of commands as iptables-save prints it.
func loadFirst(w []string) string {
	switch w[0] {
	case "-I", "-D", "-R", "-X", "-Z", "-E":
		return ": load the file where it does no harm, and give what is saved: unshare -n sh -c 'iptables-restore FILE; iptables-save'"
	case "iptables", "ip6tables", "sudo", "ipset", "/sbin/iptables", "/usr/sbin/iptables", "/sbin/ip6tables", "/usr/sbin/ip6tables":
		return ": run the commands where they do no harm, and give what is saved: unshare -n sh -c 'sh FILE; iptables-save'"
	case "Chain", "target", "num", "pkts":
		return ": it is of iptables -L, which leaves things out; give the output of iptables-save"
	case "Name:", "Type:", "Members:":
		return ": it is of ipset list; give the output of ipset save"
	case "table":
		return ": it is of nft; give the output of `nft -j list ruleset` to levee import nft"
	}
	return ""
}

// flush reads -F, with or without a chain: the rules so far are gone.
func (r *ipReader) flush(names []string) error {
	if len(names) == 0 {
		for _, c := range r.now.chains {
			c.flushes++
		}
		return nil
	}
	c := r.now.byName[names[0]]
	if c == nil {
		return fmt.Errorf("there is no chain %s in table %s", quote(names[0]), r.now.name)
	}
	c.flushes++
	return nil
}

func (r *ipReader) table(n int, name string, bare bool) error {
	if r.now != nil && !r.now.done && !r.now.bare {
		return fmt.Errorf("table %s of line %d has no COMMIT", r.now.name, r.now.line)
	}
	switch name {
	case "filter", "raw", "mangle", "nat", "security":
	default:
		return fmt.Errorf("%s is not a table of iptables", quote(name))
	}
	r.now = &ipTable{place: place{r.name, n, "*" + name}, name: name, byName: map[string]*chain{}, bare: bare}
	r.now.six, r.now.known = r.family == "ip6tables", r.family != ""
	r.t.tables = append(r.t.tables, r.now)
	return nil
}

func (r *ipReader) chain(at place, name, policy string) error {
	if r.now.byName[name] != nil {
		return fmt.Errorf("chain %s of table %s is defined twice", quote(name), r.now.name)
	}
	c := &chain{name: printable(name, 64), place: at}
	if strings.HasPrefix(policy, "[") { // files that people write have counters alone for chains of their own
		policy = "-"
	}
	switch policy {
	case "ACCEPT":
		c.base = true
	case "DROP", "REJECT", "QUEUE":
		c.base, c.drop = true, true
	case "-":
	default:
		return fmt.Errorf("%s is not the policy of a chain", quote(policy))
	}
	r.now.byName[name] = c
	r.now.chains = append(r.now.chains, c)
	return nil
}

func (r *ipReader) create(at place, w []string) error {
	s, err := createSet(w, at)
	if err != nil {
		return err
	}
	if r.t.sets.byName[s.name] != nil {
		return fmt.Errorf("set %s is created twice", quote(s.name))
	}
	r.t.sets.byName[s.name] = s
	return nil
}

func (r *ipReader) add(w []word) error {
	if len(w) < 3 {
		return errors.New("add needs a set and an element")
	}
	s := r.t.sets.byName[w[1].text]
	if s == nil {
		return fmt.Errorf("there is no set %s before this line", quote(w[1].text))
	}
	return s.add(w[2:])
}

// splitWords splits a line as a shell does, with the quotes that iptables-save writes.
func splitWords(line string) (out []word, err error) {
	var b strings.Builder
	in, quoted, wasQuoted := false, byte(0), false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '\\' && quoted != '\'' && i+1 < len(line):
			i++
			b.WriteByte(line[i])
			in = true
		case quoted != 0 && c == quoted:
			quoted = 0
		case quoted == 0 && (c == '"' || c == '\''):
			quoted, in, wasQuoted = c, true, true
		case quoted == 0 && (c == ' ' || c == '\t'):
			if in {
				out = append(out, word{b.String(), wasQuoted})
				b.Reset()
				in, wasQuoted = false, false
			}
		default:
			b.WriteByte(c)
			in = true
		}
	}
	if quoted != 0 {
		return nil, errors.New("a quote is not closed")
	}
	if in {
		out = append(out, word{b.String(), wasQuoted})
	}
	return out, nil
}

// understand finds the family of a table.
func (r *ipReader) understand(tab *ipTable) {
	for i := range tab.lines {
		l := &tab.lines[i]
		six, known := familyOf(l.words)
		switch {
		case !known:
		case !tab.known:
			tab.six, tab.known = six, true
		case tab.six != six:
			r.errs.add(l.line, fmt.Sprintf("%s is of the other family than table %s of line %d", quote(l.text), tab.name, tab.line))
		}
	}
	if !tab.known {
		tab.six = strings.Contains(path.Base(r.name), "6")
		family := [...]string{"IPv4", "IPv6"}[b2i(tab.six)]
		r.t.out.rep.add(tab.remark(Noticed, "nothing says whether the table is of iptables or ip6tables: "+family+" is assumed",
			"put the first line of iptables-save or ip6tables-save back, which says so"))
	}
	for _, o := range r.t.tables {
		if o != tab && o.name == tab.name && o.six == tab.six && o.known && o.line > 0 && (o.file != tab.file || o.line < tab.line) {
			r.errs.add(tab.line, fmt.Sprintf("table %s of the same family is in %s:%d already", tab.name, o.file, o.line))
		}
	}
	tab.known = true
	for _, c := range tab.chains {
		c.family = match{}.with(fEther, [...]spans{only4, only6}[b2i(tab.six)])
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// familyOf tells the family of a rule by its addresses, protocols and modules.
func familyOf(w []word) (six, known bool) {
	option := ""
	for _, s := range w {
		if s.option() {
			if s.text != "!" {
				option = s.text
			}
			switch s.text {
			case "--icmpv6-type", "--hl-eq", "--hl-lt", "--hl-gt":
				return true, true
			case "--icmp-type", "--ttl-eq", "--ttl-lt", "--ttl-gt", "-f":
				return false, true
			}
			continue
		}
		switch option {
		case "-s", "-d", "--src-range", "--dst-range", "--source", "--destination", "--src", "--dst":
			if six = strings.Contains(s.text, ":"); six || strings.Contains(s.text, "/") || !isHostName(s.text) {
				return six, true
			}
		case "-p", "--protocol", "--proto":
			switch s.text {
			case "ipv6-icmp", "icmp6", "icmpv6":
				return true, true
			}
		case "-m", "--match":
			switch s.text {
			case "icmp6", "icmpv6", "hl", "ipv6header", "frag", "rt", "hbh", "dst", "mh", "eui64":
				return true, true
			case "icmp", "ttl":
				return false, true
			}
		case "--reject-with":
			switch {
			case strings.HasPrefix(s.text, "icmp6-"):
				return true, true
			case strings.HasPrefix(s.text, "icmp-"):
				return false, true
			}
		}
	}
	return false, false
}

// bases are the chains to import, in the order in which packets meet them.
func (t *ipTables) bases() ([]*chain, error) {
	if len(t.tables) == 0 {
		return nil, fmt.Errorf("no rules: this is not the output of iptables-save, ip6tables-save or iptables -S")
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
			return nil, fmt.Errorf("there is no chain %s with a policy; there are: %s", quote(w), strings.Join(t.baseNames(), ", "))
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
		tab.lines = nil
	}
	if first != nil {
		return first
	}
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
			if c := tab.byName[name]; tab.name == order && (table == "" || table == order) && tab.six == six && c != nil && c.base {
				return c
			}
		}
	}
	return nil
}

func (t *ipTables) baseNames() (names []string) {
	for _, tab := range t.tables {
		for _, c := range tab.chains {
			if n := tab.name + "/" + c.name; c.base && tab.name != "nat" && !slices.Contains(names, n) {
				names = append(names, n)
			}
		}
	}
	return names
}
