// Package docs holds the pages that an installed levee can show: `levee help language`.
package docs

import (
	"embed"
	"strings"
)

//go:embed agent.md api.md dashboard.md devices.md install.md json.md language.md measuring.md
//go:embed metrics.md operations.md propose.md report.md templates.md troubleshooting.md
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
