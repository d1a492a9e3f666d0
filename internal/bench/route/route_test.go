package route

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"levee/internal/await"
	"levee/internal/bench"
	"levee/internal/bench/lookup"
	"levee/internal/bench/workload"
	"levee/internal/kernel"
)

func TestTriestatIsRead(t *testing.T) {
	const text = "Basic info: size of leaf: 48 bytes, size of tnode: 40 bytes.\nMain:\n\tAver " +
		"depth:     3.31\n\tMax depth:      6\n\tLeaves:         873\n" +
		"\tPrefixes:       1005\n\tInternal nodes: 349\n\t  1: 200  2: 100\n\tPointers: " +
		"1854\nNull ptrs: 633\nTotal size: 129  kB\nLocal:\n\tAver depth:     9.99\n\tMax depth: " +
		"     9\n"
	d, err := parseTriestat(bufio.NewScanner(strings.NewReader(text)))
	if err != nil || d.Mean != 3.31 || d.Max != 6 || !strings.Contains(d.Of, "873 leaves") {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := parseTriestat(
		bufio.NewScanner(strings.NewReader("Local:\n\tAver depth: 1\n"))); err == nil {
		t.Error("no main table gave no error")
	}
}

func needPrivileges(t *testing.T) {
	t.Helper()
	if err := kernel.Privileged(); err != nil {
		t.Skip("needs root: ", err)
	}
}

func TestTheCopyHasAsManyNodesAsTheKernelsTree(t *testing.T) {
	needPrivileges(t)
	prefixes := workload.Internet6(5000, 1)
	nodes := func(b *lookup.Built) (n int) {
		err := b.Within(func() error {
			text, err := os.ReadFile("/proc/thread-self/net/rt6_stats")
			if err != nil {
				return err
			}
			v, err := strconv.ParseInt(strings.Fields(string(text))[0], 16, 64)
			n = int(v)
			return err
		})
		if err != nil {
			t.Skip("this kernel does not count the nodes of its tree: ", err)
		}
		return n
	}
	var built [2]*lookup.Built
	for i, n := range []int{1, len(prefixes)} {
		b, err := buildFIB(t.Context(), prefixes[:n], 128)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
		built[i] = b
	}
	// Forks with the lab's own routes are no part of the copy, and those come and go for a while.
	want := lookup.NewRadix(prefixes).Count()
	await.OK(t, func() error {
		grown := nodes(built[1]) - nodes(built[0]) + 1
		if grown < want-8 || grown > want+8 {
			return fmt.Errorf("the kernel has %d nodes, the copy %d", grown, want)
		}
		return nil
	})
}

func TestRoutesComparesWithRightAnswers(t *testing.T) {
	needPrivileges(t)
	r, err := Run(t.Context(), Options{
		Options: bench.Options{Rounds: bench.MinRounds, Seed: 1, Command: "levee bench route"},
		Sizes:   []int{300}, Only: []string{"levee static", "kernel FIB"}, Families: []string{"4"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Cases) != 1 {
		t.Fatalf("%d cases, want Internet-like IPv4 alone", len(r.Cases))
	}
	for _, c := range r.Cases {
		for _, s := range c.Structures {
			if s.Missing != "" || len(s.Lookups) != len(lookup.Traffics) || s.LoadNs <= 0 &&
				s.BuildNs <= 0 || s.UpdateNs <= 0 {
				t.Errorf("%s %s: %s: %+v", c.Family(), c.Entries, s.Name, s)
			}
			if s.Depth == nil && s.DepthUnknown == "" || s.Depth != nil &&
				(s.Depth.Mean <= 0 || s.Depth.Max < 1) {
				t.Errorf("%s %s: depth of %s: %+v %q", c.Family(), c.Entries, s.Name, s.Depth,
					s.DepthUnknown)
			}
		}
		if len(c.Structures) != 2 {
			t.Errorf("%s %s: %d structures", c.Family(), c.Entries, len(c.Structures))
		}
	}
	var b strings.Builder
	if err := r.Text(&b); err != nil || !strings.Contains(b.String(), "kernel FIB") ||
		strings.Contains(b.String(), "no figure") {
		t.Errorf("%v:\n%s", err, b.String())
	}
	d := r.Document()
	if len(d.Charts) != 2*len(lookup.Traffics)+2 || len(d.Tables) != 1 || len(d.Refusals) != 0 {
		t.Errorf("%d charts, %d tables, refusals %v", len(d.Charts), len(d.Tables), d.Refusals)
	}
	nothingIsLeft(t)
}

func TestInterruptedRoutesSaySoAndLeaveNothing(t *testing.T) {
	needPrivileges(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := Run(ctx, Options{
		Sizes: []int{100}, Only: []string{"kernel FIB"}, Families: []string{"4"},
		Options: bench.Options{Rounds: 500, Progress: func(p bench.Progress) {
			if p.Steps != 1+len(lookup.Traffics) {
				t.Errorf("%d steps", p.Steps)
			}
			if p.Step == 2 {
				cancel()
			}
		}},
	})
	if !errors.Is(err, context.Canceled) || r == nil || r.Incomplete == "" {
		t.Fatalf("%v, %+v", err, r)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("tidying up failed as well: %v", err)
	}
	var b strings.Builder
	if err := r.Text(&b); err != nil || !strings.Contains(b.String(), "INCOMPLETE") {
		t.Errorf("%v:\n%s", err, b.String())
	}
	nothingIsLeft(t)
}

func TestRoutesThatTheKernelRefusesAreNamed(t *testing.T) {
	needPrivileges(t)
	p := netip.MustParsePrefix("192.0.2.0/24")
	b, err := buildFIB(t.Context(), []netip.Prefix{p, p}, 32)
	if b != nil {
		defer b.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "refuses route 192.0.2.0/24") {
		t.Errorf("a route twice: %v", err)
	}
}

func TestRouteOptionsThatCannotBeMeasuredAreRefused(t *testing.T) {
	for _, o := range []Options{
		{Options: bench.Options{Rounds: 5}}, {Sizes: []int{0}},
		{Sizes: []int{workload.MaxPrefixes + 1}},
		{Only: []string{"trie"}}, {Tables: []string{"47s"}},
	} {
		if _, err := Run(t.Context(), o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
}

// nothingIsLeft fails for namespaces of this process that are still there.
func nothingIsLeft(t *testing.T) {
	t.Helper()
	names, err := filepath.Glob(fmt.Sprintf("/run/netns/levee-%d-*", os.Getpid()))
	if err != nil || len(names) > 0 {
		t.Errorf("left namespaces %q, %v", names, err)
	}
}
