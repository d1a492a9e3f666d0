// Package feed fetches lists of addresses that others publish, and reads them.
//
// In goes a file or a URL and a format, out come its prefixes, sorted, each once, and what was
// skipped and why. A list is hostile: its size, its time, its redirects and what it unpacks to are
// bounded, and a list that cannot be read whole is an error, never a shorter list. It decides
// nothing about what becomes of a list, and keeps nothing.
package feed

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"levee/internal/lang/policy"
)

// List is what a feed has said.
type List struct {
	Prefixes []netip.Prefix  // sorted, each once
	Bad      int             // entries that are no address, prefix or range
	Short    int             // prefixes that are shorter than the bound
	Skipped  []string        // the first of both, with their places
	Texts    map[string]bool // in place of all these, of a list of texts
}

// maxSkipped is how many entries List.Skipped names.
const maxSkipped = 5

// maxBadPart is which part of the entries may be unreadable: more, and it is another format.
const maxBadPart = 10

// maxLine is how long a line of a plain list may be.
const maxLine = 64 << 10

// ErrTooMany is wrapped where a list has more entries than it may.
var ErrTooMany = errors.New("too many entries")

type reader struct {
	of   *policy.Feed
	most int
	out  List
	fold func(string) string // of a list of texts
	bad  int                 // not counting a heading
}

// Read reads a list of at most so many entries.
func Read(r io.Reader, of *policy.Feed, most int) (*List, error) {
	return (&reader{of: of, most: most}).read(r)
}

func (in *reader) read(r io.Reader) (*List, error) {
	of, err := in.of, error(nil)
	switch {
	case of.Field != "":
		err = in.json(r)
	case of.Column > 0:
		err = in.csv(r)
	case in.fold != nil:
		err = in.texts(r)
	default:
		err = in.lines(r)
	}
	if err != nil {
		return nil, err
	}
	l := &in.out
	if in.bad*maxBadPart > in.bad+len(l.Prefixes)+l.Short {
		return nil, fmt.Errorf("%d of %d entries are no address or prefix, the first %s: is this "+
			"the format that the source names?", in.bad, in.bad+len(l.Prefixes)+l.Short, l.first())
	}
	slices.SortFunc(l.Prefixes, netip.Prefix.Compare)
	l.Prefixes = slices.Compact(l.Prefixes)
	return l, nil
}

func (l *List) first() string {
	if len(l.Skipped) == 0 {
		return "unknown"
	}
	return l.Skipped[0]
}

// skip notes an entry that does not count.
func (in *reader) skip(place, text, why string) {
	if len(in.out.Skipped) < maxSkipped {
		if len(text) > 60 {
			text = text[:60] + "..."
		}
		in.out.Skipped = append(in.out.Skipped, fmt.Sprintf("%s: %q %s", place, text, why))
	}
}

// add reads one entry, and says whether it is one.
func (in *reader) add(text string, place func() string) (bool, error) {
	if in.fold != nil {
		return true, in.text(text)
	}
	all, ok := prefixes(text)
	if !ok {
		return false, nil
	}
	for _, p := range all {
		bound := in.of.Shortest4
		if p.Addr().Is6() {
			bound = in.of.Shortest6
		}
		if p.Bits() < bound {
			in.out.Short++
			in.skip(place(), text, fmt.Sprintf("is shorter than /%d", bound))
			continue
		}
		if len(in.out.Prefixes) >= in.most {
			return true, fmt.Errorf("%w: the set takes at most %d; raise its max", ErrTooMany,
				in.most)
		}
		in.out.Prefixes = append(in.out.Prefixes, p)
	}
	return true, nil
}

// prefixes are those of one entry: an address, a prefix or a range of addresses.
func prefixes(text string) ([]netip.Prefix, bool) {
	if strings.Contains(text, "/") {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, false
		}
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		return []netip.Prefix{p.Masked()}, true
	}
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		a = a.Unmap()
		return []netip.Prefix{netip.PrefixFrom(a, a.BitLen())}, true
	}
	if !strings.Contains(text, "-") {
		return nil, false
	}
	all, err := policy.ParsePrefixes(text)
	return all, err == nil && len(all) > 0
}

func isEntry(text string) bool {
	_, ok := prefixes(text)
	return ok
}

// entry is add for formats with lines.
func (in *reader) entry(text string, line int, heading bool) error {
	place := func() string { return fmt.Sprintf("line %d", line) }
	ok, err := in.add(text, place)
	if !ok && !heading {
		in.bad++
		in.out.Bad++
		in.skip(place(), text, "is no address or prefix")
	}
	return err
}

// lines reads the entries of lines. What follows them behind a blank does not count, but an address
// there is told: it may be one that was meant.
func (in *reader) lines(r io.Reader) error {
	s := bufio.NewScanner(policy.ListLines(r))
	s.Buffer(make([]byte, 0, 4096), maxLine)
	for n := 1; s.Scan(); n++ {
		if len(s.Bytes()) == 0 {
			continue
		}
		line := s.Text()
		if n == 1 {
			line = strings.TrimPrefix(line, "\ufeff")
		}
		words := policy.ListWords(line)
		if len(words) == 0 {
			continue
		}
		entries, rest := policy.ListEntries(words, isEntry)
		if len(entries) == 0 { // which is told
			entries, rest = rest[:1], rest[1:]
		}
		for _, text := range entries {
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

// csv reads one column; the first row may be a heading.
func (in *reader) csv(r io.Reader) error {
	c := csv.NewReader(r)
	c.Comment, c.FieldsPerRecord, c.LazyQuotes = '#', -1, true
	c.ReuseRecord, c.TrimLeadingSpace = true, true
	for first := true; ; first = false {
		row, err := c.Read()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		line, _ := c.FieldPos(0)
		if len(row) < in.of.Column {
			if !first {
				in.bad++
				in.out.Bad++
				in.skip(fmt.Sprintf("line %d", line), strings.Join(row, ","), "has no such column")
			}
			continue
		}
		if err := in.entry(strings.TrimSpace(row[in.of.Column-1]), line, first); err != nil {
			return err
		}
	}
}

// json reads each value of one name, at any depth, in any number of JSON texts: a text, or texts in
// a list.
func (in *reader) json(r io.Reader) error {
	const maxDepth = 64
	type level struct {
		object, value bool // value: a value comes, no name
		name          string
	}
	d := json.NewDecoder(r)
	d.UseNumber()
	var at []level
	top := func() *level { return &at[len(at)-1] }
	done := func() { // a value has ended
		if len(at) > 0 && top().object {
			top().value = false
		}
	}
	for {
		token, err := d.Token()
		if err == io.EOF && len(at) == 0 {
			return nil
		}
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return fmt.Errorf("read the JSON at byte %d: %w", d.InputOffset(), err)
		}
		switch t := token.(type) {
		case json.Delim:
			switch t {
			case '{', '[':
				next := level{object: t == '{'}
				if t == '[' && len(at) > 0 {
					next.name = top().name
				}
				if at = append(at, next); len(at) > maxDepth {
					return fmt.Errorf("the JSON is more than %d levels deep", maxDepth)
				}
			default:
				at = at[:len(at)-1]
				done()
			}
			continue
		case string:
			if len(at) > 0 && top().object && !top().value {
				top().name, top().value = t, true
				continue
			}
			if len(at) > 0 && top().name == in.of.Field {
				place := func() string { return fmt.Sprintf("byte %d", d.InputOffset()) }
				ok, err := in.add(t, place)
				if err != nil {
					return err
				}
				if !ok {
					in.bad++
					in.out.Bad++
					in.skip(place(), t, "is no address or prefix")
				}
			}
		}
		done()
	}
}
