package nft

import (
	"encoding/json"
	"slices"
	"strings"

	"levee/internal/lang/importer"
	"levee/internal/lang/importer/match"
)

// natTo reads a statement dnat or redirect.
func (p *nftRule) natTo(key string, inner json.RawMessage) {
	var to struct {
		Addr, Port, Flags json.RawMessage
		Family            string
	}
	_ = json.Unmarshal(inner, &to)
	var in match.AddressSpans
	if text, ok := ends(to.Addr); len(to.Addr) > 0 {
		a, err := match.ParseSpan(text)
		if !ok || err != nil {
			return // taken from a map, or one of several
		}
		in = match.AddressSpans{a}
	}
	var port *importer.Ports
	if text, ok := ends(to.Port); len(to.Port) > 0 {
		s, err := match.ParseSpansOf(text, "-", 0xffff)
		if !ok || err != nil {
			return
		}
		var flags []string
		if one, ok := scalar(to.Flags); ok {
			flags = []string{one}
		} else {
			_ = json.Unmarshal(to.Flags, &flags)
		}
		port = &importer.Ports{Span: s[0], Any: slices.ContainsFunc(flags, func(f string) bool {
			return strings.HasSuffix(f, "random")
		})}
	}
	switch { // in a table of both
	case to.Family == "ip", in != nil && in[0].Lo.Is4():
		p.Both(match.Match{}.With(match.Ether, match.Only4))
	case to.Family == "ip6", in != nil:
		p.Both(match.Match{}.With(match.Ether, match.Only6))
	}
	p.SentTo(key, in, key == "dnat" && in == nil, port)
}

// ends reads one value, or a range, as its ends with - between them.
func ends(raw json.RawMessage) (string, bool) {
	if s, ok := scalar(raw); ok {
		return s, true
	}
	var r struct{ Range []json.RawMessage }
	if json.Unmarshal(raw, &r) != nil || len(r.Range) != 2 {
		return "", false
	}
	lo, ok := scalar(r.Range[0])
	hi, ok2 := scalar(r.Range[1])
	return lo + "-" + hi, ok && ok2
}
