package main

import (
	"bytes"
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
		ended, err := listen(strings.NewReader(console), &shown, r, time.Now(), 0)
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
	got := page(all, results)
	for _, line := range []string{
		"| 6.1.0-1-cloud-amd64 | 2026-11-26 | abc | with | 1 of 3 | |",
		"| 6.12.0-1-cloud-amd64 | 2026-11-26 | abc | without | 1 of 4 | |",
		"| check | 6.1.0-1-cloud-amd64 | 6.12.0-1-cloud-amd64 |",
		"| first | 2.2 s | 2.2 s |", "| second | **fails** | **fails** |",
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
		pid     int
		seconds float64
	}{{1, 10}, {2, 7}, {1, 50.4}} {
		if err := r.cost(said.pid, said.seconds); err != nil {
			t.Fatal(err)
		}
	}
	if r.Core != 57 {
		t.Errorf("%v s of a core, want 57", r.Core)
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
