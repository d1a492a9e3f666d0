package service

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/store"
	"levee/internal/filter/flow"
	"levee/internal/filter/state"
	"levee/internal/kernel"
)

// side is a place at a cgroup, with the program that is there. What judges what leaves stands in
// front of what notes connections: the kernel runs programs of a cgroup in the order in which they
// came.
type side struct {
	pin     string // of its link, beside the generations
	at      ebpf.AttachType
	program string // its pin, in the generation's directory
}

var sides = []side{
	{store.PinLink, ebpf.AttachCGroupInetIngress, store.PinProg},
	{"link_out", ebpf.AttachCGroupInetEgress, filepath.Join(store.PinLeave, state.LeavingProgram)},
	{"link_flows", ebpf.AttachCGroupInetEgress, filepath.Join(store.PinLeave, flow.Program)},
}

// swap gives the traffic of the service to the staged policy.
func (p *putting) swap() error {
	if p.mode() == Socket {
		return p.swapFilter()
	}
	c := p.group
	if err := p.refuseSecond(c); err != nil {
		return err
	}
	var done []func() error // takes back what was done, the last first
	undo := func(err error) error {
		for i := len(done) - 1; i >= 0; i-- {
			err = errors.Join(err, done[i]())
		}
		return err
	}
	moved := false // a program now stands behind others that came later
	for _, at := range sides {
		back, new, err := p.swapSide(c, at, moved)
		if err != nil {
			return undo(err)
		}
		if back != nil {
			done = append(done, back)
		}
		moved = moved || new && at.at == ebpf.AttachCGroupInetEgress
	}
	if err := p.Step("note"); err != nil {
		return undo(err)
	}
	if err := store.WriteJSON(placeFile(p.Store, p.key), place{c.dir.Name(), c.id}); err != nil {
		return undo(err)
	}
	if err := p.Step("open"); err != nil {
		return undo(err)
	}
	if err := c.open(); err != nil {
		return undo(err)
	}
	return nil
}

// refuseSecond returns an error if the cgroup has the policy of a service of another name: a
// container that was renamed would be judged by what it was given under both.
func (p *putting) refuseSecond(c *group) error {
	return generation.EachService(p.Store, func(a *attach.Attachment) error {
		if a.Key == p.key || a.Current().Mode != CGroup {
			return nil
		}
		l, id, err := openLink(p.BPF(a.Key, store.PinLink))
		if err != nil || l == nil {
			return err
		}
		defer l.Close()
		if id != c.id {
			return nil
		}
		name, _ := store.ServiceNamed(a.Current().Dev)
		return fmt.Errorf("the cgroup of %s has the policy of %s: take that off first, by levee "+
			"wrap COMMAND --remove", p.Name, name)
	})
}

// swapSide has a side of the cgroup run what the staged policy has there. again says that what is
// there already has to come anew, behind all others. back takes it back; new says that the program
// came to the cgroup.
func (p *putting) swapSide(c *group, at side, again bool) (back func() error, new bool, err error) {
	path := p.BPF(p.key, at.pin)
	there, err := c.linkAt(path)
	if err != nil {
		return nil, false, fmt.Errorf("the policy of %s: %w", p.Name, err)
	}
	if there != nil {
		defer there.Close()
	}
	prog, err := p.program(p.next, at)
	if err != nil {
		return nil, false, err
	}
	if err := p.Step("swap " + at.pin); err != nil {
		return nil, false, err
	}
	switch {
	case prog == nil && there == nil:
		return nil, false, removePin(path)
	case prog == nil:
		// The policy has no rules for this direction any more, and asks for no connections.
		old, err := p.program(p.before, at)
		if err != nil {
			return nil, false, err
		}
		if err := errors.Join(there.Detach(), removePin(path)); err != nil { // traffic changes here
			return nil, false, kernel.Refuse(err, "take a program off the cgroup of %s", p.Name)
		}
		return func() error {
			defer old.Close()
			return p.attach(c, at, old, path)
		}, false, nil
	case there != nil && !again:
		defer prog.Close()
		old, err := p.program(p.before, at)
		if err != nil {
			return nil, false, err
		}
		if err := there.Update(prog); err != nil { // traffic changes here
			return nil, false, kernel.Refuse(err, "replace the program at the cgroup of %s", p.Name)
		}
		return func() error {
			l, err := link.LoadPinnedLink(path, nil)
			if err != nil || old == nil {
				return err
			}
			defer l.Close()
			defer old.Close()
			return l.Update(old)
		}, false, nil
	}
	defer prog.Close()
	if err := p.attach(c, at, prog, path); err != nil {
		return nil, false, err
	}
	if there != nil {
		_ = there.Detach() // its place is behind the new one's
	}
	return func() error {
		l, err := link.LoadPinnedLink(path, nil)
		if err != nil {
			return err
		}
		defer l.Close()
		return errors.Join(l.Detach(), removePin(path))
	}, true, nil
}

// attach attaches a program to a side of the cgroup and keeps the link in place of one that is
// there.
func (p *putting) attach(c *group, at side, prog *ebpf.Program, path string) error {
	if err := store.MakeDirs(p.BPF(p.key)); err != nil {
		return kernel.Refuse(err, "create the directory of pins")
	}
	l, err := link.AttachRawLink(link.RawLinkOptions{Target: int(c.dir.Fd()), Program: prog,
		Attach: at.at}) // traffic changes here
	if err != nil {
		return refused(err, p.Name, c.dir.Name())
	}
	defer l.Close() // without the pin it is gone
	if err := p.Step("keep " + at.pin); err != nil {
		return err
	}
	if err := removePin(path); err != nil {
		return err
	}
	if err := l.Pin(path); err != nil {
		return kernel.Refuse(err, "pin the link of the service %s", p.Name)
	}
	return nil
}

// refused says why the kernel attaches nothing to a cgroup.
func refused(err error, name, dir string) error {
	switch {
	case errors.Is(err, ebpf.ErrNotSupported), errors.Is(err, unix.EINVAL):
		return kernel.Refuse(err, "attach to the cgroup of %s: this kernel has no links of "+
			"cgroups (Linux 5.7 or newer, CONFIG_CGROUP_BPF)", name)
	case errors.Is(err, unix.EPERM):
		return kernel.Refuse(err, "attach to the cgroup of %s: somebody has a program on a cgroup "+
			"above %s that allows no other, or this process may not attach any", name, dir)
	}
	return kernel.Refuse(err, "attach to the cgroup of %s", name)
}

// program opens the program of a generation for a side, nil if it has none.
func (p *putting) program(g *store.Description, at side) (*ebpf.Program, error) {
	if g == nil {
		return nil, nil
	}
	path := filepath.Join(p.Pins(p.key, g.Generation), at.program)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return p.OpenProgram(path)
}

func removePin(path string) error {
	err := os.Remove(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return kernel.Refuse(err, "remove the pin %s", path)
	}
	return nil
}

// group is a cgroup, open.
type group struct {
	dir *os.File
	id  uint64
}

// cgroup2Magic is CGROUP2_SUPER_MAGIC of linux/magic.h.
const cgroup2Magic = 0x63677270

// openCGroup opens a cgroup by its directory.
func openCGroup(dir string) (*group, error) {
	f, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no cgroup %s: the service does not run, or has ended", dir)
	}
	if err != nil {
		return nil, kernel.Refuse(err, "open the cgroup")
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil || st.Type != cgroup2Magic {
		f.Close()
		return nil, kernel.Refuse(err, "%s is no cgroup of version 2, which alone has programs "+
			"for packets: boot with systemd.unified_cgroup_hierarchy=1", dir)
	}
	id, err := idOf(f)
	if err != nil {
		f.Close()
		return nil, err
	}
	return &group{f, id}, nil
}

func (c *group) close() { c.dir.Close() }

// idOf returns the number by which the kernel knows a cgroup: that of its inode.
func idOf(f *os.File) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, kernel.Refuse(err, "ask for the number of the cgroup %s", f.Name())
	}
	return st.Ino, nil
}

// linkAt opens the pinned link of a side, nil if there is none, or if it is of a cgroup that has
// gone.
func (c *group) linkAt(path string) (link.Link, error) {
	l, id, err := openLink(path)
	if err != nil || l == nil {
		return nil, err
	}
	if id == c.id {
		return l, nil
	}
	// That of an older run of the service judges nothing more: the kernel has detached it with its
	// cgroup, or does when the last socket of that is gone.
	lives, err := c.beside(id)
	if err == nil && lives {
		err = errElsewhere
	}
	return nil, errors.Join(err, l.Close())
}

// fileIDKernfs is FILEID_KERNFS of linux/exportfs.h: the handle is the number of the inode.
const fileIDKernfs = 0xfe

// beside says whether the hierarchy of this cgroup has a live one with a number. A removed cgroup
// that the kernel keeps for open sockets, or for a moment, does not count.
func (c *group) beside(id uint64) (bool, error) {
	if id == 0 {
		return false, nil
	}
	h := unix.NewFileHandle(fileIDKernfs, binary.NativeEndian.AppendUint64(nil, id))
	fd, err := unix.OpenByHandleAt(int(c.dir.Fd()), h, unix.O_DIRECTORY|unix.O_CLOEXEC)
	if err == nil {
		// Older kernels open what was removed, too, which has no files any more.
		err = unix.Faccessat(fd, "cgroup.procs", unix.F_OK, 0)
		unix.Close(fd)
	}
	if errors.Is(err, unix.ESTALE) || errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, kernel.Refuse(err, "look for the cgroup %d", id)
	}
	return true, nil
}

// errElsewhere is that of a policy at another cgroup, which would be without one.
var errElsewhere = errors.New("it is at another cgroup that is there still, as of a " +
	"container that was renamed: levee wrap COMMAND --remove takes it off that")

// openLink opens the pinned link of a side and tells of which cgroup it is, 0 of one that has gone;
// nil if there is none.
func openLink(path string) (link.Link, uint64, error) {
	l, err := link.LoadPinnedLink(path, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, kernel.Refuse(err, "open the pinned link %s", path)
	}
	info, err := l.Info()
	if err != nil {
		return nil, 0, errors.Join(kernel.Refuse(err, "ask the kernel about the link %s", path),
			l.Close())
	}
	var id uint64
	if c := info.Cgroup(); c != nil {
		id = c.CgroupId
	}
	return l, id, nil
}

func unmap(memory []byte) error { return unix.Munmap(memory) }
