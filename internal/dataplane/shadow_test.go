package dataplane

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"levee/internal/await"
	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/sets"
	"levee/internal/dataplane/store"
	"levee/internal/dataplane/tap"
	"levee/internal/lang/resolve"
	"levee/internal/packet"
)

// Frames of type 0x88b5 are told apart by their first byte behind the header.
const (
	inForceText = "count ether 0x88b5 as \"all\"\ndefault pass\n"
	shadowText  = "count ether 0x88b5 as \"all\"\ndrop ether 0x88b5 as \"marked\"\ndefault pass\n"
	otherText   = "pass ether 0x88b5 as \"other\"\ndefault pass\n"
)

func upShadowOf(ctx context.Context, text, file string, devs ...string) error {
	p, ds := resolve.Parse(file, []byte(text), nil)
	if p == nil {
		return errors.New(ds[0].Message)
	}
	_, err := UpShadow(ctx, devs, UpOptions{PolicyPath: "/etc/" + file, Source: []byte(text)}, p)
	return err
}

func shadowUp(t testing.TB, text string, devs ...string) {
	t.Helper()
	if err := upShadowOf(t.Context(), text, "shadow.levee", devs...); err != nil {
		t.Fatal(err)
	}
}

func upText(t testing.TB, dev string, mode store.Mode, text string) {
	t.Helper()
	if err := bringPolicyAt(t, dev, mode, text, 0); err != nil {
		t.Fatal(err)
	}
}

// differing are the packets of the pairs whose verdicts differ, and of the rule of the shadow.
func differing(t testing.TB, dev string) (n uint64) {
	t.Helper()
	for _, a := range must(inspect.Status(t.Context(), false)) {
		if a.Dev != dev || a.Shadow == nil {
			continue
		}
		for i := range a.Shadow.Pairs {
			if p := &a.Shadow.Pairs[i]; p.Differs() && p.Would.Label == "marked" {
				n += p.Packets
			}
		}
	}
	return n
}

func wantDiffering(t *testing.T, dev string, want uint64) {
	t.Helper()
	await.OK(t, func() error {
		if got := differing(t, dev); got != want {
			return fmt.Errorf("%d packets are judged otherwise, want %d", got, want)
		}
		return nil
	})
}

// A shadow counts what it would drop, in every mode, and drops nothing; it follows a replace with
// its counts; its file in force goes on with them.
func TestShadow(t *testing.T) {
	n := newTestNet(t)
	for _, mode := range allModes(t) {
		n.run(t, string(mode), func(t *testing.T) {
			upText(t, "lv0", mode, inForceText)
			n.send(t, 3, 1) // before it
			shadowUp(t, shadowText, "lv0")
			n.send(t, 5, 1)
			wantDiffering(t, "lv0", 5)
			a := status(t)
			if len(a.Shadow.Flows) == 0 {
				t.Fatal("no flow is told")
			}
			f := a.Shadow.Flows[0]
			if f.Would.Label != "marked" || f.Packets != 5 || f.Link != packet.Ethernet ||
				string(f.Packet[12:15]) != "\x88\xb5\x01" || time.Since(f.At) > time.Minute {
				t.Errorf("flow %+v", f)
			}
			if !slices.ContainsFunc(a.Shadow.Rules,
				func(c generation.SlotCounter) bool {
					return c.Label == "marked" &&
						c.Packets == 5
				}) {
				t.Errorf("rules %+v", a.Shadow.Rules)
			}
			await.OK(t, func() error { return counted(t, "all", 8) }) // of the policy in force

			upText(t, "lv0", mode, inForceText+"\n")
			n.send(t, 4, 1)
			wantDiffering(t, "lv0", 9)
			upText(t, "lv0", mode, shadowText)
			await.OK(t, func() error { return counted(t, "marked", 9) })
			await.OK(t, func() error { return counted(t, "all", 12) })
			if a := status(t); a.Shadow != nil {
				t.Errorf("the shadow goes on: %+v", a.Shadow)
			}
			n.send(t, 2, 1) // are dropped
			await.OK(t, func() error { return counted(t, "marked", 11) })
			if _, err := Down(t.Context(), "lv0"); err != nil {
				t.Fatal(err)
			}
			await.OK(t, func() error { return nothingAtAll(t, "after the shadow") })
		})
	}
}

// A command that fails or is killed at any step leaves what ran; the next one finishes what was
// begun, and leaves nothing else.
func TestShadowSurvivesFailureAndDeathAtAnyStep(t *testing.T) {
	n := newTestNet(t)
	none := func(t *testing.T) {
		if status(t).Shadow != nil {
			if _, _, err := DownShadow(t.Context(), "lv0"); err != nil {
				t.Fatal(err)
			}
		}
	}
	shadowed := func(t *testing.T) {
		if sh := status(t).Shadow; sh == nil || sh.Hash != generation.HashOf([]byte(shadowText)) {
			shadowUp(t, shadowText, "lv0")
		}
	}
	for _, c := range []struct {
		name    string
		prepare func(*testing.T)
		do      order
		ends    bool // the order ends the shadow
	}{
		{"the first", none, order{Do: "shadow", File: "shadow.levee", Text: shadowText}, false},
		{"another", shadowed, order{Do: "shadow", File: "other.levee", Text: otherText}, true},
		{"replace", shadowed, order{Do: "up", File: "/etc/new.levee", Text: inForceText + "\n"},
			false},
		{"its file", shadowed, order{Do: "up", File: "/etc/shadow.levee", Text: shadowText}, true},
		{"down", shadowed, order{Do: "down shadow"}, true},
	} {
		n.run(t, c.name, func(t *testing.T) {
			c.do.Dev = "lv0"
			// What is there already is not brought again: most of the time goes into verifying it.
			prepare := func(t *testing.T) {
				all := must(inspect.Status(t.Context(), true))
				if len(all) == 0 || all[0].Hash != generation.HashOf([]byte(inForceText)) {
					_, _ = Down(t.Context(), "lv0")
					upText(t, "lv0", store.Auto, inForceText)
				}
				c.prepare(t)
			}
			prepare(t)
			steps := record(t, c.do)
			t.Log("steps:", steps)
			for i, step := range steps {
				for _, kill := range []bool{false, true} {
					what := fmt.Sprintf("step %d (%s), kill %v", i, step, kill)
					prepare(t)
					injectShadow(t, c.do, i, kill)
					after := status(t) // settles
					was := differing(t, "lv0")
					n.send(t, 3, 1)
					want := was
					if sh := after.Shadow; sh != nil &&
						sh.Hash == generation.HashOf([]byte(shadowText)) {
						want += 3
					} else if c.name != "the first" && !c.ends && kill {
						t.Errorf("%s: the shadow has ended", what)
					}
					wantDiffering(t, "lv0", want)
					await.OK(t, func() error {
						now := status(t)
						if n := packets(&after, "all") + 3; packets(&now, "all") != n {
							return fmt.Errorf("%s: %d packets in force, want %d", what,
								packets(&now, "all"), n)
						}
						return nil
					})
					await.OK(t, func() error { return onlyNeeded(t, what) })
					if t.Failed() {
						return
					}
				}
			}
			if _, err := Down(t.Context(), "lv0"); err != nil {
				t.Fatal(err)
			}
			await.OK(t, func() error { return nothingAtAll(t, c.name) })
		})
	}
}

// injectShadow is inject, for orders that may succeed without the shadow.
func injectShadow(t *testing.T, o order, at int, kill bool) {
	t.Helper()
	if kill {
		inject(t, o, at, kill)
		return
	}
	if err := o.runInjected(at); err != nil && !errors.Is(err, errInjected) {
		t.Fatalf("step %d: %v", at, err)
	}
}

// onlyNeeded is an error if more generations are kept than the one in force and its shadow.
func onlyNeeded(t *testing.T, what string) error {
	t.Helper()
	status(t) // settles
	return generation.TransactOn(t.Context(), "lv0",
		func(s *store.Store, a *attach.Attachment) error {
			pinned, err := s.Pinned(a.Key)
			if err != nil {
				return err
			}
			slices.Sort(pinned)
			if needed := a.Needed(); !slices.Equal(pinned, needed) ||
				len(a.Generations) != len(needed) {
				return fmt.Errorf("%s: pins of %v and %d descriptions, want those of %v", what,
					pinned,
					len(a.Generations), needed)
			}
			return nil
		})
}

// A shadow that one of several interfaces cannot have is on none of them.
func TestShadowOnAllInterfacesOrNone(t *testing.T) {
	n := newTestNet(t)
	addVeth(t, "lv2", "lv3", n.peer)
	n.run(t, "two", func(t *testing.T) {
		upText(t, "lv0", store.Auto, inForceText)
		if err := upShadowOf(t.Context(), shadowText, "shadow.levee", "lv0", "lv2"); err == nil {
			t.Fatal("an interface without a policy has a shadow")
		}
		if a := status(t); a.Shadow != nil {
			t.Fatalf("lv0 has a shadow: %+v", a.Shadow)
		}
		upText(t, "lv2", store.Auto, inForceText)
		shadowUp(t, shadowText, "lv0", "lv2")
		for _, a := range must(inspect.Status(t.Context(), false)) {
			if a.Shadow == nil {
				t.Errorf("%s has no shadow", a.Dev)
			}
		}
		hooks := 0
		ctx := stepping(t.Context(), func(step string) error {
			if step != "hook" {
				return nil
			}
			if hooks++; hooks == 2 { // of the second interface
				return errInjected
			}
			return nil
		})
		err := upShadowOf(ctx, otherText, "other.levee", "lv0", "lv2")
		if !errors.Is(err, errInjected) {
			t.Fatal(err)
		}
		n.send(t, 3, 1)
		wantDiffering(t, "lv0", 3)
		for _, a := range must(inspect.Status(t.Context(), false)) {
			if a.Shadow == nil || a.Shadow.Policy != "/etc/shadow.levee" {
				t.Errorf("%s: %+v", a.Dev, a.Shadow)
			}
		}
	})
}

// Who captures gets what the policy in force decided, before, beside and after a shadow.
func TestCaptureBesideAShadow(t *testing.T) {
	n := newTestNet(t)
	n.run(t, "capture", func(t *testing.T) {
		upText(t, "lv0", store.Auto, inForceText)
		got, _ := n.capture(t, tap.Capturing{Dev: "lv0", Snap: 20, Rate: 1000})
		check := func(when string) {
			t.Helper()
			if c := n.captured(t, got, 7); c.Verdict != "pass" || c.Rule.Reason != "default" {
				t.Errorf("%s: captured %+v", when, c)
			}
		}
		check("before")
		shadowUp(t, shadowText, "lv0")
		check("beside")
		was := differing(t, "lv0")
		n.send(t, 3, 1)
		await.OK(t, func() error {
			if differing(t, "lv0") < was+3 {
				return errors.New("the shadow does not judge while somebody captures")
			}
			return nil
		})
		if _, _, err := DownShadow(t.Context(), "lv0"); err != nil {
			t.Fatal(err)
		}
		check("after")
	})
}

// Entries of dynamic sets are those of both policies, and the limits of a shadow are its own.
func TestShadowSharesSetsAndHasItsOwnLimits(t *testing.T) {
	n := newTestNet(t)
	const inForce = "set abusers = dynamic(max 100)\ncount from abusers as \"seen\"\ndefault pass\n"
	const stricter = "set abusers = dynamic(max 100)\ndrop from abusers as \"marked\"\n" +
		"limit udp rate 1/m burst 2 by source as \"slow\"\ndefault pass\n"
	n.run(t, "sets", func(t *testing.T) {
		upText(t, "lv0", store.Auto, inForce)
		shadowUp(t, stricter, "lv0")
		set, err := sets.Open(t.Context(), "lv0", "abusers")
		if err != nil {
			t.Fatal(err)
		}
		defer set.Close()
		if err := set.Add(t.Context(), entriesOf("192.0.2.1/32")...); err != nil {
			t.Fatal(err)
		}
		for range 4 {
			n.sendFrame(t, sourceFrame(t, "192.0.2.1"))
		}
		wantDiffering(t, "lv0", 4)
		for range 5 {
			n.sendFrame(t, sourceFrame(t, "192.0.2.2"))
		}
		await.OK(t, func() error {
			for _, p := range status(t).Shadow.Pairs {
				if p.Would.Label == "slow" && p.Packets == 3 && p.Differs() {
					return nil
				}
			}
			return fmt.Errorf("the limit drops otherwise: %+v", status(t).Shadow.Pairs)
		})
		upText(t, "lv0", store.Auto, stricter)
		if a := status(t); len(a.Limits) != 1 || a.Limits[0].Live != 1 {
			t.Errorf("in force the limits of the shadow go on with %+v", a.Limits)
		}
	})
}

// TestAShadowKnowsItsOwnAddresses: `self` of a shadow was empty where the policy in force asks for
// none, so that it would have dropped all that comes to this machine.
func TestAShadowKnowsItsOwnAddresses(t *testing.T) {
	n := newTestNet(t)
	ip(t, "addr add 10.77.0.1/24 dev lv0")
	to := must2(packet.Build(packet.Spec{From: must2(netip.ParseAddr("10.77.0.2")),
		To: must2(netip.ParseAddr("10.77.0.1"))}))
	judged := func(t *testing.T, want uint64) {
		t.Helper()
		n.sendFrame(t, to)
		await.OK(t, func() error {
			is := func(c generation.SlotCounter) bool {
				return c.Label == "mine" &&
					c.Packets == want
			}
			if !slices.ContainsFunc(status(t).Shadow.Rules, is) {
				return fmt.Errorf("%d packets were not to self", want)
			}
			return nil
		})
	}
	n.run(t, "self", func(t *testing.T) {
		upText(t, "lv0", store.Auto, "default pass\n")
		shadowUp(t, "pass to self as \"mine\"\ndrop\ndefault drop\n", "lv0")
		judged(t, 1)
		upText(t, "lv0", store.Auto, "count\ndefault pass\n") // which it follows
		judged(t, 2)
		const empty = "drop to self as \"none\"\ndefault pass\n"
		upText(t, "lv0", store.Auto, empty)
		set := must2(sets.Open(t.Context(), "lv0", "self"))
		defer set.Close()
		if err := set.Replace(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		shadowUp(t, "pass to self as \"mine\"\npass\ndefault drop\n", "lv0")
		if left := must2(set.List(t.Context())); len(left) != 0 {
			t.Errorf("a shadow has filled the set of the policy in force: %v", left)
		}
	})
}
