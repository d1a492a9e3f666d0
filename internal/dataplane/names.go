package dataplane

import (
	"path/filepath"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/store"
)

// PolicyOf returns the path of the policy whose program, by its id, runs on an interface of this
// network namespace. It returns "" when levee does not know the program, or this process may not
// look. It takes no lock and changes nothing: descriptions are replaced by rename.
func PolicyOf(dev string, program uint32) string {
	d, err := attach.FindDevice(dev)
	if err != nil {
		return ""
	}
	dir, err := store.Directory()
	if err != nil {
		return ""
	}
	s := &store.Store{Dir: dir}
	of := d.Key()
	if program == d.XDP {
		of = "*" // the interface may have been in another network namespace when the policy came
	}
	files, err := filepath.Glob(s.State(of, "[0-9]*.json"))
	if err != nil {
		return ""
	}
	for _, f := range files {
		var g store.Description
		if store.ReadJSON(f, &g) == nil && program != 0 &&
			(g.Program == program || g.Trial == program) {
			return g.Policy
		}
	}
	return ""
}

// Exists returns an error, in words, if an interface is not in this network namespace.
func Exists(dev string) error {
	_, err := attach.FindDevice(dev)
	return err
}
