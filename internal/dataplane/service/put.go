package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/loader"
	"levee/internal/dataplane/sets"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/filter/plan"
	"levee/internal/filter/state"
	"levee/internal/kernel"
	"levee/internal/lang/diag"
	"levee/internal/lang/policy"
	"levee/internal/lang/setfile"
	"levee/internal/packet"
)

// Modes of policies of services, as status shows them.
const (
	CGroup store.Mode = "cgroup"
	Socket store.Mode = "socket"
)

// Options say whose policy is put in force, and where.
type Options struct {
	Name string // of the service, as status and commands show it
	// CGroup is the directory of its cgroup in a cgroup v2 hierarchy. "": the policy is a filter of
	// sockets, which members of the group Group may attach to their own.
	CGroup string
	Group  int

	PolicyPath string         // for status; its base name is in every rule's "edge.levee:14"
	Source     []byte         // the policy's text
	Files      []setfile.File // what its set files held
}

func (o *Options) mode() store.Mode {
	if o.CGroup == "" {
		return Socket
	}
	return CGroup
}

// Report says what Put did.
type Report struct {
	Name       string `json:"service"`
	CGroup     string `json:"cgroup,omitempty"`
	Filter     string `json:"filter,omitempty"` // the pin that sockets take it from
	Generation int    `json:"generation"`
	Replaced   string `json:"replaced,omitempty"` // the policy before
	Program    uint32 `json:"program"`            // id
	Again      bool   `json:"again"`              // the same policy as before: nothing was loaded
}

// Put puts a policy into force for what a service receives and sends. When it returns without an
// error, the policy judges each packet from then on; with an error, the former one does. Each
// direction is replaced in one step.
//
// A policy that the service has already is attached as it is, with all that it has counted and
// remembers. Errors of the machine match kernel.ErrRefused; errors of compile are returned as they
// are.
func Put(ctx context.Context, o Options, compile func(codegen.Target) (*codegen.Program, error)) (
	rep *Report, err error) {
	var c *group
	if o.mode() == CGroup { // here: what is kept of policies may be seen from elsewhere
		if c, err = openCGroup(o.CGroup); err != nil {
			return nil, err
		}
		defer c.close()
	}
	err = store.TransactServices(ctx, func(s *store.Store) error {
		p := &putting{Store: s, Options: o, compile: compile, key: store.ServiceKey(o.Name),
			group: c}
		rep, err = p.put()
		p.writers.Close() // does nothing for nil but return an error
		return err
	})
	return rep, err
}

// putting is one Put on its way.
type putting struct {
	*store.Store
	Options
	compile func(codegen.Target) (*codegen.Program, error)
	key     string
	group   *group // nil: a filter of sockets
	at      *attach.Attachment
	before  *store.Description // nil: the service has no policy yet
	next    *store.Description // staged; before where that goes on
	writers *os.File           // keeps writers of dynamic sets out until it is closed
}

func (p *putting) put() (_ *Report, err error) {
	if p.at, err = generation.OpenService(p.Store, p.key); err != nil {
		return nil, err
	}
	p.before = p.at.Current()
	if p.before != nil {
		if p.before.Mode != p.mode() {
			return nil, fmt.Errorf("%s has a policy of another kind, at its %s: levee wrap "+
				"remove %[1]s takes it away", p.Name, p.before.Mode)
		}
		if err := generation.CleanService(p.Store, p.at); err != nil { // of a killed command
			return nil, err
		}
	}
	again := p.goesOn()
	p.next = p.before
	if !again {
		if err := p.stage(); err != nil {
			return nil, errors.Join(err, p.unstage())
		}
	}
	if err := p.swap(); err != nil {
		if !again {
			err = errors.Join(err, p.unstage())
		}
		return nil, err
	}
	rep := &Report{Name: p.Name, CGroup: p.CGroup, Generation: p.next.Generation,
		Program: p.next.Program, Again: again}
	if p.mode() == Socket {
		rep.Filter = filterPath(p.Store, p.key)
	}
	if again {
		return rep, nil
	}
	if p.before != nil {
		rep.Replaced = p.before.Policy
	}
	p.at.Generations[p.next.Generation], p.at.Program = p.next, p.next.Program
	return rep, generation.CleanService(p.Store, p.at)
}

// goesOn reports whether the policy is the one that the service has.
func (p *putting) goesOn() bool {
	g := p.before
	if g == nil || g.Hash != generation.HashOf(p.Source) || g.Policy != p.PolicyPath {
		return false
	}
	var sums []store.FileSum
	for _, f := range p.Files {
		if f.Sum != "" {
			sums = append(sums, store.FileSum{Path: f.Path, Sum: f.Sum})
		}
	}
	return slices.Equal(sums, g.SetFiles)
}

// targetOf returns the target for which policies are compiled.
func targetOf(mode store.Mode) (t codegen.Target, err error) {
	t = codegen.Target{Hook: plan.CGroup, Link: packet.L3, CPUs: ebpf.MustPossibleCPU()}
	if mode == Socket {
		t.Hook = plan.Socket
	}
	if _, t.HZ, err = kernel.Jiffies(); err != nil {
		return t, err
	}
	t.Memory, err = kernel.Memory()
	return t, err
}

// stage compiles, loads, pins and describes the policy. Nothing runs it yet.
func (p *putting) stage() error {
	t, err := targetOf(p.mode())
	if err != nil {
		return err
	}
	t.Names = p.Secret()
	if err := p.Step("compile"); err != nil {
		return err
	}
	prog, err := p.compile(t)
	if err != nil {
		return err
	}
	if err := errors.Join(p.Mount(), letPass(p.Store)); err != nil {
		return err
	}
	if prog.HoldsDigests() {
		if err := p.KeepSecret(t.Names); err != nil {
			return err
		}
	}
	if p.writers, err = p.Exclude(p.key, len(prog.Dynamic) > 0); err != nil {
		return err
	}
	if err := p.Step("load"); err != nil {
		return err
	}
	l, err := p.load(prog)
	if err != nil {
		return err
	}
	defer l.Close()
	p.next = p.describe(prog)
	if p.next.Info, err = inspect.ProgramInfo(l.Prog); err != nil {
		return err
	}
	p.next.Program = p.next.Info.ID
	if err := p.pin(l); err != nil {
		return err
	}
	if err := p.Step("describe"); err != nil {
		return err
	}
	if len(p.Files) > 0 {
		err := store.WriteSecret(p.FilesPath(p.key, p.next.Generation), p.Files)
		if err != nil {
			return err
		}
	}
	return store.WriteJSON(p.DescriptionPath(p.key, p.next.Generation), p.next)
}

// load loads a program over the memories of the policy before that go on in it: maps that hold the
// same in the same shape, and sets of a name and type. Memories of another shape begin anew;
// entries of sets go on.
func (p *putting) load(prog *codegen.Program) (*loader.Loaded, error) {
	replace := map[string]*ebpf.Map{}
	copied := map[*policy.Set]sets.Place{}
	var opened []*ebpf.Map
	defer func() {
		for _, m := range opened {
			m.Close()
		}
	}()
	open := func(name string) (*ebpf.Map, error) {
		m, err := p.OpenPinned(p.key, p.before.Generation, name)
		if m != nil {
			opened = append(opened, m)
		}
		return m, err
	}
	if g := p.before; g != nil {
		for _, old := range g.Maps {
			i := slices.IndexFunc(prog.Maps, func(m codegen.MapUse) bool {
				return m.Holds == old.Holds && m.Lifetime.Continues()
			})
			if i < 0 || old.Holds.What == codegen.DynamicSet ||
				old.Holds.What == codegen.DynamicSets {
				continue
			}
			m, err := open(old.Name)
			if err != nil {
				return nil, err
			}
			if name := prog.Maps[i].Name; m != nil && prog.Spec.Maps[name].Compatible(m) == nil {
				replace[name] = m
			}
		}
		for _, ps := range prog.Dynamic {
			has := func(info store.SetInfo) bool {
				return info.Name == ps.Name && info.EntryType() == ps.Type
			}
			if !slices.ContainsFunc(g.Sets, has) {
				continue
			}
			from, err := sets.OpenPlace(p.Store, p.key, g, ps.Name)
			if err != nil {
				return nil, err
			}
			if from.Outer == nil {
				continue
			}
			opened = append(opened, from.Outer)
			copied[ps] = from
		}
	}
	l, err := loader.Load(prog, replace, nil)
	if err != nil {
		return nil, err
	}
	for ps, from := range copied {
		if err := sets.CopySet(ps, from, l.Place(prog, ps.Name)); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	if err := settle(l); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// settle tells memories that have to know what is older that nothing is: a service begins behind
// its policy, and of one that ran before the kernel has the sockets.
func settle(l *loader.Loaded) error {
	for name, m := range l.Began {
		i := slices.IndexFunc(l.Ledger, func(u codegen.MapUse) bool { return u.Name == name })
		row := state.Of(l.Ledger[i].Holds.What)
		memory, err := store.MapMemory(m, row.Head)
		if err != nil {
			return err
		}
		row.Older.Settle(memory, 0)
		if err := unmap(memory); err != nil {
			return err
		}
	}
	return nil
}

// describe describes the generation, under a number that no generation had before.
func (p *putting) describe(prog *codegen.Program) *store.Description {
	d := &store.Description{
		Generation: 1, Dev: store.Service(p.Name), Link: packet.L3, Mode: p.mode(),
		Policy: p.PolicyPath, Hash: generation.HashOf(p.Source), Source: p.Source,
		Since: time.Now(), RowBytes: prog.RowBytes, Spared: prog.Spared,
		Slots:  attach.DescribeSlots(prog.Slots, diag.Base(p.PolicyPath)),
		Limits: loader.DescribeLimits(prog), Places: sets.PinnedPlaces(prog),
		Reason: "the service's " + string(p.mode()),
	}
	for n := range p.at.Generations {
		d.Generation = max(d.Generation, n+1)
	}
	for _, n := range p.at.Carried.Folded {
		d.Generation = max(d.Generation, n+1)
	}
	for _, f := range p.Files {
		if f.Sum != "" {
			d.SetFiles = append(d.SetFiles, store.FileSum{Path: f.Path, Sum: f.Sum})
		}
	}
	for _, set := range prog.Dynamic {
		d.Sets = append(d.Sets, store.SetInfo{Name: set.Name, Max: set.Max, Lease: set.Lease,
			RollUp: set.RollUp, Type: store.TypeName(set.Type)})
	}
	for _, m := range prog.Maps {
		if m.Lifetime.IsPinned() {
			d.Maps = append(d.Maps, m)
		}
	}
	return d
}

// pin keeps all that a later command opens: programs, maps and the memories of sets.
func (p *putting) pin(l *loader.Loaded) error {
	if err := p.Step("pin"); err != nil {
		return err
	}
	dir := p.Pins(p.key, p.next.Generation)
	if err := os.RemoveAll(dir); err != nil { // of a killed command
		return kernel.Refuse(err, "remove the pins of a killed command")
	}
	if err := store.MakeDirs(dir); err != nil {
		return kernel.Refuse(err, "create the directory of pins")
	}
	writable := store.ReadersWrite()
	err := store.PinFile(l.Prog, filepath.Join(dir, store.PinProg), store.SecretMode)
	if err != nil {
		return err
	}
	for _, m := range p.next.Maps {
		err := store.PinFile(l.Maps[m.Name], filepath.Join(dir, m.Name),
			store.PinMode(m.Holds.What, writable))
		if err != nil {
			return err
		}
	}
	for name, m := range l.Memories {
		mode := store.PinMode(codegen.DynamicSet, writable)
		if err := (sets.Place{Name: name, Pins: dir}).PinAs(sets.PinMemory, m, mode); err != nil {
			return err
		}
	}
	if len(l.Others) == 0 {
		return nil
	}
	beside := filepath.Join(dir, store.PinLeave)
	if err := store.MakeDirs(beside); err != nil {
		return kernel.Refuse(err, "create the directory of programs at egress")
	}
	for name, other := range l.Others {
		if err := store.PinFile(other, filepath.Join(beside, name), store.SecretMode); err != nil {
			return err
		}
	}
	return nil
}

// unstage removes a generation that has not taken over.
func (p *putting) unstage() error {
	if p.next == nil || p.next == p.before {
		if p.before != nil {
			return nil
		}
		return errors.Join(os.RemoveAll(p.State(p.key)), os.RemoveAll(p.BPF(p.key)))
	}
	n := p.next.Generation
	paths := []string{p.DescriptionPath(p.key, n), p.FilesPath(p.key, n), p.Pins(p.key, n)}
	if p.before == nil {
		paths = []string{p.State(p.key), p.BPF(p.key)}
	}
	var errs []error
	for _, path := range paths {
		errs = append(errs, os.RemoveAll(path))
	}
	return errors.Join(errs...)
}
