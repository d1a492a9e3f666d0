package feed

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"levee/internal/lang/literal"
	"levee/internal/lang/policy"
)

// NewTexts prepares a feed of at most most texts. fold turns a text into the form in which it is
// compared. A text is a line, or the field that the feed names; lines that begin with # are
// comments.
func NewTexts(of *policy.Feed, most int, agent string, fold func(string) string) *Fetcher {
	f := New(of, most, agent)
	f.fold = fold
	return f
}

// text takes one text.
func (in *reader) text(s string) error {
	if s = in.fold(strings.TrimSpace(s)); s == "" {
		return nil
	}
	if in.out.Texts == nil {
		in.out.Texts = map[string]bool{}
	}
	if in.out.Texts[s] = true; len(in.out.Texts) > in.most {
		return fmt.Errorf("%w: a condition takes at most %d", ErrTooMany, in.most)
	}
	return nil
}

// readTexts reads a text a line.
func readTexts(in *reader, r io.Reader) error {
	s := bufio.NewScanner(literal.ListLines(r))
	s.Buffer(make([]byte, 0, 4096), maxLine)
	for s.Scan() {
		line := s.Text()
		if strings.HasPrefix(line, "#") {
			continue
		}
		if err := in.text(line); err != nil {
			return err
		}
	}
	if err := s.Err(); errors.Is(err, bufio.ErrTooLong) {
		return fmt.Errorf("a line is longer than %d bytes: this is no list of texts", maxLine)
	} else if err != nil {
		return err
	}
	return nil
}
