package attach

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"levee/internal/dataplane/dispatcher"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/kernel"
)

// Where libxdp's dispatcher runs on an interface, levee has it call a program, the caller, that
// only goes through a jump table: an array of one program, pinned with the attachment. That program
// is the policy's, so a replace is one update of the table. Whoever builds another dispatcher
// attaches the caller to it as any program (docs/explanation/decisions/0087-dispatcher.md).

// CallerName is the name that tools of libxdp list.
const CallerName = codegen.ProgramName

// callerPriority has it called first. The default of libxdp's tools is 50.
const callerPriority = 0

const (
	pinJumps        = "slot"   // of the attachment: the name by which other levees read it
	pinCaller       = "caller" // of the attachment
	dispatchersFile = "dispatchers.json"
)

// joined is levee's place in the dispatcher of an interface.
type joined struct {
	*store.Store
	key    string
	on     dispatcher.Interface
	where  namespace
	netns  uint64 // its cookie
	jumps  *ebpf.Map
	caller *ebpf.Program
	id     uint32 // of the caller
	kept   bool
}

// placeIn returns levee's place on an interface of a network namespace.
func placeIn(s *store.Store, key string, where namespace, netns uint64, index int) *joined {
	j := &joined{Store: s, key: key, where: where, netns: netns}
	j.on = dispatcher.Interface{Index: index, In: j.where.in}
	return j
}

// dispatchers are those whose pins a killed command may have left.
type dispatchers struct {
	Netns uint64   `json:"netns"`
	Index int      `json:"ifindex"`
	IDs   []uint32 `json:"ids"`
}

// join makes the dispatcher of an interface call a program of a generation.
func join(s *store.Store, key string, d *Device, g *store.Description, p *ebpf.Program) (_ Hold,
	err error) {
	j := placeIn(s, key, namespace{}, d.Netns, d.Index)
	defer func() {
		if err != nil {
			j.kept = true // nothing to take back
			err = errors.Join(err, j.Close())
		}
	}()
	if j.jumps, err = dispatcher.NewJumpTable(); err != nil {
		return nil, kernel.LoadError("make an array of programs", err)
	}
	if j.caller, err = dispatcher.NewCaller(CallerName, j.jumps, g.Frags); err != nil {
		return nil, cannotJoin(d, err)
	}
	if j.id, err = programID(j.caller); err != nil {
		return nil, err
	}
	if err := j.Update(p); err != nil {
		return nil, kernel.Refuse(err, "put the policy's program into its jump table")
	}
	// Before the caller is called: the kernel empties a jump table that is not pinned when its last
	// descriptor is closed.
	if err := errors.Join(store.PinFile(j.jumps, s.BPF(key, pinJumps), store.SecretMode),
		store.PinFile(j.caller, s.BPF(key, pinCaller), store.SecretMode)); err != nil {
		return nil, err
	}
	own := dispatcher.Program{Program: j.caller, Name: CallerName, ID: j.id, Actions: 1 << XdpPass,
		Priority: callerPriority, Frags: g.Frags}
	holds := false
	err = j.change(func(d *dispatcher.Dispatcher) []dispatcher.Program {
		holds = d.Holds(j.caller)
		others := slices.DeleteFunc(slices.Clone(d.Programs), strayCaller)
		return append([]dispatcher.Program{own}, others...)
	})
	if err == nil && holds {
		s.Note("while levee is in the dispatcher of %s, tools of libxdp before 1.5.5 can add and "+
			"remove no program there on this kernel (\"Operation not supported\"; they change "+
			"nothing): `levee down --dev %[1]s` first", d.Name)
	}
	if err != nil && !NotThisWay(err) {
		err = cannotJoin(d, err)
	}
	return j, err
}

// cannotJoin says what to do where levee cannot get a place.
func cannotJoin(d *Device, why error) error {
	switch {
	case errors.Is(why, unix.EPERM) && !kernel.Holds(kernel.SysAdmin):
		why = errors.New("that takes CAP_SYS_ADMIN")
	case errors.Is(why, unix.EPERM):
		why = errors.New("this kernel does not let a program replace a function of another")
	}
	return kernel.Refuse(why, "%s", foreign(d, fmt.Sprintf("it is the dispatcher of libxdp, which "+
		"levee cannot join here: `xdp-loader status %s` lists the programs in it; take them off "+
		"first (`xdp-loader unload %[1]s --all`)", d.Name)))
}

// strayCaller tells callers of levee's by their name.
func strayCaller(p dispatcher.Program) bool {
	return p.Name == CallerName && p.Type() == ebpf.Extension
}

// change changes which programs the dispatcher calls, while no tool of libxdp does.
func (j *joined) change(programs func(*dispatcher.Dispatcher) []dispatcher.Program) error {
	return j.locked(func() error {
		c := dispatcher.Change{On: j.on, Programs: programs, Note: j.note,
			Wait: j.WaitForPrograms, Step: j.Step}
		return c.Do()
	})
}

func (j *joined) locked(fn func() error) error {
	lock, err := dispatcher.OpenLock()
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := store.Flock(j.Ctx, lock); err != nil {
		return err
	}
	return fn()
}

// note records the dispatchers that a killed command could leave behind.
func (j *joined) note(ids ...uint32) error {
	path := j.State(j.key, dispatchersFile)
	if len(ids) == 0 {
		err := os.Remove(path)
		_ = os.Remove(j.State(j.key)) // fails where anything is kept for the attachment
		return err
	}
	return store.WriteJSON(path, dispatchers{j.netns, j.on.Index, ids})
}

// FinishDispatchers removes what a killed command has left of dispatchers that do not run.
func FinishDispatchers(s *store.Store, key string) error {
	var d dispatchers
	path := s.State(key, dispatchersFile)
	if err := store.ReadJSON(path, &d); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	where, err := findNamespace(d.Netns)
	if errors.Is(err, errNoEntry) {
		return nil
	}
	if err != nil {
		return err
	}
	defer where.Close()
	j := placeIn(s, key, where, d.Netns, d.Index)
	err = j.locked(func() error {
		runs, _, err := dispatcher.Running(j.on)
		if errors.Is(err, dispatcher.ErrGone) {
			return nil // it may run in another network namespace
		}
		if err == nil {
			err = s.WaitForPrograms()
		}
		for _, id := range d.IDs {
			if err == nil && id != runs {
				err = dispatcher.Remove(d.Index, id)
			}
		}
		return err
	})
	if err != nil {
		return kernel.Refuse(err, "remove pins of a dispatcher")
	}
	return os.Remove(path)
}

// openJoined finds the place of an attachment that has no link. The place may be gone.
func openJoined(s *store.Store, a *Attachment) error {
	g := a.Last()
	if g == nil || !g.Joined {
		return nil
	}
	jumps, err := ebpf.LoadPinnedMap(s.BPF(a.Key, pinJumps), nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return kernel.Refuse(err, "open the jump table of attachment %s", a.Key)
	}
	where, err := findNamespace(g.Netns)
	if err != nil {
		jumps.Close()
		a.Unseen = errors.Is(err, errNoEntry)
		if a.Unseen {
			return nil
		}
		return err
	}
	j := placeIn(s, a.Key, where, g.Netns, g.Ifindex)
	j.jumps, j.kept = jumps, true
	a.Link = j // with ifindex 0, which says that it is not there
	j.caller, err = ebpf.LoadPinnedProgram(s.BPF(a.Key, pinCaller), nil)
	if errors.Is(err, fs.ErrNotExist) { // killed before it was pinned
		return nil
	}
	if err != nil {
		return kernel.Refuse(err, "open the caller of attachment %s", a.Key)
	}
	if j.id, err = programID(j.caller); err != nil {
		return err
	}
	runs, err := dispatcher.Calls(j.on, j.id)
	if err != nil && !errors.Is(err, dispatcher.ErrGone) {
		return kernel.Refuse(err, "ask who is in the dispatcher of %s", g.Dev)
	}
	if runs == 0 {
		return nil
	}
	err = jumps.Lookup(uint32(0), &a.Program)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return kernel.Refuse(err, "read the jump table of attachment %s", a.Key)
	}
	a.Ifindex, a.OnDevice = g.Ifindex, runs
	return nil
}

func (j *joined) Update(p *ebpf.Program) error { return j.jumps.Put(uint32(0), p) }

// Detach leaves the dispatcher, and removes it if nobody else is in it. It empties the jump table
// in any case: a caller that is still called passes all packets.
func (j *joined) Detach() error {
	j.kept = true // Close has nothing to do any more
	err := j.change(func(d *dispatcher.Dispatcher) []dispatcher.Program {
		return slices.DeleteFunc(slices.Clone(d.Programs),
			func(p dispatcher.Program) bool { return p.ID == j.id })
	})
	empty := j.jumps.Delete(uint32(0))
	if errors.Is(empty, ebpf.ErrKeyNotExist) {
		empty = nil
	}
	if err == nil || errors.Is(err, dispatcher.ErrNone) || errors.Is(err, dispatcher.ErrGone) {
		return empty
	}
	if empty != nil {
		return errors.Join(err, empty)
	}
	j.Store.Note("levee could not leave the dispatcher of libxdp (%v): its program (id %d) passes "+
		"all packets now, and `xdp-loader unload` takes it out", err, j.id)
	return nil
}

// Pin says that the place is to stay: its pins are made before it is taken.
func (j *joined) Pin(string) error {
	j.kept = true
	return nil
}

func (j *joined) Close() error {
	var err error
	if !j.kept {
		err = j.Detach()
	}
	return errors.Join(err, j.jumps.Close(), j.caller.Close(), j.where.Close())
}

// leaveStray has the dispatcher of a device not call programs without a description.
func leaveStray(s *store.Store, d *Device) (found bool, err error) {
	j := placeIn(s, d.Key(), namespace{}, d.Netns, d.Index)
	all, err := dispatcher.Read(j.on)
	if err != nil {
		return false, nil // what cannot be read is somebody's
	}
	defer all.Close()
	if !slices.ContainsFunc(all.Programs, strayCaller) {
		return false, nil
	}
	s.Note("%s had a program of levee's in its dispatcher that nothing was kept for", d.Name)
	err = j.change(func(d *dispatcher.Dispatcher) []dispatcher.Program {
		return slices.DeleteFunc(slices.Clone(d.Programs), strayCaller)
	})
	if err != nil {
		return true, kernel.Refuse(err, "leave the dispatcher of %s", d.Name)
	}
	return true, nil
}

const XdpPass = 2
