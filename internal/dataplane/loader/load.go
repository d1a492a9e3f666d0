package loader

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"

	"levee/internal/filter/codegen"
	"levee/internal/filter/cookie"
	"levee/internal/host/local"
	"levee/internal/kernel"
)

// Loaded is a policy's programs with all their maps in the kernel, attached to nothing yet.
type Loaded struct {
	Prog   *ebpf.Program // the one that judges; nil where the variant with a deadline alone does
	Others map[string]*ebpf.Program
	Maps   map[string]*ebpf.Map
	// of dynamic sets by name, as they were when the program was loaded
	Memories map[string]*ebpf.Map
	Ledger   []codegen.MapUse // of maps
	// Began are the memories, by name, that are new and have to learn what is older.
	Began map[string]*ebpf.Map
}

// Holding returns the program's map with given contents, nil if it has none. Programs have one map
// of these contents at most.
func (l *Loaded) Holding(what codegen.Contents) *ebpf.Map {
	name, _ := codegen.MapOf(l.Ledger, what)
	return l.Maps[name]
}

// Load puts a compiled program and its maps into the kernel. Maps named in replace are used instead
// of new ones, and memories, by the names of dynamic sets, where a set would have a new one; the
// caller keeps its handles. Nothing is left in the kernel on an error.
func Load(p *codegen.Program, replace, memories map[string]*ebpf.Map) (*Loaded, error) {
	return LoadSpec(p, WithoutBTF(p.Spec), replace, memories)
}

// LoadSpec is load of a spec that may lack programs of the compiled one.
func LoadSpec(p *codegen.Program, spec *ebpf.CollectionSpec, replace,
	memories map[string]*ebpf.Map) (*Loaded, error) {
	if err := kernel.Privileged(); err != nil {
		return nil, err
	}
	if err := errors.Join(checkLinks(p), checkLedger(p)); err != nil {
		return nil, err
	}
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: replace})
	if err != nil {
		return nil, kernel.LoadError("load program", err)
	}
	l := &Loaded{Prog: c.DetachProgram(p.Judge()), Others: c.Programs, Maps: c.Maps,
		Memories: map[string]*ebpf.Map{}, Ledger: p.Maps}
	c.Maps, c.Programs = nil, nil
	c.Close()
	if err := seedState(l, replace); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	if err := placeSets(p, l, replace, memories); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// checkLinks returns an error if a policy does not say of each of its programs, once, where it is
// attached.
func checkLinks(p *codegen.Program) error {
	listed := map[string]bool{}
	for _, l := range p.Links {
		if p.Spec.Programs[l.Program] == nil || listed[l.Program] {
			return fmt.Errorf("load program: program %q is linked twice, or there is none",
				l.Program)
		}
		listed[l.Program] = true
	}
	if len(listed) != len(p.Spec.Programs) {
		return fmt.Errorf("load program: %d of %d programs are linked", len(listed),
			len(p.Spec.Programs))
	}
	if p.Judge() == "" {
		return errors.New("load program: not exactly one program judges")
	}
	return nil
}

// checkLedger returns an error if a program does not say of each of its maps, once, what it is.
func checkLedger(p *codegen.Program) error {
	listed := map[string]bool{}
	for _, m := range p.Maps {
		if p.Spec.Maps[m.Name] == nil || listed[m.Name] {
			return fmt.Errorf("load program: its ledger has map %q twice, or it has no such map",
				m.Name)
		}
		listed[m.Name] = true
	}
	for name := range p.Spec.Maps {
		if !listed[name] {
			return fmt.Errorf("load program: map %q is not in its ledger", name)
		}
	}
	return nil
}

func (l *Loaded) Close() error {
	var errs []error
	for _, all := range []map[string]*ebpf.Map{l.Maps, l.Memories} {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			errs = append(errs, all[name].Close())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(l.Others)) {
		errs = append(errs, l.Others[name].Close())
	}
	return errors.Join(append(errs, l.Prog.Close())...)
}

// WithoutBTF copies a spec and removes the type information of its maps: a kernel built without BTF
// then loads the same maps as any other. What the compiler says of its functions stays; it refers
// to nothing of the kernel's own types.
func WithoutBTF(in *ebpf.CollectionSpec) *ebpf.CollectionSpec {
	spec := in.Copy()
	spec.Types = nil
	spec.Variables = nil
	for _, m := range spec.Maps {
		m.Key, m.Value = nil, nil
	}
	return spec
}

func PutOwn(m *ebpf.Map, is *local.Own) error {
	o := cookie.Own{MACs: is.MACs, None: is.None}
	if err := m.Put(uint32(0), o.Bytes()); err != nil {
		return kernel.Refuse(err, "tell cookies whom a SYN has to be for")
	}
	return nil
}
