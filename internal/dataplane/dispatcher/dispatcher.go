// Package dispatcher reads and changes the dispatcher of libxdp on an interface: an XDP program
// that calls up to ten others in turn, each of which replaces one of its functions (freplace). It
// follows the protocol by which tools of libxdp share an interface: xdp-tools,
// lib/libxdp/protocol.org, versions 2 and 3.
//
// A dispatcher is never changed: another one is built, which the same programs are attached to, and
// the interface gets it in the place of the first, in one step. It must never touch one that it
// does not know as a whole, and leaves the lock that the protocol asks for to who calls it.
package dispatcher

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Name is the name of the program.
const Name = "xdp_dispatcher"

// Limits and marks of the protocol.
const (
	most  = 10 // programs
	magic = 236
	// Versions that are known: 2 is that of libxdp 1.3 to 1.5, 3 that of 1.6.
	oldest, newest = 2, 3
	// unused is the return value of a function that no program replaces. The dispatcher always goes
	// on behind it.
	unused = 31
)

// config is the value of the one map that a dispatcher has. libxdp's protocol gives its layout.
type config struct {
	Magic, Version, Programs, Frags uint8
	Actions, Priorities, Flags      [most]uint32
}

// From version 3 on a byte behind it, padded to four, says whether its programs are bound to the
// device. Programs that ask the driver for metadata of a packet have to be.
const boundBytes = 4

// BPFFSEnv names the environment variable by which libxdp finds its bpffs.
const BPFFSEnv = "LIBXDP_BPFFS"

// dir holds the pins of all dispatchers, and the lock.
func dir() string {
	bpffs := os.Getenv(BPFFSEnv)
	if bpffs == "" {
		bpffs = "/sys/fs/bpf"
	}
	return filepath.Join(bpffs, "xdp")
}

func pins(index int, id uint32) string {
	return filepath.Join(dir(), fmt.Sprintf("dispatch-%d-%d", index, id))
}

// OpenLock opens the file that libxdp takes flock(2) of, which has to be held by who calls Read,
// Replace and Remove.
func OpenLock() (*os.File, error) { return os.Open(dir()) }

// Interface is one by its index in a network namespace, which In enters for a function.
type Interface struct {
	Index int
	In    func(func() error) error
}

// Program is one that a dispatcher calls.
type Program struct {
	*ebpf.Program
	Name     string
	ID       uint32
	Actions  uint32 // bits by XDP's codes: after those the next program is called
	Priority uint32 // the least is called first
	Frags    bool   // it takes frames in several buffers
}

// Dispatcher is the one that runs on an interface.
type Dispatcher struct {
	ID       uint32
	Generic  bool      // in the network stack, not in the driver
	Version  uint8     // of the protocol
	Programs []Program // as they are called

	on   Interface
	main *ebpf.Program
}

// Close closes the programs.
func (d *Dispatcher) Close() {
	for _, p := range d.Programs {
		p.Close()
	}
	d.main.Close() // nil is closed
}

// ErrNone: the interface runs no dispatcher, but nothing or another program.
var ErrNone = errors.New("no dispatcher of libxdp runs there")

// Read reads the dispatcher of an interface.
func Read(on Interface) (_ *Dispatcher, err error) {
	d := &Dispatcher{on: on}
	defer func() {
		if err != nil {
			d.Close()
		}
	}()
	if d.ID, d.Generic, err = Running(on); err != nil {
		return nil, err
	}
	if d.ID == 0 {
		return nil, ErrNone
	}
	d.main, err = ebpf.NewProgramFromID(ebpf.ProgramID(d.ID))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrChanged
	}
	if err != nil {
		return nil, fmt.Errorf("open it: %w", err)
	}
	info, err := d.main.Info()
	if err != nil {
		return nil, fmt.Errorf("ask the kernel about it: %w", err)
	}
	if info.Name != Name {
		return nil, ErrNone
	}
	ids, _ := info.MapIDs()
	if len(ids) != 1 {
		return nil, fmt.Errorf("it has %d maps, and not one", len(ids))
	}
	c, err := readConfig(ids[0])
	if err != nil {
		return nil, err
	}
	d.Version = c.Version
	for i := range int(c.Programs) {
		p, err := pinned(filepath.Join(pins(on.Index, d.ID), fmt.Sprintf("prog%d-prog", i)))
		if err != nil {
			return nil, err
		}
		p.Actions, p.Priority = c.Actions[i], c.Priorities[i]
		p.Frags = c.Flags[i]&unix.BPF_F_XDP_HAS_FRAGS != 0
		d.Programs = append(d.Programs, p)
	}
	return d, nil
}

// ErrGone: there is no such interface in the network namespace.
var ErrGone = errors.New("the interface is gone")

// Running returns the XDP program of an interface, 0 if there is none.
func Running(on Interface) (id uint32, generic bool, err error) {
	var l netlink.Link
	err = on.In(func() error {
		l, err = netlink.LinkByIndex(on.Index)
		return err
	})
	switch {
	case errors.As(err, new(netlink.LinkNotFoundError)), errors.Is(err, unix.ENODEV):
		return 0, false, ErrGone
	case err != nil:
		return 0, false, fmt.Errorf("look up interface %d: %w", on.Index, err)
	}
	if x := l.Attrs().Xdp; x != nil && x.Attached {
		return x.ProgId, x.AttachMode == nl.XDP_ATTACHED_SKB, nil
	}
	return 0, false, nil
}

func readConfig(id ebpf.MapID) (*config, error) {
	m, err := ebpf.NewMapFromID(id)
	if err != nil {
		return nil, fmt.Errorf("open its map: %w", err)
	}
	defer m.Close()
	b, err := m.LookupBytes(uint32(0))
	if err != nil {
		return nil, fmt.Errorf("read its map: %w", err)
	}
	return parse(b)
}

// parse reads the value of the map. The first version had no magic number.
func parse(b []byte) (*config, error) {
	switch {
	case len(b) < 2 || b[0] != magic:
		return nil, errors.New("its protocol is of version 1, that of libxdp before 1.3, or it " +
			"is none of libxdp")
	case b[1] < oldest || b[1] > newest:
		return nil, fmt.Errorf("its protocol is of version %d, and known are %d and %d", b[1],
			oldest, newest)
	}
	c := &config{}
	want := binary.Size(c)
	if b[1] == newest {
		want += boundBytes
	}
	if len(b) != want {
		return nil, fmt.Errorf("its map has %d bytes, and not %d", len(b), want)
	}
	if len(b) > binary.Size(c) && b[binary.Size(c)] != 0 {
		return nil, errors.New("its programs are bound to the device, and no other goes with them")
	}
	if err := binary.Read(bytes.NewReader(b), binary.NativeEndian, c); err != nil {
		return nil, err
	}
	if c.Programs == 0 || c.Programs > most {
		return nil, fmt.Errorf("it has %d programs, and not 1 to %d", c.Programs, most)
	}
	return c, nil
}

// pinned opens the pin of a program that a dispatcher calls.
func pinned(path string) (Program, error) {
	p, err := ebpf.LoadPinnedProgram(path, nil)
	if err != nil {
		return Program{}, fmt.Errorf("open %s: %w", path, err)
	}
	info, err := p.Info()
	if err != nil {
		p.Close()
		return Program{}, fmt.Errorf("ask the kernel about %s: %w", path, err)
	}
	id, _ := info.ID()
	return Program{Program: p, Name: info.Name, ID: uint32(id)}, nil
}

// Calls reports whether the dispatcher of an interface calls a program. The lock need not be held:
// the pins of the one that runs are whole.
func Calls(on Interface, program uint32) (dispatcher uint32, err error) {
	for range attempts {
		id, _, err := Running(on)
		if err != nil || id == 0 {
			return 0, err
		}
		calls, err := calls(pins(on.Index, id), program)
		if calls {
			return id, nil
		}
		// Pins that go while they are read are those of a dispatcher that does not run any more.
		again, _, rerr := Running(on)
		switch {
		case rerr != nil:
			return 0, rerr
		case again == id && errors.Is(err, fs.ErrNotExist) && !isDispatcher(id):
			return 0, nil
		case again == id:
			return 0, err
		}
	}
	return 0, ErrChanged
}

// isDispatcher reports whether a program is a dispatcher, or cannot be asked.
func isDispatcher(id uint32) bool {
	p, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
	if err != nil {
		return true
	}
	defer p.Close()
	info, err := p.Info()
	return err != nil || info.Name == Name
}

// calls reports whether the dispatcher with a directory of pins calls a program.
func calls(dir string, program uint32) (bool, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return false, fmt.Errorf("list the pins of the dispatcher: %w", err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), "-prog") {
			continue
		}
		p, err := pinned(filepath.Join(dir, f.Name()))
		if err != nil {
			return false, err
		}
		p.Close()
		if p.ID == program {
			return true, nil
		}
	}
	return false, nil
}

// attempts is the number of looks at what others change meanwhile.
const attempts = 10

// ErrChanged: another program is on the interface than before.
var ErrChanged = errors.New("somebody else changes the XDP program of the interface")

// Change is a change of the programs that an interface's dispatcher calls.
type Change struct {
	On Interface
	// Programs are those that the next dispatcher calls. None of them removes the one that runs.
	Programs func(*Dispatcher) []Program
	// Note records the ids of dispatchers that may have pins: before one is pinned, and without any
	// when only the running one has pins.
	Note func(dispatchers ...uint32) error
	// Wait returns when all programs that ran at the time of the call have finished their packets.
	Wait func() error
	// Step is called before each step, and may fail it.
	Step func(name string) error
}

// Do makes the change: all of it, or, with an error, only what Note was told.
func (c *Change) Do() error {
	for range attempts {
		d, err := Read(c.On)
		if errors.Is(err, ErrChanged) {
			continue
		}
		if err != nil {
			return err
		}
		err = c.replace(d, c.Programs(d))
		d.Close()
		if !errors.Is(err, ErrChanged) {
			return err
		}
	}
	return ErrChanged
}

func (c *Change) replace(d *Dispatcher, programs []Program) (err error) {
	if len(programs) > most {
		return fmt.Errorf("it has %d programs already, and no place for another", most)
	}
	var next *ebpf.Program
	ids := []uint32{d.ID}
	if len(programs) > 0 {
		if next, err = build(d.Version, programs); err != nil {
			return err
		}
		defer next.Close()
		info, err := next.Info()
		if err != nil {
			return fmt.Errorf("ask the kernel about the new dispatcher: %w", err)
		}
		id, _ := info.ID()
		ids = append(ids, uint32(id))
	}
	if err := c.Note(ids...); err != nil {
		return err
	}
	err = c.Step("pin dispatcher")
	if err == nil && next != nil {
		err = pinAll(pins(d.on.Index, ids[1]), next, programs)
	}
	if err == nil {
		err = c.Step("swap dispatcher")
	}
	if err == nil {
		err = d.swap(next)
	}
	if err != nil {
		for _, id := range ids[1:] {
			err = errors.Join(err, Remove(d.on.Index, id))
		}
		return errors.Join(err, c.Note())
	}
	// A packet that is still in the old one has to meet all its programs. What is not removed now
	// was noted.
	if c.Wait() == nil && c.Step("unpin dispatcher") == nil && Remove(d.on.Index, d.ID) == nil {
		_ = c.Note()
	}
	return nil
}

// pinAll attaches programs to a dispatcher and pins them as the protocol requires.
func pinAll(dir string, dispatcher *ebpf.Program, programs []Program) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	for i, p := range programs {
		l, err := link.AttachFreplace(dispatcher, function(i, len(programs)), p.Program)
		if err != nil {
			return fmt.Errorf("attach %q to the new dispatcher: %w", p.Name, err)
		}
		defer l.Close()
		// A program that was opened by a pin would take the pin along.
		own, err := p.Clone()
		if err != nil {
			return err
		}
		defer own.Close()
		err = errors.Join(l.Pin(filepath.Join(dir, fmt.Sprintf("prog%d-link", i))),
			own.Pin(filepath.Join(dir, fmt.Sprintf("prog%d-prog", i))))
		if err != nil {
			return err
		}
	}
	return nil
}

// Remove removes the pins of a dispatcher that does not run, with which its programs are detached
// from it.
func Remove(index int, id uint32) error { return os.RemoveAll(pins(index, id)) }

// swap puts another program on the interface, nil for none, if it still has this one. An interface
// with a link of somebody's refuses.
func (d *Dispatcher) swap(next *ebpf.Program) error {
	const replace = 1 << 4 // XDP_FLAGS_REPLACE
	const expected = 8     // IFLA_XDP_EXPECTED_FD
	mode := uint32(1 << 2) // XDP_FLAGS_DRV_MODE
	if d.Generic {
		mode = 1 << 1 // XDP_FLAGS_SKB_MODE
	}
	fd := ^uint32(0) // -1: none
	if next != nil {
		fd = uint32(next.FD())
	}
	req := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(d.on.Index)
	req.AddData(msg)
	xdp := nl.NewRtAttr(unix.NLA_F_NESTED|unix.IFLA_XDP, nil)
	xdp.AddRtAttr(nl.IFLA_XDP_FD, nl.Uint32Attr(fd))
	xdp.AddRtAttr(nl.IFLA_XDP_FLAGS, nl.Uint32Attr(replace|mode))
	xdp.AddRtAttr(expected, nl.Uint32Attr(uint32(d.main.FD())))
	req.AddData(xdp)
	err := d.on.In(func() error {
		_, err := req.Execute(unix.NETLINK_ROUTE, 0) // traffic changes here
		return err
	})
	if errors.Is(err, unix.EEXIST) {
		return ErrChanged
	}
	return err
}
