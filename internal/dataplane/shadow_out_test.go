package dataplane

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"levee/internal/await"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/store"
)

// leavingPairs returns the counts of a shadow on lv0 for leaving packets: those that both policies
// judge alike, those that they judge differently, and the pairs of rules.
func leavingPairs(t testing.TB) (agree, differ uint64, pairs []string) {
	t.Helper()
	for _, a := range must(inspect.Status(t.Context(), false)) {
		if a.Dev != "lv0" || a.Shadow == nil {
			continue
		}
		for i := range a.Shadow.Pairs {
			p := &a.Shadow.Pairs[i]
			if !leavingRule(p.Judged.ID, p.Judged.Label) && !leavingRule(p.Would.ID,
				p.Would.Label) {
				continue
			}
			pairs = append(pairs, fmt.Sprintf("%s %q -> %s %q: %d", p.JudgedVerdict,
				p.Judged.Rule, p.WouldVerdict, p.Would.Rule, p.Packets))
			if p.Differs() {
				differ += p.Packets
			} else {
				agree += p.Packets
			}
		}
	}
	return agree, differ, pairs
}

func leavingRule(id, label string) bool { return id == "out:default" || label == "smtp" }

func wantLeaving(t *testing.T, what string, agree, differ uint64) {
	t.Helper()
	await.OK(t, func() error {
		same, not, pairs := leavingPairs(t)
		if same != agree || not != differ {
			return fmt.Errorf("%s: of what leaves %d packets alike, %d otherwise, want %d and %d: "+
				"%q", what, same, not, agree, differ, pairs)
		}
		return nil
	})
}

// sendBoth sends a datagram to each of the two ports that policies of these tests tell apart.
func (p *pair) sendBoth(t *testing.T) {
	t.Helper()
	p.leaves(t, 25)
	p.leaves(t, 26)
}

// TestAShadowSaidNothingOfWhatLeaves: a policy with rules for what leaves was tried as a shadow,
// and what these would do to the machine's own traffic was seen once it was in force.
func TestAShadowSaidNothingOfWhatLeaves(t *testing.T) {
	p := newPair(t)
	const silent = "default pass\n"
	for _, w := range egressWays(t) {
		for _, c := range []struct {
			name, inForce, shadow string
			agree, differ         uint64 // of a datagram to each port
			dropped               uint16 // by the policy in force
		}{
			{"both", outOld, outNew, 0, 2, 25},
			{"the shadow alone", silent, outNew, 1, 1, 0},
			{"the policy in force alone", outOld, silent + "\n", 1, 1, 25},
		} {
			p.run(t, fmt.Sprint(c.name, " ", w), func(t *testing.T) {
				p.egress = w
				before := kernelObjects(t)
				p.bringText(t, c.inForce, store.Auto, 0)
				p.sendBoth(t) // before it
				shadowUp(t, c.shadow, "lv0")
				for range 3 {
					if c.dropped == 0 && (!p.leaves(t, 25) || !p.leaves(t, 26)) {
						t.Fatal("a shadow drops what leaves")
					}
					if c.dropped != 0 {
						if err := p.dropsLeaving(t, c.dropped); err != nil {
							t.Fatal("the policy in force with a shadow: ", err)
						}
					}
				}
				wantLeaving(t, c.name, 3*c.agree, 3*c.differ)
				a := status0(t)
				if len(a.Shadow.Flows) == 0 {
					t.Error("no flow is told")
				}

				p.bringText(t, c.inForce+"\n", store.Auto, 0)
				p.sendBoth(t)
				wantLeaving(t, "after a replace", 4*c.agree, 4*c.differ)

				p.bringText(t, c.shadow, store.Auto, 0) // which ends the shadow
				p.sendBoth(t)
				if at := status0(t); at.Shadow != nil {
					t.Errorf("the shadow goes on: %+v", at.Shadow)
				}
				if _, err := Down(t.Context(), "lv0"); err != nil {
					t.Fatal(err)
				}
				await.OK(t, func() error {
					return errors.Join(noQdisc(t), nothingAdded(t, before))
				})
				runDirIsGone(t)
			})
		}
	}
}

// TestAShadowFollowsWhatLeavesThroughATrial: each packet is counted once, beside the policy that
// judges it, whether that says something of what leaves or not: during a trial, when the kernel has
// ended it, and when a command has.
func TestAShadowFollowsWhatLeavesThroughATrial(t *testing.T) {
	p := newPair(t)
	const silent = "default pass\n"
	for _, c := range []struct {
		first, next string
		// packets alike and otherwise of a datagram to each port, beside the one and the other
		firstAgree, firstDiffer, nextAgree, nextDiffer uint64
	}{
		{silent, silent + "\n", 1, 1, 1, 1},
		{silent, outOld, 1, 1, 0, 2},
		{outOld, silent, 0, 2, 1, 1},
		{outOld, outOld + "\n", 0, 2, 0, 2},
	} {
		p.run(t, fmt.Sprintf("%.8q to %.8q", c.first, c.next), func(t *testing.T) {
			p.bringText(t, c.first, store.Auto, 0)
			shadowUp(t, outNew, "lv0")
			p.sendBoth(t)
			p.bringText(t, c.next, store.Auto, time.Hour)
			p.sendBoth(t)
			wantLeaving(t, "on trial", c.nextAgree, c.nextDiffer) // what is told is of that
			expire(t)
			p.sendBoth(t)
			status(t) // which ends it
			p.sendBoth(t)
			wantLeaving(t, "after it", 3*c.firstAgree+c.nextAgree, 3*c.firstDiffer+c.nextDiffer)
			if _, err := Down(t.Context(), "lv0"); err != nil {
				t.Fatal(err)
			}
			runDirIsGone(t)
		})
	}
}

// TestADeadCommandLeftAShadowOfWhatLeaves: a command that fails or dies at any step leaves what
// leaves judged by the policy in force, counted once or not at all, and the next one nothing else.
func TestADeadCommandLeftAShadowOfWhatLeaves(t *testing.T) {
	p := newPair(t)
	const silent = "default pass\n"
	// The other steps TestShadowSurvivesFailureAndDeathAtAnyStep has.
	tried := []string{"keep link", "hook", "swap", "unhook", "forget shadow"}
	for _, c := range []struct{ name, inForce string }{{"handed on", outOld}, {"alone", silent}} {
		for _, do := range []order{
			{Do: "shadow", File: "shadow.levee", Text: outNew},
			{Do: "up", File: "/etc/new.levee", Text: c.inForce + "\n"},
			{Do: "down shadow"},
		} {
			p.run(t, c.name+" "+do.Do, func(t *testing.T) {
				do.Dev = "lv0"
				prepare := func() {
					_, _ = Down(t.Context(), "lv0")
					p.bringText(t, c.inForce, store.Auto, 0)
					if do.Do != "shadow" {
						shadowUp(t, outNew, "lv0")
					}
				}
				prepare()
				steps := record(t, do)
				t.Log("steps:", steps)
				for i, step := range steps {
					for _, kill := range []bool{false, true} {
						if !slices.Contains(tried, step) || !kill && step != "hook" {
							continue
						}
						prepare()
						injectShadow(t, do, i, kill)
						after := status(t) // settles
						agree, differ, _ := leavingPairs(t)
						left := [...]bool{p.leaves(t, 25), p.leaves(t, 26)}
						if left != [...]bool{c.inForce == silent, true} {
							t.Fatalf("step %d (%s), kill %v: left %v", i, step, kill, left)
						}
						what := fmt.Sprintf("step %d (%s), kill %v", i, step, kill)
						switch {
						case after.Shadow == nil:
						case c.inForce == silent:
							wantLeaving(t, what, agree+1, differ+1)
						default:
							wantLeaving(t, what, agree, differ+2)
						}
						await.OK(t, func() error { return onlyNeeded(t, what) })
					}
				}
				if _, err := Down(t.Context(), "lv0"); err != nil {
					t.Fatal(err)
				}
				runDirIsGone(t)
			})
		}
	}
}
