package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// head is the text of docs/reference/kernels.md above its tables.
const head = `# Kernels

Written by ` + "`sudo make kernels DATA=DIR`" + `, which boots Debian's kernels in qemu, without any
help of the processor, and runs each check on each. A figure is how long it took by the guest's
clock: the host's for checks in which no time counts, else 1 ns for each instruction. A cell is
empty where a check is for other kernels, and "not run" where the last run of that kernel did not
come to it.

levee supports Linux 6.1 and newer. On older kernels ` + "`levee up`" + ` and ` + "`levee doctor`" + `
say so in one sentence.

`

// write makes the page that is asked for.
func (o *options) write() error {
	if o.page == "" {
		return nil
	}
	results, err := kept(o.page)
	if err != nil {
		return err
	}
	var all *together
	if b, err := os.ReadFile(togetherFile(o.page)); err == nil {
		all = new(together)
		if err := json.Unmarshal(b, all); err != nil {
			return fmt.Errorf("%s: %w", togetherFile(o.page), err)
		}
	}
	short := slices.DeleteFunc(slices.Clone(checks), func(c check) bool { return c.long })
	return os.WriteFile(o.page, []byte(page(short, results, all)), 0o644)
}

// page is docs/reference/kernels.md: the last run of each machine, whenever that was, and what each
// check of now came to in it, and how long the last run of all machines in one go took, if there
// was one.
func page(all []check, results []*result, run *together) string {
	var b strings.Builder
	b.WriteString(head)
	b.WriteString("| kernel | run on | levee | published sets | checks passed | of a core |\n")
	b.WriteString("|---|---|---|---|---|---|\n")
	for _, r := range results {
		passed, mine := 0, 0
		for _, c := range all {
			if !c.isFor(r.version()) {
				continue
			}
			if mine++; r.Checks[c.name].Passed {
				passed++
			}
		}
		core := ""
		if r.Core > 0 {
			core = fmt.Sprintf(" %.1f min", r.Core/60)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %d of %d |%s |\n", r.Linux, r.Date, r.Levee,
			map[bool]string{false: "without", true: "with"}[r.Data], passed, mine, core)
	}
	if run != nil {
		b.WriteString("\n" + run.String())
	}
	b.WriteString("\n| check |")
	for _, r := range results {
		fmt.Fprintf(&b, " %s |", r.Linux)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(results)) + "\n")
	for _, c := range all {
		fmt.Fprintf(&b, "| %s |", c.name)
		for _, r := range results {
			end, ran := r.Checks[c.name]
			switch {
			case !c.isFor(r.version()):
				b.WriteString(" |")
			case !ran:
				b.WriteString(" not run |")
			case end.Passed:
				fmt.Fprintf(&b, " %.1f s |", end.Took)
			default:
				b.WriteString(" **fails** |")
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

func (r *result) version() version {
	n := numbers(r.Linux)
	return version{n[0], n[1]}
}
