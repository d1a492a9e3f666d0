package sets

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"levee/internal/bench"
	"levee/internal/bench/benchtest"
	"levee/internal/bench/load"
	"levee/internal/bench/load/loadtest"
	"levee/internal/bench/lookup"
	"levee/internal/bench/workload"
	"levee/internal/kernel"
	"levee/internal/lab/labtest"
	"levee/internal/usage"
)

func TestLookupsOfEveryStructureAreRightAndTimed(t *testing.T) {
	labtest.NeedRoot(t)
	all := lookup.Traffics
	t.Cleanup(func() { lookup.Traffics = all })
	lookup.Traffics = all[:2] // hits and misses: the answers of a mix are not known
	r, err := Run(t.Context(), Options{Options: lookups(50), Entries: []string{"hosts"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Cases) != 2 {
		t.Fatalf("%d cases, want one a family", len(r.Cases))
	}
	for _, c := range r.Cases {
		if len(c.Structures) != len(lookup.Structures) {
			t.Errorf("%s: %d structures, want all %d", c.Family, len(c.Structures),
				len(lookup.Structures))
		}
		for _, s := range c.Structures {
			if s.Missing != "" || len(s.Lookups) != len(lookup.Traffics) || s.Bytes == 0 ||
				s.UpdateNs <= 0 {
				t.Errorf("%s, %s: %+v", c.Family, s.Name, s)
			}
		}
	}
	benchtest.Output(t, r)
}

// lookups are options without a lab.
func lookups(sizes ...int) load.Options {
	return load.Options{Options: bench.Options{Seed: 3, Rounds: bench.MinRounds, Quick: true},
		Sizes: sizes, SkipLab: true}
}

func TestAStructureThatAnswersWronglyHasNoFigure(t *testing.T) {
	labtest.NeedRoot(t)
	old := lookup.Structures
	t.Cleanup(func() { lookup.Structures = old })
	lookup.Structures = []lookup.Structure{
		{Name: "forgetful", What: "a static set that lost an entry",
			Build: func(p []netip.Prefix, width int) (*lookup.Built, error) {
				return old[0].Build(p[1:], width)
			}},
		{Name: "refused", Build: func([]netip.Prefix, int) (*lookup.Built, error) {
			return nil,
				errors.New("the kernel said no")
		}},
	}
	r, err := Run(t.Context(), Options{Options: lookups(20), Families: []string{"4"},
		Entries: []string{"hosts"}})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"wrong answers", "the kernel said no"} {
		if s := r.Cases[0].Structures[i]; !strings.Contains(s.Missing, want) || len(s.Lookups) > 0 {
			t.Errorf("%+v, want %q and no figure", s, want)
		}
	}
	benchtest.Output(t, r)
}

func TestFloodsAreMeasuredByTheRulesOfFlood(t *testing.T) {
	labtest.NeedRoot(t)
	o := lookups(12)
	o.SkipLab, o.SkipLookups, o.Attempts, o.Window, o.Only = false, true, 1, 50*time.Millisecond,
		[]string{"levee static"}
	r, err := Run(t.Context(), Options{Options: o, Families: []string{"4"},
		Entries: []string{"hosts"}})
	if errors.Is(err, kernel.ErrRefused) {
		t.Skip(err) // one core
	}
	if err != nil {
		t.Fatal(err)
	}
	// On a busy machine windows have reasons instead of figures.
	for _, x := range r.Cases[0].Lab {
		if x.Missing != "" || x.LoadNs == nil || len(x.Windows) == 0 || x.MedianPPS == nil &&
			len(x.Why) == 0 {
			t.Errorf("%s: %q, %q, %d windows", x.Name, x.Missing, x.Why, len(x.Windows))
		}
	}
	if len(r.Cases[0].Lab) != 1 {
		t.Errorf("%d tools, want one", len(r.Cases[0].Lab))
	}
	benchtest.Output(t, r)
}

func TestChangeIsNotInTheSet(t *testing.T) {
	for _, width := range []int{32, 128} {
		// Everything but one network is in a prefix.
		free := netip.MustParsePrefix("208.0.0.0/4")
		if width == 128 {
			free = netip.MustParsePrefix("2000::/4")
		}
		w := &lookup.Set{Width: width}
		for bits := range 4 {
			other := free.Addr().AsSlice()
			other[bits/8] ^= 0x80 >> (bits % 8)
			a, _ := netip.AddrFromSlice(other)
			w.Prefixes = append(w.Prefixes, netip.PrefixFrom(a, bits+1).Masked())
		}
		if got := freshAddress(w); !free.Contains(got) {
			t.Errorf("%v is in a prefix of the set", got)
		}
	}
	for _, w := range []*lookup.Set{{Width: 32},
		{Width: 32, Prefixes: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}}} {
		if got := freshAddress(w); !got.Is4() {
			t.Errorf("%v: %v", w.Prefixes, got)
		}
	}
	if got := freshAddress(&lookup.Set{Width: 128}); !got.Is6() {
		t.Errorf("%v", got)
	}
}

func TestOptionsThatMakeNoSenseAreRefused(t *testing.T) {
	for _, o := range []load.Options{
		{Options: bench.Options{Rounds: 5}}, {Options: bench.Options{Rounds: 2000}},
		{Options: bench.Options{Window: 1}},
		{Sizes: []int{0}}, {Sizes: []int{workload.MaxPrefixes + 1}}, {Only: []string{"nosuch"}},
	} {
		if _, err := Run(t.Context(), Options{Options: o}); !errors.Is(err, usage.ErrWrong) {
			t.Errorf("%+v was accepted", o)
		}
	}
	o := load.Options{}
	if err := o.Complete(100_000); err != nil ||
		!slices.Equal(o.Sizes, []int{10, 100, 1000, 10_000, 100_000}) {
		t.Errorf("%v, %v", o.Sizes, err)
	}
}

// set is a few addresses, or prefixes.
func set(width int, hosts bool) *lookup.Set {
	s := &lookup.Set{Width: width, Entries: "some", Hosts: hosts,
		Prefixes: workload.Hosts(width, 12, 5)}
	if !hosts {
		s.Prefixes = workload.Internet(width, 200, 5)
	}
	return s
}

// TestEveryContenderDropsTheTrace sends a trace at each contender with its set: all must load, drop
// every packet and say so, change, and leave nothing in force; and again, switched off and on, what
// can be.
func TestEveryContenderDropsTheTrace(t *testing.T) {
	l := labtest.New(t)
	for _, width := range []int{32, 128} {
		for _, hosts := range []bool{true, false} {
			s := set(width, hosts)
			frames, err := hits(s, 5)
			if err != nil {
				t.Fatal(err)
			}
			loadtest.Contenders(t, l, s.String(), contenders(s), frames)
		}
	}
}

// What takes long to load stays, switched off, while others are measured: none may be in the way of
// another.
func TestContendersThatStayLoadedDoNotMeet(t *testing.T) {
	l := labtest.New(t)
	s := set(32, true)
	frames, err := hits(s, 5)
	if err != nil {
		t.Fatal(err)
	}
	loadtest.StayLoaded(t, l, contenders(s), frames)
}

// An interrupted measurement gives what it has, says so, and by its error.
func TestAnInterruptedMeasurementIsReported(t *testing.T) {
	labtest.NeedRoot(t)
	ctx, o := loadtest.Interrupt(t, lookups(10, 20))
	r, err := Run(ctx, Options{Options: o, Families: []string{"4"}, Entries: []string{"hosts"}})
	if !errors.Is(err, context.Canceled) || r == nil || len(r.Cases) != 2 ||
		len(r.Cases[0].Structures) == 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	loadtest.Incomplete(t, r)
}

// An interrupted run has contenders with a median and too few rounds for its interval.
func TestAMedianWithoutAnIntervalIsReported(t *testing.T) {
	benchtest.Output(t, &Report{Head: bench.Head{Incomplete: "interrupted"},
		Cases: []*Case{{Family: "IPv4", Entries: "hosts", Size: 10, Lab: loadtest.NoInterval()}}})
}
