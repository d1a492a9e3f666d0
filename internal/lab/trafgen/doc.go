// Package trafgen reads configurations of trafgen, the packet generator of netsniff-ng (trafgen(8)
// of Debian's netsniff-ng 0.6.8), and writes them as packet templates.
//
// In goes the text of a configuration, out comes that of a template (docs/reference/templates.md),
// one line a packet, or an error that names a line and a word: of what the configuration says that
// templates have no words for, nothing is left out silently. Its memory and time are bounded,
// whatever the text says, and it opens no files: the names of stddef.h are its own (names.go).
package trafgen

import (
	"fmt"
	"strings"
)

// Bounds of a configuration.
const (
	maxTokens = 1 << 20
	maxDepth  = 16 // of names that stand for names
	maxNested = 100
	maxFrame  = 9018
	maxBytes  = 4 << 20 // of all packets
)

// Import reads a configuration. name stands in errors.
func Import(name, text string) (template string, err error) {
	tokens, err := lex(text)
	if err == nil {
		var packets []*frame
		if packets, err = parse(tokens); err == nil {
			var b strings.Builder
			for _, p := range packets {
				words, wrong := p.words()
				if wrong != nil {
					err = wrong
					break
				}
				fmt.Fprintln(&b, strings.Join(words, " "))
			}
			template = b.String()
		}
	}
	if err != nil {
		return "", fmt.Errorf("%s:%w", name, err)
	}
	return template, nil
}

// wrong returns an error at a line about a word.
func wrong(line int, word, format string, args ...any) error {
	return fmt.Errorf("%d: %s: %s", line, word, fmt.Sprintf(format, args...))
}
