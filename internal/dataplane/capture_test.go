package dataplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/net/bpf"

	"levee/internal/await"
	"levee/internal/dataplane/store"
	"levee/internal/dataplane/tap"
	"levee/internal/filter/plan"
	"levee/internal/filter/state"
	"levee/internal/packet"
)

const capturePolicy = `drop ether 0x88b5 as "marked"
default pass
`

// TestCapture: packets come with what decided them, in every mode; a policy that replaces another
// is followed, and one that goes ends the capture.
func TestCapture(t *testing.T) {
	n := newTestNet(t)
	for _, mode := range allModes(t) {
		n.run(t, string(mode), func(t *testing.T) {
			if err := bringPolicyAt(t, "lv0", mode, capturePolicy, 0); err != nil {
				t.Fatal(err)
			}
			got, ended := n.capture(t, tap.Capturing{Dev: "lv0", Snap: 20, Rate: 1000})
			if c := n.captured(t, got, 7); c.Verdict != "drop" || c.Rule.Label != "marked" ||
				c.AtTC != mode.AtTC() || len(c.Packet) != 20 || c.Bytes < 60 || c.Rule.Line != 1 {
				t.Errorf("captured %+v", c)
			}
			if err := bringPolicyAt(t, "lv0", mode, "count as \"all\"\ndefault pass\n",
				0); err != nil {
				t.Fatal(err)
			}
			var c tap.Captured
			for i := 0; i < 100 && c.Verdict != "pass"; i++ { // it is followed within a second
				c = n.captured(t, got, 8)
			}
			if c.Verdict != "pass" || c.Rule.Reason != "default" {
				t.Errorf("captured %+v", c)
			}
			if _, err := Down(context.Background(), "lv0"); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-ended:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(time.Minute):
				t.Error("the capture goes on without a policy")
			}
		})
	}
}

// TestCaptureTakesWhatWasAskedFor: a verdict, a rule or a filter chooses, and only one captures.
func TestCaptureTakesWhatWasAskedFor(t *testing.T) {
	n := newTestNet(t)
	n.run(t, "chosen", func(t *testing.T) {
		policy := "drop ether 0x88b5 ether from 02:00:00:00:00:09 as \"nine\"\n" + capturePolicy
		if err := bringPolicyAt(t, "lv0", store.Auto, policy, 0); err != nil {
			t.Fatal(err)
		}
		marks := []bpf.Instruction{bpf.LoadAbsolute{Off: 14, Size: 1},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: 5, SkipFalse: 1}, bpf.RetConstant{Val: 1},
			bpf.RetConstant{}}
		notFive := []bpf.Instruction{bpf.LoadAbsolute{Off: 14, Size: 1},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: 5, SkipTrue: 1}, bpf.RetConstant{Val: 1},
			bpf.RetConstant{}}
		filter := func(packet.Link) ([]bpf.Instruction, error) { return marks, nil }
		others := func(packet.Link) ([]bpf.Instruction, error) { return notFive, nil }
		nine, passes, six := markedFrame(5), markedFrame(5), markedFrame(6)
		nine[11], passes[13] = 9, 0xb6
		for name, tt := range map[string]struct {
			o     tap.Capturing
			other []byte // is captured instead; nil: the marked frame is
		}{
			"its verdict":        {tap.Capturing{Verdict: "drop"}, nil},
			"another verdict":    {tap.Capturing{Verdict: "pass"}, passes},
			"its rule":           {tap.Capturing{Rule: "marked"}, nil},
			"the line of it":     {tap.Capturing{Rule: "2"}, nil},
			"another rule":       {tap.Capturing{Rule: "nine"}, nine},
			"its filter":         {tap.Capturing{Filter: filter, Rule: "marked"}, nil},
			"a filter of others": {tap.Capturing{Filter: others, Rule: "marked"}, six},
		} {
			t.Run(name, func(t *testing.T) {
				tt.o.Dev, tt.o.Snap, tt.o.Rate = "lv0", 64, 1000
				got, _ := n.capture(t, tt.o)
				if tt.other == nil {
					n.captured(t, got, 5)
					return
				}
				// A busy machine takes its time to begin.
				for seen, try := 0, 0; seen < 3; try++ {
					if try == 1000 {
						t.Fatal("what is asked for is not captured")
					}
					n.send(t, 5, 5)
					n.sendFrame(t, tt.other)
					select {
					case c := <-got:
						if bytes.Equal(c.Packet[:15], markedFrame(5)[:15]) {
							t.Fatalf("captured %+v", c)
						}
						if bytes.Equal(c.Packet[:15], tt.other[:15]) {
							seen++
						}
					case <-time.After(20 * time.Millisecond):
					}
				}
			})
		}
		t.Run("one at a time", func(t *testing.T) {
			o := tap.Capturing{Dev: "lv0", Snap: 64, Rate: 1000}
			got, _ := n.capture(t, o)
			n.captured(t, got, 5)
			if _, err := tap.Capture(t.Context(), o, nil); err == nil {
				t.Error("two capture")
			}
		})
		o := tap.Capturing{Dev: "lv0", Snap: 64, Rate: 1000, Rule: "nobody"}
		if _, err := tap.Capture(t.Context(), o, nil); err == nil {
			t.Error("a rule that is not there is captured")
		}
		if _, err := Down(context.Background(), "lv0"); err != nil {
			t.Fatal(err)
		}
	})
}

// TestCapturesTakeMoreThanAFilterSees: the rest of a long packet comes with what the filter saw.
func TestCapturesTakeMoreThanAFilterSees(t *testing.T) {
	n := newTestNet(t)
	long := make([]byte, 1400)
	for i := range long {
		long[i] = byte(i / 3)
	}
	copy(long, markedFrame(5)[:14])
	for _, mode := range allModes(t) {
		n.run(t, string(mode), func(t *testing.T) {
			if err := bringPolicyAt(t, "lv0", mode, capturePolicy, 0); err != nil {
				t.Fatal(err)
			}
			c := tap.NewCapturing(tap.Capturing{Dev: "lv0", Snap: 1000, Rate: tap.MostDecisions,
				Rule: "marked"})
			defer c.Close()
			if err := c.Follow(t.Context()); err != nil {
				t.Fatal(err)
			}
			n.sendFrame(t, long)
			n.send(t, 1, 9)
			var got [][]byte
			await.OK(t, func() error {
				_, err := c.Read(func(p tap.Captured) bool {
					got = append(got, bytes.Clone(p.Packet))
					return len(got) < 2
				})
				if err == nil && len(got) < 2 {
					err = fmt.Errorf("captured %d packets", len(got))
				}
				return err
			})
			if !bytes.Equal(got[0], long[:1000]) || len(got[1]) > 64 {
				t.Errorf("captured %d bytes of the first, %d of the second", len(got[0]),
					len(got[1]))
			}
			if _, err := Down(context.Background(), "lv0"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestACaptureThatDiesIsForgotten: whoever captured and is gone leaves nothing in the way.
func TestACaptureThatDiesIsForgotten(t *testing.T) {
	n := newTestNet(t)
	n.run(t, "died", func(t *testing.T) {
		if err := bringPolicyAt(t, "lv0", store.Auto, capturePolicy, 0); err != nil {
			t.Fatal(err)
		}
		c := tap.NewCapturing(tap.Capturing{Dev: "lv0", Snap: 64, Rate: 1000})
		if err := c.Follow(t.Context()); err != nil {
			t.Fatal(err)
		}
		h := c.Hook
		sum := func() (on int) {
			for at := len(h.G.Slots) * plan.SlotBytes; at < len(h.Rows); at += h.G.RowBytes {
				on += int(h.Rows[at])
			}
			return on
		}
		all := len(h.Rows) / h.G.RowBytes
		if n.send(t, 20, 3); sum() != all {
			t.Errorf("%d of %d CPUs capture", sum(), all)
		}
		if err := h.Coll.Variables["until"].Set(uint64(0)); err != nil { // its time has passed
			t.Fatal(err)
		}
		n.send(t, 20, 3)
		await.OK(t, func() error {
			if sum() >= all {
				return errors.New("no CPU has seen that nobody captures any more")
			}
			return nil
		})
		h.Turn(true)
		if err := h.Programs.Delete(uint32(state.Looks)); err != nil {
			t.Fatal(err)
		}
		n.send(t, 20, 3)
		await.OK(t, func() error {
			if sum() >= all {
				return errors.New("no CPU has seen that the program is gone")
			}
			return nil
		})
		wantPackets(t, "marked", 60)
		c.Close()
		if _, err := Down(context.Background(), "lv0"); err != nil {
			t.Fatal(err)
		}
	})
}

// capture captures until the test ends.
func (n *testNet) capture(t *testing.T, o tap.Capturing) (<-chan tap.Captured, <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	got, ended, done := make(chan tap.Captured, 1000), make(chan error, 1), make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and the thread ends with it
		if err := netns.Set(n.here); err != nil {
			ended <- err
			return
		}
		_, err := tap.Capture(ctx, o, func(c tap.Captured) bool {
			c.Packet = append([]byte(nil), c.Packet...)
			select {
			case got <- c:
			default:
			}
			return true
		})
		ended <- err
	}()
	t.Cleanup(func() { cancel(); <-done })
	return got, ended
}

// captured sends frames until one of them, marked by its first byte, is captured.
func (n *testNet) captured(t *testing.T, got <-chan tap.Captured, first byte) tap.Captured {
	t.Helper()
	for range 600 {
		n.send(t, 1, first)
		for more := true; more; {
			select {
			case c := <-got:
				if fmt.Sprintf("%x", c.Packet[12:15]) == fmt.Sprintf("88b5%02x", first) {
					return c
				}
			case <-time.After(100 * time.Millisecond):
				more = false
			}
		}
	}
	t.Fatal("no packet is captured")
	return tap.Captured{}
}
