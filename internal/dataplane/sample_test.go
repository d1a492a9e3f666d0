package dataplane

import (
	"context"
	"errors"
	"testing"
	"time"

	"levee/internal/await"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/store"
	"levee/internal/dataplane/tap"
)

// sampler takes samples of lv0.
func (n *testNet) sampler(t *testing.T) *tap.Sampler {
	t.Helper()
	s, err := tap.NewSampler(t.Context(), "lv0", 64)
	if err != nil {
		t.Fatal(err)
	}
	s.Mu.Lock()
	s.Lease = time.Hour // longer than a busy machine stands still
	err = s.Hook.Renew(s.Lease)
	s.Mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSamplesStandForEachPacket: the weights of samples are the packets that were judged, passed
// ones apart from dropped ones, at any rate and also beside a watch.
func TestSamplesStandForEachPacket(t *testing.T) {
	n := newTestNet(t)
	const sent = 20_000
	for _, mode := range allModes(t) {
		n.run(t, string(mode), func(t *testing.T) {
			stayHere(t)
			if err := bringPolicyAt(t, "lv0", mode, decisionPolicy, 0); err != nil {
				t.Fatal(err)
			}
			s := n.sampler(t)
			if err := s.SetRate(1000); err != nil {
				t.Fatal(err)
			}
			w := n.watchDecisions(t, tap.Deciding{Dev: "lv0", Rate: tap.MostDecisions, Snap: 64})
			close(w.hold)
			n.begun(t, w)
			if err := s.Read(func(tap.Sampled) {}); err != nil {
				t.Fatal(err)
			}
			before := status(t)
			var passed, dropped, samples uint64
			read := func() {
				if err := s.Read(func(p tap.Sampled) {
					samples++
					if p.Passed {
						passed += p.Weight
					} else {
						dropped += p.Weight
					}
				}); err != nil {
					t.Fatal(err)
				}
			}
			other := markedFrame(2)
			other[13] = 0xb7 // passes
			for i := range sent {
				n.sendFrame(t, markedFrame(1))
				if i%10 == 0 {
					n.sendFrame(t, other)
				}
				if i%1000 == 0 {
					read()
				}
			}
			// What is left of a kind comes with its next sample.
			await.OK(t, func() error {
				n.sendFrame(t, markedFrame(1))
				n.sendFrame(t, other)
				await.Pass(5*time.Millisecond, "the kernel hands on what it has sampled")
				read()
				a := status(t)
				if d, p := packets(&a, "marked")-packets(&before, "marked"),
					packets(&a, "default")-packets(&before, "default"); d > dropped+1 ||
					p > passed+1 {
					return errors.New("samples stand for too few packets")
				}
				return nil
			})
			a := status(t)
			if d := packets(&a, "marked") - packets(&before, "marked"); dropped > d+1 || d < sent {
				t.Errorf("samples stand for %d dropped packets of %d", dropped, d)
			}
			if samples > sent/2 {
				t.Errorf("%d samples of %d packets", samples, sent)
			}
			w.stop()
			if got := w.total.Shown + w.total.Bound + w.total.Ring + w.total.Reader; got < sent {
				t.Errorf("the watch beside it saw %d packets", got)
			}
			s.Close()
			if _, err := Down(context.Background(), "lv0"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestSamplesGoOn when the policy is replaced, and whoever is killed leaves the other at work.
func TestSamplesGoOn(t *testing.T) {
	n := newTestNet(t)
	n.run(t, "samples", func(t *testing.T) {
		if err := bringPolicyAt(t, "lv0", store.Auto, decisionPolicy, 0); err != nil {
			t.Fatal(err)
		}
		s := n.sampler(t)
		if _, err := tap.NewSampler(t.Context(), "lv0", 64); err == nil {
			t.Error("two take samples")
		}
		sampled := func() error {
			got := 0
			n.send(t, 3, 1)
			if err := s.Read(func(tap.Sampled) { got++ }); err != nil {
				t.Fatal(err)
			}
			if got == 0 {
				return errors.New("no samples come")
			}
			return nil
		}
		await.OK(t, sampled)
		if err := bringPolicyAt(t, "lv0", store.Auto, "count\n"+decisionPolicy, 0); err != nil {
			t.Fatal(err)
		}
		if err := s.Follow(t.Context()); err != nil {
			t.Fatal(err)
		}
		await.OK(t, sampled)

		got, _ := n.capture(t, tap.Capturing{Dev: "lv0", Snap: 64, Rate: 1000})
		n.captured(t, got, 3)
		await.OK(t, sampled)
		s.Mu.Lock() // as if it were killed
		err := s.Hook.Coll.Variables["until"].Set(uint64(0))
		s.Mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		n.captured(t, got, 4)
		s.Mu.Lock()
		err = s.Hook.Renew(time.Hour)
		s.Mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		await.OK(t, sampled)
		s.Close()
		n.captured(t, got, 5)
		s = n.sampler(t)
		defer s.Close()
		if _, err := Down(context.Background(), "lv0"); err != nil {
			t.Fatal(err)
		}
		if err := s.Follow(t.Context()); !generation.IsNotAttached(err) {
			t.Errorf("without a policy: %v", err)
		}
	})
}
