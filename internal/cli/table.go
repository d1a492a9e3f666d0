package cli

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"levee/internal/quantity"
)

// table prints columns that line up, two blanks apart.
type table struct {
	align []string // "<" or ">" a column
	rows  [][]string
}

// NewTable makes a table. header is the names of the columns, separated by blanks, or "" for none.
func NewTable(header string, align ...string) *table {
	t := &table{align: align}
	if header != "" {
		t.rows = append(t.rows, strings.Fields(header))
	}
	return t
}

// Row adds a line; values are printed as fmt.Sprint does.
func (t *table) Row(cells ...any) {
	r := make([]string, len(cells))
	for i, c := range cells {
		r[i] = fmt.Sprint(c)
	}
	t.rows = append(t.rows, r)
}

// Print writes the table, each line behind indent.
func (t *table) Print(w io.Writer, indent string) {
	width := make([]int, len(t.align))
	for _, r := range t.rows {
		for i, c := range r {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	for _, r := range t.rows {
		var b strings.Builder
		b.WriteString(indent)
		for i, c := range r {
			if i > 0 {
				b.WriteString("  ")
			}
			fill := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c))
			if t.align[i] == ">" {
				b.WriteString(fill + c)
			} else {
				b.WriteString(c + fill)
			}
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
}

// Plural is "1 rule", "12 rules".
func Plural[N int | int64 | uint64](n N, noun string) string { return quantity.Plural(n, noun) }

// Abridged lists the first few of many words.
func Abridged[T ~string](words []T) string {
	const shown = 10
	var out strings.Builder
	for i, w := range words[:min(shown, len(words))] {
		if i > 0 {
			out.WriteString(", ")
		}
		out.WriteString(string(w))
	}
	if len(words) > shown {
		fmt.Fprintf(&out, " and %d more", len(words)-shown)
	}
	return out.String()
}

// Wrap breaks a text at blanks into lines of at most so many characters, if its words are shorter.
func Wrap(text string, width int) (lines []string) {
	var line string
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width:
			lines = append(lines, line)
			line = word
		default:
			line += " " + word
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}
