package ast

import (
	"strings"
)

// MaxTerms is how many terms a rule or a packet may have.
const MaxTerms = 32

// IsQuoted tells whether an element was written in quotes: a name of the DNS.
func IsQuoted(element string) bool { return strings.HasPrefix(element, `"`) }

// PacketOnly are the words that exist in packets only.
var PacketOnly = map[string]struct {
	Kind TermKind
	What string
}{
	"type":    {PacketType, "an ICMP type"},
	"frag":    {Frag, "an offset in units of 8 bytes"},
	"options": {Options, ""},
}
