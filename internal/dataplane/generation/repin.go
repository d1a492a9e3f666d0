package generation

import (
	"errors"
	"io/fs"
	"os"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/store"
	"levee/internal/kernel"
)

// dropComing takes away what a killed command has attached to take the place of a program that
// judges still; gone are generations that judge nothing.
func dropComing(s *store.Store, a *attach.Attachment, gone []*store.Description) error {
	next := s.BPF(a.Key, pinComing)
	if _, err := os.Stat(next); err == nil {
		if err := attach.RemoveLink(next); err != nil {
			return err
		}
	}
	if _, ok := a.Link.(*attach.Filter); ok {
		return nil
	}
	for _, g := range gone {
		if g.Mode != store.Clsact || g.ShadowOf != 0 {
			continue
		}
		f, err := attach.EgressFilterOf(g, 0)
		if err != nil {
			return kernel.Refuse(err, "look for the tc filter on %s", g.Dev)
		}
		program, _, err := f.Running()
		if err == nil && (program == g.Program || attach.Runs(g, program)) {
			err = f.Detach()
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return kernel.Refuse(err, "remove the tc filter on %s", g.Dev)
		}
	}
	return nil
}

// pinComing is the pin of a link until it takes the place of another.
const pinComing = store.PinLink + "_new"

// Repin has a link be the one that is kept of an attachment.
func Repin(s *store.Store, key string, l attach.Hold) error {
	to, next := s.BPF(key, store.PinLink), s.BPF(key, pinComing)
	if _, ok := l.(*attach.Filter); ok { // it keeps itself, and is found where there is no link
		if err := l.Pin(""); err != nil {
			return err
		}
		if err := os.Remove(to); err != nil {
			return kernel.Refuse(err, "let the link of attachment %s go", key)
		}
		return nil
	}
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return kernel.Refuse(err, "remove the pin of a link")
	}
	if err := l.Pin(next); err != nil {
		return kernel.Refuse(err, "pin the link of attachment %s", key)
	}
	if err := os.Rename(next, to); err != nil {
		return kernel.Refuse(err, "pin the link of attachment %s", key)
	}
	return nil
}
