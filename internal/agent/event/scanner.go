package event

import (
	"bytes"
	"strings"
)

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

// object reads an object. Values of n's fields are kept; n is nil where nobody asks for any.
func (s *scanner) object(n *node, depth int) bool {
	if depth > maxDepth || !s.is('{') {
		return false
	}
	if n != nil && n != s.m.root && !n.list {
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
	if n.slot >= 0 {
		s.m.values[n.slot] = s.m.values[n.slot][:0]
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
			if !n.list && !n.kids[i].list {
				s.forget(n.kids[i])
			}
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
	if n != nil && n.slot >= 0 && len(s.m.values[n.slot]) < maxValues {
		s.m.values[n.slot] = append(s.m.values[n.slot], v)
	}
}

// array reads a list, whose texts and numbers are all values of the field. Objects in a list belong
// to no field, unless n is a list of objects.
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
			of := n
			if n == nil || !n.list || s.b[s.at] == '[' {
				of = nil
			}
			if !s.value(of, depth) {
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
