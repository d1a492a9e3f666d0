package main

import (
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

// result is what a machine said. It is kept in a file, from which the page is made.
type result struct {
	Machine string            `json:"machine"`
	Linux   string            `json:"linux"`
	Levee   string            `json:"levee"` // the commit that ran
	Date    string            `json:"date"`
	Data    bool              `json:"data"`   // with published filter sets and prefixes
	Checks  map[string]ending `json:"checks"` // those that have ended, by name
	Core    float64           `json:"core"`   // seconds of a core, of the whole run

	lock  sync.Mutex      // guests of both clocks say what they have
	cores map[int]float64 // seconds of a core, by the guest's process
	file  string          // where it is kept, none if it is not
}

// ending is how a check ended.
type ending struct {
	Passed bool    `json:"passed"`
	Took   float64 `json:"took"` // seconds of the guest
}

// resultFile is where the last run of a machine for a page is kept: beside the page.
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
		":!docs/kernels*"))
	if len(changed) > 0 {
		name += ", changed"
	}
	return name, err
}

// newResult is one of a machine that has said nothing yet. It is kept if it is for a page.
func newResult(m machine, o options, levee string) (r *result, err error) {
	r = &result{Machine: m.String(), Levee: levee, Date: time.Now().UTC().Format(time.DateOnly),
		Data: o.data != "", Checks: map[string]ending{}, cores: map[int]float64{}}
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

// cost takes in what a guest has had of a core.
func (r *result) cost(pid int, seconds float64) error {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.cores[pid] = seconds
	r.Core = 0
	for _, s := range r.cores {
		r.Core += s
	}
	r.Core = math.Round(r.Core)
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

// kept are the last results for a page of all machines that have one, in the machines' order.
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
