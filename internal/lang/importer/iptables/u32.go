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

// u32Test is a test of four bytes at a place, or at one behind the IP header, however long that is:
// a word, how far it is moved, its mask, and values.
var u32Test = sync.OnceValue(func() *regexp.Regexp {
	const number = `(0[xX][0-9a-fA-F]+|[0-9]+)`
	return regexp.MustCompile(`^(0>>22&0[xX]3[cC]@)?` + number + `(?:>>` + number + `)?(?:&` +
		number + `)?=([0-9a-fA-FxX:,]+)$`)
})

// ipHeader is the length of an IPv4 header without options, udpHeader that of UDP.
const (
	ipHeader  = 20
	udpHeader = 8
)

// u32Found holds the conditions that tests of u32 amount to.
type u32Found struct {
	match.Match
	never bool // no packet has such values
	bare  bool // the packet is taken to have no options
}

// wordsOf is tests of u32 as terms on fields of the IP header and on the payload of UDP, false if
// one of them is about anything else.
func wordsOf(text string) (out u32Found, ok bool) {
	for test := range strings.SplitSeq(strings.Join(strings.Fields(text), ""), "&&") {
		found := u32Test().FindStringSubmatch(test)
		if found == nil {
			return out, false
		}
		numbers := [3]uint64{0, 0, 1<<32 - 1}
		for i, word := range found[2:5] {
			if word == "" {
				continue
			}
			n, err := strconv.ParseUint(word, 0, 32)
			if err != nil {
				return out, false
			}
			numbers[i] = n
		}
		at, shift, mask := numbers[0], numbers[1], numbers[2]
		if at > 65535 || shift > 31 {
			return out, false
		}
		mask &= 1<<(32-shift) - 1
		var values match.Spans
		for value := range strings.SplitSeq(found[5], ",") {
			s, err := match.ParseSpansOf(value, ":", 1<<32-1)
			if err != nil || mask == 0 {
				return out, false
			}
			if s[0].Lo != s[0].Hi || s[0].Lo&^mask == 0 {
				values = append(values, s...)
			}
		}
		values = match.JoinSpans(values)
		if out.never = out.never || len(values) == 0; len(values) == 0 {
			continue
		}
		if behind := found[1] != ""; behind {
			at += ipHeader
		} else if at >= ipHeader {
			out.bare = true
		}
		if m, ok := headerField(at, mask<<shift, shift, values); ok && found[1] == "" {
			out.Match = out.And(&m)
			continue
		}
		value := values[0].Lo
		if at < ipHeader+udpHeader || len(values) > 1 || value != values[0].Hi {
			return out, false
		}
		term := fmt.Sprintf("payload at %d %08x", at-ipHeader-udpHeader, value<<shift)
		if mask<<shift != 1<<32-1 {
			term += fmt.Sprintf("/%08x", mask<<shift)
		}
		out.Finds = append(out.Finds, term)
	}
	return out, true
}

// headerField is the field of the IPv4 header that the bits of a word at a place are, if they are
// all of it.
func headerField(at, bits, shift uint64, values match.Spans) (m match.Match, ok bool) {
	for _, f := range []struct {
		field     match.Field
		first, of uint64 // bytes
	}{{match.Len, 2, 2}, {match.TTL, 8, 1}, {match.Proto, 9, 1}} {
		if at > f.first || f.first+f.of > at+4 {
			continue
		}
		low := 8 * (at + 4 - f.first - f.of) // bits of the word behind the field
		top := uint64(1)<<(8*f.of) - 1
		if bits != top<<low || shift != low {
			continue
		}
		return match.Match{}.With(f.field, values.And(match.Between(0, top))).Settle(), true
	}
	return m, false
}

// finishWords makes terms on the payload of what the rule asks for by -m u32.
func (p *ipRule) finishWords() {
	for _, w := range p.words {
		found, ok := wordsOf(w.text)
		udp := !slices.ContainsFunc(p.Rule.Alts, func(m match.Match) bool {
			return !slices.Equal(m.Fields[match.Proto], match.Just(17))
		})
		if !ok || len(found.Finds) > 0 && !udp || w.not || p.tab.six {
			p.Unknown("-m u32 looks at bytes anywhere in the packet", "`payload at` looks at "+
				"those of datagrams, `dns name` at the name of a question")
			continue
		}
		if found.never {
			p.Rule.Alts = nil
			p.Remark(importer.Noticed, "asks by -m u32 for values that no packet has", "")
			continue
		}
		p.Both(found.Settle())
		if len(found.Finds) == 0 {
			continue
		}
		text := "-m u32 looks at later fragments, too, and `payload at` at what has the UDP header"
		if found.bare {
			text += "; the packet is taken to have no options"
		}
		p.Remark(importer.Changed, text, "")
	}
}
