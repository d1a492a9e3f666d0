package policy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/netip"
	"unicode/utf8"

	"levee/internal/syntax"
)

// Bounds on set files.
const (
	// MaxElements is how many prefixes, ports and services all sets and lists of a policy may
	// have together, ranges of addresses counted as the prefixes they become.
	MaxElements = 1 << 23

	maxSetLine    = 4096 // bytes of a line of a set file
	maxLineErrors = 20   // bad lines of a set file that are reported one by one
)

// ReadPrefixes reads a set file: one address, prefix or range a line; `#` and `;` start comments,
// empty lines are skipped. The prefixes come in the order of the file, ranges as the fewest
// prefixes that cover them; nothing is merged. The first bad lines are reported with their places
// in a file called name, the others are counted; then no prefixes are returned. It reads as a
// stream, and at most MaxElements prefixes.
func ReadPrefixes(r io.Reader, name string) ([]netip.Prefix, syntax.Diagnostics) {
	f := setFile{r: bufio.NewReaderSize(r, 64<<10), name: name}
	for f.next() {
		f.parse()
		if len(f.out) > MaxElements {
			f.report(syntax.Pos{Line: f.line, Col: 1, EndCol: 2}, problemf("", "more than %d prefixes", MaxElements))
			break
		}
	}
	if f.bad > maxLineErrors {
		n := f.bad - maxLineErrors
		f.say(syntax.Pos{}, problemf("", "and %d more bad %s", n, plural(n, "line", "lines")))
	}
	if f.bad > 0 {
		return nil, f.diags
	}
	return f.out, nil
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// setFile is a set file that is being read.
type setFile struct {
	r     *bufio.Reader
	name  string
	line  int
	text  []byte // of the line, valid until the next one
	out   []netip.Prefix
	bad   int
	diags syntax.Diagnostics
}

func (f *setFile) say(pos syntax.Pos, p problem) {
	d := syntax.Diagnostic{File: f.name, Pos: pos, Message: p.msg, Hint: p.hint}
	if pos.Line > 0 {
		d.Source = string(bytes.ToValidUTF8(f.text[:min(len(f.text), 160)], []byte("\uFFFD")))
	}
	f.diags = append(f.diags, d)
}

// report counts a bad line and says what is wrong with the first ones.
func (f *setFile) report(pos syntax.Pos, p problem) {
	if f.bad++; f.bad <= maxLineErrors {
		f.say(pos, p)
	}
}

// next reads a line. It returns false at the end, or when the file cannot be read.
func (f *setFile) next() bool {
	text, err := f.r.ReadSlice('\n')
	f.line++
	f.text = text
	if len(text) > maxSetLine || errors.Is(err, bufio.ErrBufferFull) {
		f.report(syntax.Pos{Line: f.line, Col: 1, EndCol: 2}, problemf("one address, prefix or range a line.", "this line is longer than %d bytes", maxSetLine))
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = f.r.ReadSlice('\n')
		}
		f.text = nil
		return err == nil
	}
	if err != nil && err != io.EOF {
		f.bad++
		f.say(syntax.Pos{}, problemf("", "cannot be read: %v", err))
		return false
	}
	if f.line == 1 {
		f.text = bytes.TrimPrefix(f.text, []byte("\uFEFF"))
	}
	return len(text) > 0
}

// parse takes what stands in the current line.
func (f *setFile) parse() {
	if p, ok := plainIPv4(f.text); ok {
		f.out = append(f.out, p)
		return
	}
	text := bytes.TrimRight(f.text, "\r\n")
	f.text = text
	if i := bytes.IndexAny(text, "#;"); i >= 0 {
		text = text[:i]
	}
	word := bytes.Trim(text, " \t")
	if len(word) == 0 {
		return
	}
	start := bytes.Index(text, word)
	pos := syntax.Pos{Line: f.line, Col: utf8.RuneCount(text[:start]) + 1}
	if i := bytes.IndexAny(word, " \t,"); i >= 0 {
		pos.Col += utf8.RuneCount(word[:i])
		pos.EndCol = pos.Col + 1
		hint := "put each prefix into a line of its own; a comment starts with # or ;."
		f.report(pos, problemf(hint, "expected the end of the line after %q", short(string(word[:i]))))
		return
	}
	pos.EndCol = pos.Col + utf8.RuneCount(word)
	var p problem
	if f.out, p = parseAddresses(f.out, string(word)); p.found() {
		f.report(pos, p)
	}
}

// plainIPv4 is the fast path: a line or an element that holds exactly one IPv4 address or prefix without host
// bits. It says no to all else, also to what is wrong.
func plainIPv4[T string | []byte](line T) (netip.Prefix, bool) {
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
