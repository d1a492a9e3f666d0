package service

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"levee/internal/dataplane/loader"
	"levee/internal/filter/codegen"
	"levee/internal/filter/plan"
	"levee/internal/kernel"
)

// Unkept is a policy of a service of which nothing is pinned: it goes with this process. It is for
// measurements.
type Unkept struct {
	filter  *ebpf.Program // of sockets; nil at a cgroup
	program *codegen.Program
	loaded  *loader.Loaded
	array   *ebpf.Map // that the filter goes by
	links   []link.Link
}

// PutUnkept has a policy judge at a cgroup, by its directory, or with "" makes a filter of sockets.
func PutUnkept(dir string, compile func(codegen.Target) (*codegen.Program, error)) (
	_ *Unkept, err error) {
	mode := CGroup
	if dir == "" {
		mode = Socket
	}
	t, err := targetOf(mode)
	if err != nil {
		return nil, err
	}
	u := &Unkept{}
	if u.program, err = compile(t); err != nil {
		return nil, err
	}
	if u.loaded, err = loader.Load(u.program, nil, nil); err != nil {
		return nil, err
	}
	if mode == Socket {
		err = u.makeFilter()
	} else {
		err = u.attach(dir)
	}
	if err != nil {
		return nil, errors.Join(err, u.Close())
	}
	return u, nil
}

func (u *Unkept) makeFilter() (err error) {
	if u.array, err = newPolicyArray(); err != nil {
		return err
	}
	if err := u.array.Put(uint32(0), u.loaded.Prog); err != nil {
		return kernel.Refuse(err, "put a policy into its filter")
	}
	if u.filter, err = ebpf.NewProgram(entry(u.array)); err != nil {
		return kernel.LoadError("load the filter of sockets", err)
	}
	return nil
}

func (u *Unkept) attach(dir string) error {
	c, err := openCGroup(dir)
	if err != nil {
		return err
	}
	defer c.close()
	for _, at := range sides {
		prog := u.loaded.Others[filepath.Base(at.program)]
		if at.at == ebpf.AttachCGroupInetIngress {
			prog = u.loaded.Prog
		}
		if prog == nil {
			continue
		}
		l, err := link.AttachRawLink(link.RawLinkOptions{Target: int(c.dir.Fd()), Program: prog,
			Attach: at.at})
		if err != nil {
			return refused(err, filepath.Base(dir), dir)
		}
		u.links = append(u.links, l)
	}
	return nil
}

// File returns the filter as a file that a process may be handed.
func (u *Unkept) File() (*os.File, error) {
	fd, err := unix.FcntlInt(uintptr(u.filter.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("hand the filter on: %w", err)
	}
	return os.NewFile(uintptr(fd), "filter"), nil
}

// Judged returns how many packets and bytes the policy has counted, by all of its rules.
func (u *Unkept) Judged() (packets, bytes uint64, err error) {
	rows, err := u.loaded.Holding(codegen.Counters).LookupBytes(uint32(0))
	if err != nil {
		return 0, 0, kernel.Refuse(err, "read counters")
	}
	for ; len(rows) >= u.program.RowBytes; rows = rows[u.program.RowBytes:] {
		for i := range u.program.Slots {
			slot := rows[i*plan.SlotBytes:]
			packets += binary.NativeEndian.Uint64(slot)
			bytes += binary.NativeEndian.Uint64(slot[8:])
		}
	}
	return packets, bytes, nil
}

// Close takes the policy away. Sockets that have the filter take nothing from then on.
func (u *Unkept) Close() error {
	var errs []error
	for _, l := range u.links {
		errs = append(errs, l.Close()) // without a pin it is gone
	}
	errs = append(errs, u.filter.Close())
	if u.array != nil {
		errs = append(errs, u.array.Close())
	}
	return errors.Join(append(errs, u.loaded.Close())...)
}
