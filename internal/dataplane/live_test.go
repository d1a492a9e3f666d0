package dataplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"levee/internal/await"
	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/sets"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/lang/resolve"
)

// live adds a rule to the policy on lv0 and gives the state of that.
func live(t *testing.T, rule string, lease time.Duration) error {
	t.Helper()
	return liveOver(t, inForceNow(t), rule, lease)
}

// inForceNow returns the state of the only policy in force, that of lv0.
func inForceNow(t *testing.T) sets.PolicyState {
	t.Helper()
	all, err := sets.InForceHere(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	return all[0]
}

func liveOver(t *testing.T, over sets.PolicyState, rule string, lease time.Duration) error {
	t.Helper()
	in, _, err := inspect.Show(t.Context(), "lv0")
	if err != nil {
		t.Fatal(err)
	}
	p, ds := resolve.Parse(in.Name(), in.Source, nil)
	if p == nil {
		t.Fatal(ds)
	}
	more, ds := resolve.Parse("live", []byte(rule+"\ndefault pass\n"), nil)
	if more == nil {
		t.Fatal(ds)
	}
	p.Rules = slices.Concat(more.Rules, p.Rules)
	_, err = Live(t.Context(), LiveOptions{Dev: "lv0", Over: over, Lease: lease,
		Rules: []inspect.LiveRule{{Rule: rule, Origin: "udp"}}}, Compiler(p))
	return err
}

// TestAMoveToNowhereEndedTheAgentsRules: where packets come past a policy that no other hook can
// have, the keeper and the agent try to move it each minute. Each try took the agent's rules away.
func TestAMoveToNowhereEndedTheAgentsRules(t *testing.T) {
	newTestNet(t)
	if err := bringPolicyAt(t, "lv0", tcModes(t)[0], "default pass\n", 0); err != nil {
		t.Fatal(err)
	}
	if err := live(t, `drop ether 0x88b5 as "flood-1"`, time.Hour); err != nil {
		t.Fatal(err)
	}
	if _, err := MoveOn(t.Context(), "lv0", "stands still"); !errors.Is(err, errNoHook) {
		t.Errorf("it went: %v", err)
	}
	if a := status(t); a.Live == nil || len(a.Live.Rules) != 1 {
		t.Errorf("the agent's rules are %+v", a.Live)
	}
}

// TestAMoveThatFailedEndedTheAgentsRules: they were taken away before anything was tried. A policy
// that cannot be put up at another hook, at whichever step, keeps its rules; one that can has none,
// and the counts of before.
func TestAMoveThatFailedEndedTheAgentsRules(t *testing.T) {
	n := newTestNet(t)
	const text = "pass udp port 9009 as \"odd\"\ndefault pass\n"
	if err := bringPolicyAt(t, "lv0", store.Auto, text, 0); err != nil {
		t.Fatal(err)
	}
	if err := live(t, `drop ether 0x88b6 as "flood-1"`, time.Hour); err != nil {
		t.Fatal(err)
	}
	n.send(t, 7, 1)
	wantPackets(t, "default", 7)
	before := status(t)
	for _, why := range []string{"", "it stands still"} {
		_, err := moveOn(t.Context(), UpOptions{Dev: "lv0", still: why},
			func(codegen.Target) (*codegen.Program, error) { return nil, errInjected })
		a := status(t)
		if !errors.Is(err, errInjected) || a.Live == nil || a.Program.ID != before.Program.ID {
			t.Errorf("%q: %v; rules %+v, program %d, before %d", why, err, a.Live, a.Program.ID,
				before.Program.ID)
		}
	}
	if _, err := MoveOn(t.Context(), "lv0", "it stands still"); err != nil {
		t.Fatal(err)
	}
	a := status(t)
	if a.Live != nil || !a.Mode.AtTC() || packets(&a, "default") != 7 {
		t.Errorf("at %s, rules %+v, %d packets", a.Mode, a.Live, packets(&a, "default"))
	}
	if _, err := Down(t.Context(), "lv0"); err != nil {
		t.Fatal(err)
	}
	runDirIsGone(t)
}

// TestLiveRulesComeAndGo: added in one step, changed, renewed, taken back, and ended by the kernel
// when nobody renews them. Counts and the operator's text stay.
func TestLiveRulesComeAndGo(t *testing.T) {
	n := newTestNet(t)
	for _, mode := range allModes(t) {
		n.run(t, string(mode), func(t *testing.T) {
			const text = "count as \"all\"\ndefault pass\n"
			if err := bringPolicyAt(t, "lv0", mode, text, 0); err != nil {
				t.Fatal(err)
			}
			n.send(t, 10, 1)
			wantPackets(t, "default", 10)
			before := inForceNow(t)
			if err := live(t, `drop ether 0x88b5 as "flood-1"`, time.Hour); err != nil {
				t.Fatal(err)
			}
			n.send(t, 5, 1)
			wantPackets(t, "flood-1", 5)
			a := status(t)
			if a.Trial != 0 || a.Live == nil || len(a.Live.Rules) != 1 ||
				packets(&a, "default") != 10 {
				t.Errorf("status %+v", a)
			}
			if got := inForceNow(t); got != before {
				t.Errorf("in force is %v, was %v", got, before)
			}
			in, _, err := inspect.Show(t.Context(), "lv0")
			if err != nil || string(in.Source) != text || in.Trial {
				t.Errorf("shown: %+v, %v", in, err)
			}
			if _, err := Confirm(t.Context(), "lv0"); err == nil {
				t.Error("live rules are confirmed")
			}
			if err := live(t, `drop ether 0x88b6 as "flood-2"`, time.Hour); err != nil {
				t.Fatal(err)
			}
			n.send(t, 5, 1)
			wantPackets(t, "default", 15)
			if err := LiveRenew(t.Context(), "lv0", 2*time.Hour); err != nil {
				t.Fatal(err)
			}
			if a := status(t); a.Live == nil || a.Live.LeaseSeconds < 3700 {
				t.Errorf("live %+v", a.Live)
			}
			if err := LiveDown(t.Context(), "lv0"); err != nil {
				t.Fatal(err)
			}
			if a := status(t); a.Live != nil || a.RolledBack != nil {
				t.Errorf("live rules stay: %+v", a)
			}
			if err := LiveDown(t.Context(), "lv0"); !errors.Is(err, ErrNotLive) {
				t.Error(err)
			}
			if err := live(t, `drop ether 0x88b5 as "flood-3"`, MinTrial); err != nil {
				t.Fatal(err)
			}
			await.OK(t, func() error {
				n.send(t, 1, 1)
				if a := status(t); a.Live != nil {
					return fmt.Errorf("live rules stay: %+v", a.Live)
				}
				return nil
			})
			passed := status(t)
			n.send(t, 5, 1)
			wantPackets(t, "default", packets(&passed, "default")+5)
			if passed.RolledBack != nil {
				t.Errorf("rolled back: %+v", passed.RolledBack)
			}
			if _, err := Down(context.Background(), "lv0"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestTheOperatorsWordWins: a policy that is put into force takes the place of live rules, also on
// trial, and rules that were made for another policy are refused.
func TestTheOperatorsWordWins(t *testing.T) {
	n := newTestNet(t)
	n.run(t, "up", func(t *testing.T) {
		const rule = `drop ether 0x88b5 as "flood-1"`
		if err := bringPolicyAt(t, "lv0", store.Auto, "default pass\n", 0); err != nil {
			t.Fatal(err)
		}
		before := inForceNow(t)
		if err := live(t, rule, time.Hour); err != nil {
			t.Fatal(err)
		}
		if err := bringPolicyAt(t, "lv0", store.Auto, "count\ndefault pass\n",
			time.Hour); err != nil {
			t.Fatal(err)
		}
		if a := status(t); a.Live != nil || a.Trial == 0 {
			t.Errorf("status: %+v", a)
		}
		if err := live(t, rule, time.Hour); !errors.Is(err, ErrOnTrial) {
			t.Errorf("live rules on a trial: %v", err)
		}
		g := status(t).Generation
		if _, err := generation.RollBack(t.Context(), "lv0", g); err != nil {
			t.Fatal(err)
		}
		if got := inForceNow(t); got != before {
			t.Errorf("back is %v, was %v", got, before)
		}
		if err := live(t, rule, time.Hour); err != nil {
			t.Fatal(err)
		}
		if err := bringPolicyAt(t, "lv0", store.Auto, "count\ndefault pass\n", 0); err != nil {
			t.Fatal(err)
		}
		if err := liveOver(t, before, rule, time.Hour); !errors.Is(err, ErrOtherPolicy) {
			t.Errorf("rules for another policy: %v", err)
		}
		if err := live(t, rule, time.Hour); err != nil {
			t.Fatal(err)
		}
		if _, err := Down(context.Background(), "lv0"); err != nil {
			t.Fatal(err)
		}
	})
	runDirIsGone(t)
}

// TestALiveCookieIsHeard: the agent put cookies on veth devices with native XDP whose other end has
// no program, where nobody hears the answer, so that no client came through.
func TestALiveCookieIsHeard(t *testing.T) {
	newTestNet(t)
	ctx := t.Context()
	const text, cookie = "default pass\n", `cookie tcp port 80 as "flood-1"`
	bring := func(mode store.Mode, text string) {
		t.Helper()
		if err := bringPolicyAt(t, "lv0", mode, text, 0); err != nil {
			t.Fatal(err)
		}
	}
	bring(store.Auto, text)
	if mode := status(t).Mode; mode != store.XDPNative {
		t.Fatalf("the mode is %s", mode)
	}
	var unheard *attach.UnheardError
	why := Unheard(ctx, "lv0")
	if err := live(t, cookie, time.Hour); err == nil || !errors.As(why, &unheard) ||
		status(t).Live != nil {
		t.Errorf("a cookie that nobody hears: %v, %v", why, err)
	}
	if err := live(t, `drop ether 0x88b5 as "flood-1"`, time.Hour); err != nil {
		t.Error(err)
	}
	bring(store.Auto, cookie+"\n"+text) // by hand, and up has said what may be
	if err := live(t, `cookie tcp port 443 as "flood-2"`, time.Hour); err != nil {
		t.Errorf("beside a cookie: %v", err)
	}
	if _, err := Down(ctx, "lv0"); err != nil {
		t.Fatal(err)
	}
	bring(store.XDPNative, text) // who asks for it has seen to it
	bring(store.Auto, text)
	if err := errors.Join(Unheard(ctx, "lv0"), live(t, cookie, time.Hour)); err != nil {
		t.Errorf("in a mode that was asked for: %v", err)
	}
	if _, err := Down(ctx, "lv0"); err != nil {
		t.Fatal(err)
	}
	bring(tcModes(t)[0], text)
	if err := errors.Join(Unheard(ctx, "lv0"), live(t, cookie, time.Hour)); err != nil {
		t.Errorf("at tc: %v", err)
	}
}

// TestLiveRulesAreTakenBackByTheNameBefore: of an interface that was renamed, or that is gone, it
// was an error that there is none of that name.
func TestLiveRulesAreTakenBackByTheNameBefore(t *testing.T) {
	newTestNet(t)
	upOver(t, store.Auto, "default pass\n")
	if err := live(t, `drop ether 0x88b5 as "flood-1"`, time.Hour); err != nil {
		t.Fatal(err)
	}
	l, err := netlink.LinkByName("lv0")
	if err == nil {
		err = netlink.LinkSetName(l, "lan0")
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := LiveDown(t.Context(), "lv0"); err != nil {
		t.Error(err)
	}
	if rules, _, err := LiveOf(t.Context(), "lan0"); rules != nil || err != nil {
		t.Errorf("in force stay %+v: %v", rules, err)
	}
	if err := LiveDown(t.Context(), "nothing0"); !errors.Is(err, ErrNotLive) {
		t.Error(err)
	}
	if _, err := Down(t.Context(), "lan0"); err != nil {
		t.Error(err)
	}
}
