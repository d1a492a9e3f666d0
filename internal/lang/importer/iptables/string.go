package iptables

import (
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"levee/internal/lang/dnsname"
	"levee/internal/lang/importer"
	"levee/internal/lang/importer/match"
	"levee/internal/lang/literal"
	"levee/internal/lang/pattern"
)

// ipString is a search of -m string.
type ipString struct {
	find     []byte
	not      bool
	anyCase  bool
	from, to int // offsets behind the beginning of the IP header
}

// anywhere is the offset that iptables goes to where a rule says none.
const anywhere = 65535

// longest is the end of the longest packet of most networks.
const longest = 1500

// text reads the options of -m string.
func (p *ipRule) text(o string) (bool, error) {
	if p.module != "string" || len(p.texts) == 0 {
		return false, nil
	}
	s := &p.texts[len(p.texts)-1]
	switch o {
	case "--string", "--hex-string":
		s.not = p.not
		v := p.value()
		if s.not = s.not || p.not; o == "--string" {
			s.find = []byte(v)
			return true, nil
		}
		var err error
		s.find, err = hexString(v)
		return true, err
	case "--algo": // two ways to the same
		p.value()
	case "--icase":
		s.anyCase = true
	case "--from", "--to":
		n, err := strconv.ParseUint(p.value(), 0, 16)
		if err != nil {
			return true, fmt.Errorf("%s needs an offset up to %d", o, anywhere)
		}
		if o == "--from" {
			s.from = int(n)
		} else {
			s.to = int(n)
		}
	default:
		return false, nil
	}
	return true, nil
}

// hexString returns a text with bytes in hexadecimal between bars.
func hexString(s string) (out []byte, err error) {
	for i, part := range strings.Split(s, "|") {
		if i%2 == 0 {
			out = append(out, part...)
			continue
		}
		b, err := hex.DecodeString(strings.ReplaceAll(part, " ", ""))
		if err != nil {
			return nil, fmt.Errorf("%s is not bytes in hexadecimal", match.Quote(part))
		}
		out = append(out, b...)
	}
	return out, nil
}

// finishTexts makes searches of payloads of what the rule asks for by -m string.
func (p *ipRule) finishTexts() {
	for i := range p.texts {
		s := &p.texts[i]
		for k := range p.Rule.Alts {
			if !slices.Equal(p.Rule.Alts[k].Fields[match.Proto], match.Just(17)) {
				p.Unknown("-m string searches packets that are not udp alone",
					"`payload contains` searches those of udp: write a rule with -p udp")
				return
			}
		}
		headers := 8 + 20
		if p.tab.six {
			headers = 8 + 40
		}
		term := s.term(headers, &p.t.searching)
		if term == "" {
			p.Unknown(fmt.Sprintf("-m string searches bytes %d to %d of the packet", s.from, s.to),
				"write `payload contains` without them, or `payload at`")
			return
		}
		if s.not {
			term = "not " + term
		}
		p.Both(match.Match{Finds: []string{term}}.Settle())
		where := "searches the headers too, and `payload contains` what follows them"
		if s.bounded(headers) {
			where = fmt.Sprintf("searches bytes %d to %d of the packet, which is taken to have no "+
				"options: the payload begins at %d", s.from, s.to, headers)
		}
		instead := ""
		if name := wireName(s.find); name != "" {
			instead = "`dns name \"" + name + "\"` finds it in questions alone, whatever its case"
		}
		p.Remark(importer.Changed, "-m string "+where, instead)
	}
}

// wireName returns the DNS name in bytes in the form of messages, "" if they are no name.
func wireName(b []byte) string {
	if n := len(b); n > 0 && b[n-1] == 0 {
		b = b[:n-1]
	}
	n, ok := dnsname.Stored(b)
	if !ok || n.Labels() < 2 {
		return ""
	}
	return n.String()
}

// bounded tells whether only a part of the payload is searched.
func (s *ipString) bounded(headers int) bool { return s.from > headers || s.to < longest }

// term searches the payload, which begins so many bytes behind the IP header's beginning; "" where
// no search does the same, or the rules search for too much together.
func (s *ipString) term(headers int, work *pattern.Work) string {
	first, last := max(s.from-headers, 0), s.to-headers-len(s.find)
	it := pattern.Item{Text: s.find}
	if last < first || len(s.find) > literal.MaxFind {
		return ""
	}
	text := hex.EncodeToString(s.find)
	printable := !strings.ContainsFunc(string(s.find), func(r rune) bool {
		return r < ' ' || r > '~' || r == '"'
	})
	if printable {
		text = `"` + string(s.find) + `"`
	}
	if s.bounded(headers) {
		var b strings.Builder
		for _, c := range s.find {
			if c < ' ' || c > '~' {
				fmt.Fprintf(&b, `\x%02x`, c)
			} else {
				b.WriteString(strings.ReplaceAll(regexp.QuoteMeta(string(c)), "/", `\/`))
			}
		}
		bound := fmt.Sprintf("{%d,%d}", first, last)
		if s.to >= longest {
			bound = fmt.Sprintf("{%d,}", first)
		}
		it = pattern.Item{Expression: `^[\x00-\xff]` + bound + strings.ReplaceAll(b.String(), `\/`,
			"/")}
		text = `/^[\x00-\xff]` + bound + b.String() + "/"
	}
	if _, err := work.Compile([]pattern.Item{it}, s.anyCase); err != nil {
		return ""
	}
	if s.anyCase {
		text += " any case"
	}
	return "payload contains " + text
}
