// Package dnsname is names of the DNS: as policies write them, and as messages carry them.
//
// In go texts such as "www.example.com" or "*.example.com", out come names in the form in which
// they stand in a message, in lower case, so that equal names are equal strings. The package reads
// no messages and opens nothing.
package dnsname

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/net/publicsuffix"
)

// Name is the labels of a name as they stand in a message (RFC 1035 section 3.1): each behind its
// length, in lower case, without the empty label at the end. "" is the root.
type Name string

// Bounds of RFC 1035 section 2.3.4.
const (
	MaxLabel  = 63
	MaxName   = 255 // in a message, with the lengths and the root
	MaxLabels = 127 // that such a name can have
)

// Pattern matches names: a name and all below it, or only those below.
type Pattern struct {
	Name  Name
	Below bool // written "*.NAME", as zones write wildcards (RFC 4592)
}

// Error says what is wrong with a text, and what to write instead.
type Error struct{ Message, Hint string }

func (e *Error) Error() string { return e.Message + "; " + e.Hint }

func errorf(hint, format string, args ...any) *Error {
	return &Error{fmt.Sprintf(format, args...), hint}
}

// Parse reads a name or a wildcard as zone files write them (RFC 1035 section 5.1), where \. and
// \065 stand for bytes. A dot at the end changes nothing; "." is the root.
func Parse(text string) (Pattern, *Error) {
	switch {
	case text == "":
		return Pattern{}, errorf("write \".\" for the root, under which all names are.",
			"a name is empty")
	case text == ".":
		return Pattern{}, nil
	}
	p := Pattern{}
	if rest, wild := strings.CutPrefix(text, "*."); wild {
		p.Below, text = true, rest
		if text == "" {
			return p, nil
		}
	}
	wire := make([]byte, 0, len(text)+1)
	for text != "" {
		label, rest, err := cutLabel(text)
		switch {
		case err != nil:
			return Pattern{}, err
		case len(label) == 0:
			return Pattern{}, errorf("write one dot between labels.",
				"there is nothing between two dots")
		case string(label) == "*" && text[0] == '*':
			return Pattern{}, errorf("write *. in front of the name, or \\* for the character.",
				"\"*\" is a wildcard as the first label only, and with labels behind it")
		case len(label) > MaxLabel:
			return Pattern{}, errorf("a label has at most 63 bytes (RFC 1035).",
				"a label of %d bytes", len(label))
		}
		wire = append(append(wire, byte(len(label))), label...)
		text = rest
	}
	if len(wire)+1 > MaxName {
		return Pattern{}, errorf("a name has at most 255 bytes with the length of each label "+
			"(RFC 1035).", "a name of %d bytes", len(wire)+1)
	}
	p.Name = Name(wire)
	return p, nil
}

// cutLabel reads one label, in lower case, and returns what follows its dot.
func cutLabel(text string) (label []byte, rest string, err *Error) {
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '.':
			return label, text[i+1:], nil
		case c == '\\' && i+3 < len(text) && isDigit(text[i+1]) && isDigit(text[i+2]) &&
			isDigit(text[i+3]):
			n := int(text[i+1]-'0')*100 + int(text[i+2]-'0')*10 + int(text[i+3]-'0')
			if n > 255 {
				return nil, "", errorf("write three digits from \\000 to \\255.",
					"%q is no byte", text[i:i+4])
			}
			label = append(label, lower(byte(n)))
			i += 3
		case c == '\\' && i+1 < len(text) && !isDigit(text[i+1]):
			label = append(label, lower(text[i+1]))
			i++
		case c == '\\':
			return nil, "", errorf("write \\\\ for the character, \\046 for a byte by its number.",
				"a \\ has nothing behind it that it stands for")
		case c >= 0x80:
			return nil, "", errorf("write the name as it is in the DNS: xn--..., which `idn2 "+
				"NAME` prints.", "a name has ASCII characters only")
		case c <= ' ' || c == 0x7f || c == '"':
			return nil, "", errorf("write a byte by its number: \\032 is a blank.",
				"%q cannot stand in a name", c)
		default:
			label = append(label, lower(c))
		}
	}
	return label, "", nil
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// lower returns a byte in lower case, in ASCII alone (RFC 4343).
func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// Lower returns bytes of a message as names have them.
func Lower(b []byte) Name {
	out := slices.Clone(b)
	for i, c := range out {
		out[i] = lower(c)
	}
	return Name(out)
}

// Stored returns the name in bytes that were stored unchanged; ok is false if they are no name.
func Stored(b []byte) (Name, bool) {
	if len(b)+1 > MaxName {
		return "", false
	}
	for at := 0; at < len(b); at += 1 + int(b[at]) {
		if n := int(b[at]); n == 0 || n > MaxLabel || at+1+n > len(b) {
			return "", false
		}
	}
	return Name(b), true
}

// Labels returns how many labels the name has.
func (n Name) Labels() (labels int) {
	for n != "" {
		n = n.Parent()
		labels++
	}
	return labels
}

// Parent returns the name without its first label; that of the root is the root.
func (n Name) Parent() Name {
	if n == "" {
		return ""
	}
	return n[1+int(n[0]):]
}

// Last returns the name's last labels, so many of them; the name itself if it has fewer.
func (n Name) Last(labels int) Name {
	for range n.Labels() - labels {
		n = n.Parent()
	}
	return n
}

// Registry tells whether a registry has the name, and others what is below: the root, a top-level
// domain, or one such as "co.uk". So the Public Suffix List has it (publicsuffix.org).
func (n Name) Registry() bool { return n.Labels() < 2 || n.Listed() }

// Listed is Registry without labels that the list does not have, as "lan".
func (n Name) Listed() bool {
	is, registry := n.suffix()
	return n == "" || is && registry
}

// Shared tells whether what is below the name belongs to many: so it is of a registry, and of who
// gives names to others, as "github.io".
func (n Name) Shared() bool {
	is, _ := n.suffix()
	return n.Labels() < 2 || is
}

func (n Name) suffix() (is, registry bool) {
	text := n.String()
	suffix, registry := publicsuffix.PublicSuffix(text)
	return suffix == text, registry
}

// String returns the name as zone files have it, without the dot at the end; "." is the root.
func (n Name) String() string {
	if n == "" {
		return "."
	}
	var b strings.Builder
	for first := true; n != ""; n, first = n.Parent(), false {
		if !first {
			b.WriteByte('.')
		}
		label := string(n[1 : 1+int(n[0])])
		if label == "*" {
			label = `\*`
		} else {
			label = escape(label)
		}
		b.WriteString(label)
	}
	return b.String()
}

func escape(label string) string {
	var b strings.Builder
	for i := range len(label) {
		switch c := label[i]; {
		case c <= ' ' || c >= 0x7f || c == '"' || c == '#' || c == ';' || c == ',':
			fmt.Fprintf(&b, `\%03d`, c)
		case c == '.' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// String returns the pattern as Parse reads it.
func (p Pattern) String() string {
	switch {
	case p.Below && p.Name == "":
		return "*."
	case p.Below:
		return "*." + p.Name.String()
	}
	return p.Name.String()
}

// Merge sorts patterns and leaves out those that others stand for, in place.
func Merge(all []Pattern) []Pattern {
	if len(all) < 2 {
		return all
	}
	below := make(map[Name]bool, len(all)) // whether only what is below
	for _, p := range all {
		only, there := below[p.Name]
		below[p.Name] = p.Below && (only || !there)
	}
	out := all[:0]
	for _, p := range all {
		only, left := below[p.Name]
		if !left || p.Below != only || covered(p.Name, below) {
			continue
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b Pattern) int { return cmp.Compare(a.Name, b.Name) })
	return slices.CompactFunc(out, func(a, b Pattern) bool { return a == b })
}

// covered reports whether a name is below one of others.
func covered(n Name, others map[Name]bool) bool {
	for n != "" {
		n = n.Parent()
		if _, there := others[n]; there {
			return true
		}
	}
	return false
}
