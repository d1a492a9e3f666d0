package dispatcher

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

func TestParseTakesKnownDispatchersAlone(t *testing.T) {
	known := func(version uint8) []byte {
		c := config{Magic: magic, Version: version, Programs: 2, Frags: 1}
		c.Actions[1], c.Priorities[1], c.Flags[1] = 1<<xdpPass|1<<unused, 50, 32
		b, err := binary.Append(nil, binary.NativeEndian, &c)
		if err != nil {
			t.Fatal(err)
		}
		if version == newest {
			b = append(b, make([]byte, boundBytes)...)
		}
		return b
	}
	for _, version := range []uint8{2, 3} {
		c, err := parse(known(version))
		if err != nil || c.Version != version || c.Programs != 2 || c.Priorities[1] != 50 ||
			c.Flags[1] != 32 || c.Actions[1] != 1<<31|1<<2 {
			t.Errorf("%d: %+v, %v", version, c, err)
		}
	}
	for want, b := range map[string][]byte{
		"of version 1":           make([]byte, 84), // a count and two lists
		"of version 4":           known(4),
		"123 bytes, and not 124": known(2)[:123],
		"124 bytes, and not 128": known(3)[:124],
		"bound to the device":    append(known(3)[:124], 1, 0, 0, 0),
		"it has 0 programs":      append(append([]byte{}, known(2)[:2]...), make([]byte, 122)...),
		"it has 11 programs":     append([]byte{magic, 2, 11}, known(2)[3:]...),
		"before 1.3":             nil,
	} {
		if c, err := parse(b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v, %v, want %s", c, err, want)
		}
	}
}

func TestADispatcherSaysWhatItCalls(t *testing.T) {
	needRoot(t)
	for _, version := range []uint8{2, 3} {
		for n := 1; n <= most; n++ {
			programs := make([]Program, n)
			for i := range programs {
				programs[i] = Program{Actions: 1 << i, Priority: uint32(10 * i), Frags: i != 1}
			}
			d := must(build(version, programs))
			info := must(d.Info())
			ids, _ := info.MapIDs()
			c, err := readConfig(ids[0])
			if err != nil || len(ids) != 1 || info.Name != Name {
				t.Fatal(version, n, ids, info.Name, err)
			}
			if int(c.Programs) != n || c.Version != version || (c.Frags != 0) != (n == 1) {
				t.Errorf("%d programs: %+v", n, c)
			}
			for i, p := range programs {
				if c.Actions[i] != p.Actions|1<<31 || c.Priorities[i] != p.Priority ||
					(c.Flags[i] != 0) != p.Frags {
					t.Errorf("%d programs, %d: %+v", n, i, c)
				}
			}
			d.Close()
		}
	}
}

// A function that nothing replaces goes on to the next, whatever the actions are.
func TestADispatcherOfNobodyPasses(t *testing.T) {
	needRoot(t)
	for n := 1; n <= most; n++ {
		if got := run(t, must(build(oldest, make([]Program, n)))); got != xdpPass {
			t.Errorf("%d programs: %d", n, got)
		}
	}
}

func TestADispatcherCallsInTurnWhatItsActionsSay(t *testing.T) {
	needFreplace(t)
	const drop, tx, pass = 1, 3, xdpPass
	for _, tt := range []struct {
		returns []int32
		actions []uint32
		want    uint32
	}{
		{[]int32{drop}, []uint32{1 << pass}, drop},
		{[]int32{pass, drop}, []uint32{1 << pass, 1 << pass}, drop},
		{[]int32{tx, drop}, []uint32{1 << pass, 1 << pass}, tx},
		{[]int32{drop, tx}, []uint32{1<<pass | 1<<drop, 0}, tx},
		{[]int32{pass, pass, pass}, []uint32{1 << pass, 1 << pass, 1 << pass}, pass},
		{[]int32{drop, drop}, []uint32{1 << drop, 1 << drop}, pass},
		{[]int32{pass, drop}, []uint32{0, 1 << pass}, pass},
	} {
		var programs []Program
		for i, code := range tt.returns {
			jumps := must(NewJumpTable())
			defer jumps.Close()
			if err := jumps.Put(uint32(0), returning(t, code, 0)); err != nil {
				t.Fatal(err)
			}
			programs = append(programs, Program{Actions: tt.actions[i],
				Program: must(NewCaller("caller", jumps, false))})
		}
		d := must(build(oldest, programs))
		for i, p := range programs {
			l := must(link.AttachFreplace(d, function(i, len(programs)), p.Program))
			defer l.Close()
		}
		if got := run(t, d); got != tt.want {
			t.Errorf("%v by %v: %d, want %d", tt.returns, tt.actions, got, tt.want)
		}
	}
}

// A caller goes to what is in its jump table, from any dispatcher. Without it, packets pass.
func TestACallerGoesThroughItsJumpTable(t *testing.T) {
	needFreplace(t)
	for _, frags := range []bool{false, true} {
		jumps := must(NewJumpTable())
		caller := must(NewCaller("caller", jumps, frags))
		for n := 1; n <= 3; n++ {
			programs := make([]Program, n)
			d := must(build(newest, programs))
			l := must(link.AttachFreplace(d, function(0, n), caller))
			flags := uint32(0)
			if frags {
				flags = 1 << 5
			}
			for _, code := range []int32{1, 3} {
				if err := jumps.Put(uint32(0), returning(t, code, flags)); err != nil {
					t.Fatal(err)
				}
				if got := run(t, d); got != uint32(code) {
					t.Errorf("frags %v, %d programs: %d, want %d", frags, n, got, code)
				}
			}
			if err := jumps.Delete(uint32(0)); err != nil {
				t.Fatal(err)
			}
			if got := run(t, d); got != xdpPass {
				t.Errorf("frags %v, %d programs, empty jump table: %d", frags, n, got)
			}
			l.Close()
			d.Close()
		}
		caller.Close()
		jumps.Close()
	}
}

// A dispatcher without pins, another program and none at all are told apart.
func TestReadTellsWhatIsNoDispatcher(t *testing.T) {
	needRoot(t)
	on := newDevice(t)
	t.Setenv(BPFFSEnv, t.TempDir())
	want := func(want string) {
		t.Helper()
		d, err := Read(on)
		if err == nil {
			d.Close()
			t.Fatal("read")
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	attach := func(p *ebpf.Program) {
		t.Helper()
		l := must(netlink.LinkByIndex(on.Index))
		if err := netlink.LinkSetXdpFd(l, p.FD()); err != nil {
			t.Fatal(err)
		}
	}
	want(ErrNone.Error())
	attach(returning(t, xdpPass, 0))
	want(ErrNone.Error())
	if runs, err := Calls(on, 1); runs != 0 || err != nil {
		t.Errorf("%d, %v of another program", runs, err)
	}
	d := must(build(oldest, make([]Program, 2)))
	attach(d)
	want(fmt.Sprintf("open %s", pins(on.Index, must(running(on)))))
	if runs, err := Calls(on, 1); runs != 0 || err == nil {
		t.Errorf("%d, %v: whom it calls cannot be told", runs, err)
	}
	gone := Interface{Index: 1 << 30, In: on.In}
	if id, _, err := Running(gone); id != 0 || !errors.Is(err, ErrGone) {
		t.Errorf("%d, %v of no interface", id, err)
	}
}

// running is Running without the mode.
func running(on Interface) (uint32, error) {
	id, _, err := Running(on)
	return id, err
}

// A change that fails at any step leaves what was, and what Note was told of until it is told of
// nothing.
func TestAChangeThatFailsChangesNothing(t *testing.T) {
	needRoot(t)
	on := newDevice(t)
	t.Setenv(BPFFSEnv, t.TempDir())
	if err := os.Mkdir(dir(), 0o700); err != nil {
		t.Fatal(err)
	}
	main := must(build(oldest, make([]Program, 1)))
	if err := netlink.LinkSetXdpFd(must(netlink.LinkByIndex(on.Index)), main.FD()); err != nil {
		t.Fatal(err)
	}
	id := must(running(on))
	d := &Dispatcher{ID: id, Version: oldest, on: on, main: main}
	failed := errors.New("failed")
	for _, fail := range []string{"note", "pin dispatcher", "swap dispatcher"} {
		var noted []uint32
		c := &Change{On: on,
			Note: func(ids ...uint32) error {
				if noted = ids; fail == "note" {
					return failed
				}
				return nil
			},
			Step: func(name string) error {
				if name == fail {
					return failed
				}
				return nil
			}}
		if err := c.replace(d, nil); !errors.Is(err, failed) {
			t.Errorf("%s: %v", fail, err)
		}
		if fail != "note" && len(noted) != 0 {
			t.Errorf("%s: noted %v", fail, noted)
		}
		if got := must(running(on)); got != id {
			t.Errorf("%s: program %d, want %d", fail, got, id)
		}
		if left := must(os.ReadDir(dir())); len(left) > 0 {
			t.Errorf("%s: pins %v", fail, left)
		}
	}
	// Somebody has put another program there: it stays, and the change begins anew.
	other := returning(t, xdpPass, 0)
	if err := netlink.LinkSetXdpFd(must(netlink.LinkByIndex(on.Index)), other.FD()); err != nil {
		t.Fatal(err)
	}
	nothing := func(string) error { return nil }
	c := &Change{On: on, Note: func(...uint32) error { return nil }, Step: nothing}
	if err := c.replace(d, nil); !errors.Is(err, ErrChanged) {
		t.Error(err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

func needFreplace(t *testing.T) {
	t.Helper()
	needRoot(t)
	if err := Check(); err != nil {
		t.Skipf("the kernel at hand lets no program replace a function: %v", err)
	}
}

// newDevice is one end of a veth pair, in a network namespace that goes with the test.
func newDevice(t *testing.T) Interface {
	t.Helper()
	runtime.LockOSThread()
	before := must(netns.Get())
	here := must(netns.New())
	t.Cleanup(func() {
		_ = netns.Set(before)
		before.Close()
		here.Close()
		runtime.UnlockOSThread()
	})
	la := netlink.NewLinkAttrs()
	la.Name = "one"
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: la, PeerName: "other"}); err != nil {
		t.Fatal(err)
	}
	return Interface{Index: must(netlink.LinkByName("one")).Attrs().Index,
		In: func(fn func() error) error { return fn() }}
}

// returning is an XDP program for a jump table.
func returning(t *testing.T, code int32, flags uint32) *ebpf.Program {
	t.Helper()
	p := must(ebpf.NewProgram(&ebpf.ProgramSpec{Name: "returning", Type: ebpf.XDP, License: "GPL",
		Flags: flags, Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, code), asm.Return()}}))
	t.Cleanup(func() { p.Close() })
	return p
}

func run(t *testing.T, p *ebpf.Program) uint32 {
	t.Helper()
	code, _, err := p.Test(make([]byte, 64))
	if err != nil {
		t.Fatal(err)
	}
	return code
}
