package iptables

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"levee/internal/lang/importer"
	"levee/internal/lang/importer/match"
)

// ipWords is a test of -m u32.
type ipWords struct {
	text string
	not  bool
}

// u32 reads the option of -m u32.
func (p *ipRule) u32(o string) (bool, error) {
	if p.module != "u32" || o != "--u32" {
		return false, nil
	}
	w := ipWords{not: p.not}
	w.text = p.value()
	w.not = w.not || p.not
	p.words = append(p.words, w)
	return true, nil
}

// u32Test is a test of four bytes behind the IP header, however long that is: a word, how far it is
// moved, its mask, and the value.
var u32Test = sync.OnceValue(func() *regexp.Regexp {
	const number = `(0[xX][0-9a-fA-F]+|[0-9]+)`
	return regexp.MustCompile(`^0>>22&0[xX]3[cC]@` + number + `(?:>>` + number + `)?(?:&` + number +
		`)?=` + number + `$`)
})

// payloadOf is tests of u32 as terms on the payload of UDP, false if one of them is about anything
// else.
func payloadOf(text string) (terms []string, ok bool) {
	const header = 8
	for test := range strings.SplitSeq(strings.Join(strings.Fields(text), ""), "&&") {
		found := u32Test().FindStringSubmatch(test)
		if found == nil {
			return nil, false
		}
		numbers := [4]uint64{0, 0, 1<<32 - 1, 0}
		for i, word := range found[1:] {
			if word == "" {
				continue
			}
			n, err := strconv.ParseUint(word, 0, 32)
			if err != nil {
				return nil, false
			}
			numbers[i] = n
		}
		at, shift, mask, value := numbers[0], numbers[1], numbers[2], numbers[3]
		if at < header || at > 65535 || shift > 31 {
			return nil, false
		}
		mask &= 1<<(32-shift) - 1
		if value&^mask != 0 || mask == 0 { // no packet, or each that is long enough
			return nil, false
		}
		term := fmt.Sprintf("payload at %d %08x", at-header, value<<shift)
		if mask<<shift != 1<<32-1 {
			term += fmt.Sprintf("/%08x", mask<<shift)
		}
		terms = append(terms, term)
	}
	return terms, true
}

// finishWords makes terms on the payload of what the rule asks for by -m u32.
func (p *ipRule) finishWords() {
	for _, w := range p.words {
		terms, ok := payloadOf(w.text)
		udp := !slices.ContainsFunc(p.Rule.Alts, func(m match.Match) bool {
			return !slices.Equal(m.Fields[match.Proto], match.Just(17))
		})
		if !ok || !udp || w.not || p.tab.six {
			p.Unknown("-m u32 looks at bytes anywhere in the packet", "`payload at` looks at "+
				"those of datagrams, `dns name` at the name of a question")
			continue
		}
		p.Both(match.Match{Finds: terms}.Settle())
		p.Remark(importer.Changed, "-m u32 looks at later fragments, too, and `payload at` at "+
			"what has the UDP header", "")
	}
}
