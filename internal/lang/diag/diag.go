// Package diag is what there is to say about a source: errors and warnings with their places, and
// how they are shown to people and to programs.
//
// Every stage collects its diagnostics here, those of one file at once and in the order of the
// source. What is shown acts on no terminal. Nothing here knows what a policy means, or reads
// files.
package diag

import (
	"fmt"
	"sort"
	"strings"
	"unicode/utf8"
)

// Pos is a place in one line of the source. All three count from 1, columns in characters (Unicode
// code points); EndCol is the column after the last character. The zero Pos is "no place".
type Pos struct {
	Line   int32 `json:"line"`
	Col    int32 `json:"col"`
	EndCol int32 `json:"end_col"`
}

// To returns the place from the start of p to the end of q, or to the end of p's word where q is in
// another line.
func (p Pos) To(q Pos) Pos {
	if q.Line == p.Line && q.EndCol > p.EndCol {
		p.EndCol = q.EndCol
	}
	return p
}

// Severity says whether a policy with the diagnostic can be used.
type Severity uint8

const (
	Error Severity = iota
	Warning
)

func (s Severity) String() string {
	if s == Warning {
		return "warning"
	}
	return "error"
}

// MarshalText makes a severity "error" or "warning" in JSON.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Diagnostic is one thing to say about a source file.
type Diagnostic struct {
	File string `json:"file"`
	Pos         // zero where it concerns the file as a whole

	Severity Severity `json:"severity"`
	Message  string   `json:"message"`
	// what to do; a sentence, or a question with the word that was meant
	Hint string `json:"hint,omitempty"`

	// Source is the line without its end; of a long line only the surroundings of Col, after
	// SourceSkip characters that were left out.
	Source     string `json:"source,omitempty"`
	SourceSkip int    `json:"source_skip,omitempty"`
}

// MaxDiagnostics limits the errors, and the warnings, of one file that are reported; the rest is
// counted.
const MaxDiagnostics = 100

// Diagnostics are the diagnostics of one run, in the order of the source.
type Diagnostics []Diagnostic

// HasErrors tells whether there is an error among them.
func (ds Diagnostics) HasErrors() bool {
	for i := range ds {
		if ds[i].Severity == Error {
			return true
		}
	}
	return false
}

// Err is nil when there is no error, else an error that says the first one and how many there are.
func (ds Diagnostics) Err() error {
	var first *Diagnostic
	n := 0
	for i := range ds {
		if ds[i].Severity == Error {
			if n++; first == nil {
				first = &ds[i]
			}
		}
	}
	switch {
	case first == nil:
		return nil
	case n == 1:
		return fmt.Errorf("%s: %s", first.where(), first.Message)
	case n == 2:
		return fmt.Errorf("%s: %s (and 1 more error)", first.where(), first.Message)
	}
	return fmt.Errorf("%s: %s (and %d more errors)", first.where(), first.Message, n-1)
}

func (d *Diagnostic) where() string {
	if d.Line == 0 {
		return d.File
	}
	return fmt.Sprintf("%s:%d:%d", d.File, d.Line, d.Col)
}

// Collector gathers the diagnostics of one file, at most MaxDiagnostics of each severity. The
// zero value with a File is ready to use.
type Collector struct {
	File     string
	list     Diagnostics
	errors   int
	warnings int
}

// Errorf adds an error; hint may be empty.
func (c *Collector) Errorf(pos Pos, hint, format string, args ...any) {
	if c.errors++; c.errors <= MaxDiagnostics {
		c.add(pos, Error, hint, format, args)
	}
}

// Warnf adds a warning; hint may be empty.
func (c *Collector) Warnf(pos Pos, hint, format string, args ...any) {
	if c.warnings++; c.warnings <= MaxDiagnostics {
		c.add(pos, Warning, hint, format, args)
	}
}

// Full tells whether further errors will only be counted, so that what to say about them need not
// be worked out.
func (c *Collector) Full() bool { return c.errors >= MaxDiagnostics }

// Errors returns how many errors were added, also those that will only be counted.
func (c *Collector) Errors() int { return c.errors }

func (c *Collector) add(pos Pos, s Severity, hint, format string, args []any) {
	c.list = append(c.list, Diagnostic{File: c.File, Pos: pos, Severity: s,
		Message: fmt.Sprintf(format, args...), Hint: hint})
}

// Diagnostics sorts what was added by place and completes it with the lines of the source.
func (c *Collector) Diagnostics(src string) Diagnostics {
	ds := c.list
	sort.SliceStable(ds, func(i, j int) bool { return ds[i].before(ds[j].Pos) })
	fillSource(ds, src)
	for _, over := range []struct {
		n int
		s Severity
	}{{c.errors, Error}, {c.warnings, Warning}} {
		if n := over.n - MaxDiagnostics; n > 0 {
			ds = append(ds, Diagnostic{File: c.File, Severity: over.s,
				Message: fmt.Sprintf("and %d more %ss", n, over.s)})
		}
	}
	return ds
}

// Part takes the diagnostics of some lines out of c, those behind line from up to line end, as if
// the first of these were line 1 of another file.
func (c *Collector) Part(file string, from, end int32) *Collector {
	own, part := c.list[:0:0], &Collector{File: file}
	for _, d := range c.list {
		if d.Line <= from || d.Line > end {
			own = append(own, d)
			continue
		}
		d.File, d.Line = file, d.Line-from
		part.list = append(part.list, d)
	}
	c.list = own
	return part
}

// before orders by place; what concerns the whole file comes last.
func (d *Diagnostic) before(q Pos) bool {
	if (d.Line == 0) != (q.Line == 0) {
		return q.Line == 0
	}
	if d.Line != q.Line {
		return d.Line < q.Line
	}
	return d.Col < q.Col
}

// BOM may stand in front of a source.
const BOM = "\uFEFF"

// fillSource walks the source once; ds are sorted by line.
func fillSource(ds Diagnostics, src string) {
	src = strings.TrimPrefix(src, BOM)
	line := int32(1)
	for i := range ds {
		if ds[i].Line == 0 {
			return
		}
		for line < ds[i].Line {
			n := strings.IndexByte(src, '\n')
			if n < 0 {
				return
			}
			src, line = src[n+1:], line+1
		}
		text := src
		if n := strings.IndexByte(src, '\n'); n >= 0 {
			text = src[:n]
		}
		ds[i].Source, ds[i].SourceSkip = window(strings.TrimSuffix(text, "\r"), int(ds[i].Col))
	}
}

// Longest piece of a source line that a diagnostic carries, and how much of it stands before the
// marked column, in characters.
const (
	windowWidth  = 160
	windowBefore = 100
)

// window cuts a long line to the surroundings of column col. It is a copy, so that a diagnostic
// does not hold the source.
func window(line string, col int) (string, int) {
	if len(line) <= windowWidth {
		return strings.Clone(strings.ToValidUTF8(line, "\uFFFD")), 0
	}
	skip := 0
	for n := col - 1 - windowBefore; n > 0 && line != ""; n-- {
		_, w := utf8.DecodeRuneInString(line)
		line = line[w:]
		skip++
	}
	end := 0
	for n := 0; n < windowWidth && end < len(line); n++ {
		_, w := utf8.DecodeRuneInString(line[end:])
		end += w
	}
	return strings.Clone(strings.ToValidUTF8(line[:end], "\uFFFD")), skip
}

// Merge joins the diagnostics of two stages over one file, in the order of the source; those of
// other files, such as set files, and those without a place come last.
func Merge(a, b Diagnostics) Diagnostics {
	all := append(append(Diagnostics(nil), a...), b...)
	if len(all) == 0 {
		return nil
	}
	main := all[0].File
	sort.SliceStable(all, func(i, j int) bool {
		if x, y := all[i].File == main, all[j].File == main; x != y {
			return x
		} else if !x {
			return false
		}
		return all[i].before(all[j].Pos)
	})
	return all
}

// Clip shortens what a message repeats of the source.
func Clip(s string) string {
	const most = 60
	if n := 0; len(s) > most {
		for i := range s {
			if n++; n > most {
				return s[:i] + "..."
			}
		}
	}
	return s
}
