package datapath

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"levee/internal/codegen"
	"levee/internal/kernel"
)

// staged is a generation that lies ready beside the one in force.
type staged struct {
	key   string
	desc  *description
	plain *loaded // without deadline
	trial *loaded // with, nil unless asked for; shares all maps with plain
}

func (st *staged) Close() {
	if st.trial != nil {
		st.trial.Close()
	}
	st.plain.Close()
}

// stage compiles, loads, pins and describes a generation. On an error nothing of it is left.
func (u *up) stage(t try, why string) (_ *staged, err error) {
	st := &staged{key: u.dev.key()}
	target := codegen.Target{Hook: t.mode.hook(), Frags: t.frags, CPUs: ebpf.MustPossibleCPU()}
	plain, err := u.compiled(target)
	if err != nil {
		return nil, err
	}
	if st.plain, err = u.load(plain); err != nil {
		return nil, err
	}
	if u.Confirm > 0 {
		if err := u.stageTrial(st, target); err != nil {
			return nil, errors.Join(err, st.plain.Close())
		}
	}
	if st.desc, err = u.newDescription(st, plain, t, why); err == nil {
		if err = u.pin(st); err == nil {
			if err = step("describe"); err == nil {
				err = writeJSON(u.describe(st.key, st.desc.Generation), st.desc)
			}
		}
		if err != nil {
			err = errors.Join(err, u.unstage(st))
		}
	}
	if err != nil {
		st.Close()
		return nil, err
	}
	return st, nil
}

func (u *up) compiled(t codegen.Target) (*codegen.Program, error) {
	if err := step("compile"); err != nil {
		return nil, err
	}
	return u.compile(t)
}

// stageTrial loads the variant with a deadline over the maps of the plain one, so that confirming is
// nothing but another link update.
func (u *up) stageTrial(st *staged, target codegen.Target) error {
	target.Trial = true
	p, err := u.compiled(target)
	if err != nil {
		return err
	}
	shared := map[string]*ebpf.Map{}
	for name, m := range st.plain.maps {
		if p.Spec.Maps[name] != nil {
			shared[name] = m
		}
	}
	if st.trial, err = load(p, shared); err != nil {
		return err
	}
	if u.fallback() == 0 {
		return nil
	}
	prog, err := openProgram(filepath.Join(u.pins(st.key, u.fallback()), pinProg))
	if err != nil {
		return errors.Join(err, st.trial.Close())
	}
	defer prog.Close()
	if err := st.trial.maps[codegen.PreviousMap].Put(uint32(0), prog); err != nil {
		return errors.Join(kernel.Refuse(err, "stage the policy to return to"), st.trial.Close())
	}
	return nil
}

func (u *up) newDescription(st *staged, p *codegen.Program, t try, why string) (*description, error) {
	info, err := st.plain.prog.Info()
	if err != nil {
		return nil, kernel.Refuse(err, "ask the kernel about the program")
	}
	id, _ := info.ID()
	hash := sha256.Sum256(u.Source)
	d := &description{
		Generation: 1, Dev: u.Dev, Ifindex: u.dev.index, Netns: u.dev.netns,
		Mode: t.mode, Reason: why, Frags: t.frags,
		Policy: u.PolicyPath, Hash: hex.EncodeToString(hash[:]), Source: u.Source, Since: time.Now(),
		Program: uint32(id), RowBytes: p.RowBytes,
		Slots: describeSlots(p.Slots, filepath.Base(u.PolicyPath)),
	}
	for _, set := range p.Dynamic {
		d.Sets = append(d.Sets, SetInfo{Name: set.Name, Max: set.Max, Lease: set.Lease})
	}
	if st.trial != nil {
		info, err := st.trial.prog.Info()
		if err != nil {
			return nil, kernel.Refuse(err, "ask the kernel about the program")
		}
		id, _ := info.ID()
		d.Trial, d.Fallback = uint32(id), u.fallback()
	}
	numbers, err := u.pinned(st.key)
	if err != nil {
		return nil, err
	}
	if u.at != nil {
		numbers = append(numbers, u.at.carried.Folded...)
		for n := range u.at.gens {
			numbers = append(numbers, n)
		}
	}
	if len(numbers) > 0 {
		d.Generation = slices.Max(numbers) + 1
	}
	return d, nil
}

// pin keeps everything that a later command needs to open. What only the program uses, it holds
// itself. The map "previous" must be pinned: the kernel empties a map of programs when nothing in user
// space refers to it any more.
func (u *up) pin(st *staged) error {
	if err := step("pin"); err != nil {
		return err
	}
	dir := u.pins(st.key, st.desc.Generation)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return kernel.Refuse(err, "create the directory of pins")
	}
	pin := func(o interface{ Pin(string) error }, name string) error {
		if err := o.Pin(filepath.Join(dir, name)); err != nil {
			return kernel.Refuse(err, "pin %s of %s", name, u.Dev)
		}
		return nil
	}
	if err := pin(st.plain.prog, pinProg); err != nil {
		return err
	}
	maps := st.plain.maps
	if st.trial != nil {
		maps = st.trial.maps
		if err := pin(st.trial.prog, pinTrial); err != nil {
			return err
		}
	}
	for name, m := range maps {
		switch {
		case name == codegen.CountersMap, name == codegen.PreviousMap, strings.HasPrefix(name, codegen.SetPrefix):
			if err := pin(m, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// arm is the program that takes over, with its deadline set when it is on trial.
func (st *staged) arm(confirm time.Duration) (*ebpf.Program, error) {
	if st.trial == nil {
		return st.plain.prog, nil
	}
	deadline, err := deadlineAfter(confirm)
	if err != nil {
		return nil, err
	}
	mem, err := mapMemory(st.trial.maps[codegen.TrialMap], 8)
	if err != nil {
		return nil, err
	}
	defer unix.Munmap(mem)
	binary.NativeEndian.PutUint64(mem, deadline)
	st.desc.Deadline = deadline
	return st.trial.prog, nil
}

// unstage removes a generation that has not taken over.
func (u *up) unstage(st *staged) error {
	err := errors.Join(os.RemoveAll(u.describe(st.key, st.desc.Generation)), os.RemoveAll(u.pins(st.key, st.desc.Generation)))
	if err != nil {
		return fmt.Errorf("remove what was staged: %w", err)
	}
	if u.at == nil {
		// Directories of their own only for this; they stay if something else is in them.
		_ = os.Remove(u.state(st.key))
		_ = os.Remove(u.bpf(st.key))
	}
	return nil
}
