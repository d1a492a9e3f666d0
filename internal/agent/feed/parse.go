// Package feed fetches lists of addresses that others publish, and reads them.
//
// In goes a file or a URL and a format, out come its prefixes, sorted, each once, and what was
// skipped and why. A list is hostile: its size, its time, its redirects and what it unpacks to are
// bounded, and a list that cannot be read whole is an error, never a shorter list. It decides
// nothing about what becomes of a list, and keeps nothing.
package feed

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/netip"
	"slices"
	"strings"

	"levee/internal/agent/ledger"
	"levee/internal/lang/listform"
	"levee/internal/lang/literal"
	"levee/internal/lang/policy"
)

// List holds the entries of a feed.
type List struct {
	Prefixes []netip.Prefix  // sorted, each once
	Names    []string        // of a list of names, as sets list them: sorted, each once
	Bad      int             // entries that are no address, prefix or range
	Short    int             // prefixes that are shorter than the bound
	Skipped  []string        // the first of both, with their places
	Texts    map[string]bool // in place of all these, of a list of texts
}

// maxSkipped is the number of entries that List.Skipped names.
const maxSkipped = 5

// maxBadPart is the part of the entries that may be unreadable: more, and it is another format.
const maxBadPart = 10

// ErrTooMany is wrapped where a list has more entries than it may.
var ErrTooMany = errors.New("too many entries")

// Len returns how many entries the list has.
func (l *List) Len() int { return len(l.Prefixes) + len(l.Names) }

// Entries returns the entries of the list, in order.
func (l *List) Entries() iter.Seq[ledger.Entry] {
	return func(yield func(ledger.Entry) bool) {
		for _, p := range l.Prefixes {
			if !yield(ledger.Of(p)) {
				return
			}
		}
		for _, n := range l.Names {
			if !yield(ledger.Entry{Name: n}) {
				return
			}
		}
	}
}

// Has tells whether the list has an entry.
func (l *List) Has(e ledger.Entry) (has bool) {
	if e.Name != "" {
		_, has = slices.BinarySearch(l.Names, e.Name)
	} else {
		_, has = slices.BinarySearchFunc(l.Prefixes, e.Prefix, netip.Prefix.Compare)
	}
	return has
}

type reader struct {
	of   *policy.Feed
	most int
	out  List
	fold func(string) string // of a list of texts
	bad  int                 // not counting a heading
}

// format reads the lists whose policy has a form.
type format struct {
	form listform.Form
	read func(*reader, io.Reader) error
}

// formats are those that there are: a file and a line each, and lines.
var formats = []*format{
	&jsonValues,
	&csvColumn,
}

// reads returns who reads the list.
func (in *reader) reads() func(*reader, io.Reader) error {
	at := slices.IndexFunc(formats, func(f *format) bool { return f.form == in.of.Form })
	switch {
	case at >= 0:
		return formats[at].read
	case in.fold != nil:
		return readTexts
	case in.of.Names:
		return readNames
	}
	return readLines
}

func (in *reader) read(r io.Reader) (*List, error) {
	b := bufio.NewReader(r)
	if err := begins(b); err != nil {
		return nil, err
	}
	if err := in.reads()(in, b); err != nil {
		return nil, err
	}
	l := &in.out
	if all := in.bad + l.Len() + l.Short; in.bad*maxBadPart > all {
		return nil, fmt.Errorf("%d of %d entries are no %s, the first %s: is this the format that "+
			"the source names?", in.bad, all, in.what(), l.first())
	}
	var err, err2 error
	l.Prefixes, err = once(l.Prefixes, in.most, netip.Prefix.Compare)
	l.Names, err2 = once(l.Names, in.most, strings.Compare)
	if err = errors.Join(err, err2); err != nil {
		return nil, err
	}
	return l, nil
}

// another adds an entry. An entry that is named more than once is one: where there are twice as
// many as there may be, they are counted so.
func another[T comparable](list []T, e T, most int, compare func(a, b T) int) ([]T, error) {
	if len(list) < 2*most {
		return append(list, e), nil
	}
	list, err := once(list, most, compare)
	return append(list, e), err
}

// once returns a list sorted, each entry once. More than most are an error.
func once[T comparable](list []T, most int, compare func(a, b T) int) ([]T, error) {
	slices.SortFunc(list, compare)
	if list = slices.Compact(list); len(list) > most {
		return nil, fmt.Errorf("%w: the set takes at most %d; raise its max", ErrTooMany, most)
	}
	return list, nil
}

// begins looks at the beginning, and takes a byte order mark away. Servers that ask for a password
// first, or are out of order, give pages with the status of a success.
func begins(r *bufio.Reader) error {
	b, _ := r.Peek(256) // the rest has the error, too
	if err := literal.NoText(b); err != nil {
		return err
	}
	if bytes.HasPrefix(b, []byte(literal.Mark)) {
		b = b[len(literal.Mark):]
		if _, err := r.Discard(len(literal.Mark)); err != nil {
			return err
		}
	}
	text := strings.ToLower(strings.TrimSpace(string(b)))
	for _, tag := range []string{"<!doctype", "<html", "<?xml", "<!--", "<head", "<body"} {
		if strings.HasPrefix(text, tag) {
			return errors.New("this is a page (HTML), no list")
		}
	}
	return nil
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
	switch {
	case in.fold != nil:
		return true, in.text(text)
	case in.of.Names:
		return in.name(text)
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
		var err error
		in.out.Prefixes, err = another(in.out.Prefixes, p, in.most, netip.Prefix.Compare)
		if err != nil {
			return true, err
		}
	}
	return true, nil
}

// what names what entries are.
func (in *reader) what() string {
	if in.of.Names {
		return "name"
	}
	return "address or prefix"
}

// prefixes returns the prefixes of one entry: an address, a prefix or a range of addresses.
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
	all, err := literal.ParsePrefixes(text)
	return all, err == nil && len(all) > 0
}

// entry is add for formats with lines.
func (in *reader) entry(text string, line int, heading bool) error {
	place := func() string { return fmt.Sprintf("line %d", line) }
	ok, err := in.add(text, place)
	if !ok && !heading {
		in.bad++
		in.out.Bad++
		in.skip(place(), text, "is no "+in.what())
	}
	return err
}
