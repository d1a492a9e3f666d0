package syntax

import (
	"maps"
	"slices"
	"strings"

	"levee/internal/lang/action"
	"levee/internal/lang/ast"
)

// class says what a word is to the language, as bits: which lists of words have it.
type class uint16

const (
	keyword       class = 1 << iota // cannot name a set
	statementWord                   // begins a statement
	familyWord                      // is a term by itself, a family
	protoWord                       // is a term by itself, a protocol
	simpleWord                      // is a term by itself or with a value, see simple
	fieldWord                       // names a header field of a packet
	bytesWord                       // names bytes of a packet
	dnsWord                         // is dns, or stands behind it
	senderWord                      // is about who sends
	cookieWord                      // says what a cookie answers
)

// classes are the words of the language.
var classes = func() map[string]class {
	m := make(map[string]class)
	for _, l := range []struct {
		words map[string]bool
		class class
	}{
		{isKeyword, keyword}, {isStatement, statementWord}, {isFamily, familyWord},
		{isProto, protoWord},
		{isFieldWord, fieldWord}, {isBytesWord, bytesWord}, {isDNSWord, dnsWord},
		{isSenderWord, senderWord},
	} {
		for w := range l.words {
			m[w] |= l.class
		}
	}
	for w := range simple {
		m[w] |= simpleWord
	}
	for of := range action.NumAnswered {
		if w := of.Info().Word; w != "" {
			m[w] |= cookieWord
		}
	}
	return m
}()

// longestWord is the length of the language's longest word, in bytes.
var longestWord = func() (n int) {
	for w := range classes {
		n = max(n, len(w))
	}
	return n
}()

// classOf returns the class of a word. Most words of a large policy are addresses and numbers,
// which are told by their first byte or their length.
func classOf(word string) class {
	if word == "" || word[0] < 'a' || word[0] > 'z' || len(word) > longestWord {
		return 0
	}
	return classes[word]
}

// Words returns all words that mean something, in order: keywords, words of packets, and those that
// are kept for a later version.
func Words() []string { return slices.Sorted(maps.Keys(classes)) }

// Statements returns the first words of statements.
func Statements() []string { return strings.Fields(actionWords + " " + otherStatements) }

// TermWords returns the words in terms of rules.
func TermWords() []string { return strings.Fields(termWords) }

// PacketWords returns the words in packets of tests.
func PacketWords() []string {
	return strings.Fields(packetWords + " " + ast.FieldWords + " " + bytesWords)
}
