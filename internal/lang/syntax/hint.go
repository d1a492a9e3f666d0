package syntax

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"levee/internal/lang/action"
	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
	"levee/internal/lang/field"
	"levee/internal/lang/foreign"
)

// isKeyword are all the words of the language, which can be neither set names nor, in most places,
// values.
var isKeyword = func() map[string]bool {
	m := wordSet(actionWords + " interface set default essential off on error source detect test " +
		"packet expect leaves hex by has as " +
		"file dynamic max lease any none not rollup track " + reversePath)
	delete(m, action.Redirect.String()) // a type of ICMP
	for _, words := range behind {
		maps.Copy(m, words)
	}
	for _, w := range phraseWords(func(ph *field.Phrase) bool {
		// A word that follows another one and has no value, as in `proven flow`, may still name a
		// set.
		return !isDNS(ph) && !isSender(ph) &&
			(ph.Form != field.FormAlone || !strings.Contains(ph.Word, " "))
	}) {
		if !isFieldWord[w] { // those that only packets had once name sets
			m[w] = true
		}
	}
	return m
}()

// IsKeyword tells whether s is a word of the language.
func IsKeyword(s string) bool { return isKeyword[s] }

// oneOf tells whether word is one of the blank-separated words.
func oneOf(words, word string) bool {
	return slices.Contains(strings.Fields(words), word)
}

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

func didYouMean(word string) string { return fmt.Sprintf("did you mean %q?", word) }

// meant is didYouMean, of words that stand behind others with these.
func meant(word string) string {
	if of := field.Behind(word); of != nil {
		return "did you mean \"" + strings.Join(of, "\" or \"") + "\"?"
	}
	return didYouMean(word)
}

// spell returns a hint with the one of the blank-separated candidates that word is probably a
// misspelling of, or "".
func spell(word, candidates string) string {
	if c := diag.Nearest(word, strings.Fields(candidates)); c != "" {
		return didYouMean(c)
	}
	return ""
}

// actionWords are the first words of rules.
var actionWords = strings.Join(action.Words(), " ")

// actionList is the same as a list in a sentence.
var actionList = strings.Join(action.Words(), ", ")

// ruleStarts says with which words.
var ruleStarts = func() string {
	words := action.Words()
	last := len(words) - 1
	return "a rule starts with " + strings.Join(words[:last], ", ") + " or " + words[last]
}()

// isAction tells whether a rule begins with the word.
func isAction(word string) bool {
	_, ok := action.Named(word)
	return ok
}

// isVerdict tells whether a word says what becomes of a packet: pass or drop.
func isVerdict(word string) bool { return word == "pass" || word == "drop" }

// actionMeant maps the words of all packet filters for an action to levee's.
func actionMeant(word string) string {
	word = strings.ToLower(word)
	for _, a := range action.Table() {
		if a.Word == word || oneOf(a.Others, word) {
			return a.Word
		}
	}
	return ""
}

// payloadRule shows how a rule looks into packets.
const payloadRule = "name an offset behind the UDP header, and bytes with or without a mask: " +
	"drop udp port 53 payload at 4 0001; or search it: payload contains \"evil\"."

// statementRemedy says what a line that starts with word was probably meant to be. The message is
// "" for the ordinary one.
func statementRemedy(word string) (msg string, r foreign.Remedy) {
	if a := actionMeant(word); a != "" {
		return "", foreign.Meant(a)
	}
	switch strings.ToLower(word) {
	case "rollup":
		return "", foreign.Words["rollup"]
	case "payload":
		return "", foreign.Advice(payloadRule)
	case "stream":
		return "", foreign.Advice(streamRule)
	case "ct", "keep", "state", "related":
		return "", foreign.Advice(foreign.States)
	case "policy":
		return "", foreign.Advice("write \"default drop\" or \"default pass\".")
	case "iptables", "ip6tables", "nft", "-a", "-i", "-p", "-s", "-j", "*filter", "table", "chain",
		"add":
		return "", foreign.Advice("a levee policy has one plain list of rules; see `levee help " +
			"language`, or `levee import` for existing rule sets.")
	case "include":
		return "", foreign.Advice("a policy is one file; long lists go into set files: " +
			"set bogons = file(\"bogons.txt\").")
	case "packet", "expect":
		return "", foreign.Advice("packets stand inside test \"...\" { }.")
	case "element", "elements", "define", "ipset", "var", "let", "group", "list":
		return "", foreign.Advice("write: set NAME = { ... }.")
	case "iface", "dev", "device", "if", "int":
		return "", foreign.Meant("interface")
	case "quick", "in", "out", "inet":
		return "", foreign.Advice(ruleStarts + ".")
	case "allowlist", "whitelist", "trust", "trusted":
		return "", foreign.Meant("protect")
	}
	if strings.HasPrefix(word, "//") || strings.HasPrefix(word, "/*") {
		return "", foreign.Advice("a comment starts with #.")
	}
	if _, ok := simple[word]; ok || isFamily[word] || isProto[word] ||
		oneOf("from to flags ether not as", word) {
		return "", foreign.Advice(ruleStarts + ": drop " + word + " ...")
	}
	if m := diag.Nearest(word, strings.Fields(actionWords+" "+otherStatements)); m != "" {
		return "", foreign.Meant(m)
	}
	return "", foreign.Remedy{}
}

func looksLikeAddress(word string) bool {
	return strings.Count(word, ":") >= 2 || strings.Count(word, ".") == 3 && word[0] >= '0' &&
		word[0] <= '9'
}

// hintOp says what a sign was probably meant to be where none can stand.
func hintOp(op string) string {
	switch op {
	case "!":
		return didYouMean("not")
	case "<":
		return "a set is named without < and >."
	case "==":
		return didYouMean("=")
	}
	return ""
}

// hintCompare is for a sign behind the word of a term that takes no comparison, or not this one.
func hintCompare(op string, k ast.TermKind, word string) string {
	switch {
	case op == "==":
		return didYouMean("=")
	case op == "!" && k != ast.ICMPType:
		return "\"not\" stands before the term: not " + word + " ..."
	case op == "<" && (k == ast.From || k == ast.To):
		return "a set is named without < and >."
	case op == "=":
		return "leave out \"=\"."
	case op == "!=" || op == "!":
		return "\"not\" stands before the term: not " + notWord(k, word) + " ..."
	}
	return "comparisons are for numbers: ports, len, ttl, dscp, vlan, proto."
}

func notWord(k ast.TermKind, word string) string {
	if k == ast.ICMPType {
		return "icmp type"
	}
	return word
}

func hintCompareList(op, word string) string {
	switch op {
	case "!=":
		return "write: not " + word + " { ... }."
	case "=":
		return "leave out \"=\": " + word + " { ... }."
	}
	return ""
}

// hintValue is for a missing value.
func (p *parser) hintValue(of *ast.Term, word string) string {
	t, k := p.tok, of.Kind
	switch {
	case t.kind == tString && (k == ast.From || k == ast.To):
		return "write a set's name or an address without quotes; for a file: set NAME = file(" +
			quote(t.text) + ")."
	case t.kind == tString:
		return "write the value without quotes."
	case t.kind == tLParen:
		return "a list stands in braces: " + word + " { ... }."
	case t.kind == tWord && t.text == "any" && k != ast.From && k != ast.To:
		return "without this term any value matches; leave out \"" + word + " any\"."
	case of.Field == field.DstPort && oneOf("from to", t.text) && isDigits(p.ahead().text):
		return didYouMean(t.text + " port")
	case t.kind == tWord && t.text == "not":
		return "\"not\" stands before the term: not " + word + " ..."
	case k == ast.ICMPType:
		return "write a number or a name: echo-request, 3/4, { 3/4, 11 }."
	case (k == ast.From || k == ast.To) && t.kind == tWord:
		return "write the address or the set directly behind " + quote(word) + ": " + word +
			" 192.0.2.0/24 " + diag.Clip(t.text) + " ..."
	}
	switch {
	case k == ast.From, k == ast.To:
		return "write an address, a prefix, a range, a list in braces, the name of a set, or any."
	case of.Field.Info().Header == field.InPorts:
		return "write a number, a range such as 1000-2000, a list in braces, a comparison such " +
			"as > 1023, or the name of a set."
	}
	return ""
}

// hintPacket is for a word that a test packet does not know.
func hintPacket(word string) string {
	switch word {
	case "not":
		return "a packet is something definite; write the value it has."
	case "untagged":
		return "packets are untagged unless they have \"vlan\"; leave it out."
	case "fragments", "fragment":
		return "write the offset: frag 0 for a first fragment, frag 185 for a later one."
	case "hex":
		return "all bytes of a packet stand alone: packet hex \"...\"."
	case "stream":
		return "a packet has a payload: payload \"...\"."
	case "malformed":
		return "write the bytes: packet hex \"...\"."
	case "packet":
		return "end the packet before with: expect pass, or expect drop."
	}
	r := foreign.Words[strings.ToLower(word)]
	if term, _, _ := strings.Cut(r.Term, " "); isPacketWord[term] {
		return r.Hint
	}
	if looksLikeAddress(word) {
		return "say which side: from " + diag.Clip(word) + ", or to " + diag.Clip(word) + "."
	}
	if isDigits(word) {
		return "say what the number is: port " + diag.Clip(word) + "."
	}
	if a := actionMeant(word); isVerdict(a) {
		return didYouMean("expect " + a)
	}
	if m := diag.Nearest(word, PacketWords()); m != "" {
		return meant(m)
	}
	return "a packet is described by words such as tcp, from, to, port, flags, len; " +
		"`levee help language` lists all."
}

// hintStray is for a token that can begin nothing where a term or the end of the line could stand.
func hintStray(t token, keyword string) string {
	switch t.kind {
	case tComma:
		return "terms are not separated by commas; lists stand in braces."
	case tSemi:
		return "write one statement a line, without \";\"."
	case tString:
		if isAction(keyword) || keyword == "" {
			return "a label stands behind as: as " + quote(t.text) + "."
		}
	case tLBrace, tLParen:
		return "a list follows the word that it is about: port { 80, 443 }."
	case tRBrace:
		return "there is no { that it closes."
	case tOp:
		if t.text == "!" {
			return didYouMean("not")
		}
		return "a comparison follows the word that it is about: port > 1023."
	case tWord:
		switch {
		case isAction(keyword):
			return "the label ends a rule; put other terms before \"as\"."
		case keyword == "interface":
			return "put several names into braces: interface { eth0, eth1 }."
		case keyword == "default":
			return "the default is for all packets that no rule decided; write a rule for these " +
				"above it."
		case isStatement[t.text]:
			return "start a new line for the next statement."
		}
	}
	return ""
}
