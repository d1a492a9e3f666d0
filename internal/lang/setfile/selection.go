package setfile

import (
	"io"
	"strconv"
	"strings"

	"levee/internal/lang/literal"
	"levee/internal/lang/mmdb"
)

// Selection is a part of an MMDB file. It is read as a set file under a name of its own, so that a
// recording has the networks and not the file.
type Selection struct {
	Path string
	mmdb.Query
}

const selectionPrefix = "mmdb "

// String returns the name under which a selection is read.
func (s *Selection) String() string {
	return selectionPrefix + s.Query.String() + " " + strconv.Quote(s.Path)
}

// parseSelection reads what String has made.
func parseSelection(name string) (s Selection, ok bool) {
	rest, ok := strings.CutPrefix(name, selectionPrefix)
	if !ok {
		return s, false
	}
	words := strings.SplitN(rest, " ", 3)
	if len(words) != 3 {
		return s, false
	}
	path, err := strconv.Unquote(words[2])
	if err != nil {
		return s, false
	}
	s.Path, s.Country, s.Values = path, words[0] == "country", strings.Split(words[1], ",")
	return s, true
}

// open reads the networks of a selection.
func (s *Selection) open() (io.ReadCloser, error) {
	f, err := openSet(s.Path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := mmdb.Networks(f, s.Query, literal.MaxElements)
	if err != nil {
		return nil, err
	}
	return io.NopCloser(strings.NewReader(text)), nil
}
