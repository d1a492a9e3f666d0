// Package event judges records, JSON objects or lines of text, by the conditions and patterns of
// sources, and counts them by the prefix of their address.
//
// In goes a source of a policy and the bytes of one record, out comes the prefix to lease, or
// that the record is not meant. A record is hostile: work is linear in its size, nesting is
// bounded, and nothing is kept of it but when an address was seen. It opens no files.
package event

import (
	"bytes"
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"levee/internal/lang/ast"
	"levee/internal/lang/policy"
)

// Bounds of a record.
const (
	maxDepth  = 64
	maxValues = 64 // of one field
)

// ErrMalformed is a record that is no JSON object.
var ErrMalformed = errors.New("no JSON object")

// Result is what a record means to a source.
type Result uint8

const (
	Other     Result = iota // some condition does not hold
	Unmatched               // a line of its program that no pattern matches
	NoAddress               // all conditions hold, and there is no address
	Ambiguous               // several addresses can be meant
	Counted                 // it is one of several that the source asks for
	Again                   // it was judged before
	Matched
)

// Matcher judges records by one source. It is used by one goroutine.
type Matcher struct {
	judge interface {
		Match(record []byte, now time.Time) (netip.Addr, Result, error)
		When() time.Time // of the record that was matched; zero: it does not say
		Times() int      // that it stands for
		// Trouble is why a list that conditions ask could not be read, nil if none could not.
		Trouble() error
	}
	source  *policy.Source
	keeps   func(netip.Prefix) bool
	again   *again
	renewal uint64
	counter *Counter // nil: each record counts
	fit     fit
	feeds   feeds
}

// fit is whether patterns fit what a program writes.
type fit struct {
	unmatched int  // lines of the program
	matched   bool // one has
	told      bool
}

// misfits is how many lines of a program have to be read for none to have matched by chance.
const misfits = 1000

// New prepares the conditions and patterns of a source. old is the matcher of the source before it
// was changed, or nil: what was counted stays. keeps tells of a prefix that holds whom no entry may
// hold: of such an address alone is counted and leased. nil keeps nobody.
func New(s *policy.Source, old *Matcher, keeps func(netip.Prefix) bool) *Matcher {
	m := &Matcher{source: s, keeps: keeps, again: newAgain(), feeds: newFeeds()}
	if old != nil {
		m.feeds.had = old.feeds.now
		m.again, m.renewal = old.again, old.renewal
		if old.source.Text == s.Text {
			m.fit = old.fit
		}
	}
	if s.Format == policy.Lines {
		m.judge = newLines(s, m.feeds)
	} else {
		m.judge = newObjects(s, m.feeds)
	}
	switch {
	case s.After == 0:
	case old != nil && old.counter != nil && old.counter.is(s.After, s.Within):
		m.counter = old.counter
	default:
		m.counter = newCounter(s.After, s.Within)
	}
	m.feeds.had = nil
	return m
}

// Match judges one record that was read now.
func (m *Matcher) Match(record []byte, now time.Time) (netip.Prefix, Result, error) {
	a, r, err := m.judge.Match(record, now)
	switch r {
	case Other:
	case Unmatched:
		m.fit.unmatched++
	default:
		m.fit.matched = true
	}
	if r != Matched {
		return netip.Prefix{}, r, err
	}
	p, at := m.prefix(a), m.judge.When()
	if at.IsZero() {
		at = now
	} else if m.again.is(record, p, m.renewal, at, now) {
		return p, Again, err
	}
	if m.counter == nil {
		return p, r, err
	}
	r = Counted
	for range min(m.judge.Times(), m.counter.n) {
		if m.counter.Add(p, at, now) {
			r = Matched
		}
	}
	return p, r, err
}

// Misfit reports, once, that so many lines of its program were read and none has matched.
func (m *Matcher) Misfit() (lines int, misfit bool) {
	if m.fit.matched || m.fit.told || m.fit.unmatched < misfits {
		return 0, false
	}
	m.fit.told = true
	return m.fit.unmatched, true
}

// Begin says which renewal of its place the next record is of: 0, and from then on more where the
// place may hold again what was judged before.
func (m *Matcher) Begin(renewal uint64) {
	m.renewal = renewal
	m.again.begin(renewal)
}

// Newest is the time of the newest event that was judged and says when it was.
func (m *Matcher) Newest() time.Time { return m.again.newest }

// Resume goes on behind an event that another process has judged as its newest: a renewal that
// comes has nothing new up to that time.
func (m *Matcher) Resume(newest time.Time) {
	if newest.After(m.again.newest) {
		m.again.newest, m.again.at = newest, nil
	}
}

// prefix is what an event of an address counts for and leases.
func (m *Matcher) prefix(a netip.Addr) netip.Prefix {
	if p := m.source.Prefix(a); p.IsSingleIP() || m.keeps == nil || !m.keeps(p) {
		return p
	}
	return netip.PrefixFrom(a, a.BitLen())
}

// Trouble is what keeps conditions from being judged as they should: a list that could not be read.
// What it held last holds meanwhile.
func (m *Matcher) Trouble() error { return m.judge.Trouble() }

// Uncounted is how many events found no place in the memory of the counter.
func (m *Matcher) Uncounted() uint64 {
	if m.counter == nil {
		return 0
	}
	return m.counter.refused
}

// objects judges JSON objects.
type objects struct {
	root   *node
	values [][]value // by field, of the record that is being read
	conds  []condition
	add    int
	times  []int  // fields that say when it was
	ports  bool   // an address may have a port behind it
	text   []byte // scratch
}

// node is an object on the way to fields.
type node struct {
	names []string
	kids  []*node
	field int // -1: none
	below []int
}

type value struct {
	raw    []byte // a text without quotes, or a number
	text   bool
	escape bool
}

type condition struct {
	field   int
	not     bool
	op      ast.Op
	numbers map[int64]bool
	bound   int64
	texts   *texts
	words   map[string]bool // true, false
}

// newObjects prepares the conditions of a source.
func newObjects(s *policy.Source, feeds feeds) *objects {
	m := &objects{ports: s.Format == policy.JSON, root: &node{field: -1}}
	index := map[string]int{}
	field := func(name string) int {
		if i, ok := index[name]; ok {
			return i
		}
		i := len(m.values)
		index[name] = i
		m.values = append(m.values, nil)
		at := m.root
		for part := range strings.SplitSeq(name, ".") {
			at.below = append(at.below, i)
			k := slices.Index(at.names, part)
			if k < 0 {
				k = len(at.names)
				at.names = append(at.names, part)
				at.kids = append(at.kids, &node{field: -1})
			}
			at = at.kids[k]
		}
		at.field = i
		return i
	}
	for _, c := range s.Where {
		out := condition{field: field(c.Field), not: c.Not, op: c.Op}
		if len(c.Words) > 0 {
			out.words = make(map[string]bool, len(c.Words))
		} else if len(c.Numbers) > 0 {
			out.bound = c.Numbers[0]
			out.numbers = make(map[int64]bool, len(c.Numbers))
		} else {
			out.texts = newTexts(&c, feeds)
		}
		for _, n := range c.Numbers {
			out.numbers[n] = true
		}
		for _, w := range c.Words {
			out.words[w] = true
		}
		m.conds = append(m.conds, out)
	}
	m.add = field(s.Add)
	names := []string{"timestamp"}
	if s.Format == policy.JSON {
		names = []string{"timestamp", "@timestamp", "time", "ts", "__REALTIME_TIMESTAMP"}
	}
	for _, name := range names {
		m.times = append(m.times, field(name))
	}
	return m
}

// Trouble is about lists.
func (m *objects) Trouble() error {
	var errs []error
	for i := range m.conds {
		if t := m.conds[i].texts; t != nil {
			errs = append(errs, t.trouble())
		}
	}
	return errors.Join(errs...)
}

// Times is how often the event happened: once.
func (m *objects) Times() int { return 1 }

// When is when the record was made, as far as it says so in a way that is known: a time of RFC 3339
// or Suricata's, or a number of seconds, milliseconds or microseconds since 1970.
func (m *objects) When() time.Time {
	for _, i := range m.times {
		for _, v := range m.values[i] {
			text := string(m.unescape(v))
			for _, form := range []string{"2006-01-02T15:04:05.999999999-0700", time.RFC3339Nano} {
				if t, err := time.Parse(form, text); v.text && err == nil {
					return t
				}
			}
			n, err := strconv.ParseFloat(text, 64)
			for ; err == nil && n > 1e11; n /= 1000 {
			}
			if err == nil && n > 1e8 {
				return time.UnixMilli(int64(n * 1000))
			}
		}
	}
	return time.Time{}
}

// Match judges one record. Of a name that occurs twice in an object the last counts, as for
// encoding/json.
func (m *objects) Match(record []byte, _ time.Time) (netip.Addr, Result, error) {
	for i := range m.values {
		m.values[i] = m.values[i][:0]
	}
	s := scanner{b: record, m: m}
	s.blank()
	if !s.object(m.root, 0) {
		return netip.Addr{}, Other, ErrMalformed
	}
	if s.blank(); s.at != len(record) {
		return netip.Addr{}, Other, ErrMalformed
	}
	for i := range m.conds {
		if !m.holds(&m.conds[i]) {
			return netip.Addr{}, Other, nil
		}
	}
	for _, v := range m.values[m.add] {
		if !v.text {
			continue
		}
		text := string(m.unescape(v))
		a, err := netip.ParseAddr(text)
		if err != nil && m.ports {
			var ap netip.AddrPort
			ap, err = netip.ParseAddrPort(text)
			a = ap.Addr()
		}
		if err == nil && a.Zone() == "" {
			return a.Unmap(), Matched, nil
		}
	}
	return netip.Addr{}, NoAddress, nil
}

func (m *objects) holds(c *condition) bool {
	for _, v := range m.values[c.field] {
		if is, known := m.is(c, v); known && is != c.not {
			return true
		}
	}
	return false
}

// is tells whether one value is what the condition asks for; it is not known of another type.
func (m *objects) is(c *condition, v value) (is, known bool) {
	if c.words != nil {
		return c.words[string(v.raw)], !v.text && (v.raw[0] == 't' || v.raw[0] == 'f')
	}
	if c.texts != nil {
		if !v.text {
			return false, false
		}
		return c.texts.have(m.unescape(v))
	}
	if v.text {
		return false, false
	}
	if n, err := strconv.ParseInt(string(v.raw), 10, 64); err == nil {
		switch c.op {
		case ast.Less:
			return n < c.bound, true
		case ast.LessEqual:
			return n <= c.bound, true
		case ast.Greater:
			return n > c.bound, true
		case ast.GreaterEqual:
			return n >= c.bound, true
		}
		return c.numbers[n], true
	}
	f, err := strconv.ParseFloat(string(v.raw), 64)
	if err != nil {
		return false, false
	}
	switch bound := float64(c.bound); c.op {
	case ast.Less:
		return f < bound, true
	case ast.LessEqual:
		return f <= bound, true
	case ast.Greater:
		return f > bound, true
	case ast.GreaterEqual:
		return f >= bound, true
	}
	n := int64(f)
	return float64(n) == f && c.numbers[n], true
}

// unescape is the text of a value; it is valid until the next call.
func (m *objects) unescape(v value) []byte {
	if !v.escape {
		return v.raw
	}
	m.text = m.text[:0]
	for b := v.raw; len(b) > 0; {
		if b[0] != '\\' {
			m.text = append(m.text, b[0])
			b = b[1:]
			continue
		}
		c := b[1] // the scanner has seen it
		if c != 'u' {
			if i := strings.IndexByte("bfnrt", c); i >= 0 {
				c = "\b\f\n\r\t"[i]
			}
			m.text = append(m.text, c)
			b = b[2:]
			continue
		}
		r := hex4(b[2:])
		b = b[6:]
		if r >= 0xd800 && r < 0xdc00 && len(b) >= 6 && b[0] == '\\' && b[1] == 'u' {
			if low := hex4(b[2:]); low >= 0xdc00 && low < 0xe000 {
				r = (r-0xd800)<<10 + (low - 0xdc00) + 0x10000
				b = b[6:]
			}
		}
		m.text = utf8.AppendRune(m.text, r)
	}
	return m.text
}

// hex4 is a number of four hex digits, -1 if it is none.
func hex4(b []byte) (r rune) {
	if len(b) < 4 {
		return -1
	}
	for _, c := range b[:4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// scanner walks a record once. Its methods return false where it is no JSON.
type scanner struct {
	b  []byte
	at int
	m  *objects
}

func (s *scanner) blank() {
	for s.at < len(s.b) {
		switch s.b[s.at] {
		case ' ', '\t', '\r', '\n':
			s.at++
		default:
			return
		}
	}
}

func (s *scanner) is(c byte) bool {
	if s.at < len(s.b) && s.b[s.at] == c {
		s.at++
		return true
	}
	return false
}

// object reads an object. Values of n's fields are kept; n is nil where nothing below is asked for.
func (s *scanner) object(n *node, depth int) bool {
	if depth > maxDepth || !s.is('{') {
		return false
	}
	if n != nil && n != s.m.root {
		s.forget(n)
	}
	if s.blank(); s.is('}') {
		return true
	}
	for {
		s.blank()
		key, ok := s.text()
		if s.blank(); !ok || !s.is(':') {
			return false
		}
		s.blank()
		if !s.value(s.kid(n, key), depth) {
			return false
		}
		if s.blank(); s.is('}') {
			return true
		}
		if !s.is(',') {
			return false
		}
	}
}

// forget drops what an earlier member of the same name has left.
func (s *scanner) forget(n *node) {
	for _, i := range n.below {
		s.m.values[i] = s.m.values[i][:0]
	}
	if n.field >= 0 {
		s.m.values[n.field] = s.m.values[n.field][:0]
	}
}

func (s *scanner) kid(n *node, key value) *node {
	if n == nil {
		return nil
	}
	name := key.raw
	if key.escape {
		name = s.m.unescape(key)
	}
	for i, k := range n.names {
		if k == string(name) {
			s.forget(n.kids[i])
			return n.kids[i]
		}
	}
	return nil
}

func (s *scanner) value(n *node, depth int) bool {
	if s.at == len(s.b) {
		return false
	}
	switch c := s.b[s.at]; {
	case c == '{':
		return s.object(n, depth+1)
	case c == '[':
		return s.array(n, depth+1)
	case c == '"':
		v, ok := s.text()
		s.store(n, v)
		return ok
	case c == '-' || c >= '0' && c <= '9':
		v, ok := s.number()
		s.store(n, v)
		return ok
	}
	for _, word := range []string{"true", "false", "null"} {
		if bytes.HasPrefix(s.b[s.at:], []byte(word)) {
			if word != "null" {
				s.store(n, value{raw: s.b[s.at : s.at+len(word)]})
			}
			s.at += len(word)
			return true
		}
	}
	return false
}

func (s *scanner) store(n *node, v value) {
	if n != nil && n.field >= 0 && len(s.m.values[n.field]) < maxValues {
		s.m.values[n.field] = append(s.m.values[n.field], v)
	}
}

// array reads a list, whose texts and numbers are all values of the field. Objects in a list belong
// to no field.
func (s *scanner) array(n *node, depth int) bool {
	if depth > maxDepth {
		return false
	}
	s.at++
	if s.blank(); s.is(']') {
		return true
	}
	for {
		s.blank()
		if s.at < len(s.b) && (s.b[s.at] == '{' || s.b[s.at] == '[') {
			if !s.value(nil, depth) {
				return false
			}
		} else if !s.value(n, depth) {
			return false
		}
		if s.blank(); s.is(']') {
			return true
		}
		if !s.is(',') {
			return false
		}
	}
}

// text reads a text in quotes (RFC 8259, section 7).
func (s *scanner) text() (v value, ok bool) {
	if !s.is('"') {
		return v, false
	}
	for from := s.at; s.at < len(s.b); s.at++ {
		switch c := s.b[s.at]; {
		case c == '"':
			v.raw, v.text = s.b[from:s.at], true
			s.at++
			return v, true
		case c == '\\':
			v.escape = true
			if s.at++; s.at == len(s.b) {
				return v, false
			}
			switch e := s.b[s.at]; {
			case e == 'u':
				if hex4(s.b[s.at+1:]) < 0 {
					return v, false
				}
				s.at += 4
			case strings.IndexByte(`"\/bfnrt`, e) < 0:
				return v, false
			}
		case c < ' ':
			return v, false
		}
	}
	return v, false
}

// number reads a number (RFC 8259, section 6).
func (s *scanner) number() (v value, ok bool) {
	from := s.at
	s.is('-')
	if !s.is('0') && !s.digits() {
		return v, false
	}
	if s.is('.') && !s.digits() {
		return v, false
	}
	if s.is('e') || s.is('E') {
		if !s.is('+') {
			s.is('-')
		}
		if !s.digits() {
			return v, false
		}
	}
	v.raw = s.b[from:s.at]
	return v, true
}

func (s *scanner) digits() bool {
	from := s.at
	for s.at < len(s.b) && s.b[s.at] >= '0' && s.b[s.at] <= '9' {
		s.at++
	}
	return s.at > from
}
