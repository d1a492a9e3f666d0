package field

import (
	"slices"
	"strings"
)

// Behind returns the phrases of rules in which a word stands behind others. It returns nil for a
// word that may begin one, as port in `from port`.
func Behind(word string) (phrases []string) {
	for i := range Phrases {
		ph := &Phrases[i]
		words := strings.Fields(ph.Word)
		switch at := slices.Index(words, word); {
		case ph.Form == FormPacket:
		case at == 0, slices.Contains(ph.Words, word):
			return nil
		case at > 0:
			phrases = append(phrases, ph.Word)
		}
	}
	return phrases
}
