package nft

import (
	"encoding/json"
	"strings"

	"levee/internal/lang/importer"
	"levee/internal/lang/importer/match"
)

// Statements that change something and decide nothing may still end a rule: nftables leaves a rule
// whose statement cannot be carried out (NFT_BREAK of nf_tables_core.c in the kernel), and a
// statement that reads a header is listed without the condition that the packet has that header.
// What stands behind such a statement is for fewer packets than the matches say.

// quietly remembers a statement that decides nothing.
func (p *nftRule) quietly(key string) {
	p.quiet = append(p.quiet, importer.Reason{What: "the statement " + key +
		" decides nothing and is not carried over", Instead: ""})
}

// guard remembers a condition that a policy has no words for, and that counts if the rule decides
// something.
func (p *nftRule) guard(what string) {
	p.guards = append(p.guards, importer.Reason{What: what, Instead: ""})
}

// update is a statement that puts packets' fields into a set or map: `add @seen { ip saddr limit
// rate over 5/second }`. The rule goes on for packets that have the fields, and where each
// statement of the element goes on.
func (p *nftRule) update(key string, inner json.RawMessage) {
	var u struct {
		Elem, Data json.RawMessage
		Set, Map   string
		Stmt       []json.RawMessage
	}
	if json.Unmarshal(inner, &u) != nil || len(u.Elem) == 0 {
		p.guard("has a statement " + key + " that levee does not know")
		return
	}
	if len(u.Stmt) > 0 {
		p.CountsIn(p.c.table.family + " " + p.c.table.name + " " + u.Set + u.Map)
	}
	if set, ok := strings.CutPrefix(u.Set, "@"); ok {
		p.Out.Fills[match.Quote(set)] = true
	}
	for _, s := range u.Stmt {
		switch k, _ := object(s); k {
		case "counter", "last":
		case "limit", "quota", "ct count":
			_, inner := object(s)
			p.limit(k, k+" for each element of "+match.Quote(u.Set+u.Map), inner, u.Elem)
		default:
			p.guard("goes on for each element of " + match.Quote(u.Set+u.Map) + " by its own " +
				match.Quote(k) + ", which lets packets through up to a number")
		}
	}
	p.has(u.Elem, "puts into "+match.Quote(u.Set+u.Map))
	if len(u.Data) > 0 {
		p.writes(u.Data, 0)
	}
}

// mangle is a statement that writes a header field or what nft knows of a packet.
func (p *nftRule) mangle(inner json.RawMessage) {
	var m struct{ Key, Value json.RawMessage }
	if json.Unmarshal(inner, &m) != nil || len(m.Key) == 0 {
		p.guard("has a statement mangle that levee does not know")
		return
	}
	if key, _ := object(m.Key); key != "meta" && key != "ct" {
		p.has(m.Key, "writes")
	}
	p.writes(m.Value, 0)
}

// writes looks whether a value that is written is there for every packet.
func (p *nftRule) writes(raw json.RawMessage, depth int) {
	if _, ok := scalar(raw); ok {
		return
	}
	key, inner := object(raw)
	parts := array(raw)
	switch {
	case depth > maxNested:
	case key == "meta", key == "numgen":
		return
	case key == "|", key == "&", key == "^", key == "<<", key == ">>":
		parts = array(inner)
		fallthrough
	case parts != nil:
		for _, e := range parts {
			p.writes(e, depth+1)
		}
		return
	}
	p.guard("goes on only for packets that have the value it writes (" +
		importer.Printable(exprText(raw, 0),
			60) + ")")
}

// has narrows the rule to packets that have the fields of an element or a header.
func (p *nftRule) has(raw json.RawMessage, does string) {
	key, inner := object(raw)
	if key == "elem" {
		var e struct{ Val json.RawMessage }
		_ = json.Unmarshal(inner, &e)
		key, inner = object(e.Val)
		raw = e.Val
	}
	parts := []json.RawMessage{raw}
	if key == "concat" {
		parts = array(inner)
	}
	for _, part := range parts {
		d := p.left(part)
		switch {
		case d.why == nil && d.iface: // each packet has come by one
		case d.why == nil && d.dir != "":
			p.Both(d.dep.Settle())
		case d.why == nil && !d.state:
			p.Both(d.dep.With(d.num, match.Between(0, match.Top[d.num])).Settle())
		default:
			p.guard("goes on only for packets that have what it " + does + " (" +
				importer.Printable(exprText(part, 0), 60) + ")")
		}
	}
}
