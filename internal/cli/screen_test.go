package cli

import (
	"fmt"
	"strings"
	"testing"
)

// onTerminal is an output of so many columns and rows, and what it was given.
func onTerminal(columns, rows int) (*Output, *strings.Builder) {
	var b strings.Builder
	return &Output{W: &b, Terminal: true,
		Size: func() (int, int) { return columns, rows }}, &b
}

// TestLinesBrokeAnywhere: a terminal breaks a long line in the middle of a word, and goes on below
// the first column.
func TestLinesBrokeAnywhere(t *testing.T) {
	text := strings.Join([]string{
		"eth0: edge.levee, xdp-native, for 4s",
		"  note     one two three four five six",
		"     40  41680  drop  edge.levee:7  drop udp from port 53 len > 468",
		"     40  41680  drop  edge.levee:7  a label  drop udp from port 53 len > 468 and more",
		"         $ ip link set dev eth0 mtu 1500 and more",
		"   test     packet ipv4 udp port 53 expect drop",
		"averylongwordwithoutanyblank-averylongwordwithoutanyblank",
		"änd nöw öther lettërs thän thöse öf ASCII", "", "end",
	}, "\n") + "\n"
	want := strings.Join([]string{
		"eth0: edge.levee, xdp-native, for 4s",
		"  note     one two three four five six",
		"     40  41680  drop  edge.levee:7",
		"        drop udp from port 53 len > 468",
		"     40  41680  drop  edge.levee:7",
		"        a label",
		"        drop udp from port 53 len > 468",
		"        and more",
		"         $ ip link set dev eth0 mtu 1500 and more",
		"   test     packet ipv4 udp port 53 expect drop",
		"averylongwordwithoutanyblank-averylongwordwithoutanyblank",
		"änd nöw öther lettërs thän thöse öf",
		"    ASCII", "", "end",
	}, "\n") + "\n"
	out, got := onTerminal(40, 24)
	s := out.Screen()
	for len(text) > 0 { // whatever the pieces are
		n := min(7, len(text))
		fmt.Fprint(s, text[:n])
		text = text[n:]
	}
	if err := s.Flush(); err != nil || got.String() != want {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
}

// TestALineFarFromTheMargin: an empty line stood in front of it.
func TestALineFarFromTheMargin(t *testing.T) {
	out, got := onTerminal(40, 24)
	s := out.Screen()
	fmt.Fprintf(s, "%27s%s\n", "", "what it costs, in words")
	if err := s.Flush(); err != nil || got.String() != "        what it costs, in words\n" {
		t.Errorf("%v: %q", err, got)
	}
}

// TestALongPictureOfATerminalWithoutSize: each piece of it emptied the terminal.
func TestALongPictureOfATerminalWithoutSize(t *testing.T) {
	out, got := onTerminal(0, 0)
	s := out.Picture()
	for range 10_000 {
		fmt.Fprintln(s, "a row of a table")
	}
	if err := s.Flush(); err != nil || strings.Count(got.String(), "\x1b[J") != 1 {
		t.Errorf("%v: emptied %d times", err, strings.Count(got.String(), "\x1b[J"))
	}
}

// TestPipesGetLinesAsTheyAre: who reads them is a program.
func TestPipesGetLinesAsTheyAre(t *testing.T) {
	var b strings.Builder
	long := strings.Repeat("word ", 100) + "\n"
	for _, s := range []*Screen{(&Output{W: &b}).Screen(), (&Output{W: &b}).Picture()} {
		b.Reset()
		fmt.Fprint(s, long)
		if err := s.Flush(); err != nil || b.String() != long {
			t.Errorf("%v: %q", err, b.String())
		}
	}
}

// TestAPictureWasHigherThanTheTerminal: its beginning had left the screen.
func TestAPictureWasHigherThanTheTerminal(t *testing.T) {
	out, got := onTerminal(40, 6)
	s := out.Picture()
	for k := range 10 {
		fmt.Fprintln(s, "row", k)
	}
	want := "\x1b[H\x1b[Jrow 0\nrow 1\nrow 2\nrow 3\n... and 6 lines more; levee top scrolls\n"
	if err := s.Flush(); err != nil || got.String() != want {
		t.Errorf("%v: %q, want %q", err, got, want)
	}
}
