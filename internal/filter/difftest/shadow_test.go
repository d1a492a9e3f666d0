package difftest

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"

	"levee/internal/dataplane/loader"
	"levee/internal/filter/codegen"
	"levee/internal/filter/oracle"
	"levee/internal/filter/shadow"
	"levee/internal/lang/action"
	"levee/internal/packet"
)

// shadowed is a policy, its oracle, and its program.
type shadowed struct {
	c      Case
	oracle *oracle.Evaluator
	engine compiled
}

// A shadow beside a policy counts the pairs of decisions that the oracles of the two give, packet
// by packet and byte by byte, and changes none of the decisions.
func TestShadowsAgreeWithTheOraclesOfBothPolicies(t *testing.T) {
	needRoot(t)
	var sum struct{ frames, differ, unjudged, pairs int }
	seeds := 40
	if testing.Short() {
		seeds = 8
	}
	first := max(*firstSeed, 1)
	for seed := first; seed < first+uint64(seeds); seed++ {
		link := packet.Ethernet
		if seed%7 == 0 {
			link = packet.L3
		}
		want, got := compareShadow(t, seed, link, 250)
		for k, n := range want {
			sum.frames += int(n.packets)
			sum.pairs++
			if k.Would.Verdict == shadow.None {
				sum.unjudged += int(n.packets)
			} else if k.Differs() {
				sum.differ += int(n.packets)
			}
			if *got[k] != *n {
				t.Fatalf("seed %d: %v: %+v, want %+v", seed, k, *got[k], *n)
			}
		}
		if len(got) != len(want) {
			t.Fatalf("seed %d: %d pairs, want %d", seed, len(got), len(want))
		}
	}
	if sum.differ*20 < sum.frames || sum.pairs*2 < seeds*15 {
		t.Errorf("too little differs: %+v", sum)
	}
	t.Logf("%+v", sum)
}

type pairCount struct{ packets, bytes uint64 }

func compareShadow(t *testing.T, seed uint64, link packet.Link, frames int) (want,
	got map[shadow.Key]*pairCount) {
	t.Helper()
	target := target(seed, seed%5 == 0)
	target.Link, target.CPUs = link, ebpf.MustPossibleCPU() // each of which has a memory of its own
	if err := timed(&target); err != nil {
		t.Fatal(err)
	}
	inForce := newShadowed(t, seed, link)
	beside := newShadowed(t, seed+10_000, link)
	program, err := codegen.Compile(inForce.c.Policy, target)
	if err != nil {
		t.Fatal(err)
	}
	inForce.engine = compiled{hook: target.Hook}
	if inForce.engine.Runner, err = loader.NewRunner(program); err != nil {
		t.Fatal(err)
	}
	defer inForce.engine.Close()
	target.Shadow = inForce.engine.Judged()
	if program, err = codegen.Compile(beside.c.Policy, target); err != nil {
		t.Fatal(err)
	}
	beside.engine = compiled{hook: target.Hook}
	if beside.engine.Runner, err = inForce.engine.Shadow(program); err != nil {
		t.Fatal(err)
	}
	defer beside.engine.Close()
	for _, s := range []*shadowed{&inForce, &beside} {
		if err := fill(s.engine.Runner, s.c); err != nil {
			t.Fatal(err)
		}
	}
	clock := newClock(seed, []Engine{inForce.engine, beside.engine})
	for _, s := range []*shadowed{&inForce, &beside} {
		s.oracle.SetClock(clock.now)
		for _, set := range s.c.Policy.Sets {
			for _, e := range s.c.Entries(set) {
				if err := s.oracle.AddEntry(set.Name, e.Element, e.Lease.expires()); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	want = map[shadow.Key]*pairCount{}
	for _, of := range []*shadowed{&inForce, &beside} {
		for f := range packets(of.c.Policy, of.c.elements(), seed, frames) {
			f = arriving(link, f)
			if len(f) < packet.Ethernet.Header() {
				continue // which the kernel does not run
			}
			clock.step()
			slot, verdict, err := inForce.engine.Eval(f)
			if errors.Is(err, errNotRun) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			judged := inForce.oracle.Eval(f)
			if judged.Slot != slot || judged.Action != verdict {
				t.Fatalf("seed %d: %x: %v by %d beside a shadow, want %v by %d", seed, f, verdict,
					slot, judged.Action, judged.Slot)
			}
			k := shadow.Key{Judged: decisionOf(judged, false)}
			n := uint64(len(f))
			if judged.Answered {
				n = 0
			} else {
				k.Would = decisionOf(beside.oracle.Eval(f), target.Hook == codegen.XDP)
			}
			if want[k] == nil {
				want[k] = &pairCount{}
			}
			want[k].packets++
			want[k].bytes += n
		}
	}
	read, err := beside.engine.Compared()
	if err != nil {
		t.Fatal(err)
	}
	got = map[shadow.Key]*pairCount{}
	for _, p := range read.Pairs {
		got[p.Key] = &pairCount{p.Packets, p.Bytes}
	}
	samples := map[shadow.Key]bool{}
	for _, s := range read.Samples {
		samples[s.Key] = true
	}
	for k := range want {
		if got[k] == nil {
			got[k] = &pairCount{}
		}
		if !k.Differs() && samples[k] {
			t.Errorf("seed %d: a sample of %v, which do not differ", seed, k)
		}
	}
	if read.Untold != 0 {
		t.Errorf("seed %d: %d packets of untold pairs", seed, read.Untold)
	}
	return want, got
}

// decisionOf returns the note of a program on a decision. Nobody reads a ring; a shadow in XDP
// tells of it.
func decisionOf(r oracle.Result, tells bool) shadow.Decision {
	v := shadow.Drop
	if r.Ring != nil && !tells {
		r.Action = r.Ring.Else
	}
	switch {
	case r.Answered:
		v = shadow.Answer
	case r.Action == action.Redirect:
		v = shadow.Redirect
	case r.Action == action.Pass:
		v = shadow.Pass
	}
	return shadow.Decision{Slot: r.Slot, Verdict: v}
}

// newShadowed makes a policy and its oracle. Cookies of a shadow answer nobody, so its policies
// have none.
func newShadowed(t *testing.T, seed uint64, link packet.Link) shadowed {
	t.Helper()
	p, text, err := Policy(seed)
	for ; err == nil && seed > 10_000 && p.Has(action.Cookie); p, text, err = Policy(seed) {
		seed += 1000
	}
	if err != nil {
		t.Fatal(err)
	}
	if link == packet.L3 {
		WithoutEthernet(p)
	}
	return shadowed{c: Case{Policy: p, Link: link, Text: text, Seed: seed},
		oracle: oracle.NewOn(p, link)}
}
