package stream

import (
	"bytes"
	"slices"
	"strings"
)

// lined reads a stream of lines, each line as soon as it is complete.
type lined struct {
	held []byte
	kept int // bytes of lines of which something is in the record
	most int // bytes of a line
	// begins says whether a line may begin so; nil: it may.
	begins func(held []byte) bool
	line   func(string) Answer
}

func (l *lined) Held() int { return len(l.held) + l.kept }

func (l *lined) Feed(b []byte) Answer {
	for _, c := range b {
		if c == '\n' {
			text := string(bytes.TrimSuffix(l.held, []byte{'\r'}))
			l.held = nil // the room of a long line would be held, and not counted
			if a := l.line(text); a != More {
				return a
			}
			continue
		}
		l.held = append(l.held, c)
		if len(l.held) > l.most || l.begins != nil && !l.begins(l.held) {
			return Unknown
		}
	}
	return More
}

var http = Protocol{
	Name:   "http",
	What:   "the request line and the header fields of HTTP/1, of the first request",
	Protos: []uint8{TCP},
	Ports:  []uint16{80},
	Fields: []string{"http.http_method", "http.url", "http.protocol", "http.hostname",
		"http.http_user_agent", "http.http_refer"},
	New: func(uint8) Parser {
		p := &httpParser{fields: map[string]any{}}
		p.lined = lined{most: Limit, begins: p.request, line: p.next}
		return p
	},
}

type httpParser struct {
	lined
	fields map[string]any
	// last is the field of the line before, with whose value the next one may go on; "": none.
	last  string
	value []byte
}

// End is that a request that is known is a record, however many fields would come.
func (p *httpParser) End() bool { return len(p.fields) > 0 }

func (p *httpParser) Record() map[string]any {
	p.endValue()
	return map[string]any{"http": p.fields}
}

// request says whether the line may be one of a request (RFC 9112, section 3).
func (p *httpParser) request(held []byte) bool {
	const longest = 32 // of methods that are known, and those of others
	if len(p.fields) > 0 {
		return true
	}
	method, _, whole := bytes.Cut(held, []byte{' '})
	if len(method) == 0 || !whole && len(method) > longest {
		return false
	}
	last := method[len(method)-1]
	return whole || last >= 'A' && last <= 'Z' || last == '-' || last == '_' ||
		last == '\r' && len(method) == 1
}

// eveFields are header fields, by their names in EVE.
var eveFields = map[string]string{"host": "hostname", "user-agent": "http_user_agent",
	"referer": "http_refer"}

func (p *httpParser) next(line string) Answer {
	switch {
	case len(p.fields) == 0 && line == "": // section 2.2: such a line in front means nothing
		return More
	case line == "":
		return Done
	case len(p.fields) == 0:
		return p.requestLine(line)
	case line[0] == ' ' || line[0] == '\t': // section 5.2: the value before goes on
		if p.last != "" {
			p.value = append(append(p.value, ' '), strings.Trim(line, " \t")...)
			p.kept += len(line)
		}
		return More
	}
	p.endValue()
	name, value, ok := strings.Cut(line, ":")
	eve := eveFields[strings.ToLower(name)]
	if !ok || eve == "" || p.fields[eve] != nil {
		return More
	}
	p.last, p.value = eve, []byte(value)
	p.kept += len(line)
	return More
}

// endValue has a value be that of its field.
func (p *httpParser) endValue() {
	if p.last == "" {
		return
	}
	value := strings.Trim(string(p.value), " \t")
	if p.last == "hostname" {
		value = hostOf(value)
	}
	p.fields[p.last] = value
	p.last, p.value = "", nil
}

// requestLine reads the first line, with any number of spaces between its words, as servers do
// (section 3). A target may name the host, which counts before the field does (section 3.2.2).
func (p *httpParser) requestLine(line string) Answer {
	method, rest, _ := strings.Cut(line, " ")
	rest = strings.Trim(rest, " ")
	at := strings.LastIndexByte(rest, ' ')
	if at < 0 || !strings.HasPrefix(rest[at+1:], "HTTP/1.") {
		return Unknown
	}
	url := strings.TrimRight(rest[:at], " ")
	p.fields["http_method"], p.fields["url"], p.fields["protocol"] = method, url, rest[at+1:]
	p.kept += len(line)
	host := ""
	if scheme, authority, is := strings.Cut(url, "://"); is && !strings.ContainsAny(scheme, "/?") {
		host = authority[:strings.IndexAny(authority+"/", "/?#")]
		host = host[strings.LastIndexByte(host, '@')+1:]
	} else if method == "CONNECT" {
		host = url
	}
	if host != "" {
		p.fields["hostname"] = hostOf(host)
		p.kept += len(host) // beside those of the line
	}
	return More
}

// hostOf is the host of an authority (RFC 3986, section 3.2) as EVE has it: in small letters,
// without its port and without dots behind it.
func hostOf(authority string) string {
	host := authority
	if at := strings.LastIndexByte(host, ']'); at >= 0 && host[0] == '[' {
		host = host[:at+1] // an address of IPv6
	} else if name, _, is := strings.Cut(host, ":"); is && strings.Count(host, ":") == 1 {
		host = name
	}
	small := []byte(strings.TrimRight(host, "."))
	for i, c := range small {
		if c >= 'A' && c <= 'Z' {
			small[i] = c | 0x20
		}
	}
	return string(small)
}

var smtp = Protocol{
	Name:   "smtp",
	What:   "what a client of SMTP says up to the first recipient",
	Protos: []uint8{TCP},
	Ports:  []uint16{25, 587},
	Fields: []string{"smtp.helo", "smtp.mail_from", "smtp.rcpt_to"},
	New: func(uint8) Parser {
		p := &smtpParser{fields: map[string]any{}}
		p.lined = lined{most: 2048, line: p.next}
		return p
	},
}

type smtpParser struct {
	lined
	fields map[string]any
}

// End is that a greeting is a record: many begin TLS behind it, and say the rest there.
func (p *smtpParser) End() bool { return len(p.fields) > 0 }

func (p *smtpParser) Record() map[string]any { return map[string]any{"smtp": p.fields} }

// smtpBefore are commands that a client may say before it greets (RFC 5321, section 4.1.4).
var smtpBefore = []string{"NOOP", "RSET", "HELP", "VRFY", "EXPN"}

func (p *smtpParser) next(line string) Answer {
	upper := strings.ToUpper(line)
	if len(p.fields) == 0 {
		for _, word := range []string{"EHLO ", "HELO ", "LHLO "} {
			if strings.HasPrefix(upper, word) {
				p.fields["helo"] = strings.Trim(line[len(word):], " ")
				p.kept += len(line)
				return More
			}
		}
		if word, _, _ := strings.Cut(upper, " "); slices.Contains(smtpBefore, word) {
			return More
		}
		return Unknown
	}
	for _, of := range []struct{ word, field string }{{"MAIL FROM:", "mail_from"},
		{"RCPT TO:", "rcpt_to"}} {
		if !strings.HasPrefix(upper, of.word) {
			continue
		}
		path, _, _ := strings.Cut(strings.TrimLeft(line[len(of.word):], " "), " ")
		p.fields[of.field] = path
		p.kept += len(line)
		if of.field == "rcpt_to" {
			return Done
		}
		return More
	}
	if upper == "STARTTLS" || upper == "QUIT" || upper == "DATA" {
		return Done
	}
	return More
}

var banner = Protocol{
	Name:   "banner",
	What:   "the first line that a client says, whatever it speaks, at most 256 bytes",
	Protos: []uint8{TCP},
	Fields: []string{"payload_printable"},
	New:    func(uint8) Parser { return &bannerParser{} },
}

type bannerParser struct{ held []byte }

func (p *bannerParser) Held() int { return len(p.held) }

func (p *bannerParser) End() bool { return len(p.held) > 0 }

func (p *bannerParser) Feed(b []byte) Answer {
	const most = 256
	for _, c := range b {
		if c == '\n' && len(p.held) > 0 {
			return Done
		}
		if c < ' ' || c > '~' {
			c = '.'
		}
		if p.held = append(p.held, c); len(p.held) == most {
			return Done
		}
	}
	return More
}

func (p *bannerParser) Record() map[string]any {
	return map[string]any{"payload_printable": string(p.held)}
}
