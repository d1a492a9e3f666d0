package dashboard

import (
	"fmt"
	"io/fs"
	"strings"
	"time"

	"levee/internal/agent/kind"
)

// kindsFile is the style sheet with the colours of kinds of floods, from their table.
const kindsFile = "kinds.css"

// files are those of the page, with kindsFile.
type files struct{ fs.FS }

// Open opens a file of the page.
func (f files) Open(name string) (fs.File, error) {
	if name == kindsFile {
		return sheet{strings.NewReader(kindsSheet())}, nil
	}
	return f.FS.Open(name)
}

// kindsSheet has a variable for each kind, --kind-NAME, as the page's own has for verdicts.
func kindsSheet() string {
	var day, night strings.Builder
	for _, r := range kind.Rows {
		fmt.Fprintf(&day, " --kind-%s: %s;", r.Name, r.Colour)
		fmt.Fprintf(&night, " --kind-%s: %s;", r.Name, r.Night)
	}
	return fmt.Sprintf(":root {%s }\n@media (prefers-color-scheme: dark) { "+
		":root:not([data-theme=\"light\"]) {%s } }\n:root[data-theme=\"dark\"] {%[2]s }\n",
		day.String(), night.String())
}

// sheet is a file in memory.
type sheet struct{ *strings.Reader }

func (s sheet) Stat() (fs.FileInfo, error) { return s, nil }
func (sheet) Close() error                 { return nil }
func (sheet) Name() string                 { return kindsFile }
func (sheet) Mode() fs.FileMode            { return 0o444 }
func (sheet) ModTime() time.Time           { return time.Time{} }
func (sheet) IsDir() bool                  { return false }
func (sheet) Sys() any                     { return nil }
