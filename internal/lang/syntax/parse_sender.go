package syntax

import (
	"strings"

	"levee/internal/lang/ast"
	"levee/internal/lang/field"
)

// isSender tells whether a row is about who sends. Its words mean something where a term begins,
// and sets may have such names.
func isSender(ph *field.Phrase) bool { return ph.Field.Info().Kernel == field.Leaving }

// isSenderWord are their words.
var isSenderWord = wordSet(strings.Join(phraseWords(isSender), " "))

// isOrigin are local and forwarded.
var isOrigin = alone(field.Local)

// senders are the fields of the words that the name of a sender stands behind.
var senders = func() map[string]field.Field {
	m := map[string]field.Field{}
	for i := range field.Phrases {
		if ph := &field.Phrases[i]; ph.Form == field.FormSender {
			m[ph.Word] = ph.Field
		}
	}
	return m
}()

// sender parses a name, with quotes or bare, or a list of them.
func (p *parser) sender(t *ast.Term, word string) bool {
	p.advance()
	hint := "write a name: " + word + " postfix, or several: " + word + " { postfix, dovecot }."
	if t.Field == field.Service {
		hint = "write the unit in quotes: service \"postfix.service\"."
	}
	return p.named(t, true, word, "a name", hint)
}
