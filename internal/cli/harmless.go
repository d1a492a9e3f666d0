package cli

import (
	"bytes"
	"regexp"
	"unicode/utf8"

	"levee/internal/lang/diag"
)

// colour matches the sequences that levee's own text has (ECMA-48, section 8.3.117). Others of the
// kind hide what follows.
var colour = regexp.MustCompile("\x1b\\[(0|1|1;3[1-3])m")

// harmless returns text as a terminal may have it: what it could take for a command is escaped.
func harmless(text []byte) []byte {
	var out bytes.Buffer
	for len(text) > 0 {
		at := colour.FindIndex(text)
		if at == nil {
			at = []int{len(text), len(text)}
		}
		for i, field := range bytes.Split(text[:at[0]], []byte("\t")) {
			if i > 0 {
				out.WriteByte('\t')
			}
			out.WriteString(diag.Escaped(string(field)))
		}
		out.Write(text[at[0]:at[1]])
		text = text[at[1]:]
	}
	return out.Bytes()
}

// wholeRunes returns how many bytes of a text are there without a last character whose bytes are
// not all there yet.
func wholeRunes(text []byte) int {
	for back := 1; back <= min(len(text), utf8.UTFMax-1); back++ {
		if at := len(text) - back; utf8.RuneStart(text[at]) {
			if !utf8.FullRune(text[at:]) {
				return at
			}
			break
		}
	}
	return len(text)
}
