package dataplane

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/sets"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/filter/echo"
	"levee/internal/lang/policy"
)

// cell is a map of one number beside those of handProgram.
type cell struct {
	name string
	use  codegen.MapUse // but for the name
	size int            // of the number, 4 if 0
}

// withCells compiles handProgram with more maps.
func withCells(p *policy.Policy, cells ...cell) CompileFunc {
	return func(t codegen.Target) (*codegen.Program, error) {
		prog := handProgram(p, t)
		for _, c := range cells {
			if c.size == 0 {
				c.size = 4
			}
			c.use.Name = c.name
			prog.Spec.Maps[c.name] = mmapable(c.name, c.size)
			prog.Maps = append(prog.Maps, c.use)
		}
		return prog, nil
	}
}

func lives(what codegen.Contents, l codegen.Lifetime) codegen.MapUse {
	return codegen.MapUse{Holds: codegen.Identity{What: what, Name: "x"}, Lifetime: l}
}

func bringCells(t *testing.T, file string, confirm time.Duration, cells ...cell) {
	t.Helper()
	o := UpOptions{Dev: "lv0", PolicyPath: file, Confirm: confirm}
	if _, err := Up(t.Context(), o, withCells(named(file, "one"), cells...)); err != nil {
		t.Fatal(err)
	}
}

// onCell runs fn with a pinned map of the generation in force, nil if it has none of that name.
func onCell(t *testing.T, name string, fn func(*ebpf.Map) error) {
	t.Helper()
	err := generation.TransactOn(t.Context(), "lv0",
		func(s *store.Store, a *attach.Attachment) error {
			m, err := s.OpenPinned(a.Key, a.Current().Generation, name)
			if err != nil {
				return err
			}
			if m != nil {
				defer m.Close()
			}
			return fn(m)
		})
	if err != nil {
		t.Helper()
		t.Fatalf("%s: %v", name, err)
	}
}

func writeCell(t *testing.T, name string, value uint32) {
	t.Helper()
	onCell(t, name, func(m *ebpf.Map) error {
		if m == nil {
			return fmt.Errorf("not pinned")
		}
		return m.Put(uint32(0), value)
	})
}

func wantCell(t *testing.T, name string, want uint32) {
	t.Helper()
	onCell(t, name, func(m *ebpf.Map) error {
		if m == nil {
			return fmt.Errorf("not pinned")
		}
		var got [8]byte
		b := got[:m.ValueSize()]
		if err := m.Lookup(uint32(0), &b); err != nil || uint32(b[0]) != want {
			return fmt.Errorf("%d (%v), want %d", b[0], err, want)
		}
		return nil
	})
}

func wantNoCell(t *testing.T, name string) {
	t.Helper()
	onCell(t, name, func(m *ebpf.Map) error {
		if m != nil {
			return fmt.Errorf("pinned")
		}
		return nil
	})
}

// What happens to a map is what its ledger says of its identity, whatever it is called.
func TestMapsLiveAsLongAsTheirLedgerSays(t *testing.T) {
	newTestNet(t)
	all := []cell{
		{name: "a", use: lives("private", codegen.Private)},
		{name: "b", use: lives("pinned", codegen.Pinned)},
		{name: "c", use: lives("carried", codegen.Carried)},
		{name: "d", use: lives("attached", codegen.Attached)},
	}
	bringCells(t, "one.levee", 0, all...)
	wantNoCell(t, "a")
	for i, c := range all[1:] {
		writeCell(t, c.name, uint32(i+1))
	}
	renamed := []cell{
		{name: "d", use: all[1].use},
		{name: "b", use: all[2].use},
		{name: "c", use: all[3].use},
	}
	bringCells(t, "two.levee", 0, renamed...)
	wantCell(t, "d", 0)
	wantCell(t, "b", 2)
	wantCell(t, "c", 3)
	bringCells(t, "three.levee", 0, all...)
	wantCell(t, "c", 2)
	wantCell(t, "d", 3)

	larger, other := all[2], all[3]
	larger.size, other.use.Holds.Kind = 8, "other"
	bringCells(t, "four.levee", 0, larger, other)
	wantCell(t, "c", 0) // of another shape
	wantCell(t, "d", 0) // another thing, beside the one of the interface
	bringCells(t, "five.levee", 0, all...)
	wantCell(t, "d", 3)
}

// TestAMemoryOfAnotherShapeBeginsEmpty: proven flows of a policy that another version has put in
// force, with lines of another shape, do not go on, which up says. The next replace keeps them.
func TestAMemoryOfAnotherShapeBeginsEmpty(t *testing.T) {
	newTestNet(t)
	const text = "prove \"a\" udp port 27015 reply echo 4 bytes at 0 in request at 0\n" +
		"pass udp proven flow\ndefault drop\n"
	up := func() []string {
		t.Helper()
		r, err := Up(t.Context(), UpOptions{Dev: "lv0", Mode: store.XDPNative,
			PolicyPath: "/etc/test.levee", Source: []byte(text)}, compileText(text))
		if err != nil {
			t.Fatal(err)
		}
		return r.Notes
	}
	up()
	if err := generation.TransactOn(t.Context(), "lv0",
		func(s *store.Store, a *attach.Attachment) error {
			pin := filepath.Join(s.Pins(a.Key, a.Current().Generation), echo.Map)
			m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, MaxEntries: 1,
				ValueSize: uint32(echo.Size) - 1<<15, Flags: unix.BPF_F_MMAPABLE})
			if err != nil {
				return err
			}
			defer m.Close()
			return errors.Join(os.Remove(pin), m.Pin(pin))
		}); err != nil {
		t.Fatal(err)
	}
	const says = "lv0: the memory of echoes has another shape than it had, and begins empty"
	if notes := up(); !slices.Contains(notes, says) {
		t.Errorf("notes are %q", notes)
	}
	if notes := up(); slices.Contains(notes, says) {
		t.Errorf("of the same shape, notes are %q", notes)
	}
}

// carriedAndAttached puts a policy in force with a cell c that is carried and holds 7, and a cell d
// of the interface that holds 8.
func carriedAndAttached(t *testing.T) []cell {
	t.Helper()
	newTestNet(t)
	cells := []cell{{name: "c", use: lives("carried", codegen.Carried)},
		{name: "d", use: lives("attached", codegen.Attached)}}
	bringCells(t, "one.levee", 0, cells...)
	writeCell(t, "c", 7)
	writeCell(t, "d", 8)
	return cells
}

// What belongs to the interface waits while policies do not use it; what is carried is gone with
// the last policy that has it.
func TestMapsOfTheInterfaceOutliveThePoliciesThatUseThem(t *testing.T) {
	cells := carriedAndAttached(t)
	for _, file := range []string{"without.levee", "either.levee"} {
		bringCells(t, file, 0)
		wantNoCell(t, "c")
		wantCell(t, "d", 8)
	}
	bringCells(t, "again.levee", 0, cells...)
	wantCell(t, "c", 0)
	wantCell(t, "d", 8)
	if _, err := Down(t.Context(), "lv0"); err != nil {
		t.Fatal(err)
	}
	runDirIsGone(t)
	bringCells(t, "after.levee", 0, cells...)
	wantCell(t, "d", 0)
}

// A policy that fails to come, or is rolled back, leaves what the one before it has.
func TestMapsStayWithThePolicyThatStays(t *testing.T) {
	carriedAndAttached(t)
	_, err := Up(stepping(t.Context(), failing("swap")),
		UpOptions{Dev: "lv0", PolicyPath: "two.levee"}, withCells(named("two.levee", "one")))
	if err == nil {
		t.Fatal("not injected")
	}
	wantCell(t, "c", 7)
	wantCell(t, "d", 8)
	bringCells(t, "trial.levee", time.Minute)
	wantNoCell(t, "c")
	wantCell(t, "d", 8)
	expire(t)
	if a := status(t); a.Policy != "one.levee" {
		t.Fatal(a.Policy)
	}
	wantCell(t, "c", 7)
	wantCell(t, "d", 8)
}

func TestProgramsWithMapsThatNoLedgerListsAreRefused(t *testing.T) {
	newTestNet(t)
	for _, spoil := range []func(*codegen.Program){
		func(p *codegen.Program) { p.Spec.Maps["more"] = mmapable("more", 8) },
		func(p *codegen.Program) { p.Maps = append(p.Maps, p.Maps[0]) },
		func(p *codegen.Program) { p.Maps = append(p.Maps, codegen.MapUse{Name: "none"}) },
	} {
		_, err := Up(t.Context(), UpOptions{Dev: "lv0", PolicyPath: "a.levee"},
			func(target codegen.Target) (*codegen.Program, error) {
				p := handProgram(named("a.levee", "one"), target)
				spoil(p)
				return p, nil
			})
		if err == nil || !strings.Contains(err.Error(), "ledger") {
			t.Errorf("loaded: %v", err)
		}
	}
	runDirIsGone(t)
}

// A policy that an earlier levee has put in force, which did not write down what its maps are, goes
// on with its counters, its sets and its trial.
func TestGenerationsOfAnEarlierLeveeGoOn(t *testing.T) {
	n := newTestNet(t)
	forget := func() {
		t.Helper()
		asItIs(t, func(s *store.Store, a *attach.Attachment) error {
			for number := range a.Generations {
				file := s.DescriptionPath(a.Key, number)
				var d map[string]json.RawMessage
				if err := store.ReadJSON(file, &d); err != nil {
					return err
				}
				for _, field := range []string{"maps", "trial_maps", "places"} {
					delete(d, field)
				}
				b, err := json.Marshal(d)
				if err != nil {
					return err
				}
				if err := os.WriteFile(file, b, 0o600); err != nil {
					return err
				}
			}
			return nil
		})
	}
	up := func(max int, trial time.Duration) {
		t.Helper()
		if err := bringPolicy(t, "lv0", abuserPolicy(max), trial); err != nil {
			t.Fatal(err)
		}
	}
	up(1000, 0)
	forget()
	entry := sets.Entry{Prefix: netip.MustParsePrefix("203.0.113.7/32")}
	if _, err := sets.Add(t.Context(), "lv0", "abusers", []sets.Entry{entry}); err != nil {
		t.Fatal(err)
	}
	n.from(t, "203.0.113.7")
	wantPackets(t, "abuser", 1)
	up(1000, time.Hour)
	forget()
	if _, err := Confirm(t.Context(), "lv0"); err != nil {
		t.Fatal(err)
	}
	forget()
	n.from(t, "203.0.113.7")
	wantPackets(t, "abuser", 2)
	up(2000, 0)
	if got := listed(t, "lv0"); got != "203.0.113.7/32" {
		t.Errorf("the set has %s", got)
	}
	wantPackets(t, "abuser", 2)
	// It kept counts by the identities of rules, without their actions.
	asItIs(t, func(s *store.Store, a *attach.Attachment) error {
		totals := a.Carried.Totals
		n, ok := totals["drop label:abuser"]
		if !ok {
			t.Errorf("carried: %v", totals)
		}
		delete(totals, "drop label:abuser")
		totals["label:abuser"] = n
		return store.WriteJSON(s.State(a.Key, store.CarriedFile), a.Carried)
	})
	wantPackets(t, "abuser", 2)
	up(1000, 0)
	wantPackets(t, "abuser", 2)
	if _, err := Down(t.Context(), "lv0"); err != nil {
		t.Fatal(err)
	}
	runDirIsGone(t)
}
