package main

import (
	"fmt"
	"strings"
)

// head is what docs/kernels.md says above its table.
const head = `# Kernels

Written by ` + "`sudo make kernels DATA=DIR`" + `, which boots Debian's kernels in qemu, without any
help of the processor, and runs each check on each. A figure is how long it took by the guest's
clock, which advances by 1 ns for each instruction. A cell is empty where a check is for other
kernels.

levee supports Linux 6.1 and newer. On older kernels ` + "`levee up`" + ` and ` + "`levee doctor`" + `
say so in one sentence.

`

// table is docs/kernels.md.
func table(all []check, results []*result) string {
	var b strings.Builder
	b.WriteString(head + "| check |")
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
				fmt.Fprintf(&b, " %.1f s |", took)
			default:
				b.WriteString(" **fails** |")
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}
