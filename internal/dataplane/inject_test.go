package dataplane

import (
	"context"
	"encoding/binary"
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

	"levee/internal/await"
	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/sets"
	"levee/internal/dataplane/store"
)

var errInjected = errors.New("injected")

// kept lists what lies in the runtime directory, generations' numbers left out.
func kept(t *testing.T) string {
	t.Helper()
	return keptBut(t, "")
}

// keptBut is kept without a directory.
func keptBut(t *testing.T, without string) string {
	t.Helper()
	var out []string
	root := os.Getenv(store.RunEnv)
	_ = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		name := filepath.Base(path)
		switch {
		case err != nil, path == root, name == store.CarriedFile, strings.HasSuffix(name, ".debug"):
		case d.IsDir() && name == without:
			return filepath.SkipDir
		case strings.Trim(name, "0123456789") == "", strings.Trim(name, "0123456789") == ".json":
			out = append(out, "N")
		default:
			out = append(out, strings.Trim(name, "0123456789"))
		}
		return nil
	})
	slices.Sort(out)
	return strings.Join(out, " ")
}

// A command that fails or is killed at any step leaves the interface with the policy before or the
// one after it, whole, with exact counters; and the next command leaves nothing else behind.
func TestFailureOrDeathAtAnyStepLeavesAWholePolicy(t *testing.T) {
	n := newTestNet(t)
	for _, mode := range []store.Mode{store.Auto, store.Clsact} {
		n.run(t, string(mode), func(t *testing.T) { failOrDieAtAnyStep(t, n, mode) })
	}
}

func failOrDieAtAnyStep(t *testing.T, n *testNet, mode store.Mode) {
	const base = "old.levee"
	steady, trial, expired := stages(
		func(t *testing.T) { bring(t, "lv0", mode, named(base, "one")) },
		func(t *testing.T) { bringOnTrial(t, named("new.levee", "one"), time.Hour) })
	native := func(t *testing.T) {
		_, _ = Down(t.Context(), "lv0")
		bring(t, "lv0", store.Auto, named(base, "one"))
	}
	ruled := func(t *testing.T) {
		native(t)
		_, err := Live(t.Context(), LiveOptions{Dev: "lv0", Over: inForceNow(t), Lease: time.Hour,
			Rules: []inspect.LiveRule{{Rule: `drop ether 0x88b6 as "f"`, Origin: "udp"}}},
			compileHand(named(base, "one")))
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name    string
		prepare func(*testing.T)
		do      order
		after   string // policy after the order has done its work
	}{
		{"replace", steady, order{Do: "up", File: "new.levee"}, "new.levee"},
		{"replace on trial", steady, order{Do: "up", File: "new.levee", Confirm: time.Hour},
			"new.levee"},
		{"replace during a trial", trial, order{Do: "up", File: "newer.levee"},
			"newer.levee"},
		{"confirm", trial, order{Do: "confirm"}, "new.levee"},
		{"roll back", expired, order{Do: "status"}, base},
		{"to the next hook", native, order{Do: "move", File: base}, base},
		{"with live rules", ruled, order{Do: "move", File: base}, base},
		{"to a filter", native, order{Do: "move", File: base, Mode: store.Clsact}, base},
	} {
		n.run(t, c.name, func(t *testing.T) {
			c.do.Dev, c.do.Label = "lv0", "one"
			c.prepare(t)
			steps := record(t, c.do)
			t.Log("steps:", steps)
			for i, step := range steps {
				for _, kill := range []bool{false, true} {
					if step == "let "+
						"go" && !kill { // which fails nothing, as the new one is in force
						continue
					}
					c.prepare(t)
					before := status0(t)
					n.send(t, 3, 1)
					want := packets(&before, "one") + 3
					await.OK(t, func() error { return counted(t, "one", want) })
					inject(t, c.do, i, kill)
					n.send(t, 2, 1)
					want += 2
					what := fmt.Sprintf("step %d (%s), kill %v", i, step, kill)
					after := status(t)
					if after.Policy != before.Policy && filepath.Base(after.Policy) != c.after {
						t.Errorf("%s: policy %s", what, after.Policy)
					}
					if i <= slices.Index(steps, "swap") &&
						(after.Policy != before.Policy || after.Program.ID != before.Program.ID) {
						t.Errorf("%s: program %d of %s, want %d of %s", what, after.Program.ID,
							after.Policy, before.Program.ID, before.Policy)
					}
					if after.Live != nil {
						if err := LiveDown(t.Context(), "lv0"); err != nil {
							t.Error(err)
						}
					}
					await.OK(t, func() error { return counted(t, "one", want) })
					await.OK(t, func() error { return nothingElse(t, what) })
					if t.Failed() {
						return
					}
				}
			}
		})
	}
	n.run(t, "first up and down", func(t *testing.T) {
		if _, err := Down(t.Context(), "lv0"); err != nil {
			t.Fatal(err)
		}
		first := order{Do: "up", Dev: "lv0", Mode: mode, File: "new.levee", Label: "one"}
		ups := record(t, first)
		downs := record(t, order{Do: "down", Dev: "lv0"})
		for i := range ups {
			inject(t, first, i, true)
			_, _, _ = inspect.Status(t.Context(), true)
			_, _ = Down(t.Context(), "lv0") // the last steps come after the swap
			await.OK(t,
				func() error { return nothingAtAll(t, fmt.Sprint("up killed at ", ups[i])) })
			inject(t, first, i, false)
			_, _ = Down(t.Context(), "lv0")
			await.OK(t,
				func() error { return nothingAtAll(t, fmt.Sprint("up failed at ", ups[i])) })
		}
		for i := range downs {
			bring(t, "lv0", mode, named("a.levee", "one"))
			inject(t, order{Do: "down", Dev: "lv0"}, i, true)
			_, _, _ = inspect.Status(t.Context(), true)
			_, _ = Down(t.Context(), "lv0")
			await.OK(t,
				func() error { return nothingAtAll(t, fmt.Sprint("down killed at ", downs[i])) })
		}
	})
}

// The same for a replace in which a dynamic set changes its shape: whatever happens, the set that
// is in force afterwards has all entries, and takes more.
func TestFailureOrDeathWhileASetMovesLosesNoEntry(t *testing.T) {
	newTestNet(t)
	grow := order{Do: "up", Dev: "lv0", File: "new.levee", Text: abuserPolicy(2000)}
	var want []string
	prepare := func() {
		if err := bringPolicy(t, "lv0", abuserPolicy(1000), 0); err != nil {
			t.Fatal(err)
		}
		entry := netip.PrefixFrom(address(len(want)), 32)
		want = append(want, entry.String())
		if _, err := sets.Add(t.Context(), "lv0", "abusers",
			[]sets.Entry{{Prefix: entry}}); err != nil {
			t.Fatal(err)
		}
	}
	await.OK(t, func() error { return nothingAdded(t, nil) }) // and nothing is left from before
	prepare()
	clean := len(kernelObjects(t))
	steps := record(t, grow)
	if !slices.Contains(steps, "sets") {
		t.Fatal(steps)
	}
	for i, step := range steps {
		for _, kill := range []bool{false, true} {
			prepare()
			inject(t, grow, i, kill)
			if got := listed(t, "lv0"); got != strings.Join(want, " ") {
				t.Fatalf("step %d (%s), kill %v: the set has %s, want %s", i, step, kill, got, want)
			}
			await.OK(t, func() error {
				_ = status(t)
				if left := kernelObjects(t); len(left) != clean {
					return fmt.Errorf("step %d (%s), kill %v: left %v", i, step, kill, left)
				}
				return nil
			})
		}
	}
}

// stages returns functions that prepare the three states in which an order may find an interface: a
// policy in force, another one on trial, and a trial that has expired.
func stages(policy, another func(*testing.T)) (steady, trial, expired func(*testing.T)) {
	trial = func(t *testing.T) {
		policy(t)
		another(t)
	}
	return policy, trial, func(t *testing.T) {
		trial(t)
		expire(t)
	}
}

// status0 is status without a trial being ended on the way.
func status0(t *testing.T) inspect.Attachment {
	t.Helper()
	var out inspect.Attachment
	asItIs(t, func(s *store.Store, a *attach.Attachment) error {
		at, err := inspect.Tell(s, a)
		if err == nil {
			out = *at
		}
		return err
	})
	return out
}

// asItIs runs fn with the one attachment that there is, of which no trial is ended on the way.
func asItIs(t *testing.T, fn func(*store.Store, *attach.Attachment) error) {
	t.Helper()
	err := store.Transact(t.Context(), func(s *store.Store) error {
		keys, err := s.Keys()
		if err != nil || len(keys) != 1 {
			return fmt.Errorf("keys %v: %v", keys, err)
		}
		a, err := attach.Open(s, keys[0])
		if err != nil {
			return err
		}
		defer a.Close()
		return fn(s, a)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// expire lets the deadline of a trial pass now, if there is a trial, and does nothing else: tests
// need not wait, and no trial ends before it should on a busy machine.
func expire(t *testing.T) {
	t.Helper()
	asItIs(t, func(s *store.Store, a *attach.Attachment) (err error) {
		g := a.Trial()
		if g == nil {
			return nil
		}
		if g.Deadline, err = store.DeadlineAfter(0); err != nil {
			return err
		}
		p := must2(ebpf.NewProgramFromID(ebpf.ProgramID(g.Trial)))
		defer p.Close()
		ids, _ := must2(p.Info()).MapIDs()
		for _, id := range ids {
			m := must2(ebpf.NewMapFromID(id))
			defer m.Close()
			if m.ValueSize() == 8 && m.MaxEntries() == 1 && m.Flags()&unix.BPF_F_MMAPABLE != 0 {
				mem := must2(store.MapMemory(m, 8))
				binary.NativeEndian.PutUint64(mem, g.Deadline)
				if err := unix.Munmap(mem); err != nil {
					return err
				}
			}
		}
		turn := must2(generation.OpenTurn(s, a, g))
		defer turn.Close()
		turn.Give(g.Generation, g.Deadline, g.Fallback)
		return store.WriteJSON(s.DescriptionPath(a.Key, g.Generation), g)
	})
	await.Pass(30*time.Millisecond, "a few ticks of the slowest kernel's clock")
}

// counted checks the total of a slot without ending a trial.
func counted(t *testing.T, id string, want uint64) error {
	a := status0(t)
	if got := packets(&a, id); got != want {
		return fmt.Errorf("%s counted %d, want %d", id, got, want)
	}
	return nil
}

// record runs an order and lists its steps.
func record(t *testing.T, o order) []string {
	t.Helper()
	var steps []string
	ctx := stepping(t.Context(), func(step string) error {
		steps = append(steps, step)
		return nil
	})
	if err := o.run(ctx); err != nil {
		t.Fatal(err)
	}
	return steps
}

// inject runs an order that fails or dies at a step.
func inject(t *testing.T, o order, at int, kill bool) {
	t.Helper()
	if kill {
		o.Kill = at + 1
		if out, killed := inChild(t, o); !killed {
			t.Fatalf("not killed at step %d: %s", at, out)
		}
		return
	}
	if err := o.runInjected(at); !errors.Is(err, errInjected) {
		t.Fatalf("step %d: %v, want the injected error", at, err)
	}
}

// runInjected runs an order that fails at a step.
func (o order) runInjected(at int) error {
	n := 0
	return o.run(stepping(context.Background(), func(string) error {
		if n++; n == at+1 {
			return errInjected
		}
		return nil
	}))
}

// nothingElse checks that only the policies that status tells of are left.
func nothingElse(t *testing.T, what string) error {
	a := status(t)
	// What was compared is there if somebody has looked.
	objects, files := kernelObjects(t), keptBut(t, store.JudgingDir)
	want, wantFiles := 3, "- - N N bpf clock.json link lock prog state tally"
	if a.Trial != 0 {
		want, wantFiles = 8,
			"- - N N N N bpf clock.json link lock prog prog prog_trial state tally tally then"
	}
	switch {
	case a.Mode == store.Clsact: // a filter is no link
		want, wantFiles = want-1, strings.Replace(wantFiles, " link", "", 1)
	case *joinedNets: // nor is a jump table
		want, wantFiles = want-1, strings.Replace(wantFiles, " link", "", 1)
		wantFiles = strings.Replace(wantFiles, "bpf ", "bpf caller ", 1)
		wantFiles = strings.Replace(wantFiles, "state ", "slot state ", 1)
	}
	if len(objects) != want || files != wantFiles {
		return fmt.Errorf("%s: left %v, want %d objects; files %q, want %q", what, objects, want,
			files, wantFiles)
	}
	return nil
}

func nothingAtAll(t *testing.T, what string) error {
	objects, files := kernelObjects(t), kept(t)
	if len(objects) != 0 || files != "" {
		return fmt.Errorf("%s: left %v and files %q", what, objects, files)
	}
	return nil
}
