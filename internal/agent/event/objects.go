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
	"levee/internal/lang/dnsname"
	"levee/internal/lang/eve"
	"levee/internal/lang/logline"
	"levee/internal/lang/policy"
)

// objects judges JSON objects.
type objects struct {
	root   *node
	values [][]value // by slot, of the record that is being read
	conds  []condition
	add    []int  // slots of the address or name
	times  []int  // slots that say when it was
	eve    bool   // they are Suricata's
	ports  bool   // an address may have a port behind it
	names  bool   // names of the DNS are meant, not addresses
	text   []byte // scratch
}

// node is an object on the way to fields.
type node struct {
	names []string
	kids  []*node
	slot  int // of its values, -1 for none
	below []int
	list  bool // of objects, whose members are all values of fields
}

type value struct {
	raw    []byte // a text without quotes, or a number
	text   bool
	escape bool
}

type condition struct {
	slots   []int
	not     bool
	op      ast.Op
	numbers map[int64]bool
	bound   int64
	texts   *texts
	words   map[string]bool // true, false
}

// newObjects prepares the conditions of a source.
func newObjects(s *policy.Source, feeds feeds) *objects {
	m := &objects{eve: s.Format == policy.EVE, ports: s.Format == policy.JSON,
		root: &node{slot: -1}, names: s.Set != nil && s.Set.Type == policy.Names}
	index := map[string][]int{}
	field := func(name string) []int {
		slots, ok := index[name]
		if ok {
			return slots
		}
		ways := [][]string{strings.Split(name, ".")}
		if !m.eve {
			ways = spellings(name)
		}
		for _, way := range ways {
			slots = append(slots, len(m.values))
			m.values = append(m.values, nil)
			m.way(way, slots[len(slots)-1])
		}
		if f, ok := eve.Named(name); ok && m.eve {
			for _, also := range f.Also {
				m.way(strings.Split(also, "."), slots[0])
			}
		}
		index[name] = slots
		return slots
	}
	for _, c := range s.Where {
		out := condition{slots: field(c.Field), not: c.Not, op: c.Op}
		if len(c.Words) > 0 {
			out.words = make(map[string]bool, len(c.Words))
		} else if len(c.Numbers) > 0 {
			out.bound = c.Numbers[0]
			out.numbers = make(map[int64]bool, len(c.Numbers))
		} else {
			out.texts = newTexts(&c, s.Format, feeds)
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
		m.times = append(m.times, field(name)...)
	}
	return m
}

// spellings returns the names of members, from the outermost on, by which records may have a field:
// a.b is b in a, or one member a.b. Loggers of ECS write both in one record: each has a slot of its
// own, so that a later object a leaves a.b alone. Behind the seventh part of a path no names are
// joined, as there would be too many.
func spellings(path string) (ways [][]string) {
	parts := strings.Split(path, ".")
	for joined := range 1 << min(len(parts)-1, 6) {
		way := []string{parts[0]}
		for i, part := range parts[1:] {
			if joined>>i&1 == 1 {
				way[len(way)-1] += "." + part
			} else {
				way = append(way, part)
			}
		}
		ways = append(ways, way)
	}
	return ways
}

// way has the values at a path be those of a slot.
func (m *objects) way(path []string, slot int) {
	at := m.root
	for _, part := range path {
		name, list := strings.CutSuffix(part, "[]")
		at.below = append(at.below, slot)
		k := slices.Index(at.names, name)
		if k < 0 {
			k = len(at.names)
			at.names = append(at.names, name)
			at.kids = append(at.kids, &node{slot: -1, list: list})
		}
		at = at.kids[k]
	}
	at.slot = slot
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

// Times returns how often the event happened: once.
func (m *objects) Times() int { return 1 }

// When returns the time of the record, as far as it has one in a form that is known: a time of RFC
// 3339 or Suricata's, or a number of seconds, milliseconds or microseconds since 1970.
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
func (m *objects) Match(record []byte, now time.Time) (subject, Result, error) {
	for i := range m.values {
		m.values[i] = m.values[i][:0]
	}
	record = bytes.TrimPrefix(record, []byte("\ufeff"))
	if m.eve && !bytes.HasPrefix(record, []byte("{")) {
		of, foreign := unframed(record, now)
		if foreign {
			return subject{}, Other, nil
		}
		record = of
	}
	s := scanner{b: record, m: m}
	s.blank()
	if !s.object(m.root, 0) {
		return subject{}, Other, ErrMalformed
	}
	if s.blank(); s.at != len(record) {
		return subject{}, Other, ErrMalformed
	}
	for i := range m.conds {
		if !m.holds(&m.conds[i]) {
			return subject{}, Other, nil
		}
	}
	for _, slot := range m.add {
		for _, v := range m.values[slot] {
			if of, ok := m.subjectOf(v); ok {
				return of, Matched, nil
			}
		}
	}
	return subject{}, NoAddress, nil
}

// subjectOf returns the address or the name that a value is.
func (m *objects) subjectOf(v value) (of subject, ok bool) {
	if !v.text {
		return of, false
	}
	text := string(m.unescape(v))
	if m.names {
		of.name, ok = nameOf(text)
		return of, ok
	}
	a, err := netip.ParseAddr(text)
	if err != nil && m.ports {
		var ap netip.AddrPort
		ap, err = netip.ParseAddrPort(text)
		a = ap.Addr()
	}
	return subject{addr: a.Unmap()}, err == nil && a.Zone() == ""
}

// nameOf is a name that may be leased. One whose names below belong to many, as "com" or "co.uk",
// would stand for all of them: whoever makes events, by a query say, is not to do that.
func nameOf(text string) (dnsname.Name, bool) {
	if _, err := netip.ParseAddr(text); err == nil {
		return "", false
	}
	p, err := dnsname.Parse(text)
	if err != nil || p.Below || p.Name.Shared() {
		return "", false
	}
	return p.Name, true
}

// unframed takes the header of syslog off a record, as Suricata and pfSense send them there, and
// the mark of an object in front of it (prefix of eve-log). It returns nothing of any other line,
// and tells whether a program has written that: it holds whatever its sender likes.
func unframed(line []byte, now time.Time) (record []byte, foreign bool) {
	if record = unmarked(line); record != nil {
		return record, false
	}
	h, message := logline.Split(line, now)
	if h.Program == "suricata" {
		record = unmarked(message)
	}
	return record, record == nil && h.Program != ""
}

// unmarked returns an object without the mark in front of it, nil of what is none.
func unmarked(text []byte) []byte {
	text = bytes.TrimPrefix(bytes.TrimLeft(text, " \t"), []byte("@cee:"))
	if text = bytes.TrimLeft(text, " \t"); bytes.HasPrefix(text, []byte("{")) {
		return text
	}
	return nil
}

func (m *objects) holds(c *condition) bool {
	for _, slot := range c.slots {
		for _, v := range m.values[slot] {
			if is, known := m.is(c, v); known && is != c.not {
				return true
			}
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
	if v.text && !isNumber(v.raw) {
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

// isNumber tells whether a text is a number as JSON writes it: converters of records, and formats
// of logs such as nginx', write numbers in quotes.
func isNumber(b []byte) bool {
	digits := bytes.TrimPrefix(b, []byte("-"))
	if len(digits) == 0 || digits[0] < '0' || digits[0] > '9' ||
		len(digits) > 1 && digits[0] == '0' && digits[1] != '.' {
		return false
	}
	return !bytes.ContainsFunc(digits, func(r rune) bool {
		return !strings.ContainsRune("0123456789.eE+-", r)
	})
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
