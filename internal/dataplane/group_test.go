package dataplane

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
)

// failsAt compiles the policy of a file for all interfaces but one, counted from 1.
func failsAt(nth int, file string) CompileFunc {
	n := 0
	compile := compileHand(named(file, "one"))
	return func(t codegen.Target) (*codegen.Program, error) {
		if !t.Trial {
			n++
		}
		if n == nth {
			return nil, errInjected
		}
		return compile(t)
	}
}

// What one of several interfaces cannot take, none of them has afterwards: they are as they were,
// with what was before, with a trial that is under way, or with nothing.
func TestAFailureOnOneInterfaceLeavesAllAsBefore(t *testing.T) {
	n := newTestNet(t)
	addVeth(t, "lv2", "lv3", n.peer)
	devs := []string{"lv0", "lv2"}
	both := UpOptions{Names: devs, PolicyPath: "/etc/new.levee"}
	before := map[string]func(t *testing.T){
		"nothing": func(*testing.T) {},
		"a policy on one": func(t *testing.T) {
			bring(t, "lv0", store.Auto, named("old.levee", "one"))
		},
		"a policy on both": func(t *testing.T) {
			o := UpOptions{Names: devs, PolicyPath: "/etc/old.levee"}
			if _, err := UpAll(t.Context(), devs, o,
				compileHand(named("old.levee", "one"))); err != nil {
				t.Fatal(err)
			}
		},
		"a trial on both": func(t *testing.T) {
			o := UpOptions{Names: devs, PolicyPath: "/etc/old.levee"}
			if _, err := UpAll(t.Context(), devs, o,
				compileHand(named("old.levee", "one"))); err != nil {
				t.Fatal(err)
			}
			o.PolicyPath, o.Confirm = "/etc/trial.levee", time.Hour
			if _, err := UpAll(t.Context(), devs, o,
				compileHand(named("trial.levee", "one"))); err != nil {
				t.Fatal(err)
			}
		},
	}
	for name, prepare := range before {
		n.run(t, name, func(t *testing.T) {
			prepare(t)
			n.send(t, 3, 1)
			was := standing(t)
			for _, confirm := range []time.Duration{0, time.Hour} {
				o := both
				o.Confirm = confirm
				reps, err := UpAll(t.Context(), devs, o, failsAt(2, "new.levee"))
				if !errors.Is(err, errInjected) || len(reps) > 0 {
					t.Fatalf("%d reports, %v", len(reps), err)
				}
				if is := standing(t); !slices.Equal(is, was) {
					t.Errorf("before %v, after %v", was, is)
				}
			}
			for _, dev := range devs {
				_, _ = Down(t.Context(), dev)
			}
			runDirIsGone(t)
		})
	}
}

// A failure at any step leaves all interfaces with what they had before, or, behind the last swap,
// with the new policy.
func TestAFailureAtAnyStepLeavesInterfacesAlike(t *testing.T) {
	n := newTestNet(t)
	addVeth(t, "lv2", "lv3", n.peer)
	devs := []string{"lv0", "lv2"}
	up := func(ctx context.Context, file string, confirm time.Duration) error {
		_, err := UpAll(ctx, devs, UpOptions{Names: devs, PolicyPath: file,
			Confirm: confirm}, compileHand(named(file, "one")))
		return err
	}
	for _, c := range []struct {
		name    string
		replace bool
		confirm time.Duration
	}{{"first", false, 0}, {"replace", true, 0}, {"replace on trial", true, time.Hour}} {
		n.run(t, c.name, func(t *testing.T) {
			prepare := func() []standsOn {
				if c.replace {
					if err := up(t.Context(), "old.levee", 0); err != nil {
						t.Fatal(err)
					}
				} else {
					for _, dev := range devs {
						_, _ = Down(t.Context(), dev)
					}
				}
				return standing(t)
			}
			hook := func(fails func(i int, step string) bool) (steps []string, err error) {
				ctx := stepping(t.Context(), func(step string) error {
					steps = append(steps, step)
					if fails(len(steps)-1, step) {
						return errInjected
					}
					return nil
				})
				err = up(ctx, "new.levee", c.confirm)
				return steps, err
			}
			prepare()
			steps, err := hook(func(int, string) bool { return false })
			if err != nil {
				t.Fatal(err)
			}
			t.Log("steps:", steps)
			last := 0
			for i, step := range steps {
				if step == "swap" || step == "keep" {
					last = i
				}
			}
			for i, step := range steps {
				was := prepare()
				if _, err := hook(func(k int, _ string) bool { return k == i }); !errors.Is(err,
					errInjected) {
					t.Fatalf("step %d (%s): %v", i, step, err)
				}
				is := standing(t)
				if i <= last && !slices.Equal(is, was) {
					t.Errorf("step %d (%s): before %v, after %v", i, step, was, is)
				}
				if i > last && (len(is) != 2 || is[0].policy != "new.levee" ||
					is[1].policy != "new.levee") {
					t.Errorf("step %d (%s), when all have the new policy: %v", i, step, is)
				}
			}
			if !c.replace {
				return
			}
			// One that cannot go back is named, and the next command makes them alike.
			prepare()
			_, err = hook(func(k int, step string) bool { return k == last || step == "undo" })
			if err == nil || !strings.Contains(err.Error(), "lv0 has the new policy still") {
				t.Errorf("an interface that did not go back: %v", err)
			}
			if err := up(t.Context(), "newer.levee", 0); err != nil {
				t.Error(err)
			}
			if is := standing(t); len(is) != 2 || is[0].policy != is[1].policy {
				t.Errorf("after the next command: %v", is)
			}
		})
	}
	for _, dev := range devs {
		_, _ = Down(t.Context(), dev)
	}
}

// standsOn holds the part of an interface's status that should not change.
type standsOn struct {
	dev, policy, together string
	program               uint32
	trial                 bool
}

func standing(t *testing.T) (out []standsOn) {
	t.Helper()
	for _, a := range must(inspect.Status(t.Context(), false)) {
		out = append(out, standsOn{a.Dev, a.Policy, a.Together, a.Program.ID, a.Trial > 0})
	}
	return out
}

func TestInterfacesAreFoundByNameAndPattern(t *testing.T) {
	n := newTestNet(t)
	addVeth(t, "lv2", "lv3", n.peer)
	n.run(t, "all", func(t *testing.T) {
		for _, c := range []struct{ names, want []string }{
			{[]string{"lv0"}, []string{"lv0"}}, {[]string{"lv*"}, []string{"lv0", "lv2"}},
			{[]string{"lv2", "lv*"}, []string{"lv2", "lv0"}},
			{[]string{"lo", "zz*"}, []string{"lo"}},
			{[]string{"nosuch", "lv0"}, nil}, {[]string{"zz*"}, nil},
		} {
			got, err := Interfaces(c.names, false)
			if !slices.Equal(got, c.want) || (err != nil) != (c.want == nil) {
				t.Errorf("%v: %v, %v", c.names, got, err)
			}
		}
	})
}
