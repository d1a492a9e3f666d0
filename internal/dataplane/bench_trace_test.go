package dataplane

import (
	"testing"

	"levee/internal/dataplane/loader"
	"levee/internal/filter/codegen"
	"levee/internal/lang/action"
)

func TestEveryFrameOfATraceIsRun(t *testing.T) {
	needRoot(t)
	r, err := loader.NewRunner(handProgram(handPolicy("odd", action.Pass), codegen.Target{}))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	trace, err := loader.NewTrace([][]byte{frame(64, 1), frame(60, 0), frame(62, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer trace.Close()
	const repeat, rounds = 3000, 2
	x, err := r.OnTrace(trace)
	if err != nil {
		t.Fatal(err)
	}
	for range rounds {
		if _, empty, err := x.Round(repeat); err != nil || empty <= 0 {
			t.Fatalf("%v ns of the empty program, %v", empty, err)
		}
	}
	if _, _, err := x.Round(0); err == nil {
		t.Error("a round of no packet was run")
	}
	// Two of three frames are odd, in each of the two runs of a round. A signal of Go's scheduler
	// ends a run after some packets, and it is begun again (bpf_test_timer_continue,
	// net/bpf/test_run.c): each of those packets may be off by one frame of two.
	runs := uint64(2 * rounds * repeat)
	got := r.Counters()
	p := handPolicy("odd", action.Pass)
	drops, passes := got[p.RuleSlot(0)].Packets, got[p.DefaultSlot()].Packets
	again := int64(drops + passes - runs)
	if off := int64(drops) - 2*int64(passes); again < 0 || max(off, -off) > 2*again {
		t.Errorf("%d dropped, %d passed of %d", drops, passes, runs)
	}
	if n, err := r.Memory(); err != nil || n == 0 {
		t.Errorf("memory %d, %v", n, err)
	}
}

func TestTracesThatCannotBeRunAreRefused(t *testing.T) {
	needRoot(t)
	for name, frames := range map[string][][]byte{"none": nil, "short": {make([]byte, 13)},
		"long": {make([]byte, loader.MaxTraceFrame+1)}} {
		if trace, err := loader.NewTrace(frames); err == nil {
			t.Errorf("%s: accepted", name)
			trace.Close()
		}
	}
	trace, err := loader.NewTrace([][]byte{frame(64, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer trace.Close()
	r, err := loader.NewRunner(handProgram(handPolicy("odd", action.Pass),
		codegen.Target{Hook: codegen.TCX}))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.OnTrace(trace); err == nil {
		t.Error("a program of another hook was run")
	}
}
