package main

import (
	"fmt"
	"strings"
)

// table is docs/kernels.md.
func table(all []check, results []*result) string {
	var b strings.Builder
	b.WriteString("# Kernels\n\nWritten by `sudo make kernels`, which boots each of these " +
		"kernels in qemu and runs each check on it: seconds of an emulated core. A\ncell is " +
		"empty where a check is for other kernels.\n\n| check |")
	for _, r := range results {
		fmt.Fprintf(&b, " %s |", r.linux)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(results)) + "\n")
	for _, c := range all {
		fmt.Fprintf(&b, "| %s |", c.name)
		for _, r := range results {
			n := numbers(r.linux)
			took, passed := r.passed[c.name]
			switch {
			case !c.isFor(version{n[0], n[1]}):
				b.WriteString(" |")
			case passed:
				fmt.Fprintf(&b, " %.0f s |", took.Seconds())
			default:
				b.WriteString(" **fails** |")
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}
