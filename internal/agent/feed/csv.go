package feed

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"

	"levee/internal/lang/listform"
	"levee/internal/lang/literal"
)

var csvColumn = format{form: listform.Column, read: readColumn}

// readColumn reads one column; the first row may be a heading.
func readColumn(in *reader, r io.Reader) error {
	column, err := strconv.Atoi(in.of.Value)
	if err != nil {
		return fmt.Errorf("read the number of a column: %w", err)
	}
	rows := &pieces{r: literal.ListLines(r)}
	c := csv.NewReader(rows)
	c.Comment, c.FieldsPerRecord, c.LazyQuotes = '#', -1, true
	c.ReuseRecord, c.TrimLeadingSpace = true, true
	for first := true; ; first = false {
		row, err := c.Read()
		rows.next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		line, _ := c.FieldPos(0)
		in.within(row, column, line)
		if len(row) < column {
			if !first {
				in.bad++
				in.out.Bad++
				in.skip(fmt.Sprintf("line %d", line), strings.Join(row, ","), "has no such column")
			}
			continue
		}
		text := strings.TrimSpace(row[column-1])
		if column < len(row) { // a table of ranges has their ends beside each other
			if entry, ok := literal.RangeOf(text, strings.TrimSpace(row[column])); ok {
				text = entry
			}
		}
		if err := in.entry(text, line, first && !isNumber(text)); err != nil {
			return err
		}
	}
}

// isNumber tells of a text of the first row that it is no heading, but begins as an address does.
func isNumber(text string) bool {
	return text != "" && text[0] >= '0' && text[0] <= '9' && strings.ContainsAny(text, ".:")
}

// within tells of what looks like rows within quotes: a quote that stands alone takes all up to the
// next one into a field.
func (in *reader) within(row []string, column, line int) {
	for _, field := range row {
		lines := strings.Split(field, "\n")
		for i, text := range lines[1:] {
			cells := strings.Split(text, ",")
			if len(cells) < column {
				continue
			}
			cell := strings.Trim(cells[column-1], " \t\"")
			if isEntry(cell) || (in.of.Names || in.fold != nil) && cell != "" &&
				!strings.ContainsAny(cell, " \t") {
				in.bad++
				in.out.Bad++
				in.skip(fmt.Sprintf("line %d", line+i+1), text, "stands within quotes that begin "+
					"in a line before it")
			}
		}
	}
}
