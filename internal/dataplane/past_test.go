package dataplane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/sets"
)

// dropping is a policy that drops what comes to a port.
func dropping(port int) string { return fmt.Sprintf("drop tcp port %d\ndefault pass\n", port) }

// wantPast fails unless the policies that were in force on an interface are those that drop these
// ports, the newest first.
func wantPast(t *testing.T, when, dev string, ports ...int) {
	t.Helper()
	all, _, err := Past(t.Context(), dev)
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for _, p := range all {
		got = append(got, string(p.Source))
	}
	for _, port := range ports {
		want = append(want, dropping(port))
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", when, got, want)
	}
}

// TestWhatWasInForceIsRemembered is about what is and what is not: a trial is once it is confirmed.
func TestWhatWasInForceIsRemembered(t *testing.T) {
	t.Setenv(sets.LibEnv, t.TempDir())
	n := newTestNet(t)
	up := func(dev string, port int, trial time.Duration) {
		t.Helper()
		if err := bringPolicy(t, dev, dropping(port), trial); err != nil {
			t.Fatal(err)
		}
	}
	wantPast(t, "before all", "lv0")
	up("lv0", 1, 0)
	up("lv0", 1, 0)
	wantPast(t, "the same twice", "lv0", 1)
	up("lv0", 2, time.Hour)
	wantPast(t, "on trial", "lv0", 1)
	up("lv0", 3, time.Hour)
	if _, err := Confirm(t.Context(), "lv0"); err != nil {
		t.Fatal(err)
	}
	wantPast(t, "confirmed", "lv0", 3, 1)
	if _, err := Live(t.Context(), LiveOptions{Dev: "lv0", Lease: time.Hour,
		Rules: []inspect.LiveRule{{Rule: "drop udp"}}, Over: over(t)},
		compileText("drop udp\n"+dropping(3))); err != nil {
		t.Fatal(err)
	}
	wantPast(t, "with live rules", "lv0", 3, 1)
	if err := LiveDown(t.Context(), "lv0"); err != nil {
		t.Fatal(err)
	}
	rep, err := bringWithFallback(t, onErrorText, first("load", 1))
	if err != nil || rep.Fallback == nil {
		t.Fatalf("%+v, %v", rep, err)
	}
	wantPast(t, "by on error", "lv0", 3, 1)

	addVeth(t, "old0", "old1", n.peer)
	up("old0", 4, 0)
	wantPast(t, "of another interface", "old0", 4)
	wantPast(t, "beside another interface", "lv0", 3, 1)
	rename(t, "old0", "new0")
	wantPast(t, "renamed", "new0", 4)
	up("new0", 5, 0)
	wantPast(t, "under the new name", "new0", 5)
	if _, err := UpAll(t.Context(), []string{"lv0", "new0"}, UpOptions{Names: []string{"lv0",
		"new0"}, PolicyPath: "/etc/test.levee", Source: []byte(dropping(6))},
		compileText(dropping(6))); err != nil {
		t.Fatal(err)
	}
	wantPast(t, "together", "lv0", 6, 3, 1)
	wantPast(t, "together", "new0", 6, 5)
	for _, dev := range []string{"lv0", "new0"} {
		if _, err := Down(t.Context(), dev); err != nil {
			t.Fatal(err)
		}
	}
	wantPast(t, "taken off", "lv0", 6, 3, 1)
}

// over is the policy in force on lv0, for live rules.
func over(t *testing.T) sets.PolicyState {
	t.Helper()
	a := status(t)
	return sets.PolicyState{Dev: a.Dev, Generation: a.Generation, Program: a.Program.ID}
}

// TestThePastOfNamespacesIsApart: an interface of a lab has the name of one of the machine.
func TestThePastOfNamespacesIsApart(t *testing.T) {
	newTestNet(t)
	os.Unsetenv(sets.LibEnv)
	if _, _, err := Past(t.Context(), "lv0"); !errors.Is(err, errNoPast) {
		t.Errorf("in another namespace: %v", err)
	}
	rep, err := Up(t.Context(), UpOptions{Dev: "lv0", PolicyPath: "/etc/test.levee"},
		compileText(dropping(1)))
	if err != nil || len(rep.Notes) > 0 {
		t.Errorf("%v, %v", rep, err)
	}
	if _, err := os.Stat(filepath.Join(sets.LibDir, "lv0", pastDir)); err == nil {
		t.Error("the policy of a namespace is kept for the machine")
	}
}

// TestDeathAtAnyStepOfRememberingLeavesWholePolicies on the disk and in force.
func TestDeathAtAnyStepOfRememberingLeavesWholePolicies(t *testing.T) {
	t.Setenv(sets.LibEnv, t.TempDir())
	newTestNet(t)
	ordered := func(port int) order {
		return order{Do: "up", Dev: "lv0", File: "/etc/test.levee", Text: dropping(port)}
	}
	steps := record(t, ordered(1))
	at := slices.IndexFunc(steps, func(s string) bool { return strings.HasPrefix(s, "past: ") })
	if at < 0 {
		t.Fatalf("steps %q", steps)
	}
	last := 1
	for i := at; i < len(steps); i++ {
		if !strings.HasPrefix(steps[i], "past: ") {
			continue
		}
		next := ordered(last + 1)
		now := record(t, ordered(last)) // a replace has other steps
		first := slices.IndexFunc(now, func(s string) bool { return s == steps[i] })
		if first >= 0 {
			t.Errorf("the same policy is written twice: step %q", steps[i])
		}
		k := slices.Index(record(t, next), steps[i])
		after := ordered(last + 2)
		after.Kill = k + 1
		if _, killed := inChild(t, after); !killed {
			t.Fatalf("not killed at step %s", steps[i])
		}
		if _, notes, err := Past(t.Context(), "lv0"); err != nil || len(notes) > 0 {
			t.Errorf("killed at step %s: %q, %v", steps[i], notes, err)
		}
		if in, _, err := inspect.Show(t.Context(), "lv0"); err != nil ||
			string(in.Source) != dropping(last+2) {
			t.Errorf("killed at step %s: %v, %v", steps[i], in, err)
		}
		if err := bringPolicy(t, "lv0", dropping(last+2), 0); err != nil {
			t.Fatal(err)
		}
		wantNewest(t, steps[i], last+2)
		last += 2
	}
}

// wantNewest fails unless the policy that was in force last drops a port.
func wantNewest(t *testing.T, when string, port int) {
	t.Helper()
	all, _, err := Past(t.Context(), "lv0")
	if err != nil || len(all) == 0 || string(all[0].Source) != dropping(port) {
		t.Errorf("%s: %v, %v", when, all, err)
	}
}

// TestWhatCannotBeRememberedIsTold and is in force all the same: on a full disk, and where the
// directory cannot be.
func TestWhatCannotBeRememberedIsTold(t *testing.T) {
	lib := t.TempDir()
	t.Setenv(sets.LibEnv, lib)
	newTestNet(t)
	if err := syscall.Mount("tmpfs", lib, "tmpfs", 0, "size=16k"); err != nil {
		t.Fatal(err)
	}
	defer syscall.Unmount(lib, syscall.MNT_DETACH)
	_ = os.WriteFile(filepath.Join(lib, "others"), make([]byte, 1<<20), 0o600)
	told := func(when, is string, notes []string) {
		t.Helper()
		if len(notes) != 1 || !strings.HasPrefix(notes[0], "/etc/test.levee is "+is+
			" could not be written to the disk (") ||
			!strings.Contains(notes[0], "no space left on device") {
			t.Errorf("%s: notes %q", when, notes)
		}
	}
	put := func(port int, trial time.Duration) []string {
		t.Helper()
		rep, err := Up(t.Context(), UpOptions{Dev: "lv0", Confirm: trial,
			PolicyPath: "/etc/test.levee", Source: []byte(dropping(port))},
			compileText(dropping(port)))
		if err != nil {
			t.Fatal(err)
		}
		return rep.Notes
	}
	told("full", "in force on lv0, but", put(1, 0))
	told("on trial", "on trial on lv0, which", put(2, time.Hour))
	notes, err := Confirm(t.Context(), "lv0")
	if err != nil {
		t.Fatal(err)
	}
	told("confirmed", "in force on lv0, but", notes)
	if err := os.Remove(filepath.Join(lib, "others")); err != nil {
		t.Fatal(err)
	}
	if notes := put(3, 0); len(notes) > 0 {
		t.Errorf("with room again: %q", notes)
	}
	wantPast(t, "with room again", "lv0", 3)
}

// TestWhatWasInForceStandsIn for a policy that cannot be, before what `on error` asks for; nothing
// that was in force is worse than what was.
func TestWhatWasInForceStandsIn(t *testing.T) {
	t.Setenv(sets.LibEnv, t.TempDir())
	newTestNet(t)
	const before = "/etc/test.levee"
	for _, port := range []int{1, 2} {
		if err := bringPolicy(t, "lv0", dropping(port), 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Down(t.Context(), "lv0"); err != nil {
		t.Fatal(err)
	}
	mistake := errors.New("eth0.levee:3: no such set")
	bring := func(broken int) *Report {
		t.Helper()
		rep, err := Up(t.Context(), UpOptions{Dev: "lv0", PolicyPath: "/etc/new.levee",
			Source: []byte("drop"), Fallbacks: fallbacks(compileText(onErrorText)),
			Else: func() (out []Fallback) {
				all, _, err := Past(t.Context(), "lv0")
				if err != nil {
					t.Fatal(err)
				}
				for i := range all {
					f := Fallback{compileText(string(all[i].Source)), &all[i]}
					if i < broken {
						f.Compile = Unusable(errInjected)
					}
					out = append(out, f)
				}
				return out
			}}, Unusable(mistake))
		if err != nil || !errors.Is(rep.Fallback, mistake) {
			t.Fatalf("%+v, %v", rep, err)
		}
		return rep
	}
	for broken, want := range []string{dropping(2), dropping(1)} {
		rep := bring(broken)
		a := status(t)
		in, _, err := inspect.Show(t.Context(), "lv0")
		if err != nil || string(in.Source) != want || in.Path != before || rep.Past == nil ||
			string(rep.Past.Source) != want || a.OnError != "" || a.Instead != mistake.Error() {
			t.Errorf("%d broken: %+v, %v; status %q, %q", broken, in, err, a.OnError, a.Instead)
		}
		wantPast(t, "stood in", "lv0", 2, 1)
	}
	if rep := bring(2); rep.Past != nil || status(t).OnError != mistake.Error() ||
		status(t).Instead != "" {
		t.Errorf("all broken: %+v, %q", rep, status(t).OnError)
	}
	if err := bringPolicy(t, "lv0", dropping(3), 0); err != nil || status(t).Instead != "" ||
		status(t).OnError != "" {
		t.Errorf("mended: %v, %+v", err, status(t))
	}
}
