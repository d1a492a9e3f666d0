package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// result holds the outcome of a machine's checks. It is kept in a file, from which the page is
// made.
type result struct {
	Machine string            `json:"machine"`
	Linux   string            `json:"linux"`
	Levee   string            `json:"levee"` // the commit that ran
	Date    string            `json:"date"`
	Data    bool              `json:"data"`   // with published filter sets and prefixes
	Checks  map[string]ending `json:"checks"` // those that have ended, by name
	Core    float64           `json:"core"`   // seconds of a core, of the whole run
	// Of which a guest had, by its clock.
	Clocks map[clock]float64 `json:"clocks"`

	lock sync.Mutex // guests of both clocks say what they have
	file string     // where it is kept, none if it is not
}

// ending says how a check ended.
type ending struct {
	Passed bool    `json:"passed"`
	Took   float64 `json:"took"` // seconds of the guest
}

// resultFile returns where the last run of a machine for a page is kept: beside the page.
func resultFile(page string, m machine) string {
	return filepath.Join(strings.TrimSuffix(page, ".md"), m.kernel+"-"+m.arch+".json")
}

// commit names what is here, whatever is there of results.
func commit() (string, error) {
	head, err := output(exec.Command("git", "rev-parse", "--short", "HEAD"))
	if err != nil {
		return "", err
	}
	name := strings.TrimSpace(string(head))
	changed, err := output(exec.Command("git", "diff", "HEAD", "--name-only", "--", ".",
		":!docs/reference/kernels*"))
	if len(changed) > 0 {
		name += ", changed"
	}
	return name, err
}

// newResult is one of a machine that has said nothing yet. It is kept if it is for a page.
func newResult(m machine, o options, levee string) (r *result, err error) {
	r = &result{Machine: m.String(), Levee: levee, Date: time.Now().UTC().Format(time.DateOnly),
		Data: o.data != "", Checks: map[string]ending{}, Clocks: map[clock]float64{}}
	if o.page != "" {
		r.file = resultFile(o.page, m)
		err = os.MkdirAll(filepath.Dir(r.file), 0o755)
	}
	return r, err
}

// note takes in what a guest said: that a check, or all, ended, after some seconds of the guest.
func (r *result) note(event, name string, took float64) error {
	r.lock.Lock()
	defer r.lock.Unlock()
	switch event {
	case "linux":
		r.Linux = name
	case "pass", "fail":
		r.Checks[name] = ending{event == "pass", math.Round(took*100) / 100}
	}
	return r.keep()
}

// cost takes in what the guest of a clock has had of a core.
func (r *result) cost(k clock, seconds float64) error {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.Clocks[k] = math.Round(seconds)
	r.Core = 0
	for _, s := range r.Clocks {
		r.Core += s
	}
	return r.keep()
}

// keep writes the result, after each check: a run that is broken off has said what it has said.
func (r *result) keep() error {
	if r.file == "" {
		return nil
	}
	b, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	partial := r.file + ".partial"
	return errors.Join(os.WriteFile(partial, append(b, '\n'), 0o644), os.Rename(partial, r.file))
}

func (r *result) passed() (n int) {
	for _, e := range r.Checks {
		if e.Passed {
			n++
		}
	}
	return n
}

// kept returns the last results for a page of all machines that have one, in the machines' order.
func kept(page string) ([]*result, error) {
	var all []*result
	for _, m := range machines {
		b, err := os.ReadFile(resultFile(page, m))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		r := &result{}
		if err == nil {
			err = json.Unmarshal(b, r)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", resultFile(page, m), err)
		}
		if r.Linux != "" {
			all = append(all, r)
		}
	}
	return all, nil
}

// expected returns what the guest of a clock takes by the last run that is kept, or else by its
// number of checks.
func (o *options) expected(m machine, k clock, checks int) float64 {
	page := cmp.Or(o.page, "docs/reference/kernels.md")
	if b, err := os.ReadFile(resultFile(page, m)); err == nil {
		var last result
		if json.Unmarshal(b, &last) == nil && last.Clocks[k] > 0 {
			return last.Clocks[k]
		}
	}
	return float64(checks)
}

// together is a run of all machines in one go.
type together struct {
	Levee   string  `json:"levee"`
	Date    string  `json:"date"`
	Data    bool    `json:"data"`
	Jobs    int     `json:"jobs"`
	Seconds float64 `json:"seconds"` // from the first preparation to the last guest's end
	Stopped float64 `json:"stopped"` // of which guests were stopped by a signal
}

func togetherFile(page string) string {
	return filepath.Join(strings.TrimSuffix(page, ".md"), "together.json")
}

// keepTogether keeps a run of all machines beside the page.
func (o *options) keepTogether(t together) error {
	if o.page == "" {
		return nil
	}
	t.Seconds, t.Stopped = math.Round(t.Seconds), math.Round(t.Stopped)
	b, err := json.MarshalIndent(t, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(togetherFile(o.page), append(b, '\n'), 0o644)
}

// String says it in a sentence for the page.
func (t together) String() string {
	clock := func(s float64) string { return fmt.Sprintf("%d min %d s", int(s)/60, int(s)%60) }
	said := fmt.Sprintf("All in one go on %s, levee %s, %d guests at a time: %s.\n", t.Date,
		t.Levee, t.Jobs, clock(t.Seconds))
	if t.Stopped > 0 {
		said = strings.TrimSuffix(said, ".\n") + fmt.Sprintf(
			",\nof which guests were stopped for %s by another command.\n", clock(t.Stopped))
	}
	return said
}

// stops counts how long guests are stopped by a signal, as others do who measure.
type stops struct {
	lock  sync.Mutex
	until time.Time
	sum   time.Duration
}

// watch looks at a guest until the function that it returns is called.
func (s *stops) watch(pid int) (end func()) {
	done := make(chan struct{})
	go func() {
		const period = 100 * time.Millisecond
		for last := time.Now(); ; {
			select {
			case <-done:
				return
			case <-time.After(period):
			}
			now := time.Now()
			if fields := stat(pid); len(fields) > 0 && fields[0] == "T" {
				s.add(last, now)
			}
			last = now
		}
	}()
	return func() { close(done) }
}

// add counts a time for which a guest was stopped; for what is counted already another was.
func (s *stops) add(from, to time.Time) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if from.Before(s.until) {
		from = s.until
	}
	if to.After(from) {
		s.sum, s.until = s.sum+to.Sub(from), to
	}
}
