package report

import "fmt"

// Sizes of a terminal's picture in pixels.
const (
	charWidth    = 8.4 // of the common monospaced fonts at fontSize
	fontSize     = 14
	lineHeight   = 20
	terminalEdge = 16
)

// Terminal draws lines of a terminal as SVG, light on dark, with fonts that every system has. The
// first and the last line stand out.
func Terminal(lines []string) []byte {
	width := 0.0
	for _, l := range lines {
		width = max(width, float64(len([]rune(l)))*charWidth)
	}
	m := newMarkup(width+2*terminalEdge, len(lines)*lineHeight+2*terminalEdge, lines[0],
		`rx="6" fill="#16181d"`, "")
	m.addf(`<g fill="#d8dce3" font-size="%d" font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace" xml:space="preserve" style="white-space:pre">`+"\n", fontSize)
	for i, l := range lines {
		if l == "" {
			continue
		}
		attributes := fmt.Sprintf(` textLength="%.1f" lengthAdjust="spacing"`,
			float64(len([]rune(l)))*charWidth)
		if i == 0 || i == len(lines)-1 {
			attributes += ` font-weight="bold" fill="#7fd1a6"`
		}
		m.text(terminalEdge, float64(terminalEdge+i*lineHeight+fontSize), attributes, l)
		m.addf("\n")
	}
	m.addf("</g>\n")
	return m.end()
}
