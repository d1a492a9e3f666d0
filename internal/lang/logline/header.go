package logline

import (
	"bytes"
	"strconv"
	"time"
)

// Header is the part of a line before its message.
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
//   - lines of web servers and of other files that programs write themselves, which are a message
//     as a whole, with one of their times.
//
// A line of another shape is a message as a whole. now gives the year and the time zone that old
// forms lack.
func Split(line []byte, now time.Time) (h Header, message []byte) {
	h.Times = 1
	line = bytes.TrimSuffix(line, []byte("\r"))
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
		if h.Time.IsZero() {
			h.Time = ownTime(line, now)
		}
		return h, message
	}
	h.Time = t
	tag, message, ok := cutTag(behind, rest[3] == ' ')
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

// cutTag steps over the host and the facility, where they are there, and cuts off the program. A
// colon ends it. ProFTPD's has none behind its number in brackets, and SOGo's a blank before it.
// metalog, whose lines begin with old times, has the program in brackets and no host.
func cutTag(b []byte, old bool) (tag, message []byte, ok bool) {
	var before []byte
	for i := range 4 { // host, facility, program, [number]
		tag, b, ok = bytes.Cut(b, []byte(" "))
		if !ok || len(tag) == 0 || bytes.IndexByte(tag, '"') >= 0 {
			return nil, nil, false
		}
		program, colon := bytes.CutSuffix(tag, []byte(":"))
		switch {
		case i == 0 && old && inBrackets(program) && !isNumber(program):
			return program, b, true
		case colon && i > 0 && isNumber(program) && before[0] != '[':
			return before, b, true
		case tag[0] == '[' || i == 3:
		case colon:
			return program, b, true
		case withNumber(tag):
			return tag, b, true
		}
		before = tag
	}
	return nil, nil, false
}

func inBrackets(b []byte) bool { return len(b) > 2 && b[0] == '[' && b[len(b)-1] == ']' }

// isNumber tells of [811].
func isNumber(b []byte) bool { return inBrackets(b) && digits(b[1:len(b)-1]) }

// withNumber tells of sshd[811].
func withNumber(b []byte) bool {
	at := bytes.IndexByte(b, '[')
	return at > 0 && isNumber(b[at:])
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

// maxRepeated is the largest number of times that a daemon may say at once that a message came.
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

// oldStamp reads the time of RFC 3164. Some write days without their padding, the year behind the
// day, or a fraction of a second.
func oldStamp(b []byte, now time.Time) (t time.Time, behind []byte) {
	for _, form := range []string{"Jan _2 15:04:05", "Jan 2 15:04:05", "Jan _2 2006 15:04:05"} {
		if len(b) <= len(form) || b[len(form)] != ' ' && b[len(form)] != '.' {
			continue
		}
		t, err := time.ParseInLocation(form, string(b[:len(form)]), now.Location())
		if err != nil {
			continue
		}
		rest := b[len(form):]
		if rest[0] == '.' {
			fraction := bytes.IndexByte(rest, ' ')
			if fraction < 2 || !digits(rest[1:fraction]) {
				continue
			}
			rest = rest[fraction:]
		}
		if t.Year() == 0 {
			t = withYear(t, now)
		}
		return t, rest[1:]
	}
	return t, nil
}

// withYear is a time that was read without its year.
func withYear(t, now time.Time) time.Time {
	t = time.Date(now.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0,
		now.Location())
	if t.After(now.Add(48 * time.Hour)) { // of December, read in January
		t = t.AddDate(-1, 0, 0)
	}
	return t
}

// isoStamp reads a time of RFC 3339, or one with a blank between day and hour, or without a zone. A
// zone may stand behind another blank.
func isoStamp(b []byte, now time.Time) (t time.Time, behind []byte) {
	const short = len("2006-01-02 15:04:05")
	if len(b) <= short {
		return t, nil
	}
	end := bytes.IndexByte(b[short:], ' ')
	if end += short; end < short || end > 35 {
		return t, nil
	}
	stamp, rest := string(b[:end]), b[end+1:]
	if b[10] == 'T' {
		for _, form := range []string{time.RFC3339Nano, "2006-01-02T15:04:05",
			"2006-01-02T15:04:05-0700"} { // of journalctl
			if t, err := time.ParseInLocation(form, stamp, now.Location()); err == nil {
				return t, rest
			}
		}
		return t, nil
	}
	form := "2006-01-02 15:04:05" // a fraction of a second may be there
	if b[11] == ' ' {             // of MariaDB, before ten o'clock
		form = "2006-01-02  15:04:05"
	}
	if zone, behind, ok := bytes.Cut(rest, []byte(" ")); ok {
		for _, z := range []string{"-0700", "-07:00", "MST"} {
			if t, err := time.Parse(form+" "+z, stamp+" "+string(zone)); err == nil &&
				(z != "MST" || string(zone) == "UTC") {
				return t, behind
			}
		}
	}
	for _, form := range []string{form, form + "Z07:00"} {
		if t, err := time.ParseInLocation(form, stamp, now.Location()); err == nil {
			return t, rest
		}
	}
	return t, nil
}

// ownTimes are further times at the beginning of lines that programs write to files of their own,
// without brackets around them. All may have a fraction of a second.
var ownTimes = []string{
	"2006-01-02 15:04:05",        // Asterisk, ZNC, Vaultwarden, Mumble's server
	"2006-01-02T15:04:05-0700",   // Monit
	"2006-01-02 15:04:05 -07:00", // Jellyfin
	"02-Jan-2006 15:04:05 -0700", // Roundcube
	"02-Jan-2006 15:04:05",       // BIND, without brackets
	"Jan _2 15:04:05",            // Asterisk
	"20060102-15:04:05",          // xrdp
}

// ownTime reads one of them.
func ownTime(line []byte, now time.Time) time.Time {
	line = bytes.TrimPrefix(line, []byte("<W>")) // a warning, of Mumble's server
	if bytes.HasPrefix(line, []byte("{")) {
		return jsonTime(line, now)
	}
	if t, ok := epoch(line, now); ok {
		return t
	}
	if rest, ok := bytes.CutPrefix(line, []byte("NOTICE    ")); ok { // of Tinyproxy
		t, _ := oldStamp(rest, now)
		return t
	}
	stamp := line[:min(len(line), 40)]
	if bytes.HasPrefix(stamp, []byte("[")) {
		stamp, _, _ = bytes.Cut(stamp[1:], []byte("]"))
	} else if day, behind, ok := bytes.Cut(stamp, []byte(" ")); ok {
		clock, _, _ := bytes.Cut(behind, []byte(" "))
		stamp = stamp[:len(day)+1+len(clock)]
	}
	if len(stamp) < len("Jan _2 15:04:05") {
		return time.Time{}
	}
	for _, form := range ownTimes {
		t, err := time.ParseInLocation(form, string(stamp), now.Location())
		if err != nil {
			continue
		}
		if t.Year() == 0 {
			return withYear(t, now)
		}
		return t
	}
	return time.Time{}
}

// jsonTime reads the time of an object of JSON: of Caddy, MongoDB, Nextcloud, GitLab, Traefik. What
// a client has written has no quote but behind a backslash. The first time is that of the program:
// a client may name what it sends as it likes.
func jsonTime(line []byte, now time.Time) (t time.Time) {
	for _, name := range []string{`"ts":`, `"$date":`, `"time":`, `"StartUTC":`} {
		at := bytes.Index(line, []byte(name))
		if at < 0 {
			continue
		}
		if first := jsonTimeOf(line[at+len(name):], now); !first.IsZero() {
			t, line = first, line[:at]
		}
	}
	return t
}

// jsonTimeOf reads the value of a member: a text, or seconds, milliseconds or microseconds since
// 1970. A smaller number is how long something took.
func jsonTimeOf(value []byte, now time.Time) (t time.Time) {
	if text, ok := bytes.CutPrefix(value, []byte(`"`)); ok {
		text, _, _ = bytes.Cut(text, []byte(`"`))
		for _, form := range []string{time.RFC3339, "January 2, 2006 15:04:05"} {
			if t, err := time.ParseInLocation(form, string(text), now.Location()); err == nil {
				return t
			}
		}
		return t
	}
	n := bytes.IndexFunc(value, func(c rune) bool { return c < '0' || c > '9' })
	s, err := strconv.ParseInt(string(value[:max(n, 0)]), 10, 64)
	for ; err == nil && s > 1e11; s /= 1000 {
	}
	if err == nil && s > 1e8 {
		t = time.Unix(s, 0).In(now.Location())
	}
	return t
}

// epoch reads the seconds since 1970, with thousandths, at the beginning of a line of Squid's.
func epoch(line []byte, now time.Time) (t time.Time, ok bool) {
	seconds, rest, ok := bytes.Cut(line, []byte("."))
	thousandths, _, behind := bytes.Cut(rest, []byte(" "))
	if !ok || !behind || len(seconds) != 10 || len(thousandths) != 3 || !digits(seconds) ||
		!digits(thousandths) {
		return t, false
	}
	s, _ := strconv.ParseInt(string(seconds), 10, 64)
	ms, _ := strconv.ParseInt(string(thousandths), 10, 64)
	return time.Unix(s, ms*int64(time.Millisecond)).In(now.Location()), true
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
