package generation

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf/link"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/store"
	"levee/internal/kernel"
)

// A service has one generation, but while it is being replaced. Its programs are kept by their pins
// while the service does not run, and its cgroup with the links is gone.

// NoServiceError says that no policy is kept for a service.
type NoServiceError struct{ name string }

func (e *NoServiceError) Error() string {
	return fmt.Sprintf("levee has no policy for the service %s; `levee status` lists what there is",
		e.name)
}

// FindService returns what is kept for a service, in the runtime directory of services.
func FindService(s *store.Store, name string) (*attach.Attachment, error) {
	a, err := OpenService(s, store.ServiceKey(name))
	if err == nil && a.Current() == nil {
		err = &NoServiceError{name}
	}
	return a, err
}

// OpenService reads what is kept under a key of a service. It changes nothing. Of several
// generations the one is current that judges, or else the newest.
func OpenService(s *store.Store, key string) (*attach.Attachment, error) {
	a := &attach.Attachment{Key: key, Generations: map[int]*store.Description{}}
	err := store.ReadJSON(s.State(key, store.CarriedFile), &a.Carried)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(globQuoted(s.State(key)), "[0-9]*.json"))
	if err != nil {
		return nil, fmt.Errorf("list generations of %s: %w", key, err)
	}
	for _, file := range files {
		g := &store.Description{}
		if err := store.ReadJSON(file, g); err != nil {
			return nil, err
		}
		a.Generations[g.Generation] = g
	}
	if g := a.Last(); g != nil {
		a.Program = g.Program
	}
	if s.ReadOnly || len(a.Generations) < 2 {
		return a, nil
	}
	l, err := link.LoadPinnedLink(s.BPF(key, store.PinLink), nil)
	if err != nil {
		return a, nil // nobody judges: the newest will
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		return nil, kernel.Refuse(err, "ask the kernel about the link of %s", key)
	}
	runs := func(g *store.Description) bool { return g.Program == uint32(info.Program) }
	if slices.ContainsFunc(a.Sorted(), runs) {
		a.Program = uint32(info.Program)
	}
	return a, nil
}

// globQuoted takes the meaning from what a pattern would take for one.
func globQuoted(path string) string {
	var b []rune
	for _, r := range path {
		if slices.Contains([]rune(`*?[\`), r) {
			b = append(b, '\\')
		}
		b = append(b, r)
	}
	return string(b)
}

// EachService visits what is kept for services, in order.
func EachService(s *store.Store, visit func(*attach.Attachment) error) error {
	keys, err := s.Keys()
	if err != nil {
		return err
	}
	slices.Sort(keys)
	var errs []error
	for _, key := range keys {
		a, err := OpenService(s, key)
		if err == nil && a.Current() != nil {
			err = visit(a)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// CleanService carries over what generations have counted that judge no more, and removes them and
// what a killed command left. No program of theirs may run: the caller has given traffic to the
// current one.
func CleanService(s *store.Store, a *attach.Attachment) error {
	g := a.Current()
	if g == nil {
		return nil
	}
	var gone []*store.Description
	for _, old := range a.Sorted() {
		if old != g {
			gone = append(gone, old)
		}
	}
	if len(gone) > 0 {
		if err := s.WaitForPrograms(); err != nil {
			return err
		}
		if err := fold(s, a, gone, []*store.Description{g}); err != nil {
			return err
		}
		if err := s.Step("forget"); err != nil {
			return err
		}
		for _, old := range gone {
			for _, path := range []string{s.DescriptionPath(a.Key, old.Generation),
				s.FilesPath(a.Key, old.Generation)} {
				if err := os.RemoveAll(path); err != nil {
					return kernel.Refuse(err, "remove a replaced generation")
				}
			}
			delete(a.Generations, old.Generation)
		}
	}
	return removePins(s, a.Key, []int{g.Generation})
}
