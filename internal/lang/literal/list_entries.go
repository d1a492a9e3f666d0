package literal

import (
	"bufio"
	"bytes"
	"encoding/binary"
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
// entry is a word for which is holds, or several: FIRST - LAST, NETWORK MASK, or FIRST LAST that
// are the ends of a prefix of four addresses or more, with its length behind them or without, as in
// the lists of DShield.
func ListEntries(words []string, is func(string) bool) (entries, rest []string) {
	for len(words) > 0 {
		if len(words) >= 3 && words[1] == "-" {
			entries, words = append(entries, words[0]+"-"+words[2]), words[3:]
			continue
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
		}
		if !is(words[0]) {
			return entries, words
		}
		entries, words = append(entries, words[0]), words[1:]
	}
	return entries, nil
}

// maskedPrefix is the prefix of an IPv4 network and its mask, such as 203.0.113.0 255.255.255.0.
func maskedPrefix(network, mask string) (string, bool) {
	a, err := netip.ParseAddr(network)
	m, bad := netip.ParseAddr(mask)
	if err != nil || bad != nil || !a.Is4() || !m.Is4() {
		return "", false
	}
	b := m.As4()
	inverse := ^binary.BigEndian.Uint32(b[:])
	p := netip.PrefixFrom(a, 32-bits.Len32(inverse))
	return p.String(), b[0] == 0xff && inverse&(inverse+1) == 0 && p == p.Masked()
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

// ListLines reads r with lines that end by LF or CRLF, also where they end by CR alone.
func ListLines(r io.Reader) io.Reader { return &crLines{bufio.NewReaderSize(r, 64<<10)} }

type crLines struct{ r *bufio.Reader }

func (l *crLines) Read(p []byte) (int, error) {
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
