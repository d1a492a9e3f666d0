package logline

import (
	"bytes"
	"time"
)

// Header is what stands before the message of a line.
type Header struct {
	Program string    // who has written it, "" if the line does not say
	Time    time.Time // zero if it does not say
}

// Split takes a line apart: RFC 5424, RFC 3164 as syslog daemons write it to files, with the time
// in
// the old form or in that of RFC 3339, and with or without the priority. A line of another shape is
// a message as a whole; its time may be one of those of web servers. now gives the year and the
// time zone that old forms lack.
func Split(line []byte, now time.Time) (h Header, message []byte) {
	rest := line
	if n := bytes.IndexByte(rest, '>'); len(rest) > 2 && rest[0] == '<' && n > 1 && n < 5 &&
		digits(rest[1:n]) {
		rest = rest[n+1:]
		if bytes.HasPrefix(rest, []byte("1 ")) {
			if h, message, ok := split5424(rest[2:]); ok {
				return h, message
			}
		}
	}
	t, behind := stamp(rest, now)
	if behind == nil {
		h.Time = webTime(line, now)
		return h, line
	}
	h.Time = t
	_, behind, ok := bytes.Cut(behind, []byte(" ")) // the host
	if !ok {
		return h, line
	}
	tag, message, ok := bytes.Cut(behind, []byte(": "))
	if !ok || bytes.ContainsAny(tag, " \t\"") {
		return h, line
	}
	if at := bytes.IndexByte(tag, '['); at > 0 && tag[len(tag)-1] == ']' &&
		digits(tag[at+1:len(tag)-1]) {
		tag = tag[:at]
	}
	h.Program = string(tag)
	return h, message
}

func digits(b []byte) bool {
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(b) > 0
}

// split5424 reads what stands behind the version: time, host, program, process, message id,
// structured data, message (RFC 5424, section 6).
func split5424(b []byte) (h Header, message []byte, ok bool) {
	var part [5][]byte
	for i := range part {
		if part[i], b, ok = bytes.Cut(b, []byte(" ")); !ok {
			return h, nil, false
		}
	}
	if t, err := time.Parse(time.RFC3339Nano, string(part[0])); err == nil {
		h.Time = t
	}
	h.Program = string(part[2])
	if bytes.HasPrefix(b, []byte("-")) {
		b = b[1:]
	} else if b, ok = structured(b); !ok {
		return h, nil, false
	}
	b = bytes.TrimPrefix(b, []byte(" "))
	return h, bytes.TrimPrefix(b, []byte("\xef\xbb\xbf")), true
}

// structured steps over structured data: [id name="value" ...], any number of them.
func structured(b []byte) (rest []byte, ok bool) {
	for len(b) > 0 && b[0] == '[' {
		quoted, end := false, -1
		for i := 1; i < len(b) && end < 0; i++ {
			switch c := b[i]; {
			case c == '\\' && quoted:
				i++
			case c == '"':
				quoted = !quoted
			case c == ']' && !quoted:
				end = i
			}
		}
		if end < 0 {
			return nil, false
		}
		b, ok = b[end+1:], true
	}
	return b, ok
}

// stamp reads the time that a line of a syslog daemon begins with; behind is nil if it has none.
func stamp(b []byte, now time.Time) (t time.Time, behind []byte) {
	const old = "Jan _2 15:04:05"
	if len(b) > len(old) && b[len(old)] == ' ' && b[3] == ' ' {
		t, err := time.ParseInLocation(old, string(b[:len(old)]), now.Location())
		if err != nil {
			return t, nil
		}
		t = time.Date(now.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0,
			now.Location())
		if t.After(now.Add(48 * time.Hour)) { // of December, read in January
			t = t.AddDate(-1, 0, 0)
		}
		return t, b[len(old)+1:]
	}
	if at := bytes.IndexByte(b, ' '); at >= 20 && at <= 35 && b[4] == '-' && b[10] == 'T' {
		if t, err := time.Parse(time.RFC3339Nano, string(b[:at])); err == nil {
			return t, b[at+1:]
		}
	}
	return t, nil
}

// webTime is the time of a line of a web server: at its beginning as nginx writes errors, or in
// brackets before the first quote as all write what was asked for. No client can write a quote
// before that one: servers write it as \x22 or \".
func webTime(line []byte, now time.Time) (t time.Time) {
	const errors, access = "2006/01/02 15:04:05", "02/Jan/2006:15:04:05 -0700"
	if len(line) > len(errors) && line[4] == '/' {
		t, _ = time.ParseInLocation(errors, string(line[:len(errors)]), now.Location())
		return t
	}
	before, _, ok := bytes.Cut(line, []byte(`] "`))
	if n := len(before) - len(access); ok && n > 0 && before[n-1] == '[' &&
		bytes.IndexByte(before, '"') < 0 {
		t, _ = time.Parse(access, string(before[n:]))
	}
	return t
}
