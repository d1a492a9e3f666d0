package around

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/loader"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/filter/sender"
	"levee/internal/filter/state"
	"levee/internal/host/account"
	"levee/internal/kernel"
	"levee/internal/lang/policy"
)

// sendersOf returns who the names of a policy stand for on this machine. A user or group that there
// is not is NoID, and an error; all others are what they are.
func sendersOf(p *policy.Senders) (*sender.Names, error) {
	n := &sender.Names{Services: p.Services}
	var errs [3]error
	n.Users, errs[0] = numbersOf("user", p.Users, account.User)
	n.Groups, errs[1] = numbersOf("group", p.Groups, account.Group)
	if len(p.Containers) > 0 {
		var engines map[string][]string
		engines, errs[2] = account.Containers("/")
		for _, name := range p.Containers {
			n.Containers = append(n.Containers, account.Cgroups(name, engines))
		}
	}
	return n, errors.Join(errs[:]...)
}

// numbersOf looks names up. Two that are one could not both be what the sender is.
func numbersOf(what string, names []string, find func(string) (uint32, error)) (all []uint32,
	err error) {
	of := map[uint32]string{}
	for _, name := range names {
		id, e := find(name)
		switch {
		case errors.Is(e, account.ErrUnknown):
			id = sender.NoID
			e = fmt.Errorf("there is no %s %s on this machine: create it, or write its number, as "+
				"in: %s 1000", what, name, map[string]string{"user": "uid", "group": "gid"}[what])
		case e != nil:
			id = sender.NoID
		case of[id] != "":
			e = fmt.Errorf("%ss %s and %s are the same: name one of them", what, of[id], name)
		}
		if e != nil && err == nil {
			err = e
		}
		of[id] = name
		all = append(all, id)
	}
	return all, err
}

// FillSenders writes the memory of rules on senders: the numbers of the names, and the offsets of
// the kernel's structures.
func FillSenders(l *loader.Loaded, p *policy.Senders, note Note) error {
	m := l.Holding(state.HoldsSenders)
	if m == nil {
		return nil
	}
	types, err := btf.LoadKernelSpec()
	if err != nil {
		return fmt.Errorf("rules on who sends need a kernel that describes its types "+
			"(CONFIG_DEBUG_INFO_BTF): %w", err)
	}
	layout, err := sender.LayoutOf(types)
	if err != nil {
		return fmt.Errorf("this kernel has another way of keeping who sends: %w", err)
	}
	names, err := sendersOf(p)
	if err != nil {
		return err
	}
	if len(p.Services)+len(p.Containers) > 0 && !cgroups() {
		note("this machine has no cgroups of version 2: no packet is of a service or container")
	}
	for _, n := range nobody("/", p) {
		note(n)
	}
	return onSenders(m, func(memory sender.Memory) {
		memory.Begin(layout)
		memory.Tell(names, drawn())
	})
}

// nobody tells of units and containers that rules name and no packet can be of, as the machine is
// now, whose files are below root.
func nobody(root string, p *policy.Senders) (notes []string) {
	for _, name := range p.Services {
		switch own, err := account.Unit(root, name); {
		case errors.Is(err, account.ErrUnknown):
			notes = append(notes, fmt.Sprintf("no unit %s is known on this machine: rules that "+
				"ask for it hold for nothing until there is one", name))
		case err == nil && own != name:
			notes = append(notes, fmt.Sprintf("%s is an alias, and no packet is of it: write "+
				"service \"%s\"", name, own))
		}
		if runs := account.Instances(root, name); len(runs) > 0 &&
			!slices.Contains(p.Services, runs[0]) {
			notes = append(notes, fmt.Sprintf("%s has no process, and no packet is of it: what "+
				"runs is %s, so write service \"%s\"", name, strings.Join(runs, ", "), runs[0]))
		}
	}
	engines, err := account.Containers(root)
	for _, name := range p.Containers {
		if err == nil && !account.HasContainer(root, name, engines) {
			notes = append(notes, fmt.Sprintf("no container %s is known on this machine: rules "+
				"that ask for it hold for nothing until there is one, and levee up runs again or "+
				"with --keep", name))
		}
	}
	return notes
}

// cgroups tells whether the machine has cgroups of version 2, in which every process is then.
func cgroups() bool {
	own, err := os.ReadFile("/proc/self/cgroup")
	return err != nil || strings.Contains("\n"+string(own), "\n0::")
}

// TellSenders tells the policy on an interface what its names stand for now, where that is not what
// was. It does nothing where no rule asks.
func TellSenders(ctx context.Context, dev string, before *sender.Names) (*sender.Names, error) {
	now := before
	err := generation.TransactOn(ctx, dev, func(s *store.Store, a *attach.Attachment) error {
		g := a.Current()
		name, has := codegen.MapOf(g.Maps, state.HoldsSenders)
		if !has || g.Senders == nil {
			now = nil
			return nil
		}
		names, unknown := sendersOf(g.Senders)
		if before != nil && names.Equal(before) {
			return nil
		}
		m, err := s.OpenPinned(a.Key, g.Generation, name)
		if m == nil || err != nil {
			return err
		}
		defer m.Close()
		err = onSenders(m, func(memory sender.Memory) { memory.Tell(names, drawn()) })
		if err == nil {
			now = names
		}
		return errors.Join(unknown, err)
	})
	return now, err
}

// drawn returns a key for digests of names.
func drawn() (key [16]byte) {
	rand.Read(key[:]) // which cannot fail
	return key
}

// onSenders changes the memory of a map.
func onSenders(m *ebpf.Map, change func(sender.Memory)) error {
	memory, err := store.MapMemory(m, sender.Bytes)
	if err != nil {
		return kernel.Refuse(err, "tell the program who the policy names")
	}
	change(memory)
	return unix.Munmap(memory)
}
