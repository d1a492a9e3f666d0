package literal

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"levee/internal/lang/diag"
)

// CheckLabel says what keeps a text from being the label of a rule.
func CheckLabel(text string) diag.Problem {
	const most, name = 64, "write a name for the counter, or leave \"as\" out."
	switch n := utf8.RuneCountInString(text); {
	case n == 0:
		return diag.Problemf(name, "a label has at least one character")
	case n > most:
		return diag.Problemf("", "this label has %d characters; at most %d are allowed", n, most)
	case strings.TrimSpace(text) == "":
		return diag.Problemf(name, "a label needs a visible character")
	case strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) }):
		return diag.Problemf("", "a label has printable characters only")
	}
	return diag.Problem{}
}

// Part reads one of how many a text such as 1/100 says, up to a million.
func Part(text string) (of uint32, p diag.Problem) {
	one, rest, ok := strings.Cut(text, "/")
	n, err := strconv.ParseUint(rest, 10, 32)
	if !ok || one != "1" || err != nil || n == 0 || n > 1e6 {
		return 1, diag.Problemf("write 1/100 for one packet in a hundred.",
			"%q is not a part from 1/1 to 1/1000000", diag.Clip(text))
	}
	return uint32(n), diag.Problem{}
}
