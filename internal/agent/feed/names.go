package feed

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"unicode"

	"levee/internal/lang/dnsname"
	"levee/internal/lang/literal"
)

// readNames reads the names of lines: one a line, as "*.example.com" and ".example.com" too;
// several behind an address, as hosts files have them (hosts(5)), or with commas; those of a zone
// of rules for responses; or "||NAME^" of filters of browsers, a domain with all below it, as each
// name of a set is. Lines of such filters that ask for more than a name, such as "@@" for
// exceptions, "$" for options or "##" for parts of pages, are not taken, and told.
func readNames(in *reader, r io.Reader) error {
	s := bufio.NewScanner(literal.ListLines(r))
	s.Buffer(make([]byte, 0, 4096), maxLine)
	for n := 1; s.Scan(); n++ {
		line := strings.TrimSpace(s.Text())
		if line == "" || line[0] == '!' || line[0] == '[' { // a comment and a heading of filters
			continue
		}
		words := namesOf(line)
		i := strings.IndexAny(line, "#;")
		if i > 0 && line[i] == '#' && line[i-1] != ' ' && line[i-1] != '\t' {
			words = []string{line} // "NAME##WHAT" hides a part of the pages of a good name
		} else if i >= 0 {
			if line = strings.TrimSpace(line[:i]); line == "" {
				continue
			}
			words = namesOf(line)
		}
		if len(words) == 0 {
			continue
		}
		if _, err := netip.ParseAddr(words[0]); err == nil && len(words) > 1 {
			words = words[1:]
		} else {
			words = ofZone(words)
		}
		for _, word := range words {
			if err := in.entry(word, n, false); err != nil {
				return err
			}
		}
	}
	if err := s.Err(); errors.Is(err, bufio.ErrTooLong) {
		return fmt.Errorf("a line is longer than %d bytes: this is no list of names", maxLine)
	} else if err != nil {
		return err
	}
	return nil
}

// namesOf are the words of a line of names.
func namesOf(line string) []string {
	return strings.FieldsFunc(line, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
}

// ofZone are the words of a line that are names: all, but for a record of a zone of rules for
// responses (RPZ), which is about its owner. What a zone lets pass, or has for addresses, is one
// word that is no name, and the records of the zone itself are none.
func ofZone(words []string) []string {
	if words[0] == "$TTL" || words[0] == "$ORIGIN" {
		return nil
	}
	rest := words[1:]
	if words[0] == "IN" { // the owner is that of the line before
		rest = words
	}
	for len(rest) > 0 && (rest[0] == "IN" || literal.AllDigits(rest[0])) {
		rest = rest[1:]
	}
	if len(rest) < 2 {
		return words
	}
	switch rest[0] {
	case "SOA", "NS":
		return nil
	case "CNAME":
		passes := strings.HasPrefix(rest[1], "rpz-") && rest[1] != "rpz-drop."
		if passes || strings.Contains(words[0], ".rpz-") {
			return []string{strings.Join(words, " ")}
		}
		return words[:1]
	case "A", "AAAA":
		if _, err := netip.ParseAddr(rest[1]); err == nil {
			return words[:1]
		}
	}
	return words
}

// local are names of hosts files that are of the machine itself.
var local = map[string]bool{"localhost": true, "localhost.localdomain": true, "local": true,
	"broadcasthost": true, "ip6-localhost": true, "ip6-loopback": true, "ip6-localnet": true,
	"ip6-mcastprefix": true, "ip6-allnodes": true, "ip6-allrouters": true, "ip6-allhosts": true}

// name reads one name, and says whether it is one.
func (in *reader) name(text string) (bool, error) {
	if rest, is := strings.CutPrefix(text, "||"); is {
		end := strings.HasSuffix(rest, "^")
		if text = strings.TrimSuffix(rest, "^"); !end {
			return false, nil
		}
	}
	if local[text] {
		return true, nil
	}
	text = strings.TrimPrefix(text, ".")
	if _, err := netip.ParseAddr(text); err == nil || strings.ContainsAny(text, "/^|$@:?=&# \",") {
		return false, nil
	}
	p, err := dnsname.Parse(text)
	if err != nil || literal.AllDigits(p.Name.Last(1).String()) {
		return false, nil
	}
	var full error
	in.out.Names, full = another(in.out.Names, p.String(), in.most, strings.Compare)
	return true, full
}
