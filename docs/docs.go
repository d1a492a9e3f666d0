// Package docs holds the pages that an installed levee can show: `levee help language`.
package docs

import (
	"embed"
	"strings"
)

// Pages for those who run levee; ARCHITECTURE.md is for who changes it.
//
//go:embed [a-z]*.md
var files embed.FS

// Topics are the names of the pages, in order.
func Topics() []string {
	entries, _ := files.ReadDir(".") // of an embedded directory: it is there
	var all []string
	for _, e := range entries {
		all = append(all, strings.TrimSuffix(e.Name(), ".md"))
	}
	return all
}

// Page is the text of a topic, in Markdown; false where there is none.
func Page(topic string) (string, bool) {
	text, err := files.ReadFile(topic + ".md")
	return string(text), err == nil
}
