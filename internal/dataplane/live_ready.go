package dataplane

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/store"
	"levee/internal/kernel"
)

// LiveReady tells whether this process could put live rules into force on an interface, as far as
// that is known without doing it: whether it may lock, make a map, pin it, and describe a
// generation. A service whose sandbox is too narrow is found out before there is a flood. What it
// makes it takes away; what is left by one that was killed is a generation without a description,
// which the next command removes.
func LiveReady(ctx context.Context, dev string) error {
	return generation.TransactOn(ctx, dev, func(s *store.Store, a *attach.Attachment) (err error) {
		if err := s.Mount(); err != nil {
			return err
		}
		n := 1
		for have := range a.Generations {
			n = max(n, have+1)
		}
		dir, file := s.Pins(a.Key, n), s.FilesPath(a.Key, n)
		defer func() { err = errors.Join(err, os.RemoveAll(dir), os.RemoveAll(file)) }()
		if err := store.MakeDirs(dir); err != nil {
			return kernel.Refuse(err, "create the directory of pins")
		}
		m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "ready", Type: ebpf.Array, KeySize: 4,
			ValueSize: 8, MaxEntries: 1})
		if err != nil {
			return kernel.Refuse(err, "make a map")
		}
		defer m.Close()
		if err := store.PinFile(m, filepath.Join(dir, "ready"), store.FileMode); err != nil {
			return err
		}
		return store.WriteJSON(file, struct{}{})
	})
}
