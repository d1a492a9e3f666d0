package literal

import (
	"fmt"
	"strings"

	"levee/internal/lang/diag"
	"levee/internal/lang/syntax"
)

// CheckSetName says what keeps a text from being the name of a set.
func CheckSetName(name string) diag.Problem {
	const most = 32
	switch {
	case syntax.IsKeyword(name):
		return diag.Problemf("choose another name, such as my-"+name+".",
			"%q is a word of the language and cannot name a set", name)
	case len(name) > most:
		return diag.Problemf(fmt.Sprintf("this one has %d.", len(name)),
			"the name of a set has at most %d characters", most)
	}
	for i, c := range name {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		switch {
		case letter:
		case i == 0:
			return diag.Problemf(diag.DidYouMean("s"+diag.Clip(name)),
				"the name of a set starts with a letter, not with %q", c)
		case c >= '0' && c <= '9' || c == '_' || c == '-':
		default:
			return diag.Problemf("write - or _ instead, or leave it out.",
				"the name of a set has letters, digits, _ and -, not %q", c)
		}
	}
	return diag.Problem{}
}

// CheckRingName says what keeps a text from being the name of a ring.
func CheckRingName(name string) diag.Problem {
	const most = 32
	if name == "" || len(name) > most {
		return diag.Problemf("", "the name of a ring has 1 to %d characters", most)
	}
	for _, c := range name {
		if letter := c|0x20 >= 'a' && c|0x20 <= 'z'; !letter && c != '-' && c != '_' &&
			(c < '0' || c > '9') {
			return diag.Problemf("it is the name of a file, too.",
				"the name of a ring has letters, digits, - and _ only, not %q", name)
		}
	}
	return diag.Problem{}
}

// IsName tells whether an element is the name of a set rather than a value.
func IsName(text string) bool {
	if !MayBeName(text) { // no need to work out what is wrong with it
		return false
	}
	return !CheckSetName(text).Found()
}

// MayBeName tells what cannot be the name of a set at a glance: a value that begins with a digit or
// a sign, an IPv6 address.
func MayBeName(text string) bool {
	return text != "" && text[0] >= 'A' && strings.IndexByte(text, ':') < 0
}
