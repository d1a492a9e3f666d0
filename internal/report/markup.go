package report

import (
	"fmt"
	"html"
	"strings"
)

// markup is an SVG document while it is written: of what is no chart, a flame graph and the screen
// of a terminal. It asks no network for anything.
type markup struct{ strings.Builder }

// newMarkup begins a document of so many pixels on a background, with a title for those who cannot
// see it. attributes are further ones of the document.
func newMarkup(width float64, height int, title, background, attributes string) *markup {
	m := new(markup)
	m.addf(`<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%d" viewBox="0 0 %[1]f %[2]d"%s>`+"\n", width, height, attributes)
	m.addf("<title>%s</title>\n<rect width=\"100%%\" height=\"100%%\" %s/>\n",
		html.EscapeString(title), background)
	return m
}

// addf appends markup.
func (m *markup) addf(format string, args ...any) { fmt.Fprintf(m, format, args...) }

// text appends words at a place; attributes begin with a blank, or are empty.
func (m *markup) text(x, y float64, attributes, words string) {
	m.addf(`<text x="%.2f" y="%.0f"%s>%s</text>`, x, y, attributes, html.EscapeString(words))
}

// end ends the document.
func (m *markup) end() []byte {
	m.WriteString("</svg>\n")
	return []byte(m.String())
}
