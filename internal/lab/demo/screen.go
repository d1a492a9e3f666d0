package demo

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"levee/internal/report"
)

// screen is the table: a column for each act, redrawn in place on a terminal, a line for each flood
// in a pipe.
type screen struct {
	out      io.Writer
	terminal bool
	intro    []string
	doing    string
	columns  []*column
	drawn    int // lines of the table on the terminal
}

// column is one act.
type column struct {
	title   string
	missing string
	search  *search
	trials  []trial
}

func newScreen(out io.Writer, terminal bool, intro []string) *screen {
	s := &screen{out: out, terminal: terminal, intro: intro}
	fmt.Fprintln(out, strings.Join(intro, "\n"))
	return s
}

// machine takes what was measured of the machine.
func (s *screen) machine(quiet served, bound time.Duration, most, apart float64) {
	p50, _ := quiet.percentile(50)
	line := fmt.Sprintf("Without a flood: p50 %s, p99 %s. A program of XDP that drops all takes "+
		"%s packets/s here.", ms(p50), ms(bound-heldExtra), SI(most))
	lines := []string{line}
	if apart > 0 {
		lines = append(lines, fmt.Sprintf(
			"A cache line takes %s from one core to the other and back.", ns(apart)))
	}
	s.erase()
	s.intro = append(s.intro, lines...)
	fmt.Fprintln(s.out, strings.Join(lines, "\n")+"\n")
}

func (s *screen) act(title string, find *search) *column {
	c := &column{title: title, search: find}
	s.columns = append(s.columns, c)
	return c
}

func (s *screen) missing(c *column, why error) {
	c.missing = why.Error()
	if !s.terminal {
		fmt.Fprintf(s.out, "%-10s  %s\n", c.title, c.missing)
	}
}

// now says what is being done.
func (s *screen) now(what string) {
	s.doing = what
	if s.terminal {
		s.draw()
	}
}

// tried takes a flood into its act.
func (s *screen) tried(c *column, t trial) {
	c.trials = append(c.trials, t)
	c.search.add(t.step, t.held, t.sent)
	if s.terminal {
		return // drawn with what comes next
	}
	verdict := "held"
	if !t.held {
		verdict = "not held"
	}
	fmt.Fprintf(s.out, "%-10s  %8s packets/s: %s of the requests in time, %s\n", c.title,
		SI(t.rate), percent(t.share), verdict)
}

// draw puts the table where the last one was.
func (s *screen) draw() {
	var b strings.Builder
	s.eraser(&b)
	lines := append(s.table(), "", "now: "+s.doing)
	b.WriteString("\x1b[?7l") // a line that is too long for the terminal is cut, not wrapped
	b.WriteString(strings.Join(lines, "\n") + "\n")
	b.WriteString("\x1b[?7h")
	s.drawn = len(lines)
	io.WriteString(s.out, b.String()) // a terminal that is gone is no reason to stop
}

// erase takes the table from the terminal.
func (s *screen) erase() {
	var b strings.Builder
	s.eraser(&b)
	io.WriteString(s.out, b.String())
}

func (s *screen) eraser(b *strings.Builder) {
	if s.drawn > 0 {
		fmt.Fprintf(b, "\x1b[%dA\x1b[J", s.drawn)
		s.drawn = 0
	}
}

// end prints the table for the last time, the sentences, and the picture, if it has a path.
func (s *screen) end(picture string) error {
	s.erase()
	lines := append(s.table(), "")
	lines = append(lines, verdict(s.columns)...)
	if !s.terminal {
		fmt.Fprintln(s.out)
	}
	if _, err := fmt.Fprintln(s.out, strings.Join(lines, "\n")); err != nil {
		return err
	}
	if picture == "" {
		return nil
	}
	all := append([]string{"$ sudo make demo"}, s.intro...)
	all = append(append(all, ""), lines...)
	if err := os.WriteFile(picture, report.Terminal(all), 0o644); err != nil {
		return fmt.Errorf("writing the picture: %w", err)
	}
	return nil
}

const firstWidth, width = 26, 18

// table returns the screen as lines: what each act held, and its curve.
func (s *screen) table() []string {
	var lines []string
	for _, r := range []struct {
		name string
		cell func(*column) string
	}{
		{"", func(c *column) string { return c.title }},
		{"held up to, packets/s", (*column).limit},
		{"there: requests in time", atBest(func(t trial) string { return percent(t.share) })},
		{"  latency p50", atBest(func(t trial) string { return t.p(50) })},
		{"  latency p99", atBest(func(t trial) string { return t.p(99) })},
		{"  dropped by the rules", atBest(func(t trial) string { return percent(t.dropped) })},
		{"  lost before any rule", atBest(func(t trial) string { return percent(t.lost) })},
		{"  cache line, both ways", atBest(func(t trial) string { return ns(t.line) })},
	} {
		l := pad(r.name, firstWidth)
		for _, c := range s.columns {
			cell := r.cell(c)
			l += strings.Repeat(" ", max(width-runes(cell), 1)) + cell
		}
		lines = append(lines, strings.TrimRight(l, " "))
	}
	return append(append(lines, ""), curves(s.columns)...)
}

// best returns the flood at whose highest rate the service was held.
func (c *column) best() (best trial, ok bool) {
	for _, t := range c.trials {
		if t.held && t.sent == c.search.held {
			best, ok = t, true
		}
	}
	return best, ok
}

// limit returns the highest rate that was held, so far.
func (c *column) limit() string {
	if c.missing != "" {
		return "not installed"
	}
	t, ok := c.best()
	switch _, _, more := c.search.next(); {
	case ok && c.search.open() && !more:
		return "≥ " + SI(t.rate)
	case ok:
		return SI(t.rate)
	case more:
		return "-"
	}
	return "none"
}

// atBest returns a figure of the best flood of an act.
func atBest(cell func(trial) string) func(*column) string {
	return func(c *column) string {
		if t, ok := c.best(); ok {
			return cell(t)
		}
		return "-"
	}
}

// p returns a percentile of the latency.
func (s *served) p(p float64) string {
	if d, ok := s.percentile(p); ok {
		return ms(d)
	}
	return fmt.Sprintf("> %d ms", Patience.Milliseconds())
}

func pad(s string, n int) string { return s + strings.Repeat(" ", max(n-runes(s), 0)) }
func runes(s string) int         { return len([]rune(s)) }
