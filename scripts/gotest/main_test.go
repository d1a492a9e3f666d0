package main

import (
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	const head = `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
`
	skip := head + `{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:7: needs root\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"--- SKIP: TestA (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestA"}
`
	for _, c := range []struct {
		name, in     string
		mustRun      bool // skips are failures
		ok           bool
		has, without string
	}{
		{name: "a passing test stays quiet", ok: true, without: "RUN", has: "ok  \tp\n",
			in: head + `{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Output":"ok  \tp\n"}
`},
		{name: "a failing test prints what it said", has: "a_test.go:9: got 1",
			in: head + `{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:9: got 1\n"}
{"Action":"fail","Package":"p","Test":"TestA"}
`},
		{name: "a test that never ended failed", has: "panic: boom",
			in: head + `{"Action":"output","Package":"p","Test":"TestA","Output":"panic: boom\n"}
{"Action":"fail","Package":"p"}
`},
		{name: "a skip shows its reason", ok: true, in: skip,
			has: "skipped: p TestA: a_test.go:7: needs root\n"},
		{name: "a skip that must run fails", mustRun: true, in: skip, has: "counts as failed"},
		{name: "what the compiler says is printed", ok: true, has: "x.go:1: oops",
			in: `{"ImportPath":"p","Action":"build-output","Output":"x.go:1: oops\n"}
`},
		{name: "a line that is no event is printed", ok: true, in: "go: downloading x\n",
			has: "go: downloading x\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			r := newReport(&out, func(string) bool { return c.mustRun })
			if err := r.read(strings.NewReader(c.in)); err != nil {
				t.Fatal(err)
			}
			if ok := r.summary(); ok != c.ok {
				t.Errorf("ok = %v, want %v", ok, c.ok)
			}
			if c.has != "" && !strings.Contains(out.String(), c.has) {
				t.Errorf("output lacks %q:\n%s", c.has, out.String())
			}
			if c.without != "" && strings.Contains(out.String(), c.without) {
				t.Errorf("output has %q:\n%s", c.without, out.String())
			}
		})
	}
}

// Each package is run once: beside another one, or alone behind them.
func TestPackagesThatMeasureRunAlone(t *testing.T) {
	runs, err := split([]string{"-alone", "./../kernels,./../columns", "-count", "1", "-p", "2",
		"./../..."})
	if err != nil || len(runs) != 2 {
		t.Fatal(runs, err)
	}
	together, alone := strings.Join(runs[0], " "), strings.Join(runs[1], " ")
	if want := "-count 1 -p 2 -p 1 levee/scripts/kernels levee/scripts/columns"; alone != want {
		t.Errorf("alone: %s, want %s", alone, want)
	}
	if !strings.HasPrefix(together, "-count 1 -p 2 levee/scripts/") ||
		!strings.Contains(together, "levee/scripts/gotest") ||
		strings.Contains(together, "kernels") || strings.Contains(together, "columns") {
		t.Errorf("together: %s", together)
	}
}
