package demo

import (
	"fmt"
	"html"
	"strings"
)

// Sizes of the picture in pixels.
const (
	charWidth  = 8.4 // of the common monospaced fonts at fontSize
	fontSize   = 14
	lineHeight = 20
	margin     = 16
)

// picture draws lines of a terminal as SVG, light on dark, with fonts that every system has.
func picture(lines []string) []byte {
	width := 0
	for _, l := range lines {
		width = max(width, runes(l))
	}
	w, h := float64(width)*charWidth+2*margin, len(lines)*lineHeight+2*margin
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%d" viewBox="0 0 %[1]f %[2]d">`+"\n", w, h)
	fmt.Fprintf(&b, "<title>%s</title>\n", html.EscapeString(lines[0]))
	b.WriteString(`<rect width="100%" height="100%" rx="6" fill="#16181d"/>` + "\n")
	fmt.Fprintf(&b, `<g fill="#d8dce3" font-size="%d" font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace" xml:space="preserve" style="white-space:pre">`+"\n", fontSize)
	for i, l := range lines {
		if l == "" {
			continue
		}
		weight := ""
		if i == 0 || i == len(lines)-1 {
			weight = ` font-weight="bold" fill="#7fd1a6"`
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d" textLength="%.1f" lengthAdjust="spacing"%s>%s</text>`+"\n",
			margin, margin+i*lineHeight+fontSize, float64(runes(l))*charWidth, weight, html.EscapeString(l))
	}
	b.WriteString("</g>\n</svg>\n")
	return []byte(b.String())
}
