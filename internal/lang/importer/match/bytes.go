package match

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// BytesAt are bytes of the payload of UDP, of which the bits of Mask count.
type BytesAt struct {
	At          int
	Value, Mask []byte
}

// Bounds of a term on bytes of the payload: docs/reference/matches.md "Payload".
const (
	maxBytes     = 16
	maxBytesFrom = 1472 // the last of them
)

const bytesPrefix = "payload at "

// Term returns the term of a policy that asks for the bytes, or for others; false if there is none.
func (b BytesAt) Term(not bool) (string, bool) {
	n := len(b.Value)
	if n == 0 || n > maxBytes || b.At < 0 || b.At+n > maxBytesFrom {
		return "", false
	}
	term := fmt.Sprintf("%s%d %x", bytesPrefix, b.At, b.Value)
	if !bytes.Equal(b.Mask, bytes.Repeat([]byte{0xff}, n)) {
		term += fmt.Sprintf("/%x", b.Mask)
	}
	if not {
		term = "not " + term
	}
	return term, true
}

// bytesOf reads a term that asks for bytes.
func bytesOf(term string) (b BytesAt, ok bool) {
	text, ok := strings.CutPrefix(term, bytesPrefix)
	if !ok {
		return b, false
	}
	var value, mask string
	if _, err := fmt.Sscanf(text, "%d %s", &b.At, &value); err != nil {
		return b, false
	}
	value, mask, masked := strings.Cut(value, "/")
	b.Value, _ = hex.DecodeString(value)
	if b.Mask, _ = hex.DecodeString(mask); !masked {
		b.Mask = bytes.Repeat([]byte{0xff}, len(b.Value))
	}
	return b, len(b.Value) > 0 && len(b.Value) == len(b.Mask)
}

// joinFinds has the terms of both, each once. A rule of a policy has one term for bytes that begin
// at one place: two become one. never tells that no payload has both.
func joinFinds(terms, more []string) (out []string, never bool) {
	out = terms
next:
	for _, t := range more {
		never = never || slices.Contains(out, "not "+t) ||
			slices.ContainsFunc(out, func(o string) bool { return t == "not "+o })
		b, ok := bytesOf(t)
		for i, old := range out {
			a, same := bytesOf(old)
			if !ok || !same || a.At != b.At || old == t {
				continue
			}
			both := BytesAt{a.At, make([]byte, max(len(a.Value), len(b.Value))),
				make([]byte, max(len(a.Value), len(b.Value)))}
			for _, x := range [...]BytesAt{a, b} {
				for k, mask := range x.Mask {
					never = never || (both.Value[k]^x.Value[k])&both.Mask[k]&mask != 0
					both.Value[k] |= x.Value[k]
					both.Mask[k] |= mask
				}
			}
			out = slices.Clone(out)
			out[i], _ = both.Term(false)
			continue next
		}
		out = union(out, []string{t})
	}
	return out, never
}
