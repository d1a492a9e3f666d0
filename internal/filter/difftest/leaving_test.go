package difftest

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/dataplane/loader"
	"levee/internal/dataplane/sets"
	"levee/internal/filter/codegen"
	"levee/internal/filter/oracle"
	"levee/internal/kernel"
	"levee/internal/lang/action"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/packet/craft"
)

// ofSenders are the fields that the kernel tells of what leaves.
func ofSenders() []field.Field {
	return slices.DeleteFunc(ofKernel(),
		func(f field.Field) bool { return f.Info().Kernel != field.Leaving })
}

// askSender are terms on who sends, of half of the rules. Few values are in use, so that many
// packets have them.
func askSender(r *rand.Rand) (terms []policy.Term) {
	for _, f := range ofSenders() {
		if r.IntN(14) > 0 {
			continue
		}
		lo := r.Uint64N(4)
		t := policy.Term{Field: f, Not: r.IntN(3) == 0, Ranges: []field.Range{{Lo: lo, Hi: lo}}}
		switch most := f.Info().Max; {
		case f == field.Local:
			t.Ranges[0] = field.Range{Lo: lo & 1, Hi: lo & 1}
		case r.IntN(3) == 0:
			t.Ranges[0].Hi = most - r.Uint64N(3)
		case r.IntN(3) == 0:
			t.Ranges = append(t.Ranges, field.Range{Lo: lo + 2, Hi: lo + 2},
				field.Range{Lo: most, Hi: most})
		}
		terms = append(terms, t)
	}
	return terms
}

// askSenders has rules of what leaves ask who sends.
func askSenders(p *policy.Policy, seed uint64) *policy.Policy {
	draw := rand.New(rand.NewPCG(seed, 164))
	messages := slices.ContainsFunc(p.Out.Rules, func(r *policy.Rule) bool {
		return slices.ContainsFunc(r.Match,
			func(t policy.Term) bool { return t.Field.OfMessage() }) || r.Limit != nil &&
			slices.ContainsFunc(r.Limit.Keys, func(k policy.Key) bool {
				return slices.Contains(k.Fields, field.DNSName)
			})
	})
	for _, r := range p.Out.Rules {
		if r.Malformed || r.Limit != nil {
			continue
		}
		more := askSender(draw)
		if messages { // which a policy does not ask for beside gids
			more = slices.DeleteFunc(more,
				func(t policy.Term) bool { return t.Field == field.GID })
		}
		r.Match = slices.Concat(r.Match, more)
	}
	return p
}

// tellSender has the kernel tell something of who sends.
func tellSender(r *rand.Rand, to ...Teller) {
	for _, f := range ofSenders() {
		v := r.Uint64N(6)
		if v > 3 {
			v = f.Info().Max - (v - 4)
		}
		known := r.IntN(5) > 0
		for _, t := range to {
			if known {
				t.Tell(f, min(v, f.Info().Max))
			}
		}
	}
}

// outOf is a policy that says of what leaves what another says of what arrives, as far as it can,
// and nothing of what arrives.
func outOf(p *policy.Policy) *policy.Policy {
	some := func(rules []*policy.Rule) (out []*policy.Rule) {
		for _, r := range rules {
			not := []action.Action{action.Cookie, action.Divert, action.Track, action.Greylist,
				action.Redirect}
			if slices.Contains(not, r.Action) ||
				slices.ContainsFunc(r.Match, func(t policy.Term) bool {
					return t.Looks(field.Remembered()...)
				}) {
				continue
			}
			of := *r
			of.ID, of.Text, of.Out = "out "+r.ID, "out "+r.Text, true
			out = append(out, &of)
		}
		return out
	}
	both := *p
	both.Out = &policy.Out{Protect: some(p.Protect), Rules: some(p.Rules), Inners: p.Inners,
		Default: p.Default}
	both.Protect, both.Rules, both.Inners = nil, nil, nil
	return &both
}

// TestWhatLeavesIsAsTheOracleSays: generated policies judge frames that leave as the oracle does,
// and count them so.
func TestWhatLeavesIsAsTheOracleSays(t *testing.T) {
	if err := kernel.Privileged(); err != nil {
		t.Skip(err)
	}
	judged := 0
	for seed := range uint64(8) {
		arriving, text, err := Policy(seed)
		if err != nil {
			t.Fatal(err)
		}
		p := askSenders(outOf(arriving), seed)
		draw := rand.New(rand.NewPCG(seed, 1))
		prog, err := codegen.Compile(p, codegen.Target{Trace: true, Clock: true, HZ: 1000,
			CPUs: int(seed%3) + 1, Bytecode: seed%4 == 3, Memory: gigabyte})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		r, err := loader.NewRunner(prog)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		r.SetClock(1 << 33)
		ref := oracle.New(p)
		ref.SetClock(func() time.Time { return now })
		for _, s := range p.Sets {
			if s.Kind != policy.Dynamic || s.Self {
				continue
			}
			for _, e := range craft.Entries(s) {
				if ref.AddEntry(s.Name, e, time.Time{}) != nil {
					continue // it is full
				}
				if err := r.SetAdd(s.Name, sets.EntryOf(e, sets.Forever)); err != nil {
					t.Fatal(err)
				}
			}
		}
		sums := make([]uint64, len(p.Slots()))
		for frame := range Packets(p.Leaving(), seed, 500) {
			ref.Untell()
			r.Untell()
			tellSender(draw, ref, r)
			slot, verdict, err := r.EvalLeaving(frame)
			if errors.Is(err, unix.EINVAL) {
				continue // longer than the kernel runs programs of tc on
			}
			if err != nil {
				t.Fatal(err)
			}
			want := ref.Leave(frame)
			if slot != want.Slot || verdict != want.Action {
				t.Fatalf("seed %d: %x: %v by %d, want %v by %d\n%s", seed, frame, verdict, slot,
					want.Action, want.Slot, text)
			}
			for _, s := range append(want.Counted, want.Slot) {
				sums[s]++
			}
			judged++
		}
		for i, c := range r.Counters() {
			if c.Packets != sums[i] {
				t.Errorf("seed %d: slot %d counts %d packets, want %d", seed, i, c.Packets, sums[i])
			}
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if judged < 3000 {
		t.Errorf("%d frames judged", judged)
	}
}
