package service

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"levee/internal/kernel"
)

// A cgroup that is shut takes and sends nothing. A unit shuts its own before its policy is made, so
// that what systemd still runs of a unit whose start has failed (ExecStopPost=) is not without one
// (decision 0160). Nothing of it is pinned: the kernel has it for as long as the cgroup is there.

// shutName is the name of the programs that shut a cgroup, by which they are found.
const shutName = "levee_shut"

// sidesOfShut are the hooks of its programs.
var sidesOfShut = []ebpf.AttachType{ebpf.AttachCGroupInetIngress, ebpf.AttachCGroupInetEgress}

// Shut has a cgroup, by its directory, take and send nothing until a policy is put there.
func Shut(dir string) error {
	c, err := openCGroup(dir)
	if err != nil {
		return err
	}
	defer c.close()
	for _, at := range sidesOfShut {
		there, err := c.shutting(at)
		if err != nil {
			return err
		}
		if closeAll(there); len(there) > 0 { // by a start that has failed before
			continue
		}
		prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: shutName, Type: ebpf.CGroupSKB,
			AttachType: at, License: "Dual BSD/GPL",
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
		if err != nil {
			return kernel.LoadError("load the program that shuts a cgroup", err)
		}
		err = link.RawAttachProgram(link.RawAttachProgramOptions{Target: int(c.dir.Fd()),
			Program: prog, Attach: at, Flags: allowMulti}) // traffic changes here
		prog.Close()
		if err != nil {
			return fmt.Errorf("shut the cgroup: %w", refused(err, filepath.Base(dir), dir))
		}
	}
	return nil
}

// allowMulti is BPF_F_ALLOW_MULTI of include/uapi/linux/bpf.h: others may be there, too.
const allowMulti = 1 << 1

// Open takes away what Shut has put at a cgroup, by its directory, which may have gone.
func Open(dir string) error {
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	c, err := openCGroup(dir)
	if err != nil {
		return err
	}
	defer c.close()
	return c.open()
}

// open takes the programs away that shut a cgroup.
func (c *group) open() error {
	for _, at := range sidesOfShut {
		there, err := c.shutting(at)
		if err != nil {
			return err
		}
		for _, prog := range there {
			err = errors.Join(err, link.RawDetachProgram(link.RawDetachProgramOptions{
				Target: int(c.dir.Fd()), Program: prog, Attach: at})) // traffic changes here
		}
		if closeAll(there); err != nil {
			return kernel.Refuse(err, "open the cgroup %s", c.dir.Name())
		}
	}
	return nil
}

// shutting returns the programs that shut a side of the cgroup. The caller closes them.
func (c *group) shutting(at ebpf.AttachType) (there []*ebpf.Program, err error) {
	all, err := link.QueryPrograms(link.QueryOptions{Target: int(c.dir.Fd()), Attach: at})
	if err != nil {
		return nil, kernel.Refuse(err, "ask for the programs of the cgroup %s", c.dir.Name())
	}
	for _, is := range all.Programs {
		prog, err := ebpf.NewProgramFromID(is.ID)
		if errors.Is(err, os.ErrNotExist) {
			continue // it has gone meanwhile
		}
		if err != nil {
			closeAll(there)
			return nil, kernel.Refuse(err, "open a program of the cgroup %s", c.dir.Name())
		}
		if info, err := prog.Info(); err == nil && info.Name == shutName {
			there = append(there, prog)
		} else {
			prog.Close()
		}
	}
	return there, nil
}

func closeAll(programs []*ebpf.Program) {
	for _, p := range programs {
		p.Close()
	}
}
