package nft

import (
	"encoding/json"
	"fmt"
	"math/bits"

	"levee/internal/lang/importer"
	"levee/internal/lang/importer/match"
)

// fragment is a match on `ip frag-off & MASK`.
func (p *nftRule) fragment(mask uint64, op string, right json.RawMessage) error {
	s, ok := scalar(right)
	zero := op == "==" && s == "0"
	in := match.Spans(nil)
	switch {
	case !ok || !zero && !(op == "!=" && s == "0"):
	case mask == 0x1fff && zero:
		in = match.Between(match.Whole, match.First)
	case mask == 0x1fff:
		in = match.Just(match.Later)
	case mask == 0x3fff && zero:
		in = match.Just(match.Whole)
	case mask == 0x3fff:
		in = match.Between(match.First, match.Later)
	}
	if in == nil {
		p.Unknown("asks for bits of the fragment offset", "write `fragments` or `not fragments`")
		return nil
	}
	p.Both(match.Match{}.With(match.Ether, match.Only4).With(match.Fragment, in).Settle())
	return nil
}

// flagsLeft is the mask of `tcp flags & MASK`, or nil for `tcp flags`.
func flagsLeft(raw json.RawMessage) (mask json.RawMessage, ok bool) {
	if isFlags(raw) {
		return nil, true
	}
	key, inner := object(raw)
	parts := array(inner)
	if key == "&" && len(parts) == 2 && isFlags(parts[0]) {
		return parts[1], true
	}
	return nil, false
}

// flagValue reads "syn", 2, ["syn","ack"] and {"|": ["syn", "ack"]}.
func flagValue(raw json.RawMessage, depth int) (v uint8, err error) {
	if s, ok := scalar(raw); ok {
		if n, err := match.ParseSpansOf(s, ":", 255); err == nil {
			return uint8(n[0].Lo), nil
		}
		return match.ParseFlags(s)
	}
	list := array(raw)
	if key, inner := object(raw); key == "|" {
		list = array(inner)
	}
	if list == nil || depth > maxNested {
		return 0, fmt.Errorf("%s are not TCP flags", match.Quote(string(raw)))
	}
	for _, e := range list {
		f, err := flagValue(e, depth+1)
		if err != nil {
			return 0, err
		}
		v |= f
	}
	return v, nil
}

// flags is a match on TCP flags.
func (p *nftRule) flags(maskText json.RawMessage, op string, right json.RawMessage) error {
	mask := uint8(0xff)
	if maskText != nil {
		m, err := flagValue(maskText, 0)
		if err != nil {
			return p.soften(err)
		}
		mask = m
	}
	values := []json.RawMessage{right}
	if key, inner := object(right); key == "set" {
		values = array(inner)
	}
	tcp := match.Match{}.With(match.Proto, match.Just(6)).With(match.Port,
		match.AllPorts).Settle() // a TCP header is there
	alts, all := []match.Match{}, match.Match{}
	for _, raw := range values {
		v, err := flagValue(raw, 0)
		if err != nil {
			return p.soften(err)
		}
		f := match.Flags{Mask: mask, Value: v}
		any := match.Flags{Mask: v, Value: 0} // none of v is set
		switch {
		case op == "in" && v != 0:
			alts = append(alts, match.Match{}.WithoutFlags(any).Settle())
		case op == "!" && v != 0:
			all = all.WithFlags(any).Settle()
		case op == "==" && v&^mask == 0:
			alts = append(alts, flagsOrAll(tcp, f))
		case op == "==": // cannot hold
		case op == "!=" && v&^mask == 0 && mask != 0:
			all = all.WithoutFlags(f).Settle()
		case op == "!=" && mask == 0 && v == 0:
			all = never[0]
		case op == "!=":
		case op == "<", op == "<=", op == ">", op == ">=":
			in := importer.Ordered(op, match.Just(uint64(v)), 0xff)
			alts = append(alts, orderedFlags(tcp, mask, in)...)
		default:
			return p.soften(fmt.Errorf("compares TCP flags with %s", match.Quote(op)))
		}
	}
	if op == "!=" || op == "!" {
		if !all.HasTransport() && !all.Never {
			all = tcp
		}
		alts = []match.Match{all}
	}
	p.Both(alts...)
	return nil
}

// orderedFlags returns matches for TCP flags whose bits under mask, as a number, are within spans:
// one match for each block of numbers that differ in low bits only.
func orderedFlags(tcp match.Match, mask uint8, in match.Spans) []match.Match {
	has := func(v uint8) bool { return len(in.And(match.Just(uint64(v)))) > 0 }
	alts := []match.Match{}
	var split func(fixed, v uint8)
	split = func(fixed, v uint8) {
		all, none := true, true
		for x := range 256 {
			if x := uint8(x); x&^mask == 0 && x&fixed == v {
				all, none = all && has(x), none && !has(x)
			}
		}
		switch {
		case none:
		case all:
			alts = append(alts, flagsOrAll(tcp, match.Flags{Mask: fixed, Value: v}))
		default:
			top := uint8(1) << (bits.Len8(mask&^fixed) - 1)
			split(fixed|top, v)
			split(fixed|top, v|top)
		}
	}
	split(0, 0)
	return alts
}

func flagsOrAll(tcp match.Match, f match.Flags) match.Match {
	if f.Mask == 0 {
		return tcp
	}
	return match.Match{}.WithFlags(f).Settle()
}
