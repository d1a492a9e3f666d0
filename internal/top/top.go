// Package top is a screen that shows what the rules of a machine's policies count, second by
// second.
//
// In go snapshots of counters; out comes a picture for a terminal: a row for each rule, with its
// packets a second, how these were in the last half minute, and what the policy remembers. The
// package reads no counters itself, and knows nothing of policies.
package top

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"

	tea "charm.land/bubbletea/v2"
)

// Snapshot holds the counters of a moment.
type Snapshot struct {
	At         time.Time
	Interfaces []Interface
}

// Interface is an interface with its policy.
type Interface struct {
	Name   string
	Title  string   // the policy, the hook and since when
	Memory []Memory // things that the policy remembers
	Rules  []Rule   // in the order in which packets meet them
}

// Memory says how full a memory is: connections, a set, a limit.
type Memory struct {
	Name, Text string
	Live       uint64 // entries, whose course is drawn
}

// Rule is a counter. What is counted under one ID goes on over a replace of the policy.
type Rule struct {
	ID             string
	Verdict, Where string
	Label, Text    string
	Packets        uint64
}

// Source reads the counters.
type Source func() (Snapshot, error)

// past is the largest number of readings that a sparkline shows.
const past = 30

// Order sorts the rows.
type order int

const (
	byRate order = iota
	byTotal
	byPlace
	numOrders
)

func (o order) String() string {
	return [...]string{"packets a second", "packets", "place in the policy"}[o]
}

// history holds the rates of a rule, the newest last.
type history struct {
	packets uint64
	rates   []float64
}

func (h *history) rate() float64 {
	if len(h.rates) == 0 {
		return 0
	}
	return h.rates[len(h.rates)-1]
}

// screen is the state of the picture.
type screen struct {
	read          Source
	every         time.Duration
	now           Snapshot
	rules         map[[2]string]*history  // by interface and ID
	memories      map[[2]string][]float64 // entries in the last readings, by interface and name
	shown         int                     // the interface
	first         int                     // row on the screen
	order         order
	paused        bool
	width, height int
	err           error
}

type tick struct{}

type reading struct {
	Snapshot
	err error
}

// Run shows the picture until ctx ends or somebody quits. An error of the source ends it. Only a
// file of a terminal tells the size of the picture: of another writer it would be empty.
func Run(ctx context.Context, read Source, every time.Duration, in io.Reader, out *os.File) error {
	s := &screen{read: read, every: every, rules: map[[2]string]*history{}}
	end, err := tea.NewProgram(s, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out),
		tea.WithoutSignalHandler()).Run()
	if ctx.Err() != nil {
		return nil // which is how the picture ends
	}
	if err != nil {
		return fmt.Errorf("show the counters: %w", err)
	}
	return end.(*screen).err
}

func (s *screen) look() tea.Msg {
	now, err := s.read()
	return reading{now, err}
}

// Init reads the counters for the first time.
func (s *screen) Init() tea.Cmd { return s.look }

// Update takes keys, readings and the size of the terminal.
func (s *screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		s.width, s.height = msg.Width, msg.Height
	case tick:
		return s, s.look
	case reading:
		if s.err = msg.err; s.err != nil {
			return s, tea.Quit
		}
		if !s.paused {
			s.take(msg.Snapshot)
		}
		return s, tea.Tick(s.every, func(time.Time) tea.Msg { return tick{} })
	case tea.KeyPressMsg:
		return s, s.key(msg.String())
	}
	return s, nil
}

func (s *screen) key(name string) tea.Cmd {
	page := max(1, s.room(s.current().Memory))
	switch name {
	case "q", "esc", "ctrl+c":
		return tea.Quit
	case "s":
		s.order = (s.order + 1) % numOrders
	case "p", "space":
		s.paused = !s.paused
	case "tab":
		s.shown++
		s.first = 0
	case "down", "j":
		s.first++
	case "up", "k":
		s.first--
	case "pgdown":
		s.first += page
	case "pgup":
		s.first -= page
	case "home":
		s.first = 0
	}
	return nil
}

// take notes a reading. What counts less than before has begun anew.
func (s *screen) take(now Snapshot) {
	seconds := now.At.Sub(s.now.At).Seconds()
	old := s.rules
	s.rules = map[[2]string]*history{}
	for _, i := range now.Interfaces {
		for _, r := range i.Rules {
			at := [2]string{i.Name, r.ID}
			h := old[at]
			switch {
			case h == nil:
				h = new(history)
			case r.Packets < h.packets || seconds <= 0:
				h.rates = nil
			default:
				h.rates = append(h.rates, float64(r.Packets-h.packets)/seconds)
				h.rates = h.rates[max(0, len(h.rates)-past):]
			}
			h.packets = r.Packets
			s.rules[at] = h
		}
	}
	before := s.memories
	s.memories = map[[2]string][]float64{}
	for _, i := range now.Interfaces {
		for _, m := range i.Memory {
			at := [2]string{i.Name, m.Name}
			inUse := append(before[at], float64(m.Live))
			s.memories[at] = inUse[max(0, len(inUse)-past):]
		}
	}
	s.now = now
}

// View draws the picture.
func (s *screen) View() tea.View {
	v := tea.NewView(strings.Join(s.lines(), "\n"))
	v.AltScreen = true
	return v
}

// head is the number of lines that stand above the rows and below them, without those of memory.
const head = 4

// room returns how many rows there is room for below so many memories.
func (s *screen) room(memory []Memory) int {
	return s.height - head - min(len(memory), s.memoryRoom())
}

// memoryRoom returns how many lines memories may take: a third of the screen.
func (s *screen) memoryRoom() int { return max(1, s.height/3) }

// Columns of a row. A narrow terminal has a shorter course, and either label or text of a rule.
const (
	narrow    = 120 // less has no column of its own for labels
	leastPast = 10
)

// drawn returns how many readings of a course there is room for.
func (s *screen) drawn() int {
	if s.width == 0 {
		return past
	}
	return max(leastPast, min(past, s.width-70))
}

// memory returns the lines of memories. The last one counts those for which there is no room.
func (s *screen) memory(i *Interface) (out []string) {
	room := s.memoryRoom()
	for k, m := range i.Memory {
		if k == room-1 && len(i.Memory) > room {
			return append(out, s.cut(fmt.Sprintf("%*s  and %d more that it remembers: levee status",
				11+s.drawn(), "", len(i.Memory)-k)))
		}
		inUse := sparkline(s.memories[[2]string{i.Name, m.Name}], s.drawn())
		name := []rune(m.Name)
		if room := s.width - 15 - s.drawn() - len([]rune(m.Text)); s.width > 0 && room < len(name) {
			name = name[:min(len(name), max(8, room))] // rather than what it holds
		}
		out = append(out, s.cut(fmt.Sprintf("%*s  %s: %s", 11+s.drawn(), inUse, string(name),
			m.Text)))
	}
	return out
}

func (s *screen) current() Interface {
	if n := len(s.now.Interfaces); n > 0 {
		return s.now.Interfaces[s.shown%n]
	}
	return Interface{Name: "no interface has a policy"}
}

func (s *screen) lines() []string {
	i := s.current()
	rows := slices.Clone(i.Rules)
	history := func(r *Rule) *history { return s.rules[[2]string{i.Name, r.ID}] }
	var all float64
	for k := range rows {
		all += history(&rows[k]).rate()
	}
	slices.SortStableFunc(rows, func(a, b Rule) int {
		switch s.order {
		case byRate:
			return cmp.Or(cmp.Compare(history(&b).rate(), history(&a).rate()),
				cmp.Compare(b.Packets, a.Packets))
		case byTotal:
			return cmp.Compare(b.Packets, a.Packets)
		}
		return 0
	})
	title := fmt.Sprintf("%s: %s", i.Name, i.Title)
	if n := len(s.now.Interfaces); n > 1 {
		title = fmt.Sprintf("[%d of %d] %s", s.shown%n+1, n, title)
	}
	room := max(0, s.room(i.Memory))
	s.first = max(0, min(s.first, len(rows)-max(1, room)))
	end := min(len(rows), s.first+room)
	state := fmt.Sprintf("  %s packets/s counted, by %s", short(all), s.order)
	if end-s.first < len(rows) {
		state += fmt.Sprintf(", rows %d to %d of %d", s.first+1, end, len(rows))
	}
	if s.paused {
		state += ", paused"
	}
	out := append([]string{s.cut(title)}, s.memory(&i)...)
	place := len("RULE")
	for k := range rows {
		place = max(place, len([]rune(rows[k].Where)))
	}
	out = append(out, s.cut(state),
		s.row("PACKETS/S", "UNTIL NOW", "PACKETS", "VERDICT", "LABEL", place, "RULE", ""))
	for k := s.first; k < end; k++ {
		r := &rows[k]
		h := history(r)
		out = append(out, s.row(short(h.rate()), sparkline(h.rates, s.drawn()),
			short(float64(r.Packets)), r.Verdict, r.Label, place, r.Where, r.Text))
	}
	keys := "q quit  s sort  p pause  up, down, page"
	if len(s.now.Interfaces) > 1 {
		keys += "  tab next interface"
	}
	return append(out, s.cut(keys))
}

// row returns a line for a rule, of which the place may take so many columns.
func (s *screen) row(rate, line, packets, verdict, label string, place int,
	where, text string) string {
	rule := fmt.Sprintf("%-*s  %s", place, where, text)
	switch {
	case s.width >= narrow || s.width == 0:
		rule = fmt.Sprintf("%-20s %s", label, rule)
	case label != "":
		rule = fmt.Sprintf("%-*s  %s", place, where, label)
	}
	return s.cut(fmt.Sprintf("%9s  %-*s %9s  %-9s %s", rate, s.drawn(), line, packets, verdict,
		rule))
}

// cut brings a line to the width of the terminal, without what moves its cursor.
func (s *screen) cut(line string) string {
	line = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, line)
	if n := []rune(line); s.width > 0 && len(n) > s.width {
		return string(n[:s.width])
	}
	return line
}

// sparkline draws the last n rates as high as the highest of them is.
func sparkline(rates []float64, n int) string {
	const blocks = "▁▂▃▄▅▆▇█"
	bars := []rune(blocks)
	rates = rates[max(0, len(rates)-n):]
	highest := slices.Max(append([]float64{0}, rates...))
	var b strings.Builder
	for range n - len(rates) {
		b.WriteByte(' ')
	}
	for _, v := range rates {
		if v == 0 {
			b.WriteByte('.')
			continue
		}
		b.WriteRune(bars[min(len(bars)-1, int(v/highest*float64(len(bars))))])
	}
	return b.String()
}

// short returns a number in four figures or fewer.
func short(v float64) string {
	for _, unit := range []struct {
		of   float64
		name string
	}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e4, "k"}} {
		if v >= unit.of {
			if unit.name == "k" {
				unit.of = 1e3
			}
			return fmt.Sprintf("%.4g %s", v/unit.of, unit.name)
		}
	}
	return fmt.Sprintf("%.0f", v)
}
