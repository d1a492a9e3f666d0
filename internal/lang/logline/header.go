package logline

import (
	"bytes"
	"strconv"
	"time"
)

// Header is what stands before the message of a line.
type Header struct {
	Program string    // who has written it, "" if the line does not say
	Time    time.Time // zero if it does not say
	Times   int       // how often the message came: a syslog daemon may write it once for several
}

// Split takes a line apart:
//
//   - RFC 5424;
//   - RFC 3164 as syslog daemons write it to files and programs to sockets: with or without the
//     priority and the host, with the time in the old form, in that of RFC 3339, or with the year
//     behind it (OpenWrt), and with the facility before the program (BusyBox, OpenWrt);
//   - files of Dovecot's own, whose lines begin with a time and one of its services;
//   - lines of web servers, which are a message as a whole, with one of their times.
//
// A line of another shape is a message as a whole. now gives the year and the time zone that old
// forms lack.
func Split(line []byte, now time.Time) (h Header, message []byte) {
	h.Times = 1
	rest := line
	if n := bytes.IndexByte(rest, '>'); len(rest) > 2 && rest[0] == '<' && n > 1 && n < 5 &&
		digits(rest[1:n]) {
		rest = rest[n+1:]
		if bytes.HasPrefix(rest, []byte("1 ")) {
			if h, message, ok := split5424(rest[2:]); ok {
				h.Times = 1
				return h, message
			}
		}
	}
	t, behind := stamp(rest, now)
	if behind == nil {
		if h.Time, message = apacheTime(line, now); message == nil {
			h.Time, message = webTime(line, now), line
		}
		return h, message
	}
	h.Time = t
	tag, message, ok := cutTag(behind)
	if !ok {
		return h, line
	}
	if h.Program = name(tag); ofDovecot[h.Program] && bytes.HasPrefix(message, []byte("Info: ")) {
		h.Program = "dovecot"
		return h, behind[len(behind)-len(tag)-len(": ")-len(message):]
	}
	h.Times, message = repeated(withoutID(message))
	return h, message
}

// withoutID takes off what Solaris writes before messages: [ID 800047 auth.info].
func withoutID(message []byte) []byte {
	const before = "[ID "
	id, rest, ok := bytes.Cut(message, []byte("] "))
	if !ok || !bytes.HasPrefix(id, []byte(before)) {
		return message
	}
	number, facility, ok := bytes.Cut(id[len(before):], []byte(" "))
	if !ok || !digits(number) || bytes.IndexByte(facility, ' ') >= 0 {
		return message
	}
	return rest
}

// cutTag steps over the host and the facility, where they are there, and cuts off the program.
func cutTag(b []byte) (tag, message []byte, ok bool) {
	for range 3 { // host, facility, program
		tag, b, ok = bytes.Cut(b, []byte(" "))
		if !ok || len(tag) == 0 || bytes.IndexByte(tag, '"') >= 0 {
			return nil, nil, false
		}
		if program, ok := bytes.CutSuffix(tag, []byte(":")); ok {
			return program, b, true
		}
		if tag[0] == '[' && tag[len(tag)-1] == ']' { // metalog has no colon behind
			return tag, b, true
		}
	}
	return nil, nil, false
}

// name is the program that a tag such as sshd[811], [sshd] or auth-worker(bob,192.0.2.9)<7> names.
func name(tag []byte) string {
	if at := bytes.IndexAny(tag, "[(<"); at > 0 {
		tag = tag[:at]
	}
	return string(bytes.Trim(tag, "[]"))
}

// ofDovecot are the services that its own files name where syslog has dovecot.
var ofDovecot = map[string]bool{
	"auth": true, "auth-worker": true, "imap-login": true, "pop3-login": true,
	"managesieve-login": true, "submission-login": true,
}

// repeated takes a message apart that rsyslog writes for several: "message repeated 3 times: [ x]".
func repeated(message []byte) (times int, of []byte) {
	const before, between = "message repeated ", " times: ["
	if !bytes.HasPrefix(message, []byte(before)) || !bytes.HasSuffix(message, []byte("]")) {
		return 1, message
	}
	number, of, ok := bytes.Cut(message[len(before):len(message)-1], []byte(between))
	n, err := strconv.Atoi(string(number))
	if !ok || err != nil || n < 1 || n > maxRepeated {
		return 1, message
	}
	return n, bytes.TrimPrefix(of, []byte(" "))
}

// maxRepeated is how often a daemon may say at once that a message came.
const maxRepeated = 1 << 20

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

// stamp reads the time at the beginning of a line of a syslog daemon; behind is nil if it has none.
func stamp(b []byte, now time.Time) (t time.Time, behind []byte) {
	if len(b) < 16 {
		return t, nil
	}
	if rest := b[4:]; b[3] == ' ' { // Jan _2 15:04:05, or a day of the week before it
		if len(rest) > 20 && rest[3] == ' ' { // OpenWrt: Mon Jan _2 15:04:05 2006
			const long = "Jan _2 15:04:05 2006"
			t, err := time.ParseInLocation(long, string(rest[:len(long)]), now.Location())
			if err == nil && rest[len(long)] == ' ' {
				return t, rest[len(long)+1:]
			}
		}
		return oldStamp(b, now)
	}
	if b[4] == '-' {
		return isoStamp(b, now)
	}
	if b[0] == '@' {
		return taiStamp(b)
	}
	return t, nil
}

// oldStamp reads the time of RFC 3164. Some write days without their padding.
func oldStamp(b []byte, now time.Time) (t time.Time, behind []byte) {
	const old, short = "Jan _2 15:04:05", "Jan 2 15:04:05"
	form := old
	if b[4] != ' ' && b[5] == ' ' {
		form = short
	}
	if len(b) <= len(form) || b[len(form)] != ' ' {
		return t, nil
	}
	t, err := time.ParseInLocation(form, string(b[:len(form)]), now.Location())
	if err != nil {
		return t, nil
	}
	t = time.Date(now.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0,
		now.Location())
	if t.After(now.Add(48 * time.Hour)) { // of December, read in January
		t = t.AddDate(-1, 0, 0)
	}
	return t, b[len(form)+1:]
}

// isoStamp reads a time of RFC 3339, or one with a blank between day and hour.
func isoStamp(b []byte, now time.Time) (t time.Time, behind []byte) {
	const spaced = "2006-01-02 15:04:05"
	if len(b) > len(spaced) && b[10] == ' ' && b[len(spaced)] == ' ' {
		t, err := time.ParseInLocation(spaced, string(b[:len(spaced)]), now.Location())
		if err != nil {
			return t, nil
		}
		return t, b[len(spaced)+1:]
	}
	if at := bytes.IndexByte(b, ' '); at >= 20 && at <= 35 && b[10] == 'T' {
		if t, err := time.Parse(time.RFC3339Nano, string(b[:at])); err == nil {
			return t, b[at+1:]
		}
	}
	return t, nil
}

// taiStamp reads a TAI64N label, as multilog and s6 write it: https://cr.yp.to/libtai/tai64.html.
// TAI is 37 s ahead of UTC since 2017.
func taiStamp(b []byte) (t time.Time, behind []byte) {
	const digits, epoch, ahead = 24, 1 << 62, 37
	if len(b) <= digits+1 || b[digits+1] != ' ' {
		return t, nil
	}
	seconds, err := strconv.ParseUint(string(b[1:17]), 16, 64)
	nanos, err2 := strconv.ParseUint(string(b[17:digits+1]), 16, 32)
	if err != nil || err2 != nil || seconds < epoch || seconds-epoch > 1<<40 {
		return t, nil
	}
	return time.Unix(int64(seconds-epoch)-ahead, int64(nanos)), b[digits+2:]
}

// apacheTime reads the time in brackets at the beginning of a line of Apache's error log.
func apacheTime(line []byte, now time.Time) (t time.Time, message []byte) {
	const form = "Mon Jan _2 15:04:05 2006" // a fraction of a second may be there
	stamp, message, ok := bytes.Cut(line, []byte("] "))
	if !ok || len(stamp) < len(form)+1 || len(stamp) > len(form)+11 || stamp[0] != '[' {
		return t, nil
	}
	t, err := time.ParseInLocation(form, string(stamp[1:]), now.Location())
	if err != nil {
		return t, nil
	}
	return t, message
}

// webTime returns the time of a web server's log line: at its beginning in error logs of nginx and
// lighttpd, in brackets before the first quote in access logs. No client can write a quote before
// that one: servers write it as \x22 or \".
func webTime(line []byte, now time.Time) (t time.Time) {
	const errors, access = "2006/01/02 15:04:05", "02/Jan/2006:15:04:05 -0700"
	const lighttpd = "2006-01-02 15:04:05"
	if len(line) > len(lighttpd) && line[4] == '-' && line[len(lighttpd)] == ':' {
		t, _ = time.ParseInLocation(lighttpd, string(line[:len(lighttpd)]), now.Location())
		return t
	}
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
