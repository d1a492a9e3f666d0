package detect

import (
	"encoding/json"
	"net/netip"
	"slices"
	"testing"
	"time"

	"levee/internal/packet"
)

// learned is a busy service's world after some hours, of each minute of which a second is seen.
func learned(t *testing.T, hours int) *world {
	t.Helper()
	w := newWorld(Options{})
	for range 100 {
		w.tenth(w.busy(), 100)
	}
	for minute := 1; minute < hours*60; minute++ {
		w.now = monday.Add(time.Duration(minute) * time.Minute)
		w.d.Tick(w.now)
		for range 12 {
			if a := w.tenth(w.busy(), 100); len(a) > 0 {
				t.Fatalf("minute %d: %+v", minute, a[0])
			}
		}
	}
	return w
}

// busy has more UDP than a flood of a machine that is idle.
func (w *world) busy() []part { return w.web(300_000, 100_000) }

// restarted is the world with a detector that has only what the old one had written.
func (w *world) restarted(t *testing.T, pause time.Duration) bool {
	t.Helper()
	text, err := json.Marshal(w.d.Baseline(w.now))
	if err != nil {
		t.Fatal(err)
	}
	var b Baseline
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	w.now = w.now.Add(pause)
	w.d = New(Options{})
	return w.d.Restore(&b, w.now)
}

// floodOf is a flood of UDP from all over.
func (w *world) floodOf(rate float64) part {
	return part{rate, 200, func() packet.Packet {
		return udp(v4(w.r.Uint32()), server, uint16(w.r.Uint32()), uint16(w.r.Uint32()))
	}}
}

// TestARestartForgetsNothing: neither is what was usual a flood, nor is a flood usual that came
// while nobody looked.
func TestARestartForgetsNothing(t *testing.T) {
	w := learned(t, 3)
	before := w.d.root.prof.usual(w.now)
	for _, pause := range []time.Duration{time.Second, 24 * time.Hour} {
		if !w.restarted(t, pause) {
			t.Fatal("the baseline is none")
		}
		for i := range before {
			if got := w.d.root.prof.usual(w.now)[i]; pause < restart &&
				(got < before[i]*0.999 || got > before[i]*1.001) {
				t.Errorf("of kind %d %v are usual after %v, were %v", i, got, pause, before[i])
			}
		}
		if len(w.d.nodes) == 0 {
			t.Error("no place is known")
		}
		for range 100 {
			if a := w.tenth(w.busy(), 100); len(a) > 0 {
				t.Fatalf("after %v: %+v", pause, a[0])
			}
		}
		if !w.restarted(t, time.Second) {
			t.Fatal("the baseline is none")
		}
		alarms := 0
		for range 30 { // within the first seconds
			alarms += len(w.tenth(append(w.busy(), w.floodOf(1e6)), 200))
		}
		if alarms == 0 {
			t.Errorf("%v and a restart later a flood is usual", pause)
		}
	}
}

// TestNoBaseline of another version, of long ago, of times to come, or of an agent that has learned
// nothing yet.
func TestNoBaseline(t *testing.T) {
	w := learned(t, 2)
	for name, change := range map[string]func(*Baseline){
		"version": func(b *Baseline) { b.Kinds++ },
		"old":     func(b *Baseline) { b.At = w.now.Add(-9 * 24 * time.Hour) },
		"future":  func(b *Baseline) { b.At = w.now.Add(time.Hour) },
	} {
		b := w.d.Baseline(w.now)
		change(b)
		if New(Options{}).Restore(b, w.now) {
			t.Errorf("%s: it is one", name)
		}
	}
	w = learned(t, 0)
	w.tenth(w.busy(), 100)
	w.restarted(t, time.Second)
	for range 50 {
		if a := w.tenth(w.busy(), 100); len(a) > 0 {
			t.Fatalf("without a baseline: %+v", a[0])
		}
	}
}

// TestABaselineIsBounded, whatever somebody has written into the file.
func TestABaselineIsBounded(t *testing.T) {
	d := New(Options{})
	hostile := Baseline{Kinds: numRates, At: monday, Syn: -1, All: Learned{
		Day: slices.Repeat([]rates{{-1}}, 1000), Hour: make([]rates, 1e5),
		Last: make([]rates, 1e5)}}
	for i := range uint32(10 * maxNodes) {
		hostile.Networks = append(hostile.Networks, Network{Prefix: netip.PrefixFrom(v4(i<<8), 24)})
	}
	hostile.Networks = append(hostile.Networks, Network{})
	d.Restore(&hostile, monday.Add(time.Second))
	if len(d.nodes) > mostNetworks || len(d.root.prof.hour) > 60 || d.usual.Syn < 0 {
		t.Errorf("%d places, %d minutes, %v", len(d.nodes), len(d.root.prof.hour), d.usual)
	}
	p := udp(server, server, 1, 2)
	for i := range 100 {
		at := monday.Add(time.Duration(i) * 100 * time.Millisecond)
		d.Add(at, &p, 1, 100)
		d.Tick(at)
	}
	if text, err := json.Marshal(d.Baseline(monday)); err != nil || len(text) > 1<<20 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}
