// Package logline reads lines of logs: who wrote them and when, and the address that a pattern
// finds in them.
//
// In goes a pattern in words, such as "Failed password for <text> from <addr> port <number> ssh2",
// and a line. Out comes the address at <addr>, if there is one way only to read the line so. A line
// is hostile: whoever tries to log in chooses parts of it. Work is linear in its length, and
// nothing of it is kept. It opens no files and knows no policies.
package logline

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// Bounds of patterns.
const (
	maxPattern = 1000 // bytes of a pattern
	maxParts   = 40   // placeholders
)

// Placeholders of the address.
const (
	Addr     = "addr"
	Addr4    = "addr4"     // of IPv4 alone
	LastAddr = "last-addr" // the last that fits, where others choose only what stands before it
)

// holders are the placeholders with what they stand for.
var holders = map[string]string{
	Addr:     "",
	Addr4:    "",
	LastAddr: "",
	"number": `[0-9]+`,
	"word":   `[^ \t]+`,
	"text":   `.*`,
	"quoted": `(?:[^"\\]|\\.)*`,
	"4xx":    `4[0-9][0-9]`,
}

// quote stands for the character that no text of a policy can have.
const quote = "quote"

// Holders are the names of the placeholders.
func Holders() []string {
	out := []string{quote}
	for name := range holders {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// Pattern is one that is ready. It is the same for any number of goroutines.
type Pattern struct {
	Text          string
	before, after *regexp.Regexp
	need          []byte // what every line has that it matches
	left          []byte // what stands directly before the address
	blanks        int    // how many stand before the address at most; < 0: any number
	ipv4, last    bool   // which addresses may stand there
}

// Compile prepares a pattern. It describes a whole message, from its first byte to its last.
func Compile(text string) (*Pattern, error) {
	if len(text) > maxPattern {
		return nil, fmt.Errorf("it is longer than %d bytes", maxPattern)
	}
	parts, err := parse(strings.ReplaceAll(text, "<"+quote+">", `"`))
	if err != nil {
		return nil, err
	}
	p := &Pattern{Text: text}
	at := slices.IndexFunc(parts, part.isAddr)
	if at < 0 {
		return nil, errors.New("it has no <addr>, the address to lease")
	}
	if slices.ContainsFunc(parts[at+1:], part.isAddr) {
		return nil, errors.New("it has <addr> twice: one address can be leased")
	}
	holder := parts[at].holder
	if endOpen(parts[:at]) {
		return nil, fmt.Errorf("any text may stand directly before <%s>, and so any address would "+
			"do: write what stands between them", holder)
	}
	if joinsAddress(parts[at+1:]) {
		return nil, fmt.Errorf("what stands directly behind <%s> could be a part of it: write "+
			"what stands between them", holder)
	}
	if at > 0 {
		p.left = []byte(parts[at-1].literal)
	}
	p.blanks = blanks(parts[:at])
	p.ipv4, p.last = holder == Addr4, holder == LastAddr
	for _, one := range parts {
		if len(one.literal) > len(p.need) {
			p.need = []byte(one.literal)
		}
	}
	if len(p.need) < minLiteral {
		return nil, fmt.Errorf("no part of it between placeholders has %d bytes: nearly any line "+
			"would match", minLiteral)
	}
	p.before = regexp.MustCompile(`^(?s:` + expression(parts[:at]) + `)$`)
	p.after = regexp.MustCompile(`^(?s:` + expression(parts[at+1:]) + `)$`)
	return p, nil
}

// minLiteral is the number of literal bytes that a pattern must have at one place.
const minLiteral = 3

// clip is the beginning of a text.
func clip(s string) string {
	if len(s) > 20 {
		return s[:20] + "..."
	}
	return s
}

// Result says whether a message matches a pattern.
type Result uint8

const (
	Other     Result = iota // it does not match
	Ambiguous               // it matches with several addresses: somebody has written some of them
	Matched
)

// MaxMessage limits the bytes of a message that is matched.
const MaxMessage = 32 << 10

// maxWork is the number of a message's bytes that are read in all, again for each address.
const maxWork = 1 << 20

// Match judges a message. It is matched only if one address can stand at <addr>: the rest of the
// message, before and behind, is read anew for each that it has. Of several, <last-addr> takes the
// last.
func (p *Pattern) Match(message []byte) (netip.Addr, Result) {
	if len(message) > MaxMessage || !bytes.Contains(message, p.need) {
		return netip.Addr{}, Other
	}
	var found netip.Addr
	work, where, reach := 0, 0, p.reach(message)
	for at := 0; ; {
		from, to := addressIn(message, at)
		if from < 0 || from > reach {
			break
		}
		at = to
		if !bytes.HasSuffix(message[:from], p.left) {
			continue
		}
		for _, to := range ends(message, from, to) {
			a, err := netip.ParseAddr(string(message[from:to]))
			if err != nil || p.ipv4 && !a.Is4() {
				continue
			}
			if work += len(message); work > maxWork {
				return netip.Addr{}, Ambiguous
			}
			if p.before.Match(message[:from]) && p.after.Match(message[to:]) {
				if a = a.Unmap(); !p.last && found.IsValid() && found != a {
					return netip.Addr{}, Ambiguous
				}
				found, where = a, from
			}
		}
	}
	switch {
	case !found.IsValid():
		return found, Other
	case p.named(message, where, reach, &work):
		return netip.Addr{}, Ambiguous
	}
	return found, Matched
}

// reach is the last place of a message at which the address may stand: what stands behind further
// blanks than the pattern has before it was written by others, in whatever number.
func (p *Pattern) reach(message []byte) int {
	at, left := 0, p.blanks
	if left < 0 {
		return len(message)
	}
	for ; at < len(message); at++ {
		if message[at] == ' ' {
			if left--; left < 0 {
				break
			}
		}
	}
	return at
}

// named tells whether the message can also be read so that at <addr> stands the name of a host, an
// address in a form that is none here, or nothing: then the address that was found at where may be
// what a client has written. Of <last-addr> only what stands behind counts.
func (p *Pattern) named(message []byte, where, reach int, work *int) bool {
	at := 0
	if p.last {
		at = where
	}
	for ; at <= reach; at++ {
		inside := at > 0 && inName(message[at-1]) && len(p.left) == 0
		if at == where || inside || !bytes.HasSuffix(message[:at], p.left) {
			continue
		}
		for _, to := range nameEnds(message, at) {
			if *work += len(message); *work > maxWork {
				return true
			}
			if p.before.Match(message[:at]) && p.after.Match(message[to:]) {
				return true
			}
		}
	}
	return false
}

// maxName is the length of the longest name in the DNS, in bytes, and longer than any address.
const maxName = 255

// nameEnds returns the places at which a name that begins at from may end: a port or the end of a
// clause may stand behind it. What is an address was judged as one.
func nameEnds(message []byte, from int) (out []int) {
	to := from
	for to < len(message) && inName(message[to]) {
		if to++; to-from > maxName {
			return []int{from}
		}
	}
	add := func(to int) {
		a, err := netip.ParseAddr(strings.TrimPrefix(string(message[from:to]), "IPv6:"))
		if err != nil || a.Zone() != "" {
			out = append(out, to)
		}
	}
	add(from)
	for i := from; i < to; i++ {
		if message[i] == ':' || message[i] == '.' && i == to-1 {
			add(i)
		}
	}
	if to > from {
		add(to)
	}
	return out
}

// inName tells of a byte whether names of hosts, and addresses with a zone, have it.
func inName(c byte) bool { return isWord(c) || c == '.' || c == ':' || c == '%' }

// Patterns are those of one source.
type Patterns []*Pattern

// Match judges a message by all of them. Those that match must agree on the address: the one that
// the program meant has the right one, so that another is somebody's who has written it there.
func (ps Patterns) Match(message []byte) (found netip.Addr, result Result) {
	for _, p := range ps {
		a, r := p.Match(message)
		if r == Ambiguous || r == Matched && result == Matched && a != found {
			return netip.Addr{}, Ambiguous
		}
		if r == Matched {
			found, result = a, r
		}
	}
	return found, result
}

// addressIn is the next run of bytes from at on that may be an address, from < 0 if there is none.
// A port behind an IPv4 address, and the dot or colon behind an address that ends a clause, are no
// part of it.
func addressIn(b []byte, at int) (from, to int) {
	for at < len(b) {
		for at < len(b) && !inAddress[b[at]] {
			at++
		}
		from = at
		dots, colons := 0, 0
		for at < len(b) && inAddress[b[at]] {
			switch b[at] {
			case '.':
				dots++
			case ':':
				colons++
			}
			at++
		}
		if dots < 3 && colons < 2 {
			continue
		}
		if bytes.HasSuffix(b[:from], []byte("IPv")) && bytes.HasPrefix(b[from:], []byte("6:")) {
			from += len("6:") // IPv6:2001:db8::1 of mail servers (RFC 5321, 4.1.3)
		}
		if from > 0 && isWord(b[from-1]) {
			continue
		}
		if at < len(b) && isWord(b[at]) {
			continue
		}
		to = at
		if dots >= 3 && colons == 1 { // 192.0.2.1:443
			to = from + bytes.IndexByte(b[from:to], ':')
		}
		for to > from && b[to-1] == '.' || to-1 > from && b[to-1] == ':' && b[to-2] != ':' {
			to--
		}
		if to > from {
			return from, to
		}
	}
	return -1, 0
}

// ends returns the places at which an address that begins at from may end. What stands behind the
// last colon of an IPv6 address is a port for some programs (2001:db8::1:443); a pattern says which
// reading it wants by what stands behind <addr>.
func ends(message []byte, from, to int) []int {
	if colon := bytes.LastIndexByte(message[from:to], ':'); colon > 0 {
		return []int{to, from + colon}
	}
	return []int{to}
}

func isWord(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' ||
		c == '-'
}

// inAddress are the bytes of addresses.
var inAddress = func() (is [256]bool) {
	for _, c := range []byte("0123456789abcdefABCDEF.:") {
		is[c] = true
	}
	return is
}()
