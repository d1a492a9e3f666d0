package dataplane

import (
	"fmt"
	"testing"

	"levee/internal/await"
	"levee/internal/dataplane/loader"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/kernel"
	"levee/internal/lang/action"
	"levee/internal/lang/policy"
)

func frame(n int, first byte) []byte {
	f := make([]byte, n)
	if n > 14 {
		f[14] = first
	}
	return f
}

func TestRunnerReportsSlotActionAndCounters(t *testing.T) {
	needRoot(t)
	for _, hook := range []codegen.Hook{codegen.XDP, codegen.TCX} {
		sizes := []int{0, 1, 13, 14, 15, 60, 1514, 3000}
		if hook == codegen.XDP {
			sizes = append(sizes, 9014, 1<<16)
		}
		t.Run(fmt.Sprint("hook ", hook), func(t *testing.T) {
			p := handPolicy("odd", action.Pass)
			r, err := loader.NewRunner(handProgram(p,
				codegen.Target{Hook: hook, Trace: true, CPUs: 2, Frags: hook == codegen.XDP}))
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			want := make([]store.Counter, len(r.Slots()))
			for _, n := range sizes {
				for _, first := range []byte{0, 1} {
					slot, verdict := p.DefaultSlot(), action.Pass
					switch {
					case n < 14:
						slot, verdict = 0, action.Drop
					case n > 14 && first == 1:
						slot, verdict = p.RuleSlot(0), action.Drop
					}
					want[slot].Packets++
					want[slot].Bytes += uint64(n)
					gotSlot, gotAction, err := r.Eval(frame(n, first))
					if err != nil || gotSlot != slot || gotAction != verdict {
						t.Errorf("%d bytes, first %d: slot %d %v (%v), want slot %d %v", n, first,
							gotSlot, gotAction, err, slot, verdict)
					}
				}
			}
			for i, c := range r.Counters() {
				if c != want[i] {
					t.Errorf("slot %d: %+v, want %+v", i, c, want[i])
				}
			}
			if _, _, err := r.Eval(make([]byte, 1<<16+1)); err == nil {
				t.Error("a frame of 65537 bytes was run")
			}
		})
	}
}

func TestRunnerDecidesShortFramesByMalformedRules(t *testing.T) {
	needRoot(t)
	p := handPolicy("odd", action.Pass)
	p.Rules = append(p.Rules,
		&policy.Rule{Action: action.Count, Malformed: true, ID: "count malformed"},
		&policy.Rule{Action: action.Pass, Malformed: true, ID: "pass malformed"},
		&policy.Rule{Action: action.Drop, Malformed: true, ID: "never reached"})
	r, err := loader.NewRunner(handProgram(p, codegen.Target{Trace: true}))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	slot, verdict, err := r.Eval(make([]byte, 5))
	if err != nil || slot != p.RuleSlot(2) || verdict != action.Pass {
		t.Errorf("slot %d %v (%v), want slot %d pass", slot, verdict, err, p.RuleSlot(2))
	}
	c := r.Counters()
	if one := (store.Counter{Packets: 1, Bytes: 5}); c[p.RuleSlot(1)] != one ||
		c[p.RuleSlot(2)] != one ||
		c[p.RuleSlot(3)] != (store.Counter{}) || c[0] != (store.Counter{}) {
		t.Errorf("counters %v", c)
	}
}

func TestBenchMeasuresAboveEmptyProgram(t *testing.T) {
	needRoot(t)
	r, err := loader.NewRunner(handProgram(handPolicy("odd", action.Pass),
		codegen.Target{Trace: true}))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c, err := r.Bench([][]byte{frame(64, 0), frame(64, 1)}, 20000)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", c)
	if c.NsEmpty <= 0 || len(c.Rounds) != loader.BenchRounds {
		t.Errorf("%+v", c)
	}
	if _, err := r.Bench([][]byte{frame(13, 0)}, 1); err == nil {
		t.Error("a frame of 13 bytes was accepted")
	}
}

// What is held for a measurement is attached, out of the way, and let go behind it.
func TestProgramsAreHeldWhileTheyAreMeasured(t *testing.T) {
	needRoot(t)
	r, err := loader.NewRunner(handProgram(handPolicy("odd", action.Pass),
		codegen.Target{Trace: true}))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	before := kernelObjects(t)
	release, err := kernel.HoldDispatched(r.Loaded.Prog)
	if err != nil {
		t.Fatal(err)
	}
	if held := kernelObjects(t); len(held) != len(before)+1 {
		t.Errorf("before: %v, held: %v, want a link more", before, held)
	}
	release()
	await.OK(t, func() error { return nothingAdded(t, before) })
}
