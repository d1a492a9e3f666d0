package literal

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"levee/internal/lang/diag"
	"levee/internal/lang/field"
	"levee/internal/lang/syntax"
)

// unitTypes lists the endings of names of units that have processes.
var unitTypes = []string{".service", ".socket", ".scope", ".mount", ".swap"}

// Sender reads the name of a sender, in quotes or bare.
func Sender(f field.Field, text string) (string, diag.Problem) {
	name, word := syntax.NameIn(text), f.Word()
	switch {
	case name == "":
		return "", diag.Problemf("write a name: "+word+" postfix.", "the name of a %s is empty",
			word)
	case len(name) > 255:
		return "", diag.Problemf("", "a name of %d bytes; at most 255 are possible", len(name))
	case strings.ContainsFunc(name, func(c rune) bool {
		return c == '/' || c == ':' && f != field.Service || unicode.IsSpace(c) ||
			!unicode.IsPrint(c)
	}):
		return "", diag.Problemf("names have neither blanks nor slashes nor colons.",
			"%q is not the name of a %s", diag.Clip(name), word)
	}
	number := map[field.Field]string{field.User: "uid", field.Group: "gid"}[f]
	if lo, hi, _ := strings.Cut(name, "-"); number != "" && AllDigits(lo) &&
		(hi == "" || AllDigits(hi)) {
		return "", diag.Problemf(fmt.Sprintf("for a number write: %s %s.", number, diag.Clip(name)),
			"%s is a number, not a name", diag.Clip(name))
	}
	if name == text && CheckSetName(name).Found() {
		return "", diag.Problemf(fmt.Sprintf("write it in quotes: %s \"%s\".", word,
			diag.Clip(name)), "%s is more than a name of up to 32 letters, digits, - and _",
			diag.Clip(name))
	}
	if f == field.Service && !slices.ContainsFunc(unitTypes, func(end string) bool {
		return strings.HasSuffix(name, end) && name != end
	}) {
		hint := "write the whole name: service \"" + diag.Clip(name) + ".service\"."
		if strings.HasSuffix(name, ".slice") {
			hint = "name the units in it."
		}
		return "", diag.Problemf(hint, "%q is not a unit with processes", diag.Clip(name))
	}
	return name, diag.Problem{}
}

// nameHint is for the name of a sender where a number stands.
func nameHint(word string) func(string) string {
	return func(text string) string {
		if _, p := Sender(field.User, text); p.Found() {
			return ""
		}
		return "for a name write: " + word + " " + diag.Clip(text) + "."
	}
}
