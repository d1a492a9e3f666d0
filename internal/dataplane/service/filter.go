package service

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"levee/internal/dataplane/store"
	"levee/internal/kernel"
)

// A filter of sockets is one small program that hands each packet to the policy of the service, by
// a program array. Sockets keep the filter, locked, for as long as they live; a replace changes
// what stands in the array, for all of them in one step. Without a policy there the filter drops:
// the kernel empties the array when its last pin is gone (decision 0160).

// Names of pins beside the generations of a service.
const (
	filterPin = "filter"
	policyPin = "policy"
)

// Modes that let members of a group take a filter: they pass through directories that they may not
// list, and open it, for which BPF_OBJ_GET asks for both rights.
const (
	passMode   = 0o001
	filterMode = 0o660
)

// filterPath returns the pin of the filter of a service.
func filterPath(s *store.Store, key string) string { return s.BPF(key, filterPin) }

// FilterOf returns the path of the filter of a service by its name, whether it is there or not.
func FilterOf(name string) (string, error) {
	dir, err := store.ServicesDirectory()
	return filepath.Join(dir, "bpf", store.ServiceKey(name), filterPin), err
}

// swapFilter has the filter of the service hand packets to the staged policy.
func (p *putting) swapFilter() error {
	prog, err := p.program(p.next, side{program: store.PinProg})
	if err != nil {
		return err
	}
	defer prog.Close()
	array, err := p.policyArray()
	if err != nil {
		return err
	}
	defer array.Close()
	if err := p.Step("swap filter"); err != nil {
		return err
	}
	if err := array.Put(uint32(0), prog); err != nil { // traffic changes here
		return kernel.Refuse(err, "put the policy of %s into its filter", p.Name)
	}
	return p.share(array)
}

// policyArray opens the array of a filter, or makes one.
func (p *putting) policyArray() (*ebpf.Map, error) {
	path := p.BPF(p.key, policyPin)
	m, err := ebpf.LoadPinnedMap(path, nil)
	if !errors.Is(err, fs.ErrNotExist) {
		if err != nil {
			err = kernel.Refuse(err, "open the policy of the filter of %s", p.Name)
		}
		return m, err
	}
	if m, err = newPolicyArray(); err != nil {
		return nil, err
	}
	if err := store.PinFile(m, path, store.SecretMode); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func newPolicyArray() (*ebpf.Map, error) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "levee_policy", Type: ebpf.ProgramArray, KeySize: 4,
		ValueSize: 4, MaxEntries: 1})
	if err != nil {
		err = kernel.LoadError("create the array of a filter", err)
	}
	return m, err
}

// share pins the filter, and lets the group open it.
func (p *putting) share(array *ebpf.Map) error {
	path := filterPath(p.Store, p.key)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		filter, err := ebpf.NewProgram(entry(array))
		if err != nil {
			return kernel.LoadError("load the filter of sockets", err)
		}
		defer filter.Close()
		if err := p.Step("pin filter"); err != nil {
			return err
		}
		if err := filter.Pin(path); err != nil {
			return kernel.Refuse(err, "pin the filter of %s", p.Name)
		}
	}
	if err := os.Chown(path, 0, p.Group); err != nil {
		return kernel.Refuse(err, "give the filter of %s to its group", p.Name)
	}
	if err := os.Chmod(path, filterMode); err != nil {
		return kernel.Refuse(err, "let the group of %s open its filter", p.Name)
	}
	return letPass(p.Store)
}

// letPass has the directories above filters let everybody through, where there is a filter: to
// mount the bpffs closes them.
func letPass(s *store.Store) error {
	filters, err := filepath.Glob(s.BPF("*", filterPin))
	if err != nil || len(filters) == 0 {
		return err
	}
	dirs := []string{s.Dir, s.BPF()}
	for _, filter := range filters {
		dirs = append(dirs, filepath.Dir(filter))
	}
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err == nil {
			err = os.Chmod(dir, info.Mode()|passMode)
		}
		if err != nil {
			return kernel.Refuse(err, "let groups open their filters")
		}
	}
	return nil
}

// entry returns the filter.
func entry(array *ebpf.Map) *ebpf.ProgramSpec {
	return &ebpf.ProgramSpec{
		Name: "levee_filter", Type: ebpf.SocketFilter, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{
			asm.LoadMapPtr(asm.R2, array.FD()),
			asm.Mov.Imm(asm.R3, 0),
			asm.FnTailCall.Call(),
			asm.Mov.Imm(asm.R0, 0), // there is no policy
			asm.Return(),
		},
	}
}
