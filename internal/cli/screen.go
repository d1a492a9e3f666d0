package cli

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// Screen is a writer for lines that people read. On a terminal it breaks lines at blanks where they
// are longer than the terminal is wide; elsewhere they stay as they are. The caller flushes it.
type Screen struct {
	to            *Output
	columns, rows int    // 0: any number
	begin         string // moves the cursor
	text          bytes.Buffer
}

// Screen returns one for the terminal as it is now.
func (o *Output) Screen() *Screen {
	s := &Screen{to: o}
	if o.Terminal && o.Size != nil {
		s.columns, _ = o.Size()
	}
	return s
}

// Picture returns a screen that begins in the corner of the terminal, and is no higher than that.
func (o *Output) Picture() *Screen {
	s := o.Screen()
	if o.Terminal {
		s.begin = "\x1b[H\x1b[J" // to the corner, and empty from there
		if o.Size != nil {
			_, s.rows = o.Size()
		}
	}
	return s
}

// Room returns how many of at most so many characters fit behind an indent.
func (s *Screen) Room(indent, most int) int {
	if s.columns == 0 {
		return most
	}
	return max(20, min(most, s.columns-indent))
}

// Write takes text. What is not of a picture is written from time to time, in whole lines.
func (s *Screen) Write(p []byte) (int, error) {
	const most = 1 << 16 // bytes that wait
	s.text.Write(p)
	if s.rows == 0 && s.text.Len() > most {
		return len(p), s.write(s.text.Next(bytes.LastIndexByte(s.text.Bytes(), '\n') + 1))
	}
	return len(p), nil
}

// Flush writes what is left.
func (s *Screen) Flush() error { return s.write(s.text.Next(s.text.Len())) }

func (s *Screen) write(text []byte) error {
	if s.columns > 0 {
		text = s.fold(string(text))
	}
	_, err := io.WriteString(s.to.Raw(), s.begin)
	if s.begin = ""; err != nil {
		return err
	}
	_, err = s.to.Write(text)
	return err
}

// fold brings a text to the size of the terminal.
func (s *Screen) fold(text string) []byte {
	var out strings.Builder
	for line := range strings.Lines(text) {
		body, ended := strings.CutSuffix(line, "\n")
		out.WriteString(strings.Join(fold(body, s.columns), "\n"))
		if ended {
			out.WriteByte('\n')
		}
	}
	lines := slices.Collect(strings.Lines(out.String()))
	if more := len(lines) - (s.rows - 1); s.rows > 1 && more > 0 {
		lines = append(lines[:s.rows-2], fmt.Sprintf("... and %s more; levee top scrolls\n",
			Plural(more+1, "line")))
	}
	return []byte(strings.Join(lines, ""))
}

// fold breaks a line that is longer than a terminal is wide. What follows stands below the last
// column of the line. Where that has less than half of the terminal, all of it stands on lines of
// its own. A line that begins with "$" is a command, one with "test" a step of a test: these are to
// be copied, and stay whole.
func fold(line string, columns int) (out []string) {
	text := strings.TrimLeft(line, " ")
	lead := len(line) - len(text)
	hang := min(lead, 4) + 4
	switch at := strings.LastIndex(line, "  ") + 2; {
	case utf8.RuneCountInString(line) <= columns, strings.HasPrefix(text, "$ "),
		strings.HasPrefix(text, "test "):
		return []string{line}
	case at < 2:
	case utf8.RuneCountInString(line[:at]) <= columns/2:
		hang = utf8.RuneCountInString(line[:at])
	default:
		if before := strings.TrimRight(line[:at], " "); before != "" {
			out = fold(before, columns)
		}
		line = strings.Repeat(" ", hang) + line[at:]
	}
	for utf8.RuneCountInString(line) > columns {
		at := blankBefore(line, columns)
		if at < 0 {
			break
		}
		out = append(out, strings.TrimRight(line[:at], " "))
		line = strings.Repeat(" ", hang) + strings.TrimLeft(line[at:], " ")
	}
	return append(out, line)
}

// blankBefore returns where the last blank behind a word is that has at most so many characters
// before it, or the first one there is; -1 if the line has one word.
func blankBefore(line string, columns int) int {
	last, at := -1, 0
	for i, c := range line {
		if c == ' ' && i > 0 && line[i-1] != ' ' {
			if at > columns && last >= 0 {
				break
			}
			last = i
		}
		at++
	}
	return last
}
