// Command gotest runs `go test` and prints what a reader of its result needs: a line for each
// package, the output of what failed, and each skipped test with its reason.
//
//	gotest [-alone PATTERN,...] ARGUMENT...
//
// Its arguments are those of `go test`. Packages of -alone, which stand first, are left out and run
// one at a time behind the others: those that measure, and own the machine meanwhile.
//
// A skip that says "needs root" is a failure when it runs as root, since then the test can never
// have run. With LEVEE_NO_SKIP=1 in the environment every skip is a failure, except those that say
// that something is not "at hand" (recorded inputs that are not part of the repository, kinds of
// device that this kernel refuses to make) or that the run has to be "asked for" (because it is
// long). GO names the go command. It exits 0 only if everything passed.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

func main() {
	runs, err := split(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest: listing packages:", err)
		os.Exit(1)
	}
	forbidden := func(reason string) bool {
		if os.Getenv("LEVEE_NO_SKIP") == "1" {
			return !strings.Contains(reason, "at hand") && !strings.Contains(reason, "asked for")
		}
		return os.Geteuid() == 0 && strings.Contains(reason, "needs root")
	}
	r := newReport(os.Stdout, forbidden)
	ok := true
	for _, args := range runs {
		if err := r.run(args); err != nil {
			fmt.Fprintln(os.Stderr, "gotest:", err)
			ok = false
		}
	}
	if !r.summary() || !ok {
		os.Exit(1)
	}
}

func goTool(args ...string) *exec.Cmd {
	cmd := exec.Command(cmp.Or(os.Getenv("GO"), "go"), args...)
	cmd.Stderr = os.Stderr
	return cmd
}

// split gives the arguments of each `go test`: one, or with -alone two. The last argument is then
// the pattern of all packages.
func split(args []string) ([][]string, error) {
	if len(args) < 3 || args[0] != "-alone" {
		return [][]string{args}, nil
	}
	list := func(patterns ...string) ([]string, error) {
		out, err := goTool(append([]string{"list"}, patterns...)...).Output()
		return strings.Fields(string(out)), err
	}
	alone, err := list(strings.Split(args[1], ",")...)
	if err != nil {
		return nil, err
	}
	together, err := list(args[len(args)-1])
	if err != nil {
		return nil, err
	}
	together = slices.DeleteFunc(together,
		func(p string) bool { return slices.Contains(alone, p) })
	flags := args[2 : len(args)-1]
	return [][]string{slices.Concat(flags, together),
		slices.Concat(flags, []string{"-p", "1"}, alone)}, nil
}

// run is one `go test`.
func (r *report) run(args []string) error {
	cmd := goTool(append([]string{"test", "-json"}, args...)...)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("starting go test: %w", err)
	}
	readErr := r.read(out)
	if readErr != nil {
		readErr = fmt.Errorf("reading the output of go test: %w", readErr)
	}
	return errors.Join(readErr, cmd.Wait())
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
	w         io.Writer
	forbidden func(reason string) bool // is a skip for this reason a failure?

	output          map[[2]string][]string // of tests that have not ended, by package and test
	skips           []string
	passed          int
	failed, mustRun int
}

func newReport(w io.Writer, forbidden func(string) bool) *report {
	return &report{w: w, forbidden: forbidden, output: map[[2]string][]string{}}
}

// read takes a stream of events to its end. Lines that are not events are printed as they are.
func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) == nil {
				r.event(e)
			} else {
				r.w.Write(line)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *report) event(e event) {
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
func (r *report) unfinished(pkg string) {
	for key, out := range r.output {
		if key[0] == pkg {
			r.failed++
			io.WriteString(r.w, strings.Join(out, ""))
			delete(r.output, key)
		}
	}
}

func (r *report) skip(key [2]string) {
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

// summary prints the skips and the totals, and tells whether all is well.
func (r *report) summary() bool {
	for _, s := range r.skips {
		fmt.Fprintln(r.w, "skipped:", s)
	}
	fmt.Fprintf(r.w, "tests: %d passed, %d failed, %d skipped (%d of them must not)\n",
		r.passed, r.failed, len(r.skips), r.mustRun)
	return r.failed == 0 && r.mustRun == 0
}
