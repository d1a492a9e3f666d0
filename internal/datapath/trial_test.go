package datapath

import (
	"context"
	"strings"
	"testing"
	"time"

	"levee/internal/policy"
)

func bringOnTrial(t testing.TB, p *policy.Policy, d time.Duration) *Report {
	t.Helper()
	r, err := Up(context.Background(), UpOptions{Dev: "lv0", Confirm: d, PolicyPath: "/etc/" + p.File}, compileHand(p))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// named is handPolicy in a file of that name.
func named(file, label string) *policy.Policy {
	p := handPolicy(label, policy.Pass)
	p.File = file
	return p
}

func TestTrialConfirmedStaysWithItsCounters(t *testing.T) {
	n := newTestNet(t)
	for _, before := range []bool{false, true} {
		if before {
			bring(t, "lv0", Auto, named("old.levee", "odd"))
			n.send(t, 4, 1)
			wantPackets(t, "odd", 4)
		}
		r := bringOnTrial(t, named("new.levee", "odd"), time.Minute)
		if r.Trial != time.Minute {
			t.Errorf("report %+v", r)
		}
		n.send(t, 6, 1)
		want := uint64(6)
		if before {
			want = 10
		}
		wantPackets(t, "odd", want)
		if a := status(t); a.Trial <= 50*time.Second || a.Trial > time.Minute || a.Policy != "/etc/new.levee" || a.Program.ID != r.Program {
			t.Errorf("on trial: %+v", a)
		}
		if err := Confirm(context.Background(), "lv0"); err != nil {
			t.Fatal(err)
		}
		n.send(t, 5, 1)
		wantPackets(t, "odd", want+5)
		if a := status(t); a.Trial != 0 || a.Policy != "/etc/new.levee" || a.Program.ID == r.Program {
			t.Errorf("confirmed: %+v", a)
		}
		if err := Confirm(context.Background(), "lv0"); err == nil || !strings.Contains(err.Error(), "nothing to confirm") {
			t.Errorf("confirmed twice: %v", err)
		}
		if _, err := Down(context.Background(), "lv0"); err != nil {
			t.Fatal(err)
		}
	}
	runDirIsGone(t)
}

func TestTrialNotConfirmedIsRolledBackByTheKernel(t *testing.T) {
	n := newTestNet(t)
	bring(t, "lv0", Auto, named("old.levee", "old"))
	old := status(t).Program.ID
	n.send(t, 4, 1)
	wantPackets(t, "old", 4)
	bringOnTrial(t, named("new.levee", "new"), 400*time.Millisecond)
	n.send(t, 6, 1)
	wantPackets(t, "new", 6)
	time.Sleep(500 * time.Millisecond)
	n.send(t, 3, 1) // no command has run since: the kernel alone judges these by the old policy
	a := status(t)
	if a.Policy != "/etc/old.levee" || a.Program.ID != old || a.Trial != 0 || a.RolledBack == nil || a.RolledBack.Policy != "/etc/new.levee" {
		t.Errorf("rolled back: %+v", a)
	}
	wantPackets(t, "old", 7)
	if err := Confirm(context.Background(), "lv0"); err == nil || !strings.Contains(err.Error(), "too late") {
		t.Errorf("confirmed too late: %v", err)
	}
	bring(t, "lv0", Auto, named("newer.levee", "old"))
	if a := status(t); a.RolledBack != nil {
		t.Errorf("a new policy still tells of the old roll-back: %+v", a.RolledBack)
	}
	wantPackets(t, "old", 7)
}

func TestTrialOfTheFirstPolicyEndsInNone(t *testing.T) {
	n := newTestNet(t)
	before := kernelObjects(t)
	p := named("new.levee", "new")
	p.Default.Action = policy.Drop
	bringOnTrial(t, p, 200*time.Millisecond)
	n.send(t, 6, 1)
	wantPackets(t, "new", 6)
	time.Sleep(300 * time.Millisecond)
	all, notes, err := Status(context.Background(), true)
	if err != nil || len(all) != 0 || len(notes) != 1 || !strings.Contains(notes[0], "was not confirmed in time") {
		t.Errorf("%v %v %v", all, notes, err)
	}
	if after := kernelObjects(t); strings.Join(after, " ") != strings.Join(before, " ") {
		t.Errorf("before: %v, after: %v", before, after)
	}
	runDirIsGone(t)
}

func TestSecondUpDuringATrial(t *testing.T) {
	n := newTestNet(t)
	bring(t, "lv0", Auto, named("confirmed.levee", "one"))
	n.send(t, 2, 1)
	wantPackets(t, "one", 2)
	bringOnTrial(t, named("first.levee", "two"), time.Minute)
	n.send(t, 3, 1)
	wantPackets(t, "two", 3)
	// A second trial returns to what was confirmed last, not to the first trial.
	bringOnTrial(t, named("second.levee", "one"), 300*time.Millisecond)
	n.send(t, 4, 1)
	wantPackets(t, "one", 6)
	time.Sleep(400 * time.Millisecond)
	n.send(t, 5, 1)
	wantPackets(t, "one", 11)
	if a := status(t); a.Policy != "/etc/confirmed.levee" {
		t.Errorf("returned to %s", a.Policy)
	}
	// An up without a trial during a trial is final.
	bringOnTrial(t, named("third.levee", "one"), 200*time.Millisecond)
	bring(t, "lv0", Auto, named("final.levee", "one"))
	time.Sleep(300 * time.Millisecond)
	if a := status(t); a.Policy != "/etc/final.levee" || a.Trial != 0 {
		t.Errorf("%+v", a)
	}
	wantPackets(t, "one", 11)
}

func TestWaitTrial(t *testing.T) {
	newTestNet(t)
	r := bringOnTrial(t, named("a.levee", "one"), 200*time.Millisecond)
	wait := func(want TrialEnd) {
		t.Helper()
		if end, err := WaitTrial(context.Background(), "lv0", r.Generation, 50*time.Millisecond); end != want || err != nil {
			t.Errorf("%v %v, want %v", end, err, want)
		}
	}
	wait(NotConfirmed)
	r = bringOnTrial(t, named("a.levee", "one"), time.Minute)
	if err := Confirm(context.Background(), "lv0"); err != nil {
		t.Fatal(err)
	}
	wait(Confirmed)
	r = bringOnTrial(t, named("a.levee", "one"), time.Minute)
	bring(t, "lv0", Auto, named("b.levee", "one"))
	wait(Replaced)
}
