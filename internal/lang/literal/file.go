package literal

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"levee/internal/lang/diag"
	"levee/internal/lang/policy"
	"levee/internal/lang/syntax"
	"levee/internal/quantity"
)

// Bounds on set files.
const (
	// MaxElements limits the prefixes, ports, services and endpoints that all sets and lists of a
	// policy have together, as they are written; ranges of addresses count as the prefixes that
	// they become once those that overlap are joined, where these are more.
	MaxElements = 1 << 23

	maxSetLine    = 4096 // bytes of a line of a set file
	maxLineErrors = 20   // bad lines of a set file that are reported one by one

	// What has more is no set file, or has no end.
	maxBadLines = 1 << 20
	maxSetFile  = 1 << 30 // bytes

	pieceSize = 1 << 15 // prefixes that lie in a row while entries are read
	maxRange  = 2 * 127 // prefixes of a line: a range of IPv6 addresses
)

// ReadPrefixes reads a set file of addresses: one address, prefix or range a line; `#` and `;`
// start comments, empty lines are skipped. The prefixes come in the order of the file, ranges as
// the fewest prefixes that cover them; nothing is merged. The first bad lines are reported with
// their places in a file called name, the others are counted; then no prefixes are returned. It
// reads as a stream, and at most MaxElements prefixes.
func ReadPrefixes(r io.Reader, name string) ([]netip.Prefix, diag.Diagnostics) {
	f := newSetFile(r, name)
	f.typed, f.typ, f.out.apart = true, policy.Addresses, true
	ds := f.read()
	return f.out.Prefixes, ds
}

// ReadElements reads entries of dynamic sets, like ReadPrefixes: addresses, services, endpoints, or
// names in quotes, whichever the first entry is. Ranges of ports become blocks (see
// Element.Blocks), of which there may be MaxElements in all.
func ReadElements(r io.Reader, name string) ([]policy.Element, diag.Diagnostics) {
	return readEntries(newSetFile(r, name), func(e policy.Element,
		_ time.Duration) policy.Element {
		return e
	})
}

// Forever is the lease of an entry that stays until it is deleted.
const Forever time.Duration = -1

// ReadEntries is ReadElements into what of makes of each element: of a million there is one copy,
// and no more. Behind an entry its lease may stand, such as `lease 10m` or `lease forever`; of is
// given 0 for an entry without. Where t is that of names, all entries are: they need no quotes.
func ReadEntries[T any](r io.Reader, name string, t policy.SetType,
	of func(policy.Element, time.Duration) T) ([]T, diag.Diagnostics) {
	f := newSetFile(r, name)
	f.leased = true
	f.typed, f.typ = t == policy.Names, t
	return readEntries(f, of)
}

func readEntries[T any](f *setFile, of func(policy.Element, time.Duration) T) ([]T,
	diag.Diagnostics) {
	f.entries, f.out.apart = true, true
	ds := f.read()
	all := make([]T, 0, f.size())
	f.pieces = append(f.pieces, f.out.Prefixes)
	n := 0
	lease := func() (d time.Duration) { // of the next element
		if n < len(f.leases) {
			d = f.leases[n]
		}
		n++
		return d
	}
	for i, piece := range f.pieces {
		for _, p := range piece {
			all = append(all, of(policy.Element{Prefix: p}, lease()))
		}
		f.pieces[i] = nil // its memory is free for what comes
	}
	for _, n := range f.out.Names {
		all = append(all, of(policy.Element{Name: n.String()}, lease()))
	}
	for _, s := range f.out.Services {
		f.out.Endpoints = append(f.out.Endpoints, policy.Element{Service: s})
	}
	for _, e := range f.out.Endpoints {
		d := lease()
		for _, b := range e.Blocks() {
			all = append(all, of(b, d))
		}
		if len(all) > MaxElements {
			return nil, f.tooMany()
		}
	}
	return all, ds
}

// ParseElements reads one entry as a file of ReadElements has it; a range may become several
// elements.
func ParseElements(text string) ([]policy.Element, error) {
	all, ds := ReadElements(strings.NewReader(text), "")
	switch {
	case len(ds) > 0 && ds[0].Hint != "":
		return nil, fmt.Errorf("%s; %s", ds[0].Message, strings.TrimSuffix(ds[0].Hint, "."))
	case len(ds) > 0:
		return nil, errors.New(ds[0].Message)
	case len(all) == 0:
		return nil, errors.New("there is no entry in it")
	}
	return all, nil
}

// ParseElementsOf is ParseElements of a type: a name needs no quotes then.
func ParseElementsOf(t policy.SetType, text string) ([]policy.Element, error) {
	if t != policy.Names {
		return ParseElements(text)
	}
	e, p := Entry(t, text)
	if p.Found() {
		return nil, fmt.Errorf("%s; %s", p.Message, strings.TrimSuffix(p.Hint, "."))
	}
	return []policy.Element{e}, nil
}

// ParsePrefixes reads one address, prefix or range as a set file has it; a range may become several
// prefixes.
func ParsePrefixes(text string) ([]netip.Prefix, error) {
	elements, err := ParseElements(text)
	if err != nil {
		return nil, err
	}
	all := make([]netip.Prefix, len(elements))
	for i, e := range elements {
		if err := e.Check(policy.Addresses); err != nil {
			return nil, err
		}
		all[i] = e.Prefix
	}
	return all, nil
}

// tooMany says that the ranges of ports make more entries than there may be.
func (f *setFile) tooMany() diag.Diagnostics {
	f.say(diag.Pos{},
		diag.Problemf("an entry is a block of ports, as a prefix is one of addresses: "+
			"1024-2047 is one, 1000-2047 is three",
			"the ranges of ports make more than %d entries", MaxElements))
	return f.diags
}

// ReadLines gives take the words of each line that has some. What take returns is reported; last
// ends the reading.
func ReadLines(r io.Reader, name string,
	take func(words []string) (p diag.Problem, last bool)) diag.Diagnostics {
	f := newSetFile(r, name)
	f.each = func() {
		text, col := f.content()
		if len(text) == 0 {
			return
		}
		switch p, last := take(strings.Fields(string(text))); {
		case last:
			f.bad = maxBadLines
			f.report(f.pos(col, col+1), p)
		case p.Found():
			f.report(f.pos(col, col+utf8.RuneCount(text)), p)
		}
	}
	return f.read()
}

// ReadSet reads the elements of a static set, of the type want, or of that of the first one.
func ReadSet(r io.Reader, name string, want *policy.SetType) (Elements, policy.SetType,
	diag.Diagnostics) {
	f := newSetFile(r, name)
	if want != nil {
		f.typed, f.typ = true, *want
	}
	ds := f.read()
	return f.out, f.typ, ds
}

// ReadElementsOf is ReadElements of a type.
func ReadElementsOf(r io.Reader, name string, t policy.SetType) ([]policy.Element,
	diag.Diagnostics) {
	f := newSetFile(r, name)
	f.typed, f.typ = true, t
	return readEntries(f, func(e policy.Element, _ time.Duration) policy.Element { return e })
}

func newSetFile(r io.Reader, name string) *setFile {
	return &setFile{r: bufio.NewReaderSize(ListLines(r), bufferSize(r)), name: name}
}

// bufferSize returns how many bytes of r are read at once: all and one more of a short text, which
// most lists in memory are.
func bufferSize(r io.Reader) int {
	const most = 64 << 10
	if text, ok := r.(interface{ Len() int }); ok {
		return min(text.Len()+1, most)
	}
	return most
}

// read takes all lines; with an error there are no elements.
func (f *setFile) read() diag.Diagnostics {
	each := f.each
	if each == nil {
		each = f.parse
	}
	for f.next() {
		each()
		if f.entries && len(f.out.Prefixes) >= pieceSize {
			f.pieces = append(f.pieces, f.out.Prefixes)
			f.before += len(f.out.Prefixes)
			f.out.Prefixes = make([]netip.Prefix, 0, pieceSize+maxRange)
		}
		if f.size() > MaxElements {
			f.report(f.pos(1, 2), diag.Problemf("", "more than %d %s", MaxElements, f.typ.String()))
			break
		}
		if f.bad >= maxBadLines || f.bytes > maxSetFile {
			f.bad = max(f.bad, 1)
			f.say(diag.Pos{}, diag.Problemf("is this the right file?",
				"it was read up to line %d: a set file has at most %d bad lines and %d MiB",
				f.line, maxBadLines, maxSetFile>>20))
			break
		}
	}
	if f.bad > maxLineErrors {
		n := f.bad - maxLineErrors
		f.say(diag.Pos{}, diag.Problemf("", "and %s", quantity.Plural(n, "more bad line")))
	}
	if f.bad > 0 {
		f.out, f.pieces, f.before = Elements{}, nil, 0
		return f.diags
	}
	return nil
}

// size returns the number of elements that were read.
func (f *setFile) size() int { return f.before + f.out.Size() }

// setFile is a set file that is being read.
type setFile struct {
	r       *bufio.Reader
	name    string
	line    int
	bytes   int    // of all lines
	text    []byte // of the line, valid until the next one
	entries bool   // of a dynamic set, which has no ports alone
	leased  bool   // behind an entry its lease may stand
	typed   bool   // typ is known
	typ     policy.SetType
	first   string // the entry that gave the type, with its line
	out     Elements
	// that stand before those of out, where entries are read: they need not lie in a row
	pieces [][]netip.Prefix
	before int             // how many those are
	each   func()          // takes what stands in a line; nil: parse
	leases []time.Duration // by element, up to the last that has one
	bad    int
	diags  diag.Diagnostics
}

// pos is a place in the current line. A stream may have more lines than can be told apart.
func (f *setFile) pos(col, end int) diag.Pos {
	return diag.Pos{Line: int32(min(f.line, math.MaxInt32)), Col: int32(col), EndCol: int32(end)}
}

func (f *setFile) say(pos diag.Pos, p diag.Problem) {
	d := diag.Diagnostic{File: f.name, Pos: pos, Message: p.Message, Hint: p.Hint}
	if pos.Line > 0 {
		d.Source = string(bytes.ToValidUTF8(f.text[:min(len(f.text), 160)], []byte("\uFFFD")))
	}
	f.diags = append(f.diags, d)
}

// report counts a bad line and says what is wrong with the first ones.
func (f *setFile) report(pos diag.Pos, p diag.Problem) {
	if f.bad++; f.bad <= maxLineErrors {
		f.say(pos, p)
	}
}

// next reads a line. It returns false at the end, or when the file cannot be read.
func (f *setFile) next() bool {
	text, err := f.r.ReadSlice('\n')
	f.line++
	f.bytes += len(text)
	f.text = text
	if len(text) > maxSetLine || errors.Is(err, bufio.ErrBufferFull) {
		f.report(f.pos(1, 2), diag.Problemf("one address, prefix or range a line.",
			"this line is longer than %d bytes", maxSetLine))
		for errors.Is(err, bufio.ErrBufferFull) && f.bytes <= maxSetFile {
			text, err = f.r.ReadSlice('\n')
			f.bytes += len(text)
		}
		f.text = nil
		return err == nil || errors.Is(err, bufio.ErrBufferFull) // of more than read takes
	}
	if err != nil && err != io.EOF {
		f.bad++
		f.say(diag.Pos{}, diag.Problemf("", "cannot be read: %v", err))
		return false
	}
	if f.line == 1 {
		f.text = bytes.TrimPrefix(f.text, []byte("\uFEFF"))
	}
	return len(text) > 0
}

// parse takes what stands in the current line.
func (f *setFile) parse() {
	if f.typed && f.typ == policy.Addresses {
		if p, ok := PlainIPv4(f.text); ok {
			if n := len(f.out.Prefixes); n == cap(f.out.Prefixes) {
				// append alone grows long lists by a quarter
				f.out.Prefixes = slices.Grow(f.out.Prefixes, max(n, 4096))
			}
			f.out.Prefixes = append(f.out.Prefixes, p)
			return
		}
	}
	word, col := f.content()
	if len(word) == 0 {
		return
	}
	entry, end := oneEntry(word)
	lease, p, ok := f.lease(word[end:])
	if ok && p.Found() {
		col += utf8.RuneCount(word[:end]) + 1
		f.report(f.pos(col, col+1), p)
		return
	}
	if (end < len(word) || ofLists(entry)) && !ok && f.list(string(word), col) {
		return
	}
	if end < len(word) && !ok {
		col += utf8.RuneCount(word[:end])
		hint := "put each entry into a line of its own; a comment starts with # or ;." +
			columnsHint(word)
		f.report(f.pos(col, col+1), diag.Problemf(hint, "expected the end of the line after %q",
			diag.Clip(entry)))
		return
	}
	if p = f.take(entry, lease); p.Found() {
		if strings.Contains(entry, " ") {
			p.Hint += columnsHint(word)
		}
		f.report(f.pos(col, col+utf8.RuneCount(word)), p)
	}
}

// content returns the current line without its comment, and its column.
func (f *setFile) content() (word []byte, col int) {
	text := bytes.TrimRight(f.text, "\r\n")
	f.text = text
	if i := bytes.IndexAny(text, "#;"); i >= 0 {
		text = text[:i]
	}
	word = bytes.Trim(text, " \t")
	if len(word) == 0 || bytes.HasPrefix(word, []byte("//")) {
		return nil, 0
	}
	return word, utf8.RuneCount(text[:bytes.Index(text, word)]) + 1
}

// take adds an entry with its lease, 0 for none of its own.
func (f *setFile) take(entry string, lease time.Duration) diag.Problem {
	before := f.size()
	p := f.agree(entry)
	if !p.Found() {
		p = f.out.Parse(f.typ, entry)
	}
	if p.Found() {
		return p
	}
	if lease != 0 {
		f.leases = append(f.leases, make([]time.Duration, before-len(f.leases))...)
		f.leases = append(f.leases, slices.Repeat([]time.Duration{lease}, f.size()-before)...)
	}
	if !f.typed {
		f.typed, f.first = true, fmt.Sprintf("%s in line %d", diag.Clip(entry), f.line)
	}
	return p
}

// list takes a line of several addresses, or of one in several words, as lists have them. It tells
// whether the line is one.
func (f *setFile) list(line string, col int) bool {
	words := ListWords(line)
	var lease time.Duration
	if n := len(words); n > 2 && f.leased && words[n-2] == "lease" {
		var p diag.Problem
		if lease, p, _ = f.lease([]byte("lease " + words[n-1])); p.Found() {
			return false
		}
		words = words[:n-2]
	}
	entries, rest := ListEntries(words, func(w string) bool {
		_, errAddr := netip.ParseAddr(w)
		_, errPrefix := netip.ParsePrefix(w)
		first, last, isRange := strings.Cut(w, "-")
		return errAddr == nil || errPrefix == nil || isRange && strings.ContainsAny(first, ".:") &&
			strings.ContainsAny(last, ".:")
	})
	if len(rest) > 0 {
		return false
	}
	for _, e := range entries {
		if p := f.take(e, lease); p.Found() {
			f.report(f.pos(col, col+utf8.RuneCountInString(line)), p)
		}
	}
	return true
}

// lease reads the lease that may stand behind an entry; ok is false where something else does.
func (f *setFile) lease(rest []byte) (d time.Duration, p diag.Problem, ok bool) {
	words := bytes.Fields(rest)
	if !f.leased || len(words) != 2 || string(words[0]) != "lease" {
		return 0, diag.Problem{}, false
	}
	if string(words[1]) == "forever" {
		return Forever, diag.Problem{}, true
	}
	d, p = Lease(string(words[1]))
	return d, p, true
}

// columnsHint says how to make a set file of a table, where a line is of one: it has an address in
// one column and something else in the others.
func columnsHint(line []byte) string {
	cells, how := bytes.Split(line, []byte(",")), "cut -d, -f%d FILE"
	if len(cells) < 2 {
		cells, how = bytes.Fields(line), "awk '{print $%d}' FILE"
	}
	at := 0
	for i, cell := range cells {
		text := string(bytes.TrimSpace(cell))
		_, errAddr := netip.ParseAddr(text)
		_, errPrefix := netip.ParsePrefix(text)
		switch {
		case errAddr != nil && errPrefix != nil &&
			strings.Contains(text, "/"): // a service, more likely than a column
			return ""
		case errAddr != nil && errPrefix != nil:
		case at > 0:
			return "" // several addresses
		case errAddr == nil && i+1 < len(cells) && len(cells[i+1]) <= 3 &&
			digits(cells[i+1]): // its length may stand there
			return ""
		default:
			at = i + 1
		}
	}
	if at == 0 || len(cells) < 2 {
		return ""
	}
	return fmt.Sprintf(" Of a table take the column with the addresses: "+how+".", at)
}

func digits(b []byte) bool {
	return len(b) > 0 && bytes.IndexFunc(b, func(r rune) bool { return r < '0' || r > '9' }) < 0
}

// oneEntry cuts the first entry off a line: a word, or two of which the first is an address and the
// second names a protocol. It is written with one blank; end is where in the line it ends.
func oneEntry(line []byte) (entry string, end int) {
	end = bytes.IndexAny(line, " \t,")
	if end < 0 {
		return string(line), len(line)
	}
	entry = string(line[:end])
	if line[end] == ',' || !strings.ContainsAny(entry, ".:") {
		return entry, end
	}
	rest := bytes.TrimLeft(line[end:], " \t")
	second := rest
	if i := bytes.IndexAny(rest, " \t,"); i >= 0 {
		second = rest[:i]
	}
	if !syntax.IsService(string(second)) {
		return entry, end
	}
	return entry + " " + string(second), len(line) - len(rest) + len(second)
}

// agree checks that an entry is of the type of those before it, and finds the type by the first.
func (f *setFile) agree(entry string) diag.Problem {
	if f.typed && f.typ == policy.Names {
		return diag.Problem{} // anything may be one
	}
	t := LooksLike(entry)
	if t == policy.Addresses && !(f.typed && f.typ == policy.Addresses) {
		if p := LoneProtocol(entry); p.Found() {
			return p
		}
	}
	if t == policy.Ports && f.entries && !f.typed {
		return diag.Problemf(fmt.Sprintf("write the protocol too: tcp/%s.", diag.Clip(entry)),
			"%q is not an address, and a port only with its protocol", diag.Clip(entry))
	}
	if !f.typed {
		f.typ = t
		return diag.Problem{}
	}
	var other Elements
	if t == f.typ || t == policy.Ports && f.typ == policy.Addresses ||
		other.Parse(t, entry).Found() {
		return diag.Problem{} // the parser of the type says what is wrong with it
	}
	if f.first == "" { // the type was asked for
		return diag.Problemf(policy.EntryHint(f.typ), "%s is %s, not %s", diag.Clip(entry), t.One(),
			f.typ.One())
	}
	return diag.Problemf("make a file of its own for the "+t.String()+".",
		"%s is %s, but the file began with %s, %s", diag.Clip(entry), t.One(), f.first, f.typ.One())
}

// PlainIPv4 is the fast path: a line or an element that holds exactly one IPv4 address or prefix
// without host bits. It says no to all else, also to what is wrong.
func PlainIPv4[T string | []byte](line T) (netip.Prefix, bool) {
	var addr, num uint32
	digits, dots, bits := 0, 0, -1
	i := 0
	for ; i < len(line); i++ {
		c := line[i]
		if c >= '0' && c <= '9' {
			if digits > 0 && num == 0 { // leading zero
				return netip.Prefix{}, false
			}
			num = num*10 + uint32(c-'0')
			if digits++; digits > 3 {
				return netip.Prefix{}, false
			}
			continue
		}
		if c != '.' && c != '/' && c != '\n' && c != '\r' {
			return netip.Prefix{}, false
		}
		if c != '.' {
			break
		}
		if digits == 0 || num > 255 || dots == 3 {
			return netip.Prefix{}, false
		}
		addr, num, digits = addr<<8|num, 0, 0
		dots++
	}
	if dots != 3 || digits == 0 || num > 255 {
		return netip.Prefix{}, false
	}
	addr = addr<<8 | num
	bits = 32
	if i < len(line) && line[i] == '/' {
		n, rest, ok := twoDigits(line[i+1:])
		if !ok || n > 32 {
			return netip.Prefix{}, false
		}
		bits, line, i = n, rest, 0
	}
	for ; i < len(line); i++ {
		if line[i] != '\r' && line[i] != '\n' {
			return netip.Prefix{}, false
		}
	}
	if bits < 32 && addr<<bits != 0 {
		return netip.Prefix{}, false
	}
	a := netip.AddrFrom4([4]byte{byte(addr >> 24), byte(addr >> 16), byte(addr >> 8), byte(addr)})
	return netip.PrefixFrom(a, bits), true
}

// twoDigits reads a number of one or two digits without a leading zero.
func twoDigits[T string | []byte](b T) (n int, rest T, ok bool) {
	i := 0
	for ; i < len(b) && b[i] >= '0' && b[i] <= '9'; i++ {
		if i == 2 || i == 1 && b[0] == '0' {
			return 0, rest, false
		}
		n = n*10 + int(b[i]-'0')
	}
	return n, b[i:], i > 0
}
