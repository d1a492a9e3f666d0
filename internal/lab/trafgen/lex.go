package trafgen

import (
	"regexp"
	"strconv"
	"strings"
)

// token is a word, a text in quotes or a sign.
type token struct {
	line int
	text string // as written; of a text what it stands for
	kind kind
}

type kind uint8

const (
	aWord kind = iota
	aText      // of a string, or of a character
	aSign
)

var (
	wordStart = regexp.MustCompile(`^[0-9A-Za-z_.:]+`)
	define    = regexp.MustCompile(`^#\s*define\s+([A-Za-z_]\w*)(\(?)(.*)$`)
	include   = regexp.MustCompile(`^#\s*include\s+(.*)$`)
	// comments, and quoted texts, which contain no comments
	blank = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*|"(?:\\[^\n]|[^"\\\n])*"`)
)

// lex splits a configuration into tokens, with the names that it defines, and those of stddef.h,
// replaced by what they stand for.
func lex(text string) (out []token, err error) {
	// Comments become as many lines as they had.
	text = blank.ReplaceAllStringFunc(text, func(s string) string {
		if s[0] == '"' {
			return s
		}
		return " " + strings.Repeat("\n", strings.Count(s, "\n"))
	})
	names := map[string][]token{}
	looked := 0
	for n, line := range strings.Split(text, "\n") {
		line = strings.TrimRight(line, "\r")
		trimmed := strings.TrimSpace(line)
		if m := define.FindStringSubmatch(trimmed); m != nil {
			if m[2] != "" {
				return nil, wrong(n+1, m[1], "names with arguments cannot be imported")
			}
			if names[m[1]], err = split(n+1, m[3]); err != nil {
				return nil, err
			}
			continue
		}
		if m := include.FindStringSubmatch(trimmed); m != nil {
			if m[1] != "<stddef.h>" {
				return nil, wrong(n+1, m[1], "only <stddef.h> of trafgen is known: write what it "+
					"defines into the file")
			}
			continue
		}
		tokens, err := split(n+1, line)
		if err != nil {
			return nil, err
		}
		if out, err = expand(out, tokens, names, &looked, n+1, 0); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// expand appends tokens, with names replaced. looked is how many it has looked at: names may stand
// for many names each, and the last of them for nothing.
func expand(out, tokens []token, names map[string][]token, looked *int, line, depth int) ([]token,
	error) {
	for _, t := range tokens {
		if *looked++; *looked > maxTokens {
			return nil, wrong(line, t.text, "more than %d words, with those of names", maxTokens)
		}
		body, ok := names[t.text]
		if t.kind != aWord || !ok {
			if std, known := stddef[t.text]; known && t.kind == aWord {
				body, _ = split(line, std) // a test reads all of them
				ok = true
			}
		}
		t.line = line
		switch {
		case t.kind != aWord || !ok:
			out = append(out, t)
		case depth == maxDepth:
			return nil, wrong(line, t.text, "it stands for itself")
		default:
			var err error
			if out, err = expand(out, body, names, looked, line, depth+1); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// split reads one line.
func split(n int, line string) (out []token, err error) {
	for i := 0; i < len(line); {
		rest := line[i:]
		switch c := line[i]; {
		case c == ' ' || c == '\t' || c == '\v' || c == '\f':
			i++
		case c == '#':
			return out, nil // a comment
		case c == '"' || c == '\'':
			end := 1
			for end < len(rest) && rest[end] != c {
				if rest[end] == '\\' {
					end++
				}
				end++
			}
			if end >= len(rest) {
				return nil, wrong(n, rest, "the quotes are not closed on this line")
			}
			text, err := strconv.Unquote(`"` + strings.ReplaceAll(rest[1:end], `\'`, `'`) + `"`)
			if err != nil || c == '\'' && len(text) != 1 {
				return nil, wrong(n, rest[:end+1], "this is no text that can be read")
			}
			out = append(out, token{n, text, aText})
			i += end + 1
		default:
			word := strings.TrimRight(wordStart.FindString(rest), ":")
			if strings.HasSuffix(wordStart.FindString(rest), "::") { // an address
				word = wordStart.FindString(rest)
			}
			k := aWord
			if word == "" {
				word, k = rest[:1], aSign
				if strings.HasPrefix(rest, "<<") || strings.HasPrefix(rest, ">>") {
					word = rest[:2]
				}
			}
			out = append(out, token{n, word, k})
			i += len(word)
		}
	}
	return out, nil
}

var number = regexp.MustCompile(`^(0?x[0-9a-fA-F]+|0?b[01]+|[0-9]+)$`)

// value reads a number: 42, 011 (octal), 0x2a or x2a, 0b101 or b101.
func (t token) value() (uint64, bool) {
	if t.kind != aWord || !number.MatchString(t.text) {
		return 0, false
	}
	text := t.text
	if text[0] == 'x' || text[0] == 'b' {
		text = "0" + text
	}
	v, err := strconv.ParseUint(text, 0, 64)
	return v, err == nil
}
