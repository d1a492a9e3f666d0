package logline

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// part is a piece of a pattern: a text, a placeholder, or one of several patterns.
type part struct {
	literal string
	holder  string
	choice  [][]part
}

// parse takes a pattern apart.
func parse(text string) ([]part, error) {
	p := parser{rest: text}
	out, err := p.parts(false)
	if err == nil && p.holders > maxParts {
		err = fmt.Errorf("it has more than %d placeholders", maxParts)
	}
	return out, err
}

type parser struct {
	rest    string
	holders int
	depth   int
}

// parts reads up to the end, or within a choice up to the next | or >.
func (p *parser) parts(within bool) (out []part, err error) {
	ends := "<"
	if within {
		ends = "<|>"
	}
	for p.rest != "" {
		at := strings.IndexAny(p.rest, ends)
		if at < 0 {
			at = len(p.rest)
		}
		if at > 0 {
			out = append(out, part{literal: p.rest[:at]})
			p.rest = p.rest[at:]
			continue
		}
		if p.rest[0] != '<' {
			return out, nil
		}
		if strings.HasPrefix(p.rest, "<<") {
			out = append(out, part{literal: "<"})
			p.rest = p.rest[2:]
			continue
		}
		one, err := p.holder()
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

// holder reads a placeholder, or a choice.
func (p *parser) holder() (part, error) {
	p.holders++
	name, behind, ok := strings.Cut(p.rest[1:], ">")
	if _, known := holders[name]; ok && known {
		if isAddr(name) && p.depth > 0 {
			return part{}, fmt.Errorf("<%s> is one of several: it has to stand in each line", name)
		}
		p.rest = behind
		return part{holder: name}, nil
	}
	if p.depth++; p.depth > maxDepth {
		return part{}, fmt.Errorf("choices stand more than %d deep in each other", maxDepth)
	}
	var out part
	for p.rest[0] != '>' {
		p.rest = p.rest[1:] // < or |
		one, err := p.parts(true)
		if err != nil {
			return part{}, err
		}
		out.choice = append(out.choice, one)
		if p.rest == "" {
			break
		}
	}
	if p.rest == "" || len(out.choice) < 2 {
		return part{}, fmt.Errorf("%q is no placeholder: those are <%s>; <one|another> is one of "+
			"several texts, and << is a <", "<"+clip(name),
			strings.Join(Holders(), ">, <"))
	}
	p.rest = p.rest[1:]
	p.depth--
	return out, nil
}

// maxDepth is the largest depth of choices in each other.
const maxDepth = 3

func (p part) isAddr() bool { return isAddr(p.holder) }

func isAddr(name string) bool { return name == Addr || name == Addr4 || name == LastAddr }

// mayBeEmpty tells whether nothing may stand in its place.
func (p part) mayBeEmpty() bool {
	for _, c := range p.choice {
		if !slices.ContainsFunc(c, func(p part) bool { return !p.mayBeEmpty() }) {
			return true
		}
	}
	return p.holder == "text" || p.holder == "quoted"
}

// endOpen tells whether any text may stand at the end of parts.
func endOpen(parts []part) bool {
	for _, p := range slices.Backward(parts) {
		if p.holder == "text" || p.holder == "quoted" ||
			slices.ContainsFunc(p.choice, endOpen) {
			return true
		}
		if !p.mayBeEmpty() {
			return false
		}
	}
	return false
}

// joinsAddress tells whether what parts begin with could be read as more of an address before them.
func joinsAddress(parts []part) bool {
	for _, p := range parts {
		switch {
		case p.holder != "":
			return true
		case p.literal != "":
			c := p.literal[0]
			if c == '.' && len(p.literal) > 1 { // it ends a clause where a blank follows
				c = p.literal[1]
			}
			return c != ':' && (inAddress[c] || isWord(c))
		case slices.ContainsFunc(p.choice, joinsAddress):
			return true
		case !p.mayBeEmpty():
			return false
		}
	}
	return false
}

// blanks returns the largest number of blanks in what parts describe, < 0 if any number.
func blanks(parts []part) int {
	n := 0
	for _, p := range parts {
		if p.holder == "text" || p.holder == "quoted" {
			return -1
		}
		most := strings.Count(p.literal, " ")
		for _, c := range p.choice {
			one := blanks(c)
			if one < 0 {
				return -1
			}
			most = max(most, one)
		}
		n += most
	}
	return n
}

// expression returns a regular expression that matches parts.
func expression(parts []part) string {
	var b strings.Builder
	for _, p := range parts {
		switch {
		case p.literal != "":
			b.WriteString(regexp.QuoteMeta(p.literal))
		case p.choice != nil:
			var all []string
			for _, c := range p.choice {
				all = append(all, expression(c))
			}
			b.WriteString("(?:" + strings.Join(all, "|") + ")")
		default:
			b.WriteString("(?:" + holders[p.holder] + ")")
		}
	}
	return b.String()
}
