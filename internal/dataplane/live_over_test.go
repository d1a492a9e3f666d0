package dataplane

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"levee/internal/await"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/store"
	"levee/internal/lang/resolve"
)

// carryInto has all live rules go on in front of a policy.
func carryInto(text string) func(context.Context, string, []inspect.LiveRule) *Carried {
	return func(_ context.Context, _ string, rules []inspect.LiveRule) *Carried {
		all := ""
		for _, r := range rules {
			all += r.Rule + "\n"
		}
		more, _ := resolve.Parse("live", []byte(all+"default pass\n"), nil)
		p, _ := resolve.Parse("test.levee", []byte(text), nil)
		p.Rules = slices.Concat(more.Rules, p.Rules)
		return &Carried{Rules: rules, Compile: Compiler(p)}
	}
}

// upOver is bringPolicyAt with live rules that go on, and what it told.
func upOver(t *testing.T, mode store.Mode, text string) *Report {
	t.Helper()
	rep, err := Up(t.Context(), UpOptions{Dev: "lv0", Mode: mode, PolicyPath: "/etc/test.levee",
		Source: []byte(text), Carry: carryInto(text)}, compileText(text))
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

// TestNoPacketOfAFloodPassesWhileThePolicyIsReplaced: each replace took live rules away until the
// agent had put them into the new policy, and 5 % of a flood passed six of them.
func TestNoPacketOfAFloodPassesWhileThePolicyIsReplaced(t *testing.T) {
	n := newTestNet(t)
	for _, mode := range append(tcModes(t), store.XDPNative) {
		n.run(t, string(mode), func(t *testing.T) {
			texts := []string{"default pass\n",
				"set more = dynamic(max 100, lease 1m)\ndrop from more\n" +
					"limit udp port 7 rate 10/s by source\npass established\ndefault pass\n"}
			if err := bringPolicyAt(t, "lv0", mode, texts[0], 0); err != nil {
				t.Fatal(err)
			}
			const rule = `drop udp from 203.0.113.7 as "flood-1"`
			if err := live(t, rule, time.Hour); err != nil {
				t.Fatal(err)
			}
			dropped := n.txDropped(t)
			stop, sent := n.flood(t)
			for i := range 6 {
				if rep := upOver(t, mode, texts[(i+1)%2]); rep.Live != 1 {
					t.Errorf("%d live rules go on, %v", rep.Live, rep.Notes)
				}
			}
			close(stop)
			want := <-sent - (n.txDropped(t) - dropped)
			wantPackets(t, "flood-1", want)
			a := status(t)
			if a.Live == nil || a.Live.Rules[0] != rule || a.Live.LeaseSeconds < 3000 {
				t.Errorf("live %+v", a.Live)
			}
			if in, _, err := inspect.Show(t.Context(), "lv0"); err != nil ||
				string(in.Source) != texts[0] {
				t.Errorf("shown %+v, %v", in, err)
			}
			if err := LiveDown(t.Context(), "lv0"); err != nil {
				t.Fatal(err)
			}
			if a := status(t); a.Live != nil || a.Policy != "/etc/test.levee" {
				t.Errorf("status without them %+v", a)
			}
			if _, err := Down(t.Context(), "lv0"); err != nil {
				t.Fatal(err)
			}
		})
	}
	runDirIsGone(t)
}

// TestALiveLimitGoesOnWithWhatWasSpent: a budget that began anew with each replace would let a
// burst pass.
func TestALiveLimitGoesOnWithWhatWasSpent(t *testing.T) {
	n := newTestNet(t)
	upOver(t, store.Auto, "default pass\n")
	const rule = `limit ether 0x88b5 rate 1/h burst 3 as "flood-1"`
	if err := live(t, rule, time.Hour); err != nil {
		t.Fatal(err)
	}
	n.send(t, 3, 1)
	wantPackets(t, "default", 3)
	for i, text := range []string{"count as \"all\"\ndefault pass\n",
		"limit ether 0x88b6 rate 1/h as \"other\"\ndefault pass\n"} {
		upOver(t, store.Auto, text)
		n.send(t, 2, 1)
		wantPackets(t, "flood-1", uint64(2*(i+1)))
	}
}

// TestLiveRulesThatEndWithAPolicyAreTold: they were gone without a word.
func TestLiveRulesThatEndWithAPolicyAreTold(t *testing.T) {
	newTestNet(t)
	const text = "default pass\n"
	for _, c := range []struct {
		name  string
		o     UpOptions
		want  string
		rules int
	}{
		{"nobody is asked", UpOptions{}, "its live rules (1) end", 0},
		{"on trial", UpOptions{Confirm: time.Hour, Carry: carryInto(text)},
			"end while the policy is on trial", 0},
		{"lost", UpOptions{Carry: func(context.Context, string, []inspect.LiveRule) *Carried {
			return &Carried{Lost: []string{"it does not fit"}}
		}}, "lv0: it does not fit", 0},
		{"refused", UpOptions{Carry: func(_ context.Context, _ string,
			rules []inspect.LiveRule) *Carried {
			return &Carried{Rules: rules, Compile: Unusable(fmt.Errorf("too large"))}
		}}, "cannot be put into the policy: too large", 0},
		{"they fit", UpOptions{Carry: carryInto(text)}, "", 1},
	} {
		upOver(t, store.Auto, text)
		if err := live(t, `drop ether 0x88b5 as "flood-1"`, time.Hour); err != nil {
			t.Fatal(err)
		}
		c.o.Dev, c.o.PolicyPath, c.o.Source = "lv0", "/etc/test.levee", []byte(text)
		rep, err := Up(t.Context(), c.o, compileText(text))
		if err != nil {
			t.Fatal(c.name, err)
		}
		got := strings.Join(rep.Notes, "\n")
		if !strings.Contains(got, c.want) || c.want == "" && got != "" || rep.Live != c.rules {
			t.Errorf("%s: told %q, %d rules", c.name, got, rep.Live)
		}
		if a := status(t); (a.Live != nil) != (c.rules > 0) {
			t.Errorf("%s: live %+v", c.name, a.Live)
		}
		if _, err := Down(t.Context(), "lv0"); err != nil {
			t.Fatal(err)
		}
	}
	runDirIsGone(t)
}

// TestDeathAtAnyStepKeepsLiveRules: a command that is killed leaves the policy of before or the one
// that comes, both with the live rules in it.
func TestDeathAtAnyStepKeepsLiveRules(t *testing.T) {
	n := newTestNet(t)
	o := order{Do: "up", Dev: "lv0", File: filepath.Join(t.TempDir(), "new.levee"),
		Text: "count as \"all\"\ndefault pass\n", Carry: true}
	prepare := func() {
		t.Helper()
		upOver(t, store.Auto, "default pass\n")
		if a := status(t); a.Live == nil {
			if err := live(t, `drop ether 0x88b5 as "flood-1"`, time.Hour); err != nil {
				t.Fatal(err)
			}
		}
	}
	prepare()
	steps := record(t, o)
	if n := strings.Count(strings.Join(steps, " "), "load"); n != 2 {
		t.Fatal(steps)
	}
	want := uint64(0)
	for i, step := range steps {
		prepare()
		inject(t, o, i, true)
		n.send(t, 2, 1)
		want += 2
		wantPackets(t, "flood-1", want)
		if a := status(t); a.Live == nil {
			t.Fatalf("killed at step %d (%s): no live rules", i, step)
		}
		n.send(t, 1, 1)
		want++
		wantPackets(t, "flood-1", want)
	}
	if _, err := Down(t.Context(), "lv0"); err != nil {
		t.Fatal(err)
	}
	await.OK(t, func() error { return nothingAtAll(t, "killed while rules go on") })
}
