package generation

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/store"
)

// RunStamp changes when policies do: descriptions are replaced by rename, which changes the time of
// their directory.
func RunStamp() (string, error) {
	dir, err := store.Directory()
	if err != nil {
		return "", err
	}
	s := &store.Store{Dir: dir}
	var out strings.Builder
	note := func(path string) error {
		info, err := os.Stat(path)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("look at the runtime directory: %w", err)
		}
		fmt.Fprintf(&out, "%s %d\n", path, info.ModTime().UnixNano())
		return nil
	}
	if err := note(s.State()); err != nil {
		return "", err
	}
	entries, err := os.ReadDir(s.State())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("list the runtime directory: %w", err)
	}
	for _, e := range entries {
		if err := note(s.State(e.Name())); err != nil {
			return "", err
		}
	}
	return out.String(), nil
}

// readAgain is the number of times that a reader looks again because a policy or a set was replaced
// meanwhile.
const readAgain = 50

// Steady runs look until it has found everything, and no policy was replaced meanwhile: readers
// take no lock.
func Steady(look func() error) error {
	for again := 0; ; again++ {
		before, err := RunStamp()
		if err != nil {
			return err
		}
		failed := look()
		after, err := RunStamp()
		if err != nil {
			return err
		}
		moved := before != after || errors.Is(failed, fs.ErrNotExist)
		if !moved || again == readAgain {
			return failed
		}
	}
}

// ReadEach visits what is in force in this network namespace, or in all.
func ReadEach(s *store.Store, all bool, visit func(*attach.Attachment) error) error {
	netns, err := attach.NetnsCookie()
	if err != nil {
		return err
	}
	keys, err := s.Keys()
	if err != nil {
		return err
	}
	for _, key := range keys {
		a, err := attach.Open(s, key)
		if err != nil {
			return err
		}
		if g := a.Current(); g == nil || !all && g.Netns != netns {
			continue
		}
		if err := visit(a); err != nil {
			return err
		}
	}
	return nil
}
