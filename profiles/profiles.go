// Package profiles holds the profiles that levee comes with: parts of policies that a policy names
// by `use NAME`. They are in the program, so that a policy means the same from the source tree, in
// a container and where no package is installed; packages have the same files to be read.
package profiles

import (
	"embed"
	"io/fs"
	"strings"
)

//go:embed *.levee
var files embed.FS

const suffix = ".levee"

// Names returns the names of all profiles, in order.
func Names() (all []string) {
	entries, _ := files.ReadDir(".") // of an embedded directory: it is there
	for _, e := range entries {
		all = append(all, strings.TrimSuffix(e.Name(), suffix))
	}
	return all
}

// Text returns the text of a profile.
func Text(name string) ([]byte, error) { return fs.ReadFile(files, name+suffix) }
