package dataplane

import (
	"bufio"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"levee/internal/await"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/store"
	"levee/internal/lang/action"
	"levee/internal/lang/policy"
)

func bringOnTrial(t testing.TB, p *policy.Policy, d time.Duration) *Report {
	t.Helper()
	r, err := Up(context.Background(),
		UpOptions{Dev: "lv0", Confirm: d, PolicyPath: "/etc/" + p.File}, compileHand(p))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// named is handPolicy in a file of that name.
func named(file, label string) *policy.Policy {
	p := handPolicy(label, action.Pass)
	p.File = file
	return p
}

func TestTrialConfirmedStaysWithItsCounters(t *testing.T) {
	n := newTestNet(t)
	for _, before := range []bool{false, true} {
		if before {
			bring(t, "lv0", store.Auto, named("old.levee", "odd"))
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
		// The kernel's clock ticks: what is left is rounded up to its next tick, of at most 10 ms.
		if a := status(t); a.Trial <= 50*time.Second || a.Trial > time.Minute+10*time.Millisecond ||
			a.Policy != "/etc/new.levee" || a.Program.ID != r.Program {
			t.Errorf("on trial: %+v", a)
		}
		if _, err := Confirm(context.Background(), "lv0"); err != nil {
			t.Fatal(err)
		}
		n.send(t, 5, 1)
		wantPackets(t, "odd", want+5)
		if a := status(t); a.Trial != 0 || a.Policy != "/etc/new.levee" ||
			a.Program.ID == r.Program {
			t.Errorf("confirmed: %+v", a)
		}
		if _, err := Confirm(context.Background(), "lv0"); err == nil ||
			!strings.Contains(err.Error(), "nothing to confirm") {
			t.Errorf("confirmed twice: %v", err)
		}
		if _, err := Down(context.Background(), "lv0"); err != nil {
			t.Fatal(err)
		}
	}
	runDirIsGone(t)
}

// TestCountersBeginAnewWithAnotherAction, of a rule whose label stays and of the default: what one
// policy has dropped is not what the next has passed. A rollback has what was counted before.
func TestCountersBeginAnewWithAnotherAction(t *testing.T) {
	n := newTestNet(t)
	of := func(rule, byDefault action.Action) *policy.Policy {
		p := handPolicy("odd", byDefault)
		p.Rules[0].Action = rule
		return p
	}
	want := func(odd, rest uint64) {
		t.Helper()
		wantPackets(t, "odd", odd)
		wantPackets(t, "default", rest)
	}
	bring(t, "lv0", store.Auto, of(action.Log, action.Drop))
	n.send(t, 3, 1)
	n.send(t, 5, 2)
	want(3, 5)
	r := bringOnTrial(t, of(action.Pass, action.Drop), time.Hour)
	want(0, 5)
	n.send(t, 1, 1)
	n.send(t, 1, 2)
	want(1, 6)
	if _, err := generation.RollBack(t.Context(), "lv0", r.Generation); err != nil {
		t.Fatal(err)
	}
	want(3, 6)
	bring(t, "lv0", store.Auto, of(action.Log, action.Pass))
	want(3, 0)
	n.send(t, 2, 1)
	n.send(t, 2, 2)
	want(5, 2)
	bring(t, "lv0", store.Auto, of(action.Drop, action.Drop))
	want(0, 0)
}

func TestTrialNotConfirmedIsRolledBackByTheKernel(t *testing.T) {
	n := newTestNet(t)
	bring(t, "lv0", store.Auto, named("old.levee", "old"))
	old := status(t).Program.ID
	n.send(t, 4, 1)
	wantPackets(t, "old", 4)
	bringOnTrial(t, named("new.levee", "new"), time.Minute)
	n.send(t, 6, 1)
	wantPackets(t, "new", 6)
	expire(t)
	n.send(t, 3, 1) // no command has run since: the kernel alone judges these by the old policy
	a := status(t)
	if a.Policy != "/etc/old.levee" || a.Program.ID != old || a.Trial != 0 || a.RolledBack == nil ||
		a.RolledBack.Policy != "/etc/new.levee" {
		t.Errorf("rolled back: %+v", a)
	}
	wantPackets(t, "old", 7)
	if _, err := Confirm(context.Background(), "lv0"); err == nil ||
		!strings.Contains(err.Error(), "too late") {
		t.Errorf("confirmed too late: %v", err)
	}
	bring(t, "lv0", store.Auto, named("newer.levee", "old"))
	if a := status(t); a.RolledBack != nil {
		t.Errorf("a new policy still tells of the old roll-back: %+v", a.RolledBack)
	}
	wantPackets(t, "old", 7)
}

func TestTrialOfTheFirstPolicyEndsInNone(t *testing.T) {
	n := newTestNet(t)
	before := kernelObjects(t)
	p := named("new.levee", "new")
	p.Default.Action = action.Drop
	bringOnTrial(t, p, time.Minute)
	n.send(t, 6, 1)
	wantPackets(t, "new", 6)
	expire(t)
	all, notes, err := inspect.Status(context.Background(), true)
	if err != nil || len(all) != 0 || len(notes) != 1 ||
		!strings.Contains(notes[0], "was not confirmed in time") {
		t.Errorf("%v %v %v", all, notes, err)
	}
	if err := nothingAdded(t, before); err != nil {
		t.Error(err)
	}
	runDirIsGone(t)
}

func TestSecondUpDuringATrial(t *testing.T) {
	n := newTestNet(t)
	bring(t, "lv0", store.Auto, named("confirmed.levee", "one"))
	n.send(t, 2, 1)
	wantPackets(t, "one", 2)
	bringOnTrial(t, named("first.levee", "two"), time.Minute)
	n.send(t, 3, 1)
	wantPackets(t, "two", 3)
	// A second trial returns to what was confirmed last, not to the first trial.
	bringOnTrial(t, named("second.levee", "one"), time.Minute)
	n.send(t, 4, 1)
	wantPackets(t, "one", 6)
	expire(t)
	n.send(t, 5, 1)
	wantPackets(t, "one", 11)
	if a := status(t); a.Policy != "/etc/confirmed.levee" {
		t.Errorf("returned to %s", a.Policy)
	}
	// An up without a trial during a trial is final.
	bringOnTrial(t, named("third.levee", "one"), 200*time.Millisecond)
	bring(t, "lv0", store.Auto, named("final.levee", "one"))
	await.Pass(300*time.Millisecond, "the trial would have ended")
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
		if end, err := WaitTrial(context.Background(), r, 50*time.Millisecond); end != want ||
			err != nil {
			t.Errorf("%v %v, want %v", end, err, want)
		}
	}
	wait(NotConfirmed)
	r = bringOnTrial(t, named("a.levee", "one"), time.Minute)
	rename(t, "lv0", "lan0") // it was "taken off meanwhile"
	if _, err := Confirm(context.Background(), "lan0"); err != nil {
		t.Fatal(err)
	}
	wait(Confirmed)
	rename(t, "lan0", "lv0")
	r = bringOnTrial(t, named("a.levee", "one"), time.Minute)
	bring(t, "lv0", store.Auto, named("b.levee", "one"))
	wait(Replaced)
	r = bringOnTrial(t, named("c.levee", "one"), time.Minute)
	if _, err := Down(t.Context(), "lv0"); err != nil {
		t.Fatal(err)
	}
	wait(TakenDown)
}

// A card that was unplugged during a trial was "taken off meanwhile".
func TestATrialWhoseInterfaceVanishesSaysSo(t *testing.T) {
	n := newTestNet(t)
	r := bringOnTrial(t, named("a.levee", "one"), time.Minute)
	if err := netlink.LinkDel(must2(netlink.LinkByName("lv0"))); err != nil {
		t.Fatal(err)
	}
	if end, err := WaitTrial(t.Context(), r, 50*time.Millisecond); end != Vanished || err != nil {
		t.Errorf("%v %v, want %v", end, err, Vanished)
	}
	addVeth(t, "lv0", "lv1", n.peer) // another one of the name
	if end, err := WaitTrial(t.Context(), r, 50*time.Millisecond); end != Vanished || err != nil {
		t.Errorf("%v %v, want %v", end, err, Vanished)
	}
}

// The real compiler's programs, large enough to be split into functions, hand over to one another
// in every mode.
func TestTrialOfCompiledPoliciesInEveryMode(t *testing.T) {
	n := newTestNet(t)
	var rules strings.Builder
	for i := range 300 {
		fmt.Fprintf(&rules, "drop tcp from 10.%d.0.0/17 port %d\n", i%250, 1000+i)
	}
	text := func(src string) string {
		return "drop from " + src + " as \"marked\"\n" + rules.String() + "default pass\n"
	}
	for _, mode := range allModes(t) {
		n.run(t, string(mode), func(t *testing.T) {
			for i, src := range []string{"203.0.113.7", "198.51.100.7"} {
				trial := time.Duration(i) * time.Minute
				if err := bringPolicyAt(t, "lv0", mode, text(src), trial); err != nil {
					t.Fatal(err)
				}
			}
			n.from(t, "198.51.100.7")
			wantPackets(t, "marked", 1)
			expire(t)
			n.from(t, "198.51.100.7")
			n.from(t, "203.0.113.7")
			n.from(t, "203.0.113.7")
			wantPackets(t, "marked", 3)
			if _, err := Down(t.Context(), "lv0"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// The process that waits for the confirmation is killed with SIGKILL: the old policy comes back
// none the less, at its deadline, with nobody there to bring it.
func TestTrialEndsAlthoughTheWaitingProcessIsKilled(t *testing.T) {
	n := newTestNet(t)
	bring(t, "lv0", store.Auto, named("old.levee", "old"))
	cmd := command(t, order{Do: "wait", Dev: "lv0", File: "new.levee", Label: "new",
		Confirm: time.Minute})
	out := must2(cmd.StdoutPipe())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if kerr := cmd.Process.Kill(); kerr != nil || err != nil || line != "waiting\n" {
		t.Fatal(line, err, kerr)
	}
	_ = cmd.Wait() // killed
	n.send(t, 3, 1)
	wantPackets(t, "new", 3)
	if left := status(t).Trial; left <= 0 || left > time.Minute+10*time.Millisecond {
		t.Errorf("%v are left", left)
	}
	expire(t)
	n.send(t, 5, 1)
	wantPackets(t, "old", 5)
	if a := status(t); a.Policy != "/etc/old.levee" {
		t.Errorf("%s is in force", a.Policy)
	}
}

func TestRollBackEndsATrialAtOnce(t *testing.T) {
	n := newTestNet(t)
	bring(t, "lv0", store.Auto, named("old.levee", "old"))
	r := bringOnTrial(t, named("new.levee", "new"), time.Hour)
	if _, err := generation.RollBack(t.Context(), "lv0", r.Generation-1); err == nil {
		t.Error("rolled back a policy that is not on trial")
	}
	if notes, err := generation.RollBack(t.Context(), "lv0", r.Generation); err != nil ||
		len(notes) != 1 ||
		!strings.Contains(notes[0],
			"given up before it was confirmed; the policy before it is back") {
		t.Fatal(notes, err)
	}
	n.send(t, 3, 1)
	wantPackets(t, "old", 3)
	if a := status(t); a.Policy != "/etc/old.levee" || a.Trial != 0 {
		t.Errorf("%+v", a)
	}
}
