package lsp

import (
	"regexp"
	"strings"
	"sync"

	"levee/docs"
	"levee/internal/lang/syntax"
)

// meaning returns what the language reference says about a word, "" if nothing.
func meaning(w string) string { return meanings()[w] }

// meanings are the rows of the reference's tables, by the words of their first cells. Rows about
// the same word stand below one another.
var meanings = sync.OnceValue(func() map[string]string {
	all := map[string]string{}
	known := map[string]bool{}
	for _, w := range syntax.Words() {
		known[w] = true
	}
	codes := regexp.MustCompile("`([^`]+)`")
	links := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	for line := range strings.Lines(docs.Language()) {
		cells := strings.Split(strings.ReplaceAll(strings.TrimSpace(line), `\|`, "\x00"), "|")
		if len(cells) < 4 {
			continue
		}
		row := strings.TrimSpace(cells[1]) + ": " + strings.TrimSpace(cells[2])
		row = links.ReplaceAllString(strings.ReplaceAll(row, "\x00", "|"), "$1")
		said := map[string]bool{}
		for _, m := range codes.FindAllStringSubmatch(cells[1], -1) {
			for _, w := range strings.Fields(m[1]) {
				w = strings.TrimSuffix(w, "(")
				if !known[w] || said[w] {
					continue
				}
				said[w] = true
				if all[w] != "" {
					all[w] += "\n\n"
				}
				all[w] += row
			}
		}
	}
	return all
})
