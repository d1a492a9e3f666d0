package importer

import (
	"bufio"

	"levee/internal/lang/importer/tool"
)

// Belongs is an error where the source is of another tool than the format. It looks at the first
// bytes, and leaves them to be read.
func (s *Source) Belongs(format string) error {
	const enough = 4096
	r := bufio.NewReaderSize(s.R, enough)
	s.R = r
	head, _ := r.Peek(enough) // an error comes again where the source is read
	if text := tool.Foreign(string(head), format); text != "" {
		return &Errors{Name: s.Title(), Lines: []LineError{{Line: 1, Text: text}}}
	}
	return nil
}

// Title is the name of the source in errors and remarks.
func (s *Source) Title() string {
	if name := Heading(s.Name); name != "" {
		return name
	}
	return "input"
}
