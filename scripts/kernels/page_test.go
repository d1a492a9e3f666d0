package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// said is a console on which a kernel passes a check, fails another and is turned off in a third.
const said = "SeaBIOS\r\n@ linux 1.50 6.1.0-1-cloud-amd64\r\n@ pass 3.75 first\r\nnoise\r\n" +
	"@ fail 4.00 second\r\nwhat it printed\r\n"

// The page has the last run of each kernel, whenever it was: also of one that was broken off, and
// of a kernel that was not run with the others.
func TestThePageIsOfTheRunsThatWereKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kernels.md")
	all := []check{{name: "first"}, {name: "second"}, {name: "third"},
		{name: "newer", from: version{6, 6}}}
	for _, m := range machines[1:3] {
		o := options{page: file}
		if m.kernel == "6.1" {
			o.data = "published"
		}
		r, err := newResult(m, o, "abc")
		if err != nil {
			t.Fatal(err)
		}
		r.Date = "2026-11-26"
		console := strings.ReplaceAll(said, "6.1.0", m.kernel+".0")
		var shown bytes.Buffer
		ended, err := listen(strings.NewReader(console), &shown, r, host, time.Now(), 0)
		if err != nil {
			t.Fatal(err)
		}
		if ended || r.passed() != 1 {
			t.Errorf("%v: ended %v, %d passed", m, ended, r.passed())
		}
	}
	results, err := kept(file)
	if err != nil {
		t.Fatal(err)
	}
	got := page(all, results, &together{Levee: "abc", Date: "2026-11-26", Jobs: 2, Seconds: 1140,
		Stopped: 65})
	for _, line := range []string{
		"| 6.1.0-1-cloud-amd64 | 2026-11-26 | abc | with | 1 of 3 | |",
		"| 6.12.0-1-cloud-amd64 | 2026-11-26 | abc | without | 1 of 4 | |",
		"| check | 6.1.0-1-cloud-amd64 | 6.12.0-1-cloud-amd64 |",
		"| first | 2.2 s | 2.2 s |", "| second | **fails** | **fails** |",
		"All in one go on 2026-11-26, levee abc, 2 guests at a time: 19 min 0 s,",
		"of which guests were stopped for 1 min 5 s by another command.",
		"| third | not run | not run |", "| newer | | not run |",
	} {
		if !strings.Contains(got, line+"\n") {
			t.Errorf("the page lacks %q:\n%s", line, got)
		}
	}
}

// A kernel costs what its guests of both clocks do.
func TestTheGuestsOfAKernelCostTogether(t *testing.T) {
	o := options{page: filepath.Join(t.TempDir(), "kernels.md")}
	r, err := newResult(machines[1], o, "abc")
	if err != nil {
		t.Fatal(err)
	}
	for _, said := range []struct {
		clock   clock
		seconds float64
	}{{host, 10}, {instructions, 7}, {host, 50.4}} {
		if err := r.cost(said.clock, said.seconds); err != nil {
			t.Fatal(err)
		}
	}
	if r.Core != 57 {
		t.Errorf("%v s of a core, want 57", r.Core)
	}
	if got := o.expected(machines[1], host, 3); got != 50 {
		t.Errorf("the guest by the host's clock is expected to take %v s, want 50", got)
	}
	if got := o.expected(machines[2], host, 3); got != 3 {
		t.Errorf("a guest that never ran, with 3 checks, is expected to take %v s", got)
	}
}

// Each check goes by a clock that guests have, and all that a check has handed is handed over.
func TestChecksHaveGuests(t *testing.T) {
	handed := map[string]string{}
	for _, c := range checks {
		if !slices.Contains(clocks, c.clockOf()) {
			t.Errorf("%s: no guest goes by %q", c.name, c.clock)
		}
		lines := handedLine.FindAllStringSubmatch(c.script, -1)
		if n := strings.Count(c.script, "handed "); n != len(lines) {
			t.Errorf("%s: %d of %d lines are understood", c.name, len(lines), n)
		}
		for _, l := range lines {
			if by := handed[l[1]]; by != "" {
				t.Errorf("%s and %s both have %q handed", by, c.name, l[1])
			}
			handed[l[1]] = c.name
		}
	}
	if len(handed) == 0 {
		t.Error("nothing is handed over")
	}
}

// Two guests that are stopped at a time are stopped for that time, not for twice as long.
func TestStopsOfGuestsAreCountedOnce(t *testing.T) {
	var s stops
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	for _, from := range [][2]int{{0, 100}, {50, 150}, {60, 140}, {300, 400}, {150, 160}} {
		s.add(at(from[0]), at(from[1]))
	}
	if s.sum != 250*time.Millisecond {
		t.Errorf("stopped for %v, want 250 ms", s.sum)
	}
}

// TestKeptKernelsAskForNoOtherArchitecture: "6.1" stood for that of arm64, too, and a machine that
// had only ever downloaded those of amd64 could boot nothing.
func TestKeptKernelsAskForNoOtherArchitecture(t *testing.T) {
	dir := t.TempDir()
	for _, made := range []string{"amd64/6.1.0-42-cloud-amd64", "arm64/etc"} {
		if err := os.MkdirAll(filepath.Join(dir, made), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		only string
		kept bool
		want string
	}{
		{"6.1", true, "[6.1/amd64]"}, {"6.1", false, "[6.1/amd64 6.1/arm64]"},
		{"6.1/arm64", true, "[6.1/arm64]"},
	} {
		if got := fmt.Sprint(options{only: c.only, kept: c.kept}.machines(dir)); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}
