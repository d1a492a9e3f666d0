// Package docs holds the pages that an installed levee can show: `levee help language`.
package docs

import (
	"embed"
	"io/fs"
	"path"
	"strings"
)

// Pages for those who run levee; ARCHITECTURE.md is for who changes it.
//
//go:embed tutorial/*.md guides/*.md reference/*.md explanation/[a-z]*.md
var files embed.FS

// parts are the folders of pages, in the order of look-ups by name.
var parts = []string{"tutorial", "guides", "reference", "explanation"}

// languagePages are the reference of the language, in the order of its first page.
var languagePages = []string{"language", "matches", "sets", "limits", "connections", "proofs",
	"sources", "decoding", "grammar"}

// Language returns the reference of the language, its pages one behind the other.
func Language() string {
	var text strings.Builder
	for _, name := range languagePages {
		page, _ := Page(name) // a test holds that it is there
		text.WriteString(page)
	}
	return text.String()
}

// Topics returns the names of the pages, by part and in order. A page whose name an earlier part
// has too is named with its folder: reference/agent.
func Topics() []string {
	var all []string
	for _, part := range parts {
		entries, _ := files.ReadDir(part) // of an embedded directory: it is there
		for _, e := range entries {
			name := strings.TrimSuffix(e.Name(), ".md")
			if found, _ := find(name); found != path.Join(part, e.Name()) {
				name = path.Join(part, name)
			}
			all = append(all, name)
		}
	}
	return all
}

// Page returns the text of a topic, in Markdown; false where there is none.
func Page(topic string) (string, bool) {
	file, ok := find(topic)
	if !ok {
		return "", false
	}
	text, err := files.ReadFile(file)
	return string(text), err == nil
}

// find returns the file of a topic, which has the name of its folder in front or not.
func find(topic string) (string, bool) {
	for _, part := range append([]string{"."}, parts...) {
		file := path.Join(part, topic+".md")
		if _, err := fs.Stat(files, file); err == nil {
			return file, true
		}
	}
	return "", false
}
