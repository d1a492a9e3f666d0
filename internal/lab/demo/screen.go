package demo

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// screen is the table: a column for each act, redrawn in place on a terminal, a line now and then
// in a pipe. Its methods may be called from several goroutines.
type screen struct {
	out      io.Writer
	terminal bool
	intro    []string
	mu       sync.Mutex
	columns  []*column
	doing    string
	load     float64 // of the machine before the demo
	drawn    int     // lines of the table on the terminal
}

// column is one act.
type column struct {
	title    string
	missing  string
	from, to int64     // requests due from..to count, ns of the monotonic clock
	latency  []float64 // of the answered ones, ms
	failed   int
	bySlice  [][2]int  // answered and all, each sliceTime of the act
	offered  []float64 // packets a second, each reading
	refused  []float64
	dropped  []float64
	open     bool
}

// sliceTime is the width of one bar.
const sliceTime = 500 * time.Millisecond

func newScreen(out io.Writer, terminal bool, intro []string) *screen {
	s := &screen{out: out, terminal: terminal, intro: intro}
	fmt.Fprintln(out, strings.Join(intro, "\n")+"\n")
	return s
}

func (s *screen) column(title string) *column {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &column{title: title}
	s.columns = append(s.columns, c)
	return c
}

func (s *screen) missing(c *column, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.missing = why.Error()
}

// count opens a column for requests that are due within from..to.
func (s *screen) count(c *column, from, to int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.from, c.to, c.open = from, to, true
	c.bySlice = make([][2]int, (to-from+int64(sliceTime)-1)/int64(sliceTime))
	s.doing = ""
}

func (s *screen) close(c *column) {
	s.mu.Lock()
	c.open = false
	s.mu.Unlock()
	if !s.terminal {
		s.plain()
	}
}

func (s *screen) wave(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doing = what
}

// request takes the outcome of one request into the column that was open when it was due.
func (s *screen) request(r Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.columns {
		if r.Due < c.from || r.Due >= c.to {
			continue
		}
		i := (r.Due - c.from) / int64(sliceTime)
		c.bySlice[i][1]++
		if r.NS == 0 {
			c.failed++
			return
		}
		c.bySlice[i][0]++
		c.latency = append(c.latency, float64(r.NS)/1e6)
		return
	}
}

// rates takes two readings of the counters.
func (s *screen) rates(c *column, before, now counts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seconds := float64(now.at-before.at) / 1e9
	if seconds <= 0 {
		return
	}
	per := func(a, b uint64) float64 { return float64(a-b) / seconds }
	c.refused = append(c.refused, per(now.refused, before.refused))
	c.offered = append(c.offered, per(now.received, before.received)+per(now.refused,
		before.refused))
	c.dropped = append(c.dropped, per(now.dropped, before.dropped))
}

// refresh redraws until stop is called.
func (s *screen) refresh() (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	every := redrawEvery
	if !s.terminal {
		every = time.Second
	}
	go func() {
		defer close(done)
		t := time.NewTicker(every)
		defer t.Stop()
		for {
			select {
			case <-quit:
				return
			case <-t.C:
				if s.terminal {
					s.draw()
				} else {
					s.plain()
				}
			}
		}
	}()
	return func() { close(quit); <-done }
}

// draw puts the table where the last one was.
func (s *screen) draw() {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := s.table()
	var b strings.Builder
	b.WriteString("\x1b[?7l") // a line that is too long for the terminal is cut, not wrapped
	if s.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", s.drawn)
	}
	for _, l := range lines {
		b.WriteString(l + "\x1b[K\n")
	}
	b.WriteString("\x1b[?7h")
	s.drawn = len(lines)
	io.WriteString(s.out, b.String()) // a terminal that is gone is no reason to stop
}

// plain prints one line about the column that is open.
func (s *screen) plain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.columns {
		if c.open {
			fmt.Fprintf(s.out, "%-10s  answered %s, p99 %s, offered %s/s, dropped by rules %s/s, "+
				"lost before them %s/s\n",
				c.title, c.answered(), c.p(99), last(c.offered), last(c.dropped), last(c.refused))
		}
	}
}

// table is the screen as lines.
func (s *screen) table() []string {
	rows := []struct {
		name string
		cell func(*column) string
	}{
		{"", func(c *column) string { return c.title }},
		{"requests answered", (*column).answered},
		{"  a second", (*column).goodput},
		{"latency p50", func(c *column) string { return c.p(50) }},
		{"latency p99", func(c *column) string { return c.p(99) }},
		{"flood offered, packets/s", func(c *column) string { return c.flood(c.offered) }},
		{"  dropped by the rules", func(c *column) string { return c.flood(c.dropped) }},
		{"  lost before any rule", func(c *column) string { return c.flood(c.refused) }},
		{"answered, by time", (*column).bars},
	}
	const first, width = 24, 18
	var lines []string
	for _, r := range rows {
		l := pad(r.name, first)
		for _, c := range s.columns {
			cell := r.cell(c)
			l += strings.Repeat(" ", max(width-runes(cell), 1)) + cell
		}
		lines = append(lines, strings.TrimRight(l, " "))
	}
	now := ""
	if s.doing != "" {
		now = "now: " + s.doing
	}
	return append(lines, "", now)
}

func pad(s string, n int) string { return s + strings.Repeat(" ", max(n-runes(s), 0)) }
func runes(s string) int         { return len([]rune(s)) }

// share is the part of the requests that was answered; ok is false before the first outcome.
func (c *column) share() (v float64, ok bool) {
	n := len(c.latency) + c.failed
	return float64(len(c.latency)) / float64(max(n, 1)), n > 0
}

func (c *column) answered() string {
	v, ok := c.share()
	switch {
	case c.missing != "":
		return "not installed"
	case !ok:
		return "-"
	}
	return fmt.Sprintf("%.1f %%", v*100)
}

func (c *column) goodput() string {
	v, ok := c.share()
	if !ok {
		return "-"
	}
	return fmt.Sprintf("%.0f", v*PerSecond)
}

// percentile is of all requests: those that were not answered took longer than any that was. failed
// says that it is one of these.
func (c *column) percentile(p float64) (ms float64, failed, ok bool) {
	n := len(c.latency) + c.failed
	if n == 0 {
		return 0, false, false
	}
	i := int(float64(n) * p / 100)
	if i >= len(c.latency) {
		return 0, true, true
	}
	return slices.Sorted(slices.Values(c.latency))[i], false, true
}

func (c *column) p(p float64) string {
	ms, failed, ok := c.percentile(p)
	switch {
	case !ok:
		return "-"
	case failed:
		return fmt.Sprintf("> %d ms", Patience.Milliseconds())
	case ms < 10:
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%.0f ms", ms)
}

// flood is the last reading while the act is played, then the mean.
func (c *column) flood(v []float64) string {
	if c.open {
		return last(v)
	}
	if len(v) == 0 {
		return "-"
	}
	var sum float64
	for _, x := range v {
		sum += x
	}
	return SI(sum / float64(len(v)))
}

func last(v []float64) string {
	if len(v) == 0 {
		return "-"
	}
	return SI(v[len(v)-1])
}

// bars shows the share of answered requests over the time of the act.
func (c *column) bars() string {
	const marks = "_▁▂▃▄▅▆▇█"
	var b strings.Builder
	for _, s := range c.bySlice {
		if s[1] > 0 {
			b.WriteRune([]rune(marks)[s[0]*8/s[1]])
		}
	}
	return b.String()
}

// SI is a number with three digits and k, M or G.
func SI(v float64) string {
	for _, u := range []struct {
		unit string
		size float64
	}{{" G", 1e9}, {" M", 1e6}, {" k", 1e3}} {
		if v >= u.size {
			return fmt.Sprintf("%.2f%s", v/u.size, u.unit)
		}
	}
	return fmt.Sprintf("%.0f", v)
}
