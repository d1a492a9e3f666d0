package plan

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"levee/internal/filter/state"
)

// Print writes the plan as a tree, a line each block: what it costs a packet in no order and at
// least, its instructions and bytes, what it is, and why. What blocks share is shown where it comes
// first.
func (p *Plan) Print(w io.Writer) error {
	t := &printer{Writer: bufio.NewWriter(w), plan: p, shown: map[ID]bool{}}
	fmt.Fprintf(t, "%7s %6s %6s %9s  %s\n", "ns", "least", "instr", "bytes", "block")
	t.line(0, p.Cost, fmt.Sprintf("program: %s, %s", p.Target, count(p.CPUs, "CPU")), "")
	for _, c := range slices.Concat(p.Chains, p.Within) {
		t.block(1, c)
	}
	l := &p.Ledger
	fmt.Fprintf(t, "%d functions of %d; %s instructions at most, of %s\n", l.Functions,
		maxFunctions, thousands(l.Instructions), thousands(maxInstructions))
	for _, m := range l.Maps {
		life := string(m.Lifetime)
		if m.Lifetime == state.Private {
			life = "private"
		}
		fmt.Fprintf(t, "map %s: %s, %s, %s\n", m.Name, count(m.Bytes, "byte"), life, m.For)
	}
	if err := t.Flush(); err != nil || p.Out == nil {
		return err
	}
	return p.Out.Print(w)
}

// shownRules is up to how many rules of straight code are listed: of more only those with look-ups
// and effects are.
const shownRules = 24

type printer struct {
	*bufio.Writer
	plan  *Plan
	shown map[ID]bool
}

func (t *printer) line(depth int, c Cost, what, why string) {
	if why != "" {
		what += " (" + why + ")"
	}
	fmt.Fprintf(t, "%7.1f %6.1f %6d %9d  %s%s\n", c.Ns, c.Least, c.Instructions, c.Bytes,
		strings.Repeat("  ", depth), what)
}

func (t *printer) block(depth int, b Block) {
	n := b.About()
	what := fmt.Sprintf("%s %s: %s", b.Kind(), n.ID, n.What)
	if t.shown[n.ID] {
		t.line(depth, Cost{Ns: n.Cost.Ns, Least: n.Cost.Least}, what+", see above", "")
		return
	}
	t.shown[n.ID] = true
	if r, ok := b.(*Rule); ok && len(r.Does) > 0 {
		what += ": " + r.Action.String()
	}
	t.line(depth, n.Cost, what, n.Why)
	in := b.Blocks()
	rest := 0
	for _, b := range in {
		if len(in) > shownRules && plain(b) {
			rest++
			continue
		}
		switch b.(type) {
		case *Effect, *Verdict: // in the line of the rule
			continue
		}
		t.block(depth+1, b)
	}
	if rest > 0 {
		fmt.Fprintf(t, "%33s%s%s\n", "", strings.Repeat("  ", depth+1),
			count(rest, "rule")+" of compares")
	}
}

// plain reports whether a block is a rule of nothing but compares that decides.
func plain(b Block) bool {
	r, ok := b.(*Rule)
	return ok && r.Action.Decides() && len(r.Blocks()) == 1
}
