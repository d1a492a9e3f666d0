package oracle

import (
	"regexp"
	"strings"

	"levee/internal/lang/policy"
)

// finders search for what a term asks for by package regexp, which knows nothing of the automata
// that programs run.
func finders(p *policy.Pattern) (all []*regexp.Regexp) {
	if p == nil {
		return nil
	}
	for _, it := range p.Items {
		expr := it.Expression
		if it.Text != nil {
			expr = regexp.QuoteMeta(characters(it.Text))
		}
		if p.AnyCase {
			expr = inAnyCase(expr, it.Text != nil)
		}
		all = append(all, regexp.MustCompile(expr))
	}
	return all
}

// inAnyCase finds letters in either case: of a text those of ASCII, of which its bytes may be.
func inAnyCase(expr string, text bool) string {
	if !text {
		return "(?i)" + expr
	}
	var b strings.Builder
	for _, c := range expr {
		if l := c | 0x20; l >= 'a' && l <= 'z' {
			b.WriteString("[" + string(l) + string(l&^0x20) + "]")
		} else {
			b.WriteRune(c)
		}
	}
	return b.String()
}

// characters returns bytes as package regexp reads them: each is the character of its number.
func characters(b []byte) string {
	var s strings.Builder
	for _, c := range b {
		s.WriteRune(rune(c))
	}
	return s.String()
}

// finds tells whether a payload contains what the term asks for.
func (t *term) finds(payload []byte) bool {
	in := characters(payload)
	for _, f := range t.find {
		if f.MatchString(in) {
			return true
		}
	}
	return false
}
