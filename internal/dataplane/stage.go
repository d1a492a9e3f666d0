package dataplane

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/loader"
	"levee/internal/dataplane/sets"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/filter/state"
	"levee/internal/kernel"
	"levee/internal/lang/diag"
)

// staged is a generation that lies ready beside the one in force.
type staged struct {
	key     string
	desc    *store.Description
	plain   *loader.Loaded // without deadline
	trial   *loader.Loaded // with, nil unless asked for; shares all maps with plain
	links   []attach.Hold  // of the programs that do not judge
	writers *os.File       // keeps writers of dynamic sets out until it is closed
	others  *os.File       // the same for sets whose entries are copied from another interface
	shadow  *staged        // beside it; nil: there is none
	live    *staged        // it with live rules, which gets the traffic; nil: there are none
	over    *up            // that stages these
	unheard error          // why nobody may hear the answers of its cookies
}

func (st *staged) Close() {
	if st.live != nil {
		st.live.Close()
	}
	if st.shadow != nil {
		st.shadow.Close()
	}
	for _, l := range st.links {
		l.Close()
	}
	if st.trial != nil {
		st.trial.Close()
	}
	if st.plain != nil {
		st.plain.Close()
	}
	st.writers.Close() // does nothing for nil but return an error
	st.others.Close()
}

// stage compiles, loads, pins and describes a generation. On an error nothing of it is left.
func (u *up) stage(t attach.Try, why string) (_ *staged, err error) {
	st := &staged{key: u.key}
	target := codegen.Target{Hook: t.Mode.Hook(), Link: u.dev.Link, Frags: t.Frags,
		Called: u.joined, CPUs: ebpf.MustPossibleCPU()}
	if _, target.HZ, err = kernel.Jiffies(); err != nil {
		return nil, err
	}
	if target.Memory, err = kernel.Memory(); err != nil {
		return nil, err
	}
	plain, err := u.compiled(target)
	if err != nil {
		return nil, err
	}
	if len(plain.Cookies) > 0 {
		st.unheard = unheard(u.dev, t.Mode, u.Mode == t.Mode)
	}
	if st.unheard != nil && u.refusesUnheard() {
		return nil, st.unheard
	}
	if err := u.unfit(t, plain); err != nil {
		return nil, err
	}
	var trial *codegen.Program
	if u.Confirm > 0 {
		target.Trial = true
		if trial, err = u.compiled(target); err != nil {
			return nil, err
		}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, u.unstage(st))
			st.Close()
		}
	}()
	if u.beneath == nil { // else that keeps them out
		if st.writers, err = u.Exclude(st.key, len(plain.Dynamic) > 0); err != nil {
			return nil, err
		}
	}
	if u.from.g != nil {
		if st.others, err = u.Exclude(u.from.key, false); err != nil {
			return nil, err
		}
	}
	if st.plain, err = u.loadOver(plain); err != nil {
		return nil, err
	}
	if err := u.prove(st.plain); err != nil {
		return nil, err
	}
	if trial != nil {
		if err := u.stageTrial(st, trial); err != nil {
			return nil, err
		}
	}
	if err := u.newDescription(st, plain, t, why); err != nil {
		return nil, err
	}
	if err := u.pin(st); err != nil {
		return nil, err
	}
	if err := u.Step("describe"); err != nil {
		return nil, err
	}
	if len(u.Files) > 0 {
		if err := store.WriteSecret(u.FilesPath(st.key, st.desc.Generation), u.Files); err != nil {
			return nil, err
		}
	}
	if err := store.WriteJSON(u.DescriptionPath(st.key, st.desc.Generation), st.desc); err != nil {
		return nil, err
	}
	if err := u.linkOthers(st, plain); err != nil {
		return nil, err
	}
	if err := u.adopt(st.desc.Maps, st.plain.Began); err != nil {
		return nil, err
	}
	if err := u.bringShadow(st, t); err != nil {
		return st, err
	}
	return st, u.bringLive(st, t)
}

// compiled compiles the policy for a target, and keeps the secret of names where it has any.
func (u *up) compiled(t codegen.Target) (*codegen.Program, error) {
	if err := u.Step("compile"); err != nil {
		return nil, err
	}
	t.Names = u.Secret()
	p, err := u.compile(t)
	if err != nil || !p.HoldsDigests() {
		return p, err
	}
	return p, u.KeepSecret(t.Names)
}

// stageTrial loads the variant with a deadline over the maps of the plain one, so that confirming
// is nothing but another link update.
func (u *up) stageTrial(st *staged, p *codegen.Program) (err error) {
	shared := map[string]*ebpf.Map{}
	for name, m := range st.plain.Maps {
		if p.Spec.Maps[name] != nil {
			shared[name] = m
		}
	}
	if st.trial, err = loader.Load(judgeOf(p), shared, nil); err != nil {
		return attach.Unable(err)
	}
	if u.fallback() == 0 {
		return nil
	}
	prog, err := u.OpenProgram(filepath.Join(u.Pins(st.key, u.fallback()), store.PinProg))
	if err != nil {
		return err
	}
	defer prog.Close()
	if err := st.trial.Holding(codegen.Previous).Put(uint32(0), prog); err != nil {
		return kernel.Refuse(err, "stage the policy to return to")
	}
	return nil
}

// newDescription describes the generation, under a number that no generation had before.
func (u *up) newDescription(st *staged, p *codegen.Program, t attach.Try, why string) (err error) {
	d := u.describeOptions(p, t, why)
	describeContents(d, p)
	if slices.ContainsFunc(p.Links, func(l codegen.Link) bool { return l.At == codegen.Egress }) {
		way, err := u.egress(t.Mode)
		if err != nil {
			return err
		}
		d.EgressFilter = way == store.Clsact
	}
	if t.Mode == store.Clsact && u.beside == nil || d.EgressFilter {
		if d.MadeQdisc, err = u.makesQdisc(); err != nil {
			return err
		}
	}
	d.Maps, d.TrialMaps = st.pinned()
	if st.trial != nil {
		if d.TrialInfo, err = inspect.ProgramInfo(st.trial.Prog); err != nil {
			return err
		}
		d.Trial = d.TrialInfo.ID
		d.Fallback, d.Program, d.Info = u.fallback(), d.Trial, d.TrialInfo
	}
	if st.plain.Prog != nil {
		if d.Info, err = inspect.ProgramInfo(st.plain.Prog); err != nil {
			return err
		}
		d.Program = d.Info.ID
	}
	if d.Generation, err = u.nextGeneration(st.key); err != nil {
		return err
	}
	st.desc = d
	return u.tellGeneration(st)
}

// describeOptions describes what the caller of Up and the device say of a generation.
func (u *up) describeOptions(p *codegen.Program, t attach.Try, why string) *store.Description {
	d := &store.Description{
		Dev: cmp.Or(u.putOn, u.Dev), Names: u.Names,
		Link: u.dev.Link, Ifindex: u.dev.Index, Netns: u.dev.Netns,
		Mode: t.Mode, Reason: why, Frags: t.Frags, Joined: u.joined,
		Asked:  u.Mode == t.Mode || u.at != nil && u.at.Current().Asked,
		Policy: u.PolicyPath, Hash: generation.HashOf(u.Source), Source: u.Source,
		Since:   time.Now(),
		Slots:   attach.DescribeSlots(p.Slots, diag.Base(u.PolicyPath)),
		Instead: u.instead,
	}
	for _, l := range u.live {
		d.Live, d.LiveOf = append(d.Live, l.Rule), append(d.LiveOf, l.Origin)
		d.LiveBefore = append(d.LiveBefore, l.Before)
	}
	for _, f := range u.Files {
		if f.Sum != "" {
			d.SetFiles = append(d.SetFiles, store.FileSum{Path: f.Path, Sum: f.Sum})
		}
	}
	if u.cause != nil {
		d.OnError = u.cause.Error()
	}
	if p.Plain {
		const plain = "the kernel takes no careful decoder: packets with tags, IP options, " +
			"extension headers " +
			"or oddities, fragments, SCTP, DCCP and UDP-Lite have the verdict of the default"
		d.OnError += "; " + plain
		u.Note("%s", plain)
	}
	return d
}

// describeContents describes what a program has: rows, sets, and the names of what it remembers.
func describeContents(d *store.Description, p *codegen.Program) {
	d.RowBytes, d.Spared = p.RowBytes, p.Spared
	for _, set := range p.Dynamic {
		d.Sets = append(d.Sets, store.SetInfo{Name: set.Name, Max: set.Max, Lease: set.Lease,
			RollUp: set.RollUp, Keep: set.Keep, Self: set.Self, Type: store.TypeName(set.Type)})
	}
	if _, asks := p.MapOf(state.HoldsSenders); asks {
		d.Senders = &p.Senders
	}
	d.Needs = attach.NeedsOf(p)
	d.Limits = loader.DescribeLimits(p)
	d.Cookies, d.Greylists = describeCookies(p), describeGreylists(p)
	for i := range p.Echoes {
		d.Echoes = append(d.Echoes, store.EchoInfo{Name: p.Echoes[i].Name,
			Tally: p.Echoes[i].Tally})
	}
	for i := range p.Logs {
		d.Logs = append(d.Logs, p.Logs[i].Rule.ID)
	}
	d.Places = sets.PinnedPlaces(p)
}

// nextGeneration returns a number above those of all generations that the attachment with a key
// has, or had counts of.
func (u *up) nextGeneration(key string) (int, error) {
	numbers, err := u.Pinned(key)
	if err != nil {
		return 0, err
	}
	if u.at != nil {
		numbers = append(numbers, u.at.Carried.Folded...)
		for n := range u.at.Generations {
			numbers = append(numbers, n)
		}
		if u.beside != nil {
			numbers = append(numbers, u.beside.of.Generation)
		}
	}
	if len(numbers) == 0 {
		return 1, nil
	}
	return slices.Max(numbers) + 1, nil
}

// tellGeneration writes the number of the generation to the map by which programs at egress take
// turns.
func (u *up) tellGeneration(st *staged) error {
	m := st.plain.Holding(state.HoldsGeneration)
	if m == nil {
		return nil
	}
	n := st.desc.Generation
	if u.beside != nil { // a shadow looks at what leaves while that one judges
		n = u.beside.of.Generation
	}
	if err := m.Put(uint32(0), uint64(n)); err != nil {
		return kernel.Refuse(err, "tell the program at egress its generation")
	}
	return nil
}

// pinned lists the maps of a generation to pin: those of the program, and those that only the
// variant with a deadline has.
func (st *staged) pinned() (plain, trial []codegen.MapUse) {
	for _, m := range st.plain.Ledger {
		if m.Lifetime.IsPinned() {
			plain = append(plain, m)
		}
	}
	if st.trial == nil {
		return plain, nil
	}
	for _, m := range st.trial.Ledger {
		if m.Lifetime.IsPinned() && st.plain.Maps[m.Name] == nil {
			trial = append(trial, m)
		}
	}
	return plain, trial
}

// pin keeps everything that a later command needs to open. What only the program uses, it holds
// itself.
func (u *up) pin(st *staged) error {
	if err := u.Step("pin"); err != nil {
		return err
	}
	dir := u.Pins(st.key, st.desc.Generation)
	if err := store.MakeDirs(dir); err != nil {
		return kernel.Refuse(err, "create the directory of pins")
	}
	writable := store.ReadersWrite()
	pin := func(o store.Pinner, name string, mode fs.FileMode) error {
		return store.PinFile(o, filepath.Join(dir, name), mode)
	}
	if st.plain.Prog != nil {
		if err := pin(st.plain.Prog, store.PinProg, store.SecretMode); err != nil {
			return err
		}
	}
	for _, m := range st.desc.Maps {
		if err := pin(st.plain.Maps[m.Name], m.Name,
			store.PinMode(m.Holds.What, writable)); err != nil {
			return err
		}
	}
	for name, m := range st.plain.Memories {
		mode := store.PinMode(codegen.DynamicSet, writable)
		if err := (sets.Place{Name: name, Pins: dir}).PinAs(sets.PinMemory, m, mode); err != nil {
			return err
		}
	}
	if st.trial == nil {
		return nil
	}
	for _, m := range st.desc.TrialMaps {
		if err := pin(st.trial.Maps[m.Name], m.Name,
			store.PinMode(m.Holds.What, writable)); err != nil {
			return err
		}
	}
	return pin(st.trial.Prog, store.PinTrial, store.SecretMode)
}

// arm returns the program that takes over, with its deadline set when it is on trial.
func (st *staged) arm(confirm time.Duration) (*ebpf.Program, error) {
	if st.trial == nil {
		return st.plain.Prog, nil
	}
	deadline, err := store.DeadlineAfter(confirm)
	if err != nil {
		return nil, err
	}
	mem, err := store.MapMemory(st.trial.Holding(codegen.Deadline), 8)
	if err != nil {
		return nil, err
	}
	defer unix.Munmap(mem)
	binary.NativeEndian.PutUint64(mem, deadline)
	st.desc.Deadline, st.desc.ConfirmBy = deadline, time.Now().Add(confirm)
	return st.trial.Prog, nil
}

// turn says whose turn it is at egress: in the memory of the generation, or of its shadow.
func (st *staged) turn() (*generation.Turn, error) {
	m := st.plain.Holding(state.HoldsTurn)
	if m == nil && st.shadow != nil {
		m = st.shadow.plain.Holding(state.HoldsTurn)
	}
	return generation.TurnIn(m)
}

// unstage removes a generation that has not taken over.
func (u *up) unstage(st *staged) error {
	var paths []string
	if st.live != nil {
		if err := errors.Join(u.unstage(st.live), st.over.dropMoves()); err != nil {
			return err
		}
	}
	if st.shadow != nil {
		if err := u.unstage(st.shadow); err != nil {
			return err
		}
	}
	if st.desc != nil {
		n := st.desc.Generation
		paths = []string{u.DescriptionPath(st.key, n), u.FilesPath(st.key, n), u.Pins(st.key, n)}
	}
	if u.at == nil {
		paths = []string{u.State(st.key), u.BPF(st.key)} // of this generation alone
	}
	var errs []error
	for _, l := range st.links {
		if f, ok := l.(*attach.Filter); ok { // a link goes with its pin
			errs = append(errs, f.Detach())
		}
	}
	for _, path := range paths {
		errs = append(errs, os.RemoveAll(path))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove what was staged: %w", err)
	}
	return nil
}
