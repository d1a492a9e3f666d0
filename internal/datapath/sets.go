package datapath

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/cilium/ebpf"

	"levee/internal/codegen"
	"levee/internal/kernel"
)

// load loads a program over the dynamic sets of the policy in force: a set of the same name and
// shape stays the map it is, so that no entry is lost; of another shape, it gets the old entries.
func (u *up) load(p *codegen.Program) (*loaded, error) {
	if err := step("load"); err != nil {
		return nil, err
	}
	kept := map[string]*ebpf.Map{}
	defer func() {
		for _, m := range kept {
			m.Close()
		}
	}()
	for _, set := range p.Dynamic {
		name := codegen.SetPrefix + set.Name
		m, err := u.openSet(name)
		if err != nil {
			return nil, err
		}
		if m == nil {
			continue
		}
		if p.Spec.Maps[name].Compatible(m) == nil {
			kept[name] = m
			continue
		}
		defer m.Close()
	}
	return load(p, kept)
}

// openSet opens a dynamic set of the policy in force, nil if it has none of that name.
func (u *up) openSet(name string) (*ebpf.Map, error) {
	if u.at == nil {
		return nil, nil
	}
	m, err := ebpf.LoadPinnedMap(filepath.Join(u.pins(u.at.key, u.at.current().Generation), name), nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, kernel.Refuse(err, "open dynamic set %s", name)
	}
	return m, nil
}
