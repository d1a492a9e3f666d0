package top

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"golang.org/x/sys/unix"
)

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// counted is a snapshot after so many seconds, with packets by rule.
func counted(seconds int, packets ...uint64) Snapshot {
	i := Interface{Name: "eth0", Title: "edge.levee, xdp-native", Memory: []Memory{{"cookies", "3",
		uint64(seconds)}}}
	for k, n := range packets {
		i.Rules = append(i.Rules, Rule{ID: fmt.Sprint(k), Verdict: "drop",
			Label: fmt.Sprint("rule-", k),
			Where: fmt.Sprintf("edge.levee:%d", k+1), Text: "drop udp", Packets: n})
	}
	return Snapshot{begin.Add(time.Duration(seconds) * time.Second), []Interface{i}}
}

func newScreen() *screen {
	s := &screen{every: time.Second, rules: map[[2]string]*history{}}
	s.Update(tea.WindowSizeMsg{Width: 120, Height: 12})
	return s
}

func press(s *screen, keys ...string) (cmd tea.Cmd) {
	for _, k := range keys {
		cmd = s.key(k)
	}
	return cmd
}

// rows are the labels on the screen, from the top.
func rows(s *screen) (labels []string) {
	for _, line := range s.lines() {
		for _, word := range strings.Fields(line) {
			if strings.HasPrefix(word, "rule-") {
				labels = append(labels, word)
			}
		}
	}
	return labels
}

func TestRulesAreSortedByTheirRates(t *testing.T) {
	s := newScreen()
	s.Update(reading{Snapshot: counted(0, 1000, 0, 50)})
	s.Update(reading{Snapshot: counted(2, 1000, 20_000_000, 150)})
	for _, c := range []struct{ key, want string }{
		{"", "[rule-1 rule-2 rule-0]"}, {"s", "[rule-1 rule-0 rule-2]"},
		{"s", "[rule-0 rule-1 rule-2]"}, {"s", "[rule-1 rule-2 rule-0]"},
	} {
		press(s, c.key)
		if got := fmt.Sprint(rows(s)); got != c.want {
			t.Errorf("by %s: %s, want %s", s.order, got, c.want)
		}
	}
	text := strings.Join(s.lines(), "\n")
	for _, want := range []string{"eth0: edge.levee, xdp-native", ".█  cookies: 3",
		"10 M packets/s counted", "     10 M", "       50", "    20 M"} {
		if !strings.Contains(text, want) {
			t.Errorf("the screen lacks %q:\n%s", want, text)
		}
	}
}

func TestACounterThatBeginsAnewHasNoRate(t *testing.T) {
	s := newScreen()
	s.take(counted(0, 500))
	s.take(counted(1, 700))
	s.take(counted(2, 3)) // another policy
	s.take(counted(3, 13))
	if h := s.rules[[2]string{"eth0", "0"}]; len(h.rates) != 1 || h.rate() != 10 {
		t.Errorf("%+v", h)
	}
	for n := range 100 {
		s.take(counted(4+n, uint64(13+n)))
	}
	if h := s.rules[[2]string{"eth0", "0"}]; len(h.rates) != past {
		t.Errorf("%d rates are kept", len(h.rates))
	}
	if m := s.memories[[2]string{"eth0", "cookies"}]; len(m) != past || m[past-1] != 103 {
		t.Errorf("of a memory there is %v", m)
	}
	s.take(Snapshot{At: begin.Add(200 * time.Second)})
	if len(s.rules)+len(s.memories) != 0 ||
		!strings.Contains(s.lines()[0], "no interface has a policy") {
		t.Errorf("what is gone is still there: %q", s.lines())
	}
}

func TestKeysScrollPauseAndQuit(t *testing.T) {
	s := newScreen() // room for seven rows
	many := make([]uint64, 20)
	s.take(counted(0, many...))
	press(s, "s", "s", "down", "down")
	if got := rows(s); len(got) != 7 || got[0] != "rule-2" {
		t.Errorf("%v", got)
	}
	press(s, "pgdown", "pgdown", "pgdown", "pgdown")
	if got := rows(s); got[len(got)-1] != "rule-19" || len(got) != 7 {
		t.Errorf("at the end: %v", got)
	}
	press(s, "home", "up")
	if got := rows(s); got[0] != "rule-0" {
		t.Errorf("at the beginning: %v", got)
	}
	press(s, "p")
	s.Update(reading{Snapshot: counted(1, 7)})
	if len(rows(s)) != 7 || !strings.Contains(strings.Join(s.lines(), ""), "paused") {
		t.Error("a pause shows what came")
	}
	if cmd := press(s, "q"); cmd == nil || cmd() != tea.Quit() {
		t.Error("q does not quit")
	}
	if n := len(s.lines()); n > 12 {
		t.Errorf("%d lines in a terminal of 12", n)
	}
}

func TestWhatComesFromOutsideCannotMoveTheCursor(t *testing.T) {
	s := newScreen()
	now := counted(0, 1)
	now.Interfaces[0].Rules[0].Label = "a\x1b[2J\nb"
	s.take(now)
	for _, line := range s.lines() {
		if strings.ContainsAny(line, "\x1b\n") {
			t.Errorf("%q", line)
		}
		if n := len([]rune(line)); n > 120 {
			t.Errorf("%d columns in a terminal of 120", n)
		}
	}
}

func TestSparklines(t *testing.T) {
	got := sparkline([]float64{0, 1, 50, 100}, past)
	if want := strings.Repeat(" ", past-4) + ".▁▅█"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := sparkline([]float64{1000, 0, 1, 50, 100}, 4); got != ".▁▅█" {
		t.Errorf("the last four: %q", got)
	}
}

// TestANarrowTerminalShowedNoRule: at 80 columns a row ended within its label, so that rules
// without one could not be told apart, and memories took the place of rules.
func TestANarrowTerminalShowedNoRule(t *testing.T) {
	s := newScreen()
	s.Update(tea.WindowSizeMsg{Width: 80, Height: 24})
	now := counted(0, make([]uint64, 30)...)
	i := &now.Interfaces[0]
	i.Rules[1].Label, i.Rules[1].Text = "", "drop tcp from 198.51.100.0/24"
	for k := range 20 {
		i.Memory = append(i.Memory, Memory{fmt.Sprint("set ", k), "1 of 2 entries", 1})
	}
	s.take(now)
	press(s, "s", "s")
	text := strings.Join(s.lines(), "\n")
	for _, want := range []string{"edge.levee:1   rule-0", "edge.levee:2   drop tcp from 198.5",
		"and 14 more that it remembers", "rows 1 to 12 of 30"} {
		if !strings.Contains(text, want) {
			t.Errorf("the screen lacks %q:\n%s", want, text)
		}
	}
	if n := len(s.lines()); n != 24 {
		t.Errorf("%d lines of 24", n)
	}
}

// TestShortNamesOfMemories: of a name below eight letters eight were shown.
func TestShortNamesOfMemories(t *testing.T) {
	s := newScreen()
	s.Update(tea.WindowSizeMsg{Width: 60, Height: 24})
	i := Interface{Memory: []Memory{{"set a", strings.Repeat("text ", 10), 1}}}
	if got := s.memory(&i); len(got) != 1 || !strings.Contains(got[0], "  set a: text") {
		t.Errorf("%q", got)
	}
}

// TestRunEndsWithItsSource runs the whole program without a terminal.
func TestRunEndsWithItsSource(t *testing.T) {
	gone, n := errors.New("gone"), 0
	read := func() (Snapshot, error) {
		if n++; n == 3 {
			return Snapshot{}, gone
		}
		return counted(n, uint64(n)), nil
	}
	out, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	err = Run(t.Context(), read, time.Millisecond, strings.NewReader(""), out)
	if !errors.Is(err, gone) || n != 3 {
		t.Errorf("%v after %d readings", err, n)
	}
}

// TestRunDrawsOnATerminal: the picture has the size of the terminal, and was empty where nobody
// told that.
func TestRunDrawsOnATerminal(t *testing.T) {
	person, tty := terminal(t, 100, 20)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	read := func() (Snapshot, error) { return counted(1, 7, 9), nil }
	go func() { ended <- Run(ctx, read, time.Millisecond, strings.NewReader(""), tty) }()
	var seen []byte
	for part := make([]byte, 4096); !bytes.Contains(seen, []byte("rule-1")); {
		n, err := person.Read(part)
		if err != nil {
			t.Fatalf("%v, after %q", err, seen)
		}
		seen = append(seen, part[:n]...)
	}
	go func() { _, _ = io.Copy(io.Discard, person) }() // so that the end finds room
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// terminal is a pseudo-terminal: the end of a person, and that of a program.
func terminal(t *testing.T, width, height uint16) (person, tty *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { person.Close() })
	fd := int(person.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: height, Col: width})
	}
	if err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tty.Close() })
	return person, tty
}
