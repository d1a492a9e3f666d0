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
	rows := &pieces{r: r}
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
		if err := in.entry(text, line, first); err != nil {
			return err
		}
	}
}
