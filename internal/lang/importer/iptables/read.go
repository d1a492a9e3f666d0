package iptables

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"levee/internal/lang/importer"
	"levee/internal/lang/importer/match"
)

// ipReader is the state while one input is read.
type ipReader struct {
	t      *ipTables
	name   string
	now    *ipTable
	family string // "ip6tables" or "iptables" by the comment at the top, or ""
	errs   importer.Errors
}

func (t *ipTables) read(s importer.Source) error {
	if err := s.Belongs("iptables"); err != nil {
		return err
	}
	name := s.Title()
	r := &ipReader{t: t, name: name, errs: importer.Errors{Name: name}}
	last := 0
	err := importer.EachLine(s.R, maxRuleLine, func(n int, line string, long bool) error {
		last = n
		if n == 1 {
			line = strings.TrimPrefix(line, "\ufeff") // a byte order mark
		}
		if what := importer.NoText(line); what != "" {
			r.errs.Add(n, what)
			return importer.ErrStop
		}
		if n == 1 && isScript(line) {
			r.errs.Add(n, "this is a shell script"+runFirst)
			return importer.ErrStop
		}
		if long {
			r.errs.Add(n, fmt.Sprintf("longer than %d bytes: not a rule", maxRuleLine))
			return nil
		}
		if err := r.line(n, line); err != nil {
			r.errs.Add(n, err.Error())
		}
		if t.rules+r.errs.More > importer.MaxRules {
			r.errs.Add(n, fmt.Sprintf("more than %d rules", importer.MaxRules))
			return importer.ErrStop
		}
		return nil
	})
	if err := r.errs.EndOf(err); err != nil {
		return err
	}
	if r.now != nil && !r.now.done && !r.now.bare && len(r.errs.Lines) == 0 {
		r.errs.Add(last, fmt.Sprintf("table %s of line %d has no COMMIT: the input ends too early",
			r.now.name, r.now.Line))
	}
	for _, tab := range t.tables {
		if tab.File == name && len(r.errs.Lines) == 0 {
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
	case line == "COMMIT" && (r.now == nil || r.now.done) &&
		len(r.t.sets.byName) > 0: // of ipset restore
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
			return fmt.Errorf("%s is not a rule", match.Quote(line))
		}
		text = strings.TrimSpace(rest)
	}
	if strings.HasSuffix(text, " \\") {
		return fmt.Errorf("%s ends in a backslash, and a rule is one line here: join it with the "+
			"next", match.Quote(line))
	}
	w, err := splitWords(text)
	if err != nil || len(w) == 0 {
		return fmt.Errorf("%s is not a rule: %w", match.Quote(line), err)
	}
	return r.words(n, text, w)
}

// builtIn are the chains that are in a table without being named.
var builtIn = map[string]bool{"INPUT": true, "FORWARD": true, "OUTPUT": true, "PREROUTING": true,
	"POSTROUTING": true}

// missing passes on what iptables-save says in a comment of rules that it does not show.
func (r *ipReader) missing(n int, line string) {
	what, instead := "", ""
	switch {
	case strings.Contains(line, "legacy tables present"):
		what, instead = "the machine has rules of the other iptables too, which are not in "+
			"this file", "give the output of iptables-legacy-save and ip6tables-legacy-save as "+
			"well, with --chain for one of the tables"
	case strings.Contains(line, "is incompatible, use 'nft' tool"):
		what, instead = "iptables-save cannot show this table, and its rules are not in this file",
			"import the output of `nft -j list ruleset`: levee import nft"
	default:
		return
	}
	r.t.out.Report.Add(importer.Remark{File: r.name, Line: n, Rule: importer.Printable(line, 160),
		Kind: importer.LeftOut,
		Text: what, Instead: instead})
}

// words reads a line of several words.
func (r *ipReader) words(n int, text string, all []word) error {
	at := importer.Origin{File: r.name, Line: n, Text: importer.Printable(text, 160)}
	w := texts(all)
	if short, ok := longCommands[w[0]]; ok {
		w[0] = short
	}
	switch {
	case strings.HasPrefix(text, ":"):
		if r.now == nil || r.now.done || len(w) < 2 {
			return fmt.Errorf("%s is not a chain of a table", match.Quote(text))
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
	case w[0] == "swap", w[0] == "destroy", w[0] == "rename", w[0] == "del", w[0] == "test",
		w[0] == "flush":
		return fmt.Errorf("%s changes sets: restore the file where it does no harm, and give "+
			"what is saved: unshare -n sh -c 'ipset restore < FILE; ipset save'", match.Quote(text))
	case len(w) >= 3 && w[0] == "-P",
		len(w) >= 2 && (w[0] == "-N" || w[0] == "-A" || w[0] == "-I"):
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
	case (w[0] == "-A" || w[0] == "-I") && len(w) >= 2:
		c := r.now.byName[w[1]]
		if c == nil && builtIn[w[1]] && !r.now.bare { // as iptables-restore takes it
			if err := r.chain(at, w[1], "ACCEPT"); err != nil {
				return err
			}
			c = r.now.byName[w[1]]
		}
		if c == nil {
			return fmt.Errorf("there is no chain %s in table %s", match.Quote(w[1]), r.now.name)
		}
		l := ipLine{line: n, chain: c, words: all[2:], text: at.Text, flushes: c.Flushes}
		r.t.rules++
		if w[0] == "-I" {
			return r.insert(l)
		}
		r.now.lines = append(r.now.lines, l)
		return nil
	}
	return fmt.Errorf("%s is nothing that iptables-save or ipset save print%s", match.Quote(text),
		loadFirst(w))
}

// longCommands are other names of the commands that a file for iptables-restore may have.
var longCommands = map[string]string{"--append": "-A", "--insert": "-I", "--policy": "-P",
	"--new-chain": "-N", "--new": "-N", "--flush": "-F", "--delete": "-D", "--replace": "-R",
	"--delete-chain": "-X", "--zero": "-Z", "--rename-chain": "-E"}

// maxInserted is the most rules of a table that -I may move: each moves those behind it.
const maxInserted = 10_000

// insert puts a rule at the number that its line begins with, or at the top of its chain.
func (r *ipReader) insert(l ipLine) error {
	if len(r.now.lines) > maxInserted {
		return fmt.Errorf("-I behind more than %d rules%s", maxInserted, loadFirst([]string{"-D"}))
	}
	at := uint64(1)
	if len(l.words) > 0 && !l.words[0].option() {
		v, err := strconv.ParseUint(l.words[0].text, 10, 32)
		if err != nil || v == 0 {
			return fmt.Errorf("%s is not the number of a rule", match.Quote(l.words[0].text))
		}
		at, l.words = v, l.words[1:]
	}
	behind := uint64(1) // the number that the next rule of the chain has
	for i, o := range r.now.lines {
		if o.chain != l.chain || o.flushes != l.flushes {
			continue
		}
		if behind == at {
			r.now.lines = slices.Insert(r.now.lines, i, l)
			return nil
		}
		behind++
	}
	if behind != at {
		return fmt.Errorf("chain %s has no rule %d to insert one before", match.Quote(l.chain.Name),
			at)
	}
	r.now.lines = append(r.now.lines, l)
	return nil
}

// withoutExist leaves out the option of files for ipset restore that says what to do about sets and
// elements that are there already.
func withoutExist(w []word) []word {
	return slices.DeleteFunc(slices.Clone(w),
		func(x word) bool { return x == word{text: "-exist"} || x == word{text: "-!"} })
}

const runFirst = ": run the commands where their rules do no harm (whatever else they do is " +
	"done), and give what is saved: unshare -n sh -c 'sh FILE; iptables-save'"

// isScript tells whether the first line of a file has a shell run it.
func isScript(line string) bool {
	words := strings.Fields(strings.TrimPrefix(line, "#!"))
	shells := []string{"sh", "bash", "dash", "ash", "ksh", "zsh"}
	return strings.HasPrefix(line, "#!") && slices.ContainsFunc(words,
		func(w string) bool { return slices.Contains(shells, path.Base(w)) })
}

// loadFirst says how to have a file of commands as iptables-save prints it.
func loadFirst(w []string) string {
	if strings.HasPrefix(w[0], "$") || strings.HasPrefix(w[0], "\"$") {
		return runFirst
	}
	switch path.Base(w[0]) {
	case "-D", "-R", "-X", "-Z", "-E":
		return ": load the file where it does no harm, and give what is saved: unshare -n sh -c " +
			"'iptables-restore FILE; iptables-save'"
	case "iptables", "ip6tables", "sudo", "ipset", "for", "if", "while", "function", "modprobe",
		"echo", "sysctl":
		return runFirst
	case "Chain", "target", "num", "pkts":
		return ": it is of iptables -L, which leaves things out; give the output of iptables-save"
	case "Name:", "Type:", "Members:":
		return ": it is of ipset list; give the output of ipset save"
	}
	return ""
}

// flush reads -F, with or without a chain: the rules so far are gone.
func (r *ipReader) flush(names []string) error {
	if len(names) == 0 {
		for _, c := range r.now.chains {
			c.Flushes++
		}
		return nil
	}
	c := r.now.byName[names[0]]
	if c == nil {
		return fmt.Errorf("there is no chain %s in table %s", match.Quote(names[0]), r.now.name)
	}
	c.Flushes++
	return nil
}

func (r *ipReader) table(n int, name string, bare bool) error {
	if r.now != nil && !r.now.done && !r.now.bare {
		return fmt.Errorf("table %s of line %d has no COMMIT", r.now.name, r.now.Line)
	}
	switch name {
	case "filter", "raw", "mangle", "nat", "security":
	default:
		return fmt.Errorf("%s is not a table of iptables", match.Quote(name))
	}
	r.now = &ipTable{Origin: importer.Origin{File: r.name, Line: n, Text: "*" + name}, name: name,
		byName: map[string]*importer.Chain{},
		bare:   bare}
	r.now.six, r.now.known = r.family == "ip6tables", r.family != ""
	r.t.tables = append(r.t.tables, r.now)
	return nil
}

func (r *ipReader) chain(at importer.Origin, name, policy string) error {
	if r.now.byName[name] != nil {
		return fmt.Errorf("chain %s of table %s is defined twice", match.Quote(name), r.now.name)
	}
	c := &importer.Chain{Name: importer.Printable(name, 64), Origin: at}
	// files that people write have counters alone for chains of their own
	if strings.HasPrefix(policy, "[") {
		policy = "-"
	}
	switch policy {
	case "ACCEPT":
		c.Base = true
	case "DROP", "REJECT", "QUEUE":
		c.Base, c.Drop = true, true
	case "-":
	default:
		return fmt.Errorf("%s is not the policy of a chain", match.Quote(policy))
	}
	r.now.byName[name] = c
	r.now.chains = append(r.now.chains, c)
	return nil
}

func (r *ipReader) create(at importer.Origin, w []string) error {
	s, err := createSet(w, at)
	if err != nil {
		return err
	}
	if r.t.sets.byName[s.name] != nil {
		return fmt.Errorf("set %s is created twice", match.Quote(s.name))
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
		return fmt.Errorf("there is no set %s before this line", match.Quote(w[1].text))
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
			hint := ""
			if r.family != "" {
				hint = fmt.Sprintf(", which the comment at its top says is of %s: name there the "+
					"tool that restores the file", r.family)
			}
			r.errs.Add(l.line, fmt.Sprintf("%s is of the other family than table %s of line %d%s",
				match.Quote(l.text), tab.name, tab.Line, hint))
		}
	}
	if !tab.known {
		tab.six = strings.Contains(path.Base(r.name), "6")
		family := [...]string{"IPv4", "IPv6"}[match.Int(tab.six)]
		r.t.out.Report.Add(tab.Remark(importer.Noticed,
			"nothing says whether the table is of iptables or ip6tables: "+family+" is assumed",
			"put the first line of iptables-save or ip6tables-save back, which says so"))
	}
	for _, o := range r.t.tables {
		if o != tab && o.name == tab.name && o.six == tab.six && o.known && o.Line > 0 &&
			(o.File != tab.File || o.Line < tab.Line) {
			r.errs.Add(tab.Line, fmt.Sprintf("table %s of the same family is in %s:%d already",
				tab.name, o.File, o.Line))
		}
	}
	tab.known = true
	for _, c := range tab.chains {
		c.Family = match.Match{}.With(match.Ether,
			[...]match.Spans{match.Only4, match.Only6}[match.Int(tab.six)])
	}
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
		case "-s", "-d", "--src-range", "--dst-range", "--source", "--destination", "--src",
			"--dst":
			if six = strings.Contains(s.text, ":"); six || strings.Contains(s.text, "/") ||
				!match.IsHostName(s.text) {
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
