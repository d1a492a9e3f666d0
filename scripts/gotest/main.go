// Command gotest runs `go test` and prints what a reader of its result needs: a line for each
// package, the output of what failed, and each skipped test with its reason.
//
//	gotest [-p N] [-workers N] [-timeout D] [-spread PATTERN,...] [-alone PATTERN,...] PATTERN...
//
// Packages run -p at a time. Beside them run those of -spread, whose tests wait more than they
// compute: each test in a process of its own, -workers at a time, in the order of the patterns, and
// -p more when the packages are through. What -alone names runs behind all others, one package at a
// time: those that measure, and own the machine meanwhile. PATTERN:REGEXP there are tests of a
// package whose others are spread. No result is taken from an earlier run.
//
// A skip that says "needs root" is a failure when it runs as root, since then the test can never
// have run. With LEVEE_NO_SKIP=1 in the environment every skip is a failure, except those that say
// that something is not "at hand" (recorded inputs that are not part of the repository, kinds of
// device that this kernel refuses to make) or that the run has to be "asked for" (because it is
// long). GO names the go command. It exits 0 only if everything passed.
//
// Its last lines name the tests that took most of a core, among those with a process of their own.
//
// Tests and the linker collect garbage when the heap is five times what was in use, unless GOGC
// says otherwise: the time is worth more than the memory, of which one package takes 1.7 GB.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

func main() {
	if os.Getenv("GOGC") == "" {
		os.Setenv("GOGC", "400")
	}
	var r runner
	flag.IntVar(&r.p, "p", 2, "packages at a time")
	flag.IntVar(&r.workers, "workers", 2, "tests of -spread at a time")
	flag.DurationVar(&r.timeout, "timeout", 30*time.Minute, "of the tests of a process")
	spread := flag.String("spread", "", "packages whose tests run beside each other and all others")
	alone := flag.String("alone", "", "packages that run alone, behind all others")
	flag.Parse()
	forbidden := func(reason string) bool {
		// A script tells all the lines that it was asked, those about root too.
		if strings.Contains(reason, "at hand") || strings.Contains(reason, "asked for") {
			return false
		}
		return os.Getenv("LEVEE_NO_SKIP") == "1" ||
			os.Geteuid() == 0 && strings.Contains(reason, "needs root")
	}
	r.report = newReport(os.Stdout, forbidden)
	err := r.run(patterns(*spread), patterns(*alone), flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
	}
	if !r.report.summary() || err != nil {
		os.Exit(1)
	}
}

func patterns(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
}

// event is a line of `go test -json` (go doc test2json).
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
}

// report prints events as they come and keeps what the summary counts.
type report struct {
	forbidden func(reason string) bool // is a skip for this reason a failure?

	mu              sync.Mutex // of all that follows
	w               io.Writer
	skips           []string
	cores           []core
	passed          int
	failed, mustRun int
}

// core is the time of a core that some tests took.
type core struct {
	tests string
	time  time.Duration
}

// shown is the number of tests that the summary names, those that took most of a core.
const shown = 20

func (r *report) took(tests string, of time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cores = append(r.cores, core{tests, of})
}

func newReport(w io.Writer, forbidden func(string) bool) *report {
	return &report{w: w, forbidden: forbidden}
}

// stream is the output of one process.
type stream struct {
	*report
	output map[[2]string][]string // of tests that have not ended, by package and test
}

// read takes a stream of events to its end. Lines that are not events are printed as they are.
func (r *report) read(in io.Reader) error {
	s := stream{r, map[[2]string][]string{}}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			s.line(line)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *stream) line(line []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var e event
	if json.Unmarshal(line, &e) == nil {
		r.event(e)
	} else {
		r.w.Write(line)
	}
}

func (r *stream) event(e event) {
	key := [2]string{e.Package, e.Test}
	switch {
	case e.Action == "build-output":
		io.WriteString(r.w, e.Output)
	case e.Action == "output" && e.Test == "":
		if e.Output != "PASS\n" {
			io.WriteString(r.w, e.Output)
		}
	case e.Action == "output":
		r.output[key] = append(r.output[key], e.Output)
	case e.Action == "fail" && e.Test == "":
		r.unfinished(e.Package)
	case e.Test == "":
	case e.Action == "pass":
		r.passed++
		delete(r.output, key)
	case e.Action == "fail":
		r.failed++
		io.WriteString(r.w, strings.Join(r.output[key], ""))
		delete(r.output, key)
	case e.Action == "skip":
		r.skip(key)
		delete(r.output, key)
	}
}

// unfinished prints the tests of a failed package that never ended: a panic, an exit, a timeout.
func (r *stream) unfinished(pkg string) {
	for key, out := range r.output {
		if key[0] == pkg {
			r.failed++
			io.WriteString(r.w, strings.Join(out, ""))
			delete(r.output, key)
		}
	}
}

func (r *stream) skip(key [2]string) {
	var reason []string
	for _, s := range r.output[key] {
		s = strings.TrimSpace(s)
		if s != "" && !strings.HasPrefix(s, "=== ") && !strings.HasPrefix(s, "--- ") {
			reason = append(reason, s)
		}
	}
	why := cmp.Or(strings.Join(reason, " "), "no reason given")
	line := fmt.Sprintf("%s %s: %s", key[0], key[1], why)
	if r.forbidden(why) {
		r.mustRun++
		line += " (counts as failed: it must run here)"
	}
	r.skips = append(r.skips, line)
}

// summary prints the skips, the tests that took most of a core and the totals, and tells whether
// all is well.
func (r *report) summary() bool {
	for _, s := range r.skips {
		fmt.Fprintln(r.w, "skipped:", s)
	}
	slices.SortStableFunc(r.cores, func(a, b core) int { return cmp.Compare(b.time, a.time) })
	for _, c := range r.cores[:min(len(r.cores), shown)] {
		fmt.Fprintf(r.w, "%.1fs of a core: %s\n", c.time.Seconds(), c.tests)
	}
	fmt.Fprintf(r.w, "tests: %d passed, %d failed, %d skipped (%d of them must not)\n",
		r.passed, r.failed, len(r.skips), r.mustRun)
	return r.failed == 0 && r.mustRun == 0
}
