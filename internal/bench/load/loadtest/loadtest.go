// Package loadtest tests contenders that hold a set or rules, and the reports of the measurements
// that compare them.
package loadtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"testing"
	"time"

	"levee/internal/bench"
	"levee/internal/bench/benchtest"
	"levee/internal/bench/flood"
	"levee/internal/bench/load"
	"levee/internal/lab"
	"levee/internal/lab/contender"
	"levee/internal/lab/gen"
)

// Contenders sends frames at each contender: it must load, drop every packet and say so, change,
// and leave nothing in force. One that can be switched must drop everything after it was off and on
// again, without loading.
func Contenders(t *testing.T, l *lab.Lab, what string, list []*load.Contender, frames [][]byte) {
	for _, c := range list {
		t.Run(what+"/"+c.Name(), func(t *testing.T) {
			c.Budget = time.Hour
			mustDrop(t, l, c, frames, 1)
			if c.Off == nil {
				return
			}
			c.Budget = 1 // as if loading took long
			mustDrop(t, l, c, frames, 2)
			mustDrop(t, l, c, frames, 2)
			if !c.Kept() {
				t.Error("it was not kept")
			}
			c.Budget = time.Hour
			mustDrop(t, l, c, frames, 2)
			if c.Kept() {
				t.Error("it was not removed at last")
			}
		})
	}
}

// StayLoaded does so with all that can be switched, which stay loaded meanwhile.
func StayLoaded(t *testing.T, l *lab.Lab, list []*load.Contender, frames [][]byte) {
	for _, round := range []string{"first", "second"} {
		for _, c := range list {
			if c.Off == nil {
				continue
			}
			t.Run(round+"/"+c.Name(), func(t *testing.T) {
				c.Budget = 1
				if mustDrop(t, l, c, frames, 1); !c.Kept() {
					t.Error("does not stay loaded")
				}
			})
		}
	}
}

// mustDrop installs a contender, sends frames and removes it; by then it was loaded so many times.
func mustDrop(t *testing.T, l *lab.Lab, c *load.Contender, frames [][]byte, loads int) {
	t.Helper()
	defer func() {
		if err := c.Remove(t.Context()); err != nil {
			t.Errorf("removing: %v", err)
		}
	}()
	err := c.Install(t.Context(), contender.Site{Host: l.Host(lab.Server), Device: "eth0"})
	if errors.Is(err, contender.ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	sent, arrived, dropped := send(t, l, c, frames)
	if dropped == 0 { // veth's NAPI may have missed its wake-up when an XDP program left
		wake(t, l)
		sent, arrived, dropped = send(t, l, c, frames)
	}
	if arrived == 0 || dropped < arrived || dropped > arrived+10 { // and some of the kernel's own
		t.Errorf("%d dropped of %d that arrived of %d by %v; the device has counted %v", dropped,
			arrived, sent.Sent, sent.Path, counted(t, l))
	}
	if n, changes := c.Timed(); n != loads || c.Change != nil && changes != loads {
		t.Errorf("%d loads and %d changes were timed, want %d", n, changes, loads)
	}
}

// send sends frames, and says how many arrived and how many of these were dropped within two
// seconds.
func send(t *testing.T, l *lab.Lab, c *load.Contender, frames [][]byte) (sent gen.Report, arrived,
	dropped uint64) {
	t.Helper()
	before, err := c.Dropped(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sent, err = gen.Run(t.Context(), gen.Config{
		Namespace: l.Host(lab.World).Namespace, Device: "eth0", CPU: -1,
		Frames: &gen.Frames{Frames: frames}, Count: 2000,
	})
	if err != nil {
		t.Fatal(err)
	}
	arrived = sent.Sent - sent.Refused
	for range 200 { // until the receiver has taken them all
		n, err := c.Dropped(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if dropped = n - before; dropped >= arrived {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return sent, arrived, dropped
}

// counted returns what the receiving device counted since it was made, without what is zero.
func counted(t *testing.T, l *lab.Lab) (all map[string]uint64) {
	t.Helper()
	err := l.Host(lab.Server).Do(func() (err error) {
		all, err = lab.Counters("eth0")
		return err
	})
	if err != nil {
		t.Error(err)
	}
	maps.DeleteFunc(all, func(_ string, n uint64) bool { return n == 0 })
	return all
}

// wake starts the receiver's NAPI anew.
func wake(t *testing.T, l *lab.Lab) {
	t.Helper()
	err := l.Host(lab.Server).Do(func() error {
		return errors.Join(lab.SetGRO("eth0", false), lab.SetGRO("eth0", true))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Interrupt gives a context that ends when the second of two cases begins.
func Interrupt(t *testing.T, o load.Options) (context.Context, load.Options) {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	o.Progress = func(p bench.Progress) {
		if p.Steps != 2 || p.Left <= 0 {
			t.Errorf("%+v", p)
		}
		if p.Step == 2 {
			cancel()
		}
	}
	return ctx, o
}

// Incomplete holds the report of a measurement that was interrupted so against what it must say.
func Incomplete(t *testing.T, r bench.Report) {
	t.Helper()
	benchtest.Output(t, r, "INCOMPLETE: after 1 of 2 cases: interrupted")
	b, err := json.Marshal(r)
	if err != nil || !bytes.Contains(b, []byte(`"incomplete":"after 1 of 2 cases: interrupted`)) {
		t.Errorf("%v\n%s", err, b)
	}
}

// NoInterval returns a contender with a median of too few rounds for its interval.
func NoInterval() []*load.Result {
	pps, ns := 2e6, 500.0
	return []*load.Result{{Name: "nft rules", MedianPPS: &pps, NsPerPacket: &ns,
		Windows: []flood.Window{}}}
}
