package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
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

// Each package runs once: beside the others, spread, or alone behind them.
func TestEachPackageRunsOnce(t *testing.T) {
	p, err := split([]string{"./../sbom", "./../columns"}, []string{"./../columns:Wide", "."},
		[]string{"./../sbom", "./../columns", "./../kernels", "."})
	if err != nil {
		t.Fatal(err)
	}
	names := func(pkgs []pkg) (out []string) {
		for _, p := range pkgs {
			out = append(out, p.path)
		}
		return out
	}
	for _, c := range []struct{ got, want []string }{
		{names(p.spread), []string{"levee/scripts/sbom", "levee/scripts/columns"}},
		{names(p.alone), []string{"levee/scripts/columns", "levee/scripts/gotest"}},
		{p.together, []string{"levee/scripts/kernels"}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("got %v, want %v", c.got, c.want)
		}
	}
	if got := p.alone[0].pattern(); got != "Wide" || p.alone[1].pattern() != "." ||
		p.spread[0].alone != nil || p.spread[1].alone == nil {
		t.Errorf("%+v", p)
	}
	if _, err := split(nil, []string{"./../columns:Wide"}, []string{"./../..."}); err == nil {
		t.Error("tests that are in no part")
	}
}

// A module of three packages, with a test that fails among those that are spread, and one that
// never ends well.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module m\n\ngo 1.26\n",
		"a/a_test.go": `package a

import "testing"

func TestGood(t *testing.T) {}
func TestBad(t *testing.T)  { t.Error("spread and bad") }
func TestLost(t *testing.T) { panic("lost") }
func FuzzGood(f *testing.F) { f.Add(1); f.Fuzz(func(*testing.T, int) {}) }
`,
		"b/b_test.go": `package b

import "testing"

func TestBeside(t *testing.T) { t.Skip("needs root") }
`,
		"c/c_test.go": `package c

import "testing"

func TestAlone(t *testing.T)    { t.Run("within", func(*testing.T) {}) }
func TestBadAlone(t *testing.T) { t.Error("alone and bad") }
`,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	for _, c := range []struct {
		name               string
		spread, alone, all []string
		has                []string
		fails              bool
	}{
		{"all", []string{"./a"}, []string{"./c"}, []string{"./..."}, []string{
			"a_test.go:6: spread and bad", "panic: lost", "FAIL\tm/a", "FAIL\tm/c", "ok  \tm/b",
			"c_test.go:6: alone and bad", "skipped: m/b TestBeside: b_test.go:5: needs root",
			"tests: 5 passed, 3 failed, 1 skipped (0 of them must not)"}, true},
		{"some of a package", []string{"./c"}, []string{"./c:BadAlone"}, []string{"./c"}, []string{
			"ok  \tm/c", "FAIL\tm/c", "alone and bad", "tests: 2 passed, 1 failed"}, true},
		{"what is good", nil, nil, []string{"./b"}, []string{"tests: 0 passed, 0 failed"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			r := runner{p: 1, workers: 2, timeout: time.Minute,
				report: newReport(&out, func(string) bool { return false })}
			err := r.run(c.spread, c.alone, c.all)
			if fails := !r.report.summary() || err != nil; fails != c.fails {
				t.Errorf("failed: %v (%v), want %v", fails, err, c.fails)
			}
			for _, want := range c.has {
				if !strings.Contains(out.String(), want) {
					t.Errorf("output lacks %q:\n%s", want, out.String())
				}
			}
		})
	}
}
