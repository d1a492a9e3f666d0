package feed

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"levee/internal/lang/literal"
)

// maxLine is the length of the longest line of a plain list.
const maxLine = 64 << 10

// readLines reads the entries of lines. What follows them behind a blank does not count, but an
// address there is told: it may be one that was meant.
func readLines(in *reader, r io.Reader) error {
	s := bufio.NewScanner(literal.ListLines(r))
	s.Buffer(make([]byte, 0, 4096), maxLine)
	for n := 1; s.Scan(); n++ {
		if len(s.Bytes()) == 0 {
			continue
		}
		words := literal.ListWords(s.Text())
		if len(words) == 0 {
			continue
		}
		entries, rest := literal.ListEntries(words, isEntry)
		if len(entries) == 0 { // which is told
			entries, rest = rest[:1], rest[1:]
		}
		for _, text := range entries {
			if len(rest) > 0 && ofNobody(text) {
				in.bad++
				in.out.Bad++
				in.skip(fmt.Sprintf("line %d", n), text, "stands in front of a name, as in a "+
					"hosts file: a set of names takes those")
				continue
			}
			if err := in.entry(text, n, false); err != nil {
				return err
			}
		}
		for _, text := range rest {
			if isEntry(text) {
				in.out.Bad++
				in.skip(fmt.Sprintf("line %d", n), text, "stands behind words that are no "+
					"addresses: name its column")
			}
		}
	}
	if err := s.Err(); errors.Is(err, bufio.ErrTooLong) {
		return fmt.Errorf("a line is longer than %d bytes: this is no list of prefixes", maxLine)
	} else if err != nil {
		return err
	}
	return nil
}

// ofNobody tells of an entry whether no packet comes from there by a wire, and none goes there
// alone: the addresses that hosts files have in front of names that are to lead nowhere.
func ofNobody(text string) bool {
	a, err := netip.ParseAddr(text)
	a = a.Unmap()
	return err == nil && (a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() ||
		a == netip.AddrFrom4([4]byte{255, 255, 255, 255}))
}

func isEntry(text string) bool {
	_, ok := prefixes(text)
	return ok
}
