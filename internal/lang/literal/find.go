package literal

import (
	"encoding/hex"
	"errors"
	"regexp/syntax"
	"strings"

	"levee/internal/lang/diag"
	"levee/internal/lang/pattern"
)

// MaxFind limits the bytes of a text that is searched for.
const MaxFind = 256

// Find reads one thing to look for, and tries, as a part of some work, whether it can be looked for
// by itself.
func Find(text string, anyCase bool, work *pattern.Work) (pattern.Item, diag.Problem) {
	it, wrong := parseFind(text)
	if !wrong.Found() && len(it.Text) == 0 {
		_, err := work.Compile([]pattern.Item{it}, anyCase)
		wrong = FindProblem(text, err)
	}
	return it, wrong
}

// parseFind reads a text in quotes, an expression between slashes, or bytes in hexadecimal.
func parseFind(text string) (it pattern.Item, p diag.Problem) {
	open := text[0] == '"' || text[0] == '/' // of a line in a file there may be no end
	switch {
	case open && (len(text) < 2 || text[len(text)-1] != text[0]):
		return it, diag.Problemf("end it with the character that it begins with.",
			"%s is not closed",
			diag.Clip(text))
	case text[0] == '"':
		it.Text = []byte(text[1 : len(text)-1])
	case text[0] == '/':
		it.Expression = strings.ReplaceAll(text[1:len(text)-1], `\/`, "/")
		for _, c := range it.Expression {
			if c >= 0x80 {
				return it, diag.Problemf("write its bytes: "+bytesOf(string(c))+".",
					"%q in an expression, which is about bytes", c)
			}
		}
	default:
		b, err := hex.DecodeString(text)
		if err != nil {
			return it,
				diag.Problemf("write a text in quotes, \"evil\", an expression, /ev.l/, or two "+
					"hexadecimal digits for each byte, 6576696c.", "%q is not bytes in hexadecimal",
					diag.Clip(text))
		}
		it.Text = b
	}
	if len(it.Text) > MaxFind {
		return it, diag.Problemf("search for the bytes that tell the traffic apart.",
			"%d bytes: at most %d are searched for", len(it.Text), MaxFind)
	}
	return it, p
}

// bytesOf writes a text as the bytes that an expression asks for.
func bytesOf(s string) string {
	digits := hex.EncodeToString([]byte(s))
	var b strings.Builder
	for i := 0; i < len(digits); i += 2 {
		b.WriteString(`\x` + digits[i:i+2])
	}
	return b.String()
}

// FindProblem says why something cannot be searched for.
func FindProblem(text string, err error) diag.Problem {
	var large *pattern.LargeError
	var wrong *syntax.Error
	switch {
	case err == nil:
		return diag.Problem{}
	case errors.Is(err, pattern.ErrEmpty):
		return diag.Problemf("leave the term out, or say what the payload has to contain.",
			"%s is found in every payload", diag.Clip(text))
	case errors.Is(err, pattern.ErrNever):
		return diag.Problemf("^ is the beginning of the payload, and $ its end.",
			"%s is found in no payload", diag.Clip(text))
	case errors.Is(err, pattern.ErrSpent):
		return diag.Problemf("bound what repeats in the expressions before it, write [^ ]* "+
			"instead of .* and {0,9} instead of {0,999}.", "%s is one search too many: those "+
			"before it take too long together", diag.Clip(text))
	case errors.As(err, &large):
		return diag.Problemf("bound what repeats, write [^ ]* instead of .* and {0,9} instead of "+
			"{0,999}, or split it over several rules.",
			"%s takes more than %d states, and a search has a table of %d KB at most",
			diag.Clip(text),
			large.States, pattern.MaxTable>>10)
	case errors.As(err, &wrong):
		return diag.Problemf(
			"expressions are those of RE2; what has a meaning there is written with a "+
				"backslash.", "%s is no expression: %s %s", diag.Clip(text), wrong.Code,
			diag.Clip(wrong.Expr))
	}
	return diag.Problemf("", "%s: %v", diag.Clip(text), err)
}
