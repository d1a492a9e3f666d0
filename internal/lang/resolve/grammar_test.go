package resolve

import (
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"levee/docs"
	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
	"levee/internal/lang/syntax"
	"levee/internal/packet"
)

// TestGrammarOfDocsIsTheParsers holds docs/reference/grammar.md "Grammar" against the parser, both
// ways. The parser reads what the grammar makes, and the grammar makes what is a policy. In between
// lie texts that have the form of a policy and no meaning.
func TestGrammarOfDocsIsTheParsers(t *testing.T) {
	g := readGrammar(t)
	rng := rand.New(rand.NewPCG(1, 2))
	policies := validPolicies(t)
	for name, src := range policies {
		if !g.takes(lexGrammar(src)) {
			t.Errorf("the grammar does not make %s", name)
		}
	}
	for range 2_000 {
		src := strings.Join(g.make(rng, g.rules["statement"]), " ")
		if !g.takes(lexGrammar(src)) {
			t.Fatalf("the grammar makes, and does not take:\n%s", src)
		}
		g.compare(t, src, "")
	}
	all := slices.Sorted(maps.Values(policies))
	for _, file := range glob(t, "errors/*.levee") {
		g.compare(t, read(t, file), file)
	}
	for range 2_000 { // mutants of valid policies
		src := mutate(rng, lexGrammar(all[rng.IntN(len(all))]), lexGrammar(all[rng.IntN(len(all))]))
		g.compare(t, src, "")
	}
}

// TestGrammarOfDocsListsAllKeywords compares the list of words that no set may have as its name.
func TestGrammarOfDocsListsAllKeywords(t *testing.T) {
	page := docs.Language()
	_, list, _ := strings.Cut(page, "is none of these words:")
	list, _, _ = strings.Cut(list, "\n\n")
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile("`([a-z0-9-]+)`").FindAllStringSubmatch(list, -1) {
		if listed[m[1]] = true; !syntax.IsKeyword(m[1]) {
			t.Errorf("%s is listed, and may name a set", m[1])
		}
	}
	for _, m := range regexp.MustCompile("[`\"]([a-z0-9-]+)[`\"]").FindAllStringSubmatch(page, -1) {
		if syntax.IsKeyword(m[1]) && !listed[m[1]] {
			t.Errorf("%s is not listed, and may not name a set", m[1])
		}
	}
}

// compare fails where the parser does not read what the grammar makes, or the resolver gives a
// meaning to what it does not make.
func (g *grammar) compare(t *testing.T, src, name string) {
	t.Helper()
	takes := g.takes(lexGrammar(src))
	f, ds := syntax.Parse("g", []byte(src))
	if takes && ds.HasErrors() {
		t.Fatalf("%s the grammar makes this, and the parser does not read it: %v\n%s", name, ds,
			src)
	}
	if takes || ds.HasErrors() {
		return
	}
	if _, ds = Resolve(f, noElements); onlyTheDefaultIsMissing(ds) {
		t.Fatalf("%s this is a policy, and the grammar does not make it:\n%s", name, src)
	}
}

// onlyTheDefaultIsMissing tells whether there is no error, or none but that a piece of a policy has
// no default.
func onlyTheDefaultIsMissing(ds diag.Diagnostics) bool {
	const missing = "the policy does not say what happens to packets that no rule decides"
	for _, d := range ds {
		if d.Severity == diag.Error && d.Message != missing {
			return false
		}
	}
	return true
}

func noElements(string) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("")), nil }

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob("../../../test/policy/" + pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no %s: %v", pattern, err)
	}
	return files
}

func validPolicies(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, file := range append(glob(t, "valid/*.levee"), glob(t, "../../examples/*.levee")...) {
		all[file] = read(t, file)
	}
	return all
}

// lexGrammar cuts a text into the tokens of the grammar; nil if it has something else in it. A TEXT
// keeps its quotes.
func lexGrammar(src string) []string {
	src = strings.TrimPrefix(src, "\uFEFF")
	out, depth := []string{}, 0
	finds, list := false, false // behind payload or stream contains, and in its braces
	for src != "" && utf8.ValidString(src) {
		tok := grammarToken.FindString(src)
		if n := len(out); n > 0 && (out[n-1] == "matches" || finds) && src[0] == '/' {
			tok = grammarExpression.FindString(src)
		}
		if tok == "" {
			return nil
		}
		src = src[len(tok):]
		switch tok[0] {
		case ' ', '\t', '#':
			continue
		case '\r', '\n':
			if depth == 0 {
				out = append(out, "\n")
			}
			continue
		case '{', '(':
			depth++
		case '}', ')':
			depth = max(0, depth-1)
		}
		out = append(out, tok)
		n := len(out)
		list = finds && (tok == "{" || list && tok != "}")
		finds = list || n > 1 && tok == "contains" &&
			(out[n-2] == "payload" || out[n-2] == "stream")
	}
	if src != "" {
		return nil
	}
	return out
}

var grammarToken = regexp.MustCompile(`^(?:` + strings.Join([]string{
	`[ \t]+`, `\r?\n`, `\r$`,
	`#(?:[\t -~]|[^\x00-\x7f\x{202a}-\x{202e}\x{2066}-\x{2069}])*`, // a comment
	`"(?: |[^"\pC\pZ])*"`,
	`[<>!]=`, `[{}(),=<>]`,
	`(?:[\pL]|[$-'*+\-./0-:?-z|~])+`, // a word
}, "|") + `)`)

// grammarExpression stands behind matches.
var grammarExpression = regexp.MustCompile(`^/(?:\\/|[ ]|[^/\pC\pZ])*/`)

// mutate changes a few tokens of a policy, and prints the rest of it.
func mutate(rng *rand.Rand, toks, others []string) string {
	at := 0
	if n := len(toks) - 40; n > 0 { // a piece that begins with a line
		for at = rng.IntN(n); at > 0 && toks[at-1] != "\n"; at-- {
		}
	}
	out := append([]string{}, toks[at:min(len(toks), at+40+rng.IntN(20))]...)
	for range 1 + rng.IntN(3) {
		i := rng.IntN(len(out))
		switch rng.IntN(4) {
		case 0:
			out = append(out[:i], out[i+1:]...)
		case 1:
			out[i] = others[rng.IntN(len(others))]
		case 2:
			out = append(out[:i], append([]string{others[rng.IntN(len(others))]}, out[i:]...)...)
		case 3:
			j := rng.IntN(len(out))
			out[i], out[j] = out[j], out[i]
		}
		if len(out) == 0 {
			break
		}
	}
	src := strings.Join(out, " ")
	if toks := lexGrammar(src); toks != nil { // without line ends inside of endpoints
		src = strings.Join(toks, " ")
	}
	return src
}

// grammar is the one of the page.
type grammar struct{ rules map[string]node }

// node is a part of a rule: a sequence, a choice, an option, a repetition, a name, or a literal.
type node struct {
	kind byte // s, |, [, {, n, l, and . for a range of characters
	of   []node
	text string
}

func readGrammar(t *testing.T) *grammar {
	t.Helper()
	page := read(t, "../../../docs/reference/grammar.md")
	_, text, _ := strings.Cut(page, "```ebnf\n")
	text, _, ok := strings.Cut(text, "```")
	if !ok {
		t.Fatal("docs/reference/grammar.md has no grammar")
	}
	g := &grammar{rules: map[string]node{}}
	var name, body string
	end := func() {
		if name != "" {
			p := &ebnf{ebnfToken.FindAllString(body, -1)}
			g.rules[name] = p.choice()
			if len(p.toks) > 0 {
				t.Fatalf("docs/reference/grammar.md: %s: %q is left over", name, p.toks)
			}
		}
	}
	for line := range strings.SplitSeq(text, "\n") {
		if m := regexp.MustCompile(`^([\w-]+) +=(.*)`).FindStringSubmatch(line); m != nil {
			end()
			name, body = m[1], m[2]
		} else {
			body += line
		}
	}
	end()
	for _, w := range []string{"NEWLINE", "TEXT", "EXPRESSION", "WORD", "IFNAME", "FIELD",
		"IPV6"} { // in prose
		g.rules[w] = node{kind: 'w', text: w}
	}
	return g
}

var ebnfToken = regexp.MustCompile(`"[^"]*"|\.\.\.|[\w-]+|[\[\]{}()|]`)

func isToken(name string) bool { return strings.ToUpper(name) == name }

// ebnf parses the right side of a rule.
type ebnf struct {
	toks []string
}

func (p *ebnf) is(tok string) bool { return len(p.toks) > 0 && p.toks[0] == tok }

func (p *ebnf) take() string {
	tok := p.toks[0]
	p.toks = p.toks[1:]
	return tok
}

func (p *ebnf) choice() node {
	n := node{kind: '|', of: []node{p.sequence()}}
	for p.is("|") {
		p.take()
		n.of = append(n.of, p.sequence())
	}
	return n
}

func (p *ebnf) sequence() node {
	n := node{kind: 's'}
	for len(p.toks) > 0 && !strings.Contains("|])}", p.toks[0]) {
		n.of = append(n.of, p.part())
	}
	return n
}

func (p *ebnf) part() node {
	switch tok := p.take(); {
	case tok == "[", tok == "{", tok == "(":
		n := node{kind: tok[0], of: []node{p.choice()}}
		p.take()
		if tok == "(" {
			return n.of[0]
		}
		return n
	case tok == "list":
		p.take()
		x := p.choice()
		p.take()
		lit := func(s string) node { return node{kind: 'l', text: s} }
		more := node{kind: '{', of: []node{{kind: 's', of: []node{lit(","), x}}}}
		return node{kind: 's', of: []node{lit("{"), x, more, {kind: '[', of: []node{lit(",")}},
			lit("}")}}
	case tok[0] == '"':
		lit := strings.Trim(tok, `"`)
		if p.is("...") {
			p.take()
			return node{kind: '.', text: lit + strings.Trim(p.take(), `"`)}
		}
		return node{kind: 'l', text: lit}
	default:
		return node{kind: 'n', text: tok}
	}
}

// takes tells whether the grammar makes these tokens.
func (g *grammar) takes(toks []string) bool {
	if toks == nil {
		return false
	}
	m := &matcher{g: g, toks: splitFlags(toks), memo: map[string][]int{}}
	for _, end := range m.ends(g.rules["policy"], 0) {
		if end == len(m.toks) {
			return dynamicSetsAreWhole(toks)
		}
	}
	return false
}

// splitFlags cuts words such as syn/syn at the slash, which may stand alone.
func splitFlags(toks []string) (out []string) {
	const flag = `(?:fin|syn|rst|psh|ack|urg|ece|cwr|none|)`
	flags := regexp.MustCompile(`^` + flag + `/` + flag + `$`)
	for _, tok := range toks {
		if !flags.MatchString(tok) {
			out = append(out, tok)
			continue
		}
		set, mask, _ := strings.Cut(tok, "/")
		for _, part := range []string{set, "/", mask} {
			if part != "" {
				out = append(out, part)
			}
		}
	}
	return out
}

// dynamicSetsAreWhole holds sets to what the page says beside the grammar: each option once, and
// max always.
func dynamicSetsAreWhole(toks []string) bool {
	for i, tok := range toks {
		if tok != "dynamic" || i+1 == len(toks) || toks[i+1] != "(" {
			continue
		}
		seen := map[string]int{}
		open := 1
		for _, option := range toks[i+2:] {
			switch option {
			case "(": // of a file
				open++
			case ")":
				open--
			}
			if open == 0 {
				break
			}
			seen[option]++
		}
		if seen["max"] != 1 || seen["of"] > 1 || seen["lease"] > 1 || seen["rollup"] > 1 ||
			seen["keep"] > 1 || seen["from"] > 1 {
			return false
		}
	}
	return true
}

// matcher finds the meanings of a node: in tokens, or in the characters of one token.
type matcher struct {
	g    *grammar
	toks []string
	memo map[string][]int // where a rule that begins at a token can end
}

func (m *matcher) ends(n node, at int) []int {
	switch n.kind {
	case 's':
		places := []int{at}
		for _, part := range n.of {
			places = m.each(part, places)
		}
		return places
	case '|':
		var out []int
		for _, part := range n.of {
			out = union(out, m.ends(part, at))
		}
		return out
	case '[':
		return union([]int{at}, m.ends(n.of[0], at))
	case '{':
		out, last := []int{at}, []int{at}
		for len(last) > 0 {
			var fresh []int
			for _, end := range m.each(n.of[0], last) {
				if len(union(out, []int{end})) > len(out) {
					out, fresh = append(out, end), append(fresh, end)
				}
			}
			last = fresh
		}
		return out
	case 'n':
		return m.rule(n.text, at)
	}
	if at < len(m.toks) && m.toks[at] == n.text { // a literal
		return []int{at + 1}
	}
	return nil
}

func (m *matcher) each(n node, places []int) (out []int) {
	for _, at := range places {
		out = union(out, m.ends(n, at))
	}
	return out
}

func union(a, b []int) []int {
	for _, v := range b {
		found := false
		for _, w := range a {
			found = found || v == w
		}
		if !found {
			a = append(a, v)
		}
	}
	return a
}

func (m *matcher) rule(name string, at int) []int {
	key := fmt.Sprint(name, at)
	if ends, ok := m.memo[key]; ok {
		return ends
	}
	var ends []int
	switch {
	case !isToken(name):
		ends = m.ends(m.g.rules[name], at)
	case at < len(m.toks) && m.g.isWord(name, m.toks[at]):
		ends = []int{at + 1}
	}
	m.memo[key] = ends
	return ends
}

// isWord tells whether a token is of a rule in upper case.
func (g *grammar) isWord(name, tok string) bool {
	switch name {
	case "NEWLINE":
		return tok == "\n"
	case "TEXT":
		return tok[0] == '"'
	case "EXPRESSION":
		return len(tok) > 1 && tok[0] == '/' && tok[len(tok)-1] == '/'
	case "WORD":
		return tok[0] != '"' && !strings.Contains("\n{}(),=<>!", tok[:1])
	case "IFNAME":
		return g.isWord("WORD", tok) && !syntax.IsKeyword(tok)
	case "FIELD":
		return packet.FieldBits(tok) > 0
	case "EVENTFIELD":
		if tok == "not" {
			return false
		}
	case "NAME", "TYPES", "TYPE":
		if syntax.IsKeyword(tok) {
			return false
		}
	}
	return g.pattern(name).MatchString(tok)
}

var patterns = map[string]*regexp.Regexp{}

// pattern is a rule in upper case as a regular expression.
func (g *grammar) pattern(name string) *regexp.Regexp {
	if patterns[name] == nil {
		patterns[name] = regexp.MustCompile("^(?:" + g.expression(g.rules[name]) + ")$")
	}
	return patterns[name]
}

func (g *grammar) expression(n node) string {
	var parts []string
	for _, part := range n.of {
		parts = append(parts, g.expression(part))
	}
	switch n.kind {
	case 's':
		return strings.Join(parts, "")
	case '|':
		return "(?:" + strings.Join(parts, "|") + ")"
	case '[':
		return "(?:" + parts[0] + ")?"
	case '{':
		return "(?:" + parts[0] + ")*"
	case '.':
		return "[" + n.text[:1] + "-" + n.text[1:] + "]"
	case 'n':
		return g.expression(g.rules[n.text])
	case 'w': // IPV6
		return "[0-9a-fA-F]*:[0-9a-fA-F:.]*"
	}
	return regexp.QuoteMeta(n.text)
}

// make draws tokens from a node.
func (g *grammar) make(rng *rand.Rand, n node) (out []string) {
	switch n.kind {
	case 's':
		for _, part := range n.of {
			out = append(out, g.make(rng, part)...)
		}
	case '|':
		return g.make(rng, n.of[rng.IntN(len(n.of))])
	case '[', '{':
		for range rng.IntN(2 + int(n.kind-'[')/16) { // [ is 0x5b, { is 0x7b
			out = append(out, g.make(rng, n.of[0])...)
		}
	case '.':
		return []string{string(n.text[0] + byte(rng.IntN(int(n.text[1]-n.text[0])+1)))}
	case 'n':
		return g.makeRule(rng, n.text)
	case 'l':
		return []string{n.text}
	}
	return out
}

func (g *grammar) makeRule(rng *rand.Rand, name string) []string {
	if !isToken(name) {
		for {
			out := g.make(rng, g.rules[name])
			if name != "dynamic" || dynamicSetsAreWhole(out) {
				return out
			}
		}
	}
	switch name {
	case "NEWLINE":
		return []string{"\n"}
	case "TEXT":
		return []string{`"some text"`}
	case "EXPRESSION":
		return []string{`/some [a-z]+\/x/`}
	case "WORD":
		return []string{"eth0"}
	case "IFNAME":
		return []string{"wg*"}
	case "FIELD":
		words := strings.Fields(ast.FieldWords)
		return []string{words[rng.IntN(len(words))]}
	case "IPV6":
		var a [16]byte
		for i := range a {
			a[i] = byte(rng.IntN(256) * rng.IntN(2))
		}
		return []string{netip.AddrFrom16(a).String()}
	}
	for {
		word := strings.Join(g.make(rng, g.rules[name]), "")
		if !syntax.IsKeyword(word) || g.isWord(name, word) {
			return []string{word}
		}
	}
}
