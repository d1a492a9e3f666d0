package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// runner runs the tests of packages.
type runner struct {
	p, workers int
	timeout    time.Duration
	report     *report

	dir  string // of the binaries
	json string // the command that makes events of what a binary writes
}

// stripped is for the linker, which takes a good part of the time of tests: nobody debugs these.
const stripped = "-s -w"

func goTool(args ...string) *exec.Cmd {
	cmd := exec.Command(cmp.Or(os.Getenv("GO"), "go"), args...)
	cmd.Stderr = os.Stderr
	return cmd
}

// pkg is a package whose tests run from a binary of their own.
type pkg struct {
	path, dir string
	alone     *regexp.Regexp // not nil: tests that run alone, the others are spread
}

// pattern matches those of its tests that run alone.
func (p pkg) pattern() string {
	if p.alone != nil {
		return p.alone.String()
	}
	return "."
}

// binary returns the name that `go test -c` gives the binary of a package.
func (p pkg) binary() string { return p.path[strings.LastIndex(p.path, "/")+1:] + ".test" }

// plan says how each package runs: in one way.
type plan struct {
	together      []string
	spread, alone []pkg
}

func (r *runner) run(spread, alone, all []string) (err error) {
	p, err := split(spread, alone, all)
	if err != nil {
		return fmt.Errorf("listing packages: %w", err)
	}
	if r.dir, err = os.MkdirTemp("", "gotest"); err != nil {
		return err
	}
	defer os.RemoveAll(r.dir)
	tool, err := goTool("tool", "-n", "test2json").Output()
	if err != nil {
		return fmt.Errorf("looking for test2json: %w", err)
	}
	r.json = strings.TrimSpace(string(tool))

	var errs [3]error
	var wg sync.WaitGroup
	through := make(chan struct{}) // closed when the packages of together are through
	if len(p.together) == 0 {
		close(through)
	} else {
		wg.Go(func() {
			defer close(through)
			// without vet, which lint runs with all its checks
			errs[0] = r.read(goTool(slices.Concat([]string{"test", "-json", "-count", "1", "-vet",
				"off", "-ldflags", stripped, "-p", fmt.Sprint(r.p), "-timeout",
				fmt.Sprint(r.timeout)}, p.together)...))
		})
	}
	err = r.build(p.spread)
	if err == nil {
		wg.Go(func() { errs[1] = r.spread(p.spread, through) })
		whole := func(p pkg) bool { return p.alone != nil } // has been built with the others
		err = r.build(slices.DeleteFunc(slices.Clone(p.alone), whole))
	}
	wg.Wait()
	if err != nil {
		return errors.Join(err, errs[0], errs[1])
	}
	for _, pkg := range p.alone {
		took, err := r.tests(pkg, pkg.pattern())
		r.ended(pkg, took, err)
		errs[2] = errors.Join(errs[2], err)
	}
	return errors.Join(errs[:]...)
}

// split lists packages that have tests, those of spread and alone in the order of the patterns.
func split(spread, alone, all []string) (p plan, err error) {
	args := []string{"list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}\t{{.Dir}}" +
		"{{range .Match}}\t{{.}}{{end}}{{end}}"}
	args = append(slices.Concat(args, spread), all...)
	for _, a := range alone {
		pattern, _, _ := strings.Cut(a, ":")
		args = append(args, pattern)
	}
	out, err := goTool(args...).Output()
	if err != nil {
		return p, err
	}
	list := func(pattern string) (pkgs []pkg) {
		for line := range strings.Lines(string(out)) {
			fields := strings.Split(strings.TrimSpace(line), "\t")
			if len(fields) > 2 && slices.Contains(fields[2:], pattern) {
				pkgs = append(pkgs, pkg{path: fields[0], dir: fields[1]})
			}
		}
		return pkgs
	}
	taken := map[string]bool{}
	some := map[string]*regexp.Regexp{} // tests that run alone, by packages that are spread
	for _, pattern := range alone {
		pattern, tests, parted := strings.Cut(pattern, ":")
		for _, pkg := range list(pattern) {
			if parted {
				re, err2 := regexp.Compile(tests)
				err = errors.Join(err, err2)
				pkg.alone, some[pkg.path] = re, re
			} else if taken[pkg.path] {
				continue
			} else {
				taken[pkg.path] = true
			}
			p.alone = append(p.alone, pkg)
		}
	}
	for _, pattern := range spread {
		for _, pkg := range list(pattern) {
			if !taken[pkg.path] {
				taken[pkg.path], pkg.alone = true, some[pkg.path]
				p.spread = append(p.spread, pkg)
			}
		}
	}
	for path := range some {
		if !taken[path] {
			err = errors.Join(err,
				fmt.Errorf("tests of %s run alone, but the others are not spread", path))
		}
	}
	for _, pattern := range all {
		for _, pkg := range list(pattern) {
			if !taken[pkg.path] {
				taken[pkg.path] = true
				p.together = append(p.together, pkg.path)
			}
		}
	}
	return p, err
}

// build makes the binaries of packages. No two of them may have the same name.
func (r *runner) build(pkgs []pkg) error {
	if len(pkgs) == 0 {
		return nil
	}
	args := []string{"test", "-c", "-ldflags", stripped, "-o", r.dir + "/"}
	for _, p := range pkgs {
		args = append(args, p.path)
	}
	cmd := goTool(args...)
	cmd.Stdout = os.Stdout
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("building tests: %w", err)
	}
	return nil
}

// spread runs each test of packages in a process of its own, some at a time, and more of them when
// the other packages are through.
func (r *runner) spread(pkgs []pkg, through <-chan struct{}) error {
	type test struct {
		pkg  int
		name string
	}
	var queue []test
	left, took, errs := make([]int, len(pkgs)), make([]spent, len(pkgs)), make([]error, len(pkgs))
	for i, p := range pkgs {
		cmd := exec.Command(filepath.Join(r.dir, p.binary()), "-test.list", "^(Test|Fuzz|Example)")
		cmd.Dir, cmd.Stderr = p.dir, os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("listing the tests of %s: %w", p.path, err)
		}
		for _, name := range strings.Fields(string(out)) {
			if p.alone != nil && p.alone.MatchString(name) {
				continue
			}
			queue = append(queue, test{i, name})
			left[i]++
		}
	}
	var mu sync.Mutex // of all above
	var wg sync.WaitGroup
	work := func() {
		mu.Lock()
		defer mu.Unlock()
		for len(queue) > 0 {
			t := queue[0]
			queue = queue[1:]
			mu.Unlock()
			one, err := r.tests(pkgs[t.pkg], "^"+t.name+"$")
			mu.Lock()
			errs[t.pkg] = errors.Join(errs[t.pkg], err)
			took[t.pkg] = took[t.pkg].plus(one)
			if left[t.pkg]--; left[t.pkg] == 0 {
				r.ended(pkgs[t.pkg], took[t.pkg], errs[t.pkg])
			}
		}
	}
	for range r.workers {
		wg.Go(work)
	}
	for range r.p {
		wg.Go(func() {
			<-through
			work()
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// spent is the time that tests took: by the clock, and of a core.
type spent struct{ clock, core time.Duration }

func (s spent) plus(o spent) spent { return spent{s.clock + o.clock, s.core + o.core} }

// tests runs those tests of a package whose names match a pattern. A pattern is that of one test,
// or of those that run alone.
func (r *runner) tests(p pkg, pattern string) (took spent, err error) {
	cmd := exec.Command(r.json, "-t", "-p", p.path, filepath.Join(r.dir, p.binary()),
		"-test.v=test2json", "-test.paniconexit0", "-test.timeout", fmt.Sprint(r.timeout),
		"-test.run", pattern)
	cmd.Dir, cmd.Stderr = p.dir, os.Stderr
	began := time.Now()
	err = r.read(cmd)
	took.clock = time.Since(began)
	if state := cmd.ProcessState; state != nil { // with what the processes that it started used
		took.core = state.UserTime() + state.SystemTime()
	}
	r.report.took(p.path+" "+pattern, took.core)
	if err != nil {
		err = fmt.Errorf("%s, tests %s: %w", p.path, pattern, err)
	}
	return took, err
}

// ended prints a line as `go test` does for a package, with the time of a core besides.
func (r *runner) ended(p pkg, took spent, err error) {
	word := "ok  "
	if err != nil {
		word = "FAIL"
	}
	r.report.mu.Lock()
	defer r.report.mu.Unlock()
	fmt.Fprintf(r.report.w, "%s\t%s\t%.3fs (%.1fs of a core)\n", word, p.path,
		took.clock.Seconds(), took.core.Seconds())
}

// read runs a command and reports its events.
func (r *runner) read(cmd *exec.Cmd) error {
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("starting tests: %w", err)
	}
	readErr := r.report.read(out)
	if readErr != nil {
		readErr = fmt.Errorf("reading the output of tests: %w", readErr)
	}
	return errors.Join(readErr, cmd.Wait())
}
