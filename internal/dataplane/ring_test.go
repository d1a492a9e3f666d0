package dataplane

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/store"
	"levee/internal/dataplane/tap"
	"levee/internal/filter/state"
	"levee/ring"
)

// Frames of type 0x88b5 are told apart by their first byte behind the header.
const ringPolicy = `redirect ether 0x88b5 to ring "marked" else drop as "marked"
redirect malformed to ring "odd" else drop
pass arp as "arp"
default drop
`

// ringReader reads a ring of lv0 until it is closed.
type ringReader struct {
	of *tap.Ring
	in *ring.Reader
}

func readRing(t *testing.T, name string) *ringReader {
	t.Helper()
	r := &ringReader{of: &tap.Ring{Dev: "lv0", Name: name}}
	dev, _, err := r.of.Queues()
	if err != nil {
		t.Fatal(err)
	}
	q, err := ring.Open(dev, 0, ring.Options{Frames: 64})
	if err != nil {
		t.Fatal(err)
	}
	r.in = ring.NewReader(dev.Name, []*ring.Queue{q})
	r.join(t, true)
	return r
}

func (r *ringReader) join(t *testing.T, want bool) {
	t.Helper()
	joined, err := r.of.Join(t.Context(), r.in.Queues())
	if joined != want || (err == nil) != want {
		t.Fatalf("joined %v: %v", joined, err)
	}
}

// want reads so many frames, and compares them.
func (r *ringReader) want(t *testing.T, frames ...[]byte) {
	t.Helper()
	var got [][]byte
	for len(got) < len(frames) {
		n, err := r.in.Read(time.Minute,
			func(_ int, f []byte) { got = append(got, slices.Clone(f)) })
		if err != nil || n == 0 {
			t.Fatalf("%d of %d frames, then %v", len(got), len(frames), err)
		}
	}
	if !slices.EqualFunc(got, frames, bytes.Equal) {
		t.Fatalf("it got %x, not %x", got, frames)
	}
}

func (r *ringReader) close(t *testing.T) {
	t.Helper()
	if err := errors.Join(r.in.Close(), r.of.Close()); err != nil {
		t.Fatal(err)
	}
}

func ringOf(t *testing.T, name string) state.Ring {
	t.Helper()
	all := status(t).Rings
	i := slices.IndexFunc(all, func(r state.Ring) bool { return r.Name == name })
	if i < 0 {
		t.Fatalf("no ring %s among %+v", name, all)
	}
	return all[i]
}

// wantRing compares what is counted of a ring: redirected, received, unread, bypassed, queues.
func wantRing(t *testing.T, name string, redirected, received, unread, bypassed uint64,
	queues ...int) {
	t.Helper()
	r := ringOf(t, name)
	got := fmt.Sprint(r.Redirected, r.Received, r.Unread(), r.Bypassed, r.Queues)
	if want := fmt.Sprint(redirected, received, unread, bypassed, queues); got != want {
		t.Errorf("ring %s has counted %s, not %s", name, got, want)
	}
}

// TestARingIsRead: packets go to who reads, and have the rule's verdict while nobody does, over a
// replace, and after the policy has gone and come.
func TestARingIsRead(t *testing.T) {
	for _, mode := range []store.Mode{store.XDPNative, store.XDPGeneric} {
		t.Run(string(mode), func(t *testing.T) {
			n := newTestNet(t)
			upText(t, "lv0", mode, ringPolicy)
			n.send(t, 2, 1)
			wantPackets(t, "label:marked", 2)
			wantRing(t, "marked", 0, 0, 0, 2)

			r := readRing(t, "marked")
			n.send(t, 2, 2)
			r.want(t, markedFrame(2), markedFrame(2))
			wantRing(t, "marked", 2, 2, 0, 2, 0)
			wantRing(t, "odd", 0, 0, 0, 0)

			upText(t, "lv0", mode, strings.Replace(ringPolicy, "else drop as", "else pass as", 1))
			n.send(t, 1, 3)
			r.want(t, markedFrame(3))
			r.join(t, true)
			n.send(t, 1, 4)
			r.want(t, markedFrame(4))
			wantRing(t, "marked", 4, 4, 0, 2, 0)

			r.close(t)
			n.send(t, 1, 5)
			wantRing(t, "marked", 4, 4, 0, 3)
			wantPackets(t, "label:marked", 7)

			r = readRing(t, "odd") // its queue is free again
			short := markedFrame(6)
			copy(short[12:], []byte{8, 0, 0x45, 0, 0}) // IPv4 of no length
			n.sendFrame(t, short)
			r.want(t, short)

			if _, err := Down(t.Context(), "lv0"); err != nil {
				t.Fatal(err)
			}
			n.send(t, 1, 7)
			r.join(t, false)
			upText(t, "lv0", mode, ringPolicy)
			r.join(t, true)
			n.sendFrame(t, short)
			r.want(t, short)
			wantRing(t, "odd", 1, 1, 0, 0, 0)
			r.close(t)
			if _, err := Down(t.Context(), "lv0"); err != nil {
				t.Fatal(err)
			}
			runDirIsGone(t)
		})
	}
}

// TestWhatAReaderLosesIsCounted: of 200 frames that nobody takes in time 64 find room. A reader
// that ends leaves those, and the next one begins with none.
func TestWhatAReaderLosesIsCounted(t *testing.T) {
	n := newTestNet(t)
	upText(t, "lv0", store.XDPNative, ringPolicy)
	r := readRing(t, "marked")
	n.send(t, 200, 1)
	lost, err := r.in.Statistics()
	if err != nil || lost.Lost() != 200-64 || lost.Received != 0 {
		t.Errorf("a reader of 64 frames has lost %+v of 200: %v", lost, err)
	}
	wantRing(t, "marked", 200, 0, 200, 0, 0)
	r.close(t)
	r = readRing(t, "marked")
	n.send(t, 1, 2)
	r.want(t, markedFrame(2))
	wantRing(t, "marked", 201, 1, 200, 0, 0)
	r.close(t)
}

// TestReadersComeAndGoUnderAFlood: each frame is redirected or has the verdict of the rule, and
// each that is redirected is read or counted, whatever reads at the moment and whatever policy is
// in force. No policy changes for that but by who replaces it.
func TestReadersComeAndGoUnderAFlood(t *testing.T) {
	n := newTestNet(t)
	upText(t, "lv0", store.XDPNative, ringPolicy)
	const rounds, each = 20, 500
	var read, lost uint64
	for round := range rounds {
		r := readRing(t, "marked")
		for i := range each {
			n.send(t, 1, byte(round))
			if i%100 == 50 {
				if _, err := r.in.Read(0, func(int, []byte) { read++ }); err != nil {
					t.Fatal(err)
				}
			}
		}
		s, err := r.in.Statistics()
		if err != nil {
			t.Fatal(err)
		}
		lost += s.Lost()
		if round%7 == 3 {
			upText(t, "lv0", store.XDPNative, fmt.Sprintf("%s# %d\n", ringPolicy, round))
		}
		r.close(t)
		n.send(t, each/10, 0)
	}
	is := ringOf(t, "marked")
	if is.Redirected != rounds*each || is.Bypassed != rounds*each/10 || is.Received != read ||
		lost == 0 || is.Unread() < lost {
		t.Errorf("of %d frames %d were read, %d lost: %+v", rounds*each, read, lost, is)
	}
	wantPackets(t, "label:marked", rounds*each*11/10)
}

// TestTCHasNoRings: a policy with a ring is not put there, nor does it replace one that is there.
func TestTCHasNoRings(t *testing.T) {
	newTestNet(t)
	for _, mode := range tcModes(t) {
		err := bringPolicyAt(t, "lv0", mode, ringPolicy, 0)
		if err == nil || !strings.Contains(err.Error(), "a ring takes packets from XDP alone, and "+
			"line 1 redirects to one") {
			t.Errorf("%s: %v", mode, err)
		}
		upText(t, "lv0", mode, "pass as \"all\"\ndefault drop\n")
		if err := bringPolicyAt(t, "lv0", store.Auto, ringPolicy, 0); err == nil ||
			!strings.Contains(err.Error(), "XDP alone") {
			t.Errorf("over a policy at %s: %v", mode, err)
		}
		if got := status(t).Mode; got != mode {
			t.Errorf("the policy is at %s, not %s", got, mode)
		}
		if _, err := Down(t.Context(), "lv0"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAShadowRedirectsNothing: it tells what it would hand to a ring, and hands nothing.
func TestAShadowRedirectsNothing(t *testing.T) {
	n := newTestNet(t)
	upText(t, "lv0", store.XDPNative, "pass ether 0x88b5 as \"all\"\ndefault pass\n")
	shadowUp(t, ringPolicy, "lv0")
	n.send(t, 3, 1)
	wantDiffering(t, "lv0", 3)
	wantPackets(t, "label:all", 3)
	a := status(t)
	if len(a.Rings) > 0 {
		t.Errorf("a shadow has rings: %+v", a.Rings)
	}
	i := slices.IndexFunc(a.Shadow.Pairs, func(p inspect.ShadowPair) bool { return p.Differs() })
	if i < 0 || a.Shadow.Pairs[i].WouldVerdict.String() != "redirect" {
		t.Errorf("the shadow would have done %+v", a.Shadow.Pairs)
	}
}
