package literal

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/bits"
	"net/netip"
	"strconv"
	"strings"
	"unicode"
)

// This file has the forms in which others publish addresses: feeds, and files of `set --from` and
// of `file(...)`, read them by this code.

// ListWords are the words of a line of a list, without its comment: # and ; begin one anywhere, //
// in front of a word.
func ListWords(line string) []string {
	if i := strings.IndexAny(line, "#;"); i >= 0 {
		line = line[:i]
	}
	words := strings.FieldsFunc(line, func(r rune) bool { return unicode.IsSpace(r) || r == ',' })
	for i, w := range words {
		if strings.HasPrefix(w, "//") {
			return words[:i]
		}
	}
	return words
}

// ListEntries are the entries of a line of words, and the words from the first on that is none. An
// entry is a word for which is holds, or one of these:
//
//   - FIRST - LAST, also with zeros in front of each number, and behind it a level of three digits
//     and a name, as eMule's ipfilter.dat has them; from level 128 on the range may pass, and is no
//     entry;
//   - WORDS:FIRST-LAST as the whole line, of lists for P2P;
//   - NETWORK MASK, also inverted, as routers have it; NETWORK/MASK; and with blanks around the
//     slash or the dash;
//   - FIRST LAST that are the ends of a prefix of four addresses or more, with its length behind
//     them or without, as in the lists of DShield, or of whole /24 or /64 in a row.
//
// Two addresses in front of other columns, of which the second is the larger one, may be the ends
// of a range or two entries: they are one entry that nobody can read.
func ListEntries(words []string, is func(string) bool) (entries, rest []string) {
	if entry, ok := ofP2P(words); ok {
		return []string{entry}, nil
	}
	line := words
	for len(words) > 0 {
		words = together(words)
		if len(words) >= 3 && words[1] == "-" {
			entry := withoutZeros(words[0]) + "-" + withoutZeros(words[2])
			words = words[3:]
			if len(words) == 0 || !isLevel(words[0]) {
				entries = append(entries, entry)
				continue
			}
			if words[0] > "127" {
				entry += " " + words[0]
			}
			for _, w := range words[1:] { // of the name
				if is(w) {
					rest = append(rest, w)
				}
			}
			return append(entries, entry), rest
		}
		if len(words) >= 2 {
			if p, ok := maskedPrefix(words[0], words[1]); ok {
				entries, words = append(entries, p), words[2:]
				continue
			}
			if p, ok := endsOf(words[0], words[1]); ok {
				entries, words = append(entries, p.String()), words[2:]
				if len(words) > 0 && words[0] == strconv.Itoa(p.Bits()) {
					words = words[1:]
				}
				continue
			}
			if wholeBlocks(words[0], words[1]) {
				entries, words = append(entries, words[0]+"-"+words[1]), words[2:]
				continue
			}
			if len(line) > 2 && len(words) == len(line) && inOrder(words[0], words[1]) &&
				!is(words[2]) {
				return []string{words[0] + " " + words[1]}, nil
			}
		}
		if p, ok := slashMask(words[0]); ok {
			entries, words = append(entries, p), words[1:]
			continue
		}
		if !is(words[0]) {
			return entries, words
		}
		entries, words = append(entries, words[0]), words[1:]
	}
	return entries, nil
}

// together are words of which the first has what stands behind it with a slash or a dash: its
// length or mask, or the end of its range.
func together(words []string) []string {
	if len(words) < 2 {
		return words
	}
	if _, err := netip.ParseAddr(words[0]); err != nil {
		return words
	}
	switch sign, more := words[1][0], words[1][1:]; {
	case sign == '/' && more == "" && len(words) > 2 && startsWithDigit(words[2]):
		return append([]string{words[0] + "/" + words[2]}, words[3:]...)
	case sign == '/' && startsWithDigit(more):
		return append([]string{words[0] + words[1]}, words[2:]...)
	case sign == '-' && inOrder(words[0], more):
		return append([]string{words[0] + words[1]}, words[2:]...)
	}
	return words
}

func startsWithDigit(s string) bool { return s != "" && s[0] >= '0' && s[0] <= '9' }

// ofLists tells of a word whether it is an entry that lists alone have.
func ofLists(word string) bool {
	_, mask := slashMask(word)
	_, p2p := ofP2P([]string{word})
	return mask || p2p
}

// ofP2P is the range of a line of words that describe it, a colon, and the range.
func ofP2P(words []string) (entry string, ok bool) {
	if len(words) == 0 {
		return "", false
	}
	last := words[len(words)-1]
	text := last[strings.LastIndexByte(last, ':')+1:]
	first, end, ok := strings.Cut(text, "-")
	a, err := netip.ParseAddr(first)
	b, bad := netip.ParseAddr(end)
	return text, ok && len(text) < len(last) && err == nil && bad == nil && a.Is4() && b.Is4()
}

// withoutZeros is 1.2.3.0 of 001.002.003.000, and any other text as it is.
func withoutZeros(text string) string {
	parts := strings.Split(text, ".")
	for i, p := range parts {
		if len(parts) != 4 || len(p) != 3 || !AllDigits(p) {
			return text
		}
		parts[i] = strings.TrimLeft(p[:2], "0") + p[2:]
	}
	return strings.Join(parts, ".")
}

// isLevel tells whether a word is the level of a range in ipfilter.dat.
func isLevel(word string) bool { return len(word) == 3 && AllDigits(word) }

// inOrder tells of two addresses whether the second is the larger one.
func inOrder(first, last string) bool {
	a, err := netip.ParseAddr(first)
	b, bad := netip.ParseAddr(last)
	return err == nil && bad == nil && a.BitLen() == b.BitLen() && a.Less(b)
}

// wholeBlocks tells of two addresses whether they are the ends of one or more /24, or /64.
func wholeBlocks(first, last string) bool {
	if !inOrder(first, last) {
		return false
	}
	a, b := netip.MustParseAddr(first), netip.MustParseAddr(last)
	n := 1
	if a.Is6() {
		n = 8
	}
	for _, c := range a.AsSlice()[a.BitLen()/8-n:] {
		if c != 0 {
			return false
		}
	}
	for _, c := range b.AsSlice()[b.BitLen()/8-n:] {
		if c != 0xff {
			return false
		}
	}
	return true
}

// RangeOf is the range of which two addresses that stand beside each other in a table are the ends,
// if they are those of whole /24 or /64.
func RangeOf(first, last string) (entry string, ok bool) {
	return first + "-" + last, wholeBlocks(first, last)
}

// slashMask is the prefix of NETWORK/MASK.
func slashMask(text string) (string, bool) {
	network, mask, ok := strings.Cut(text, "/")
	if !ok || !strings.Contains(mask, ".") {
		return "", false
	}
	return maskedPrefix(network, mask)
}

// maskedPrefix is the prefix of an IPv4 network and its mask, such as 203.0.113.0 255.255.255.0, or
// that mask inverted: 0.0.0.255. No list is about addresses of 0.0.0.0/8.
func maskedPrefix(network, mask string) (string, bool) {
	a, err := netip.ParseAddr(network)
	m, bad := netip.ParseAddr(mask)
	if err != nil || bad != nil || !a.Is4() || !m.Is4() {
		return "", false
	}
	b := m.As4()
	inverse := binary.BigEndian.Uint32(b[:])
	if b[0] == 0xff {
		inverse = ^inverse
	} else if b[0] != 0 || a.As4()[0] == 0 {
		return "", false
	}
	p := netip.PrefixFrom(a, 32-bits.Len32(inverse))
	return p.String(), inverse&(inverse+1) == 0 && p == p.Masked()
}

// endsOf is the prefix of which two addresses are the first and the last.
func endsOf(first, last string) (p netip.Prefix, ok bool) {
	a, err := netip.ParseAddr(first)
	b, bad := netip.ParseAddr(last)
	if err != nil || bad != nil || !a.Less(b) {
		return p, false
	}
	all, err := ParsePrefixes(first + "-" + last)
	if err != nil || len(all) != 1 || all[0].Addr().BitLen()-all[0].Bits() < 2 {
		return p, false
	}
	return all[0], true
}

// Mark is the byte order mark, which some programs write in front of a text.
const Mark = "\ufeff"

// NoText returns an error that names the format of a file which begins so, and says what to do; nil
// if it may be a text in UTF-8.
func NoText(begin []byte) error {
	const packed = ": a list is a text, which gzip alone may have packed where a feed reads it"
	for _, of := range [...]struct{ magic, what string }{
		{"\xff\xfe", "UTF-16: write it as UTF-8 (iconv -f UTF-16 -t UTF-8)"},
		{"\xfe\xff", "UTF-16: write it as UTF-8 (iconv -f UTF-16 -t UTF-8)"},
		{"PK\x03\x04", "a ZIP archive" + packed}, {"BZh", "packed by bzip2" + packed},
		{"\xfd7zXZ", "packed by xz" + packed}, {"\x28\xb5\x2f\xfd", "packed by zstd" + packed},
	} {
		if bytes.HasPrefix(begin, []byte(of.magic)) {
			return errors.New("this is " + of.what)
		}
	}
	return nil
}

// ListLines reads r without a byte order mark at its beginning, and with lines that end by LF or
// CRLF, also where they end by CR alone.
func ListLines(r io.Reader) io.Reader {
	return &crLines{r: bufio.NewReaderSize(r, bufferSize(r))}
}

type crLines struct {
	r     *bufio.Reader
	begun bool
}

func (l *crLines) Read(p []byte) (int, error) {
	if !l.begun {
		l.begun = true
		if b, _ := l.r.Peek(len(Mark)); string(b) == Mark {
			if _, err := l.r.Discard(len(Mark)); err != nil {
				return 0, err
			}
		}
	}
	n, err := l.r.Read(p)
	for i := 0; i < n; i++ {
		at := bytes.IndexByte(p[i:n], '\r')
		if at < 0 {
			break
		}
		i += at
		next := p[i+1 : n]
		if len(next) == 0 {
			next, _ = l.r.Peek(1)
		}
		if len(next) == 0 || next[0] != '\n' {
			p[i] = '\n'
		}
	}
	return n, err
}
