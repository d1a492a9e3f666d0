package part

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// watch is a register, and what it has told.
func watch() (*Register, *[]string) {
	told := &[]string{}
	return NewRegister(func(c Change, s Status) {
		what := [...]string{"failed", "differs", "recovered", "gone"}[c]
		*told = append(*told, what+": "+s.Sentence())
	}), told
}

// one is the state of the only part.
func one(t *testing.T, r *Register) Status {
	t.Helper()
	all := r.List()
	if len(all) != 1 {
		t.Fatalf("%d parts: %+v", len(all), all)
	}
	return all[0]
}

// TestAFailureIsOneAlarmUntilItIsOver, with what to do about it.
func TestAFailureIsOneAlarmUntilItIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, told := watch()
		p := r.Begin(Detector, "floods", "eth0")
		if s := one(t, r); s.State != Waits || s.Error == "" {
			t.Errorf("at first: %+v", s)
		}
		for range 3 {
			p.Fails(fmt.Errorf("eth0: %w", Do(errors.New("refused"), "allow it")))
			time.Sleep(time.Second)
		}
		s := one(t, r)
		if s.State != Fails || s.Failures != 1 || s.Error != "eth0: refused" || s.Do != "allow it" {
			t.Errorf("while it fails: %+v", s)
		}
		want := []string{"failed: detector floods on eth0 does not work: eth0: refused; to do: " +
			"allow it"}
		if !slices.Equal(*told, want) {
			t.Errorf("told %q", *told)
		}
		p.Saw(time.Now(), "7 packets")
		if s := one(t, r); s.State != Works || s.Error != "" || s.LastError != "eth0: refused" ||
			s.Saw != "7 packets" || len(*told) != 1 {
			t.Errorf("when it works: %+v, told %q", s, *told)
		}
		p.Fails(errors.New("refused again")) // it comes and goes: the same alarm
		p.Works()
		time.Sleep(settled)
		r.Look()
		want = append(want, "recovered: detector floods on eth0 works")
		if !slices.Equal(*told, want) {
			t.Errorf("told %q", *told)
		}
		p.Fails(errors.New("once more"))
		p.End()
		if len(*told) != 4 || !strings.HasPrefix((*told)[3], "gone: ") || len(r.List()) != 0 {
			t.Errorf("told %q, there are %v", *told, r.List())
		}
	})
}

// TestAPartThatSaysNothingFails: one that has never begun, one that waits too long, and one that
// has stopped to look.
func TestAPartThatSaysNothingFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, told := watch()
		r.Begin(Source, "never", "")
		r.Begin(Source, "missing", "").Waits("the file is not there", "look at its path")
		hangs := r.Begin(Detector, "hangs", "eth0").Within(30 * time.Second)
		hangs.Works()
		quiet := r.Begin(File, "ledger", "")
		quiet.Works() // need not say so again
		time.Sleep(Patience + time.Second)
		r.Look()
		states := map[string]State{}
		for _, s := range r.List() {
			states[s.Name] = s.State
			if s.State == Fails && s.Error == "" {
				t.Errorf("no reason: %+v", s)
			}
		}
		want := map[string]State{"never": Fails, "missing": Fails, "hangs": Fails, "ledger": Works}
		if fmt.Sprint(states) != fmt.Sprint(want) || len(*told) != 3 {
			t.Errorf("%v, told %q", states, *told)
		}
		hangs.Works()
		time.Sleep(settled)
		r.Look()
		if n := len(*told); n != 4 {
			t.Errorf("told %q", *told)
		}
	})
}

// TestAPartRunsAgain after it has returned and after a mistake, with pauses that grow until it
// works.
func TestAPartRunsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := watch()
		p := r.Begin(Detector, "floods", "eth0")
		ctx, cancel := context.WithCancel(t.Context())
		begun := time.Now()
		var at []time.Duration
		p.Run(ctx, func(context.Context) error {
			at = append(at, time.Since(begun))
			switch len(at) {
			case 1:
				panic("a mistake")
			case 3:
				p.Works()
				time.Sleep(time.Hour)
			case 5:
				cancel()
			}
			if s := one(t, r); len(at) == 2 && s.Error != "a mistake in levee: a mistake" {
				t.Errorf("%+v", s)
			}
			return errors.New("ended")
		})
		want := []time.Duration{0, time.Second, 3 * time.Second, time.Hour + 4*time.Second,
			time.Hour + 6*time.Second}
		if !slices.Equal(at, want) {
			t.Errorf("ran at %v, want %v", at, want)
		}
	})
}

// TestPartsOfOneNameAreOne, which is there until the last has ended it.
func TestPartsOfOneNameAreOne(t *testing.T) {
	r, _ := watch()
	a, b := r.Begin(File, "incidents", ""), r.Begin(File, "incidents", "")
	a.Fails(errors.New("full"))
	b.End()
	if s := one(t, r); s.State != Fails {
		t.Errorf("%+v", s)
	}
	a.End()
	if all := r.List(); len(all) != 0 {
		t.Errorf("%+v", all)
	}
	var none *Register
	none.Begin(File, "incidents", "").Fails(errors.New("nobody hears it"))
	none.Look()
}

// TestEachKindIsListed in an order of its own, as one that nobody knows is, too.
func TestEachKindIsListed(t *testing.T) {
	r, _ := watch()
	for _, k := range append([]Kind{"unknown"}, Kinds...) {
		r.Begin(k, "x", "")
	}
	var got []Kind
	for _, s := range r.List() {
		got = append(got, s.Kind)
	}
	if want := append(slices.Clone(Kinds), "unknown"); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}
