package nft

import (
	"encoding/json"
	"strings"

	"levee/internal/lang/importer"
)

// maxRuleText bounds the text of a rule that is shown; the rest is cut off.
const maxRuleText = 200

// ruleText returns a rule nearly as nft prints it without -j, for people to find it again. It
// decides nothing.
func ruleText(exprs []json.RawMessage) string {
	var b strings.Builder
	for _, e := range exprs {
		key, inner := object(e)
		var m struct {
			Op                     string
			Left, Right, Key, Data json.RawMessage
			Target, Set, Map       string
			Elem, Value            json.RawMessage
		}
		_ = json.Unmarshal(inner, &m)
		switch key {
		case "match":
			b.WriteString(" " + exprText(m.Left, 0))
			if m.Op != "==" && m.Op != "in" {
				b.WriteString(" " + m.Op)
			}
			b.WriteString(" " + exprText(m.Right, 0))
		case "vmap":
			b.WriteString(" " + exprText(m.Key, 0) + " vmap " + exprText(m.Data, 0))
		case "jump", "goto":
			b.WriteString(" " + key + " " + m.Target)
		case "set", "map":
			b.WriteString(" " + importer.Clip(m.Op+" "+m.Set+m.Map,
				maxRuleText) + " { " + exprText(m.Elem,
				0) + " }")
		case "mangle":
			b.WriteString(" " + exprText(m.Key, 0) + " set " + exprText(m.Value, 0))
		default:
			b.WriteString(" " + key)
		}
		if b.Len() > maxRuleText {
			break
		}
	}
	return b.String()
}

// exprText returns an expression or a value.
func exprText(raw json.RawMessage, depth int) string {
	if s, ok := scalar(raw); ok {
		return importer.Clip(s, maxRuleText)
	}
	if depth > maxNested {
		return "..."
	}
	list := func(parts []json.RawMessage, sep string) string {
		var out []string
		for i, p := range parts {
			if i == 8 {
				out = append(out, "...")
				break
			}
			out = append(out, exprText(p, depth+1))
		}
		return strings.Join(out, sep)
	}
	if a := array(raw); a != nil {
		return list(a, ",")
	}
	key, inner := object(raw)
	var f struct {
		Protocol, Field, Key, Name, Addr string
		Base                             string
		Offset                           json.Number
		Len                              json.Number
		Val                              json.RawMessage
		Target                           string
	}
	_ = json.Unmarshal(inner, &f)
	switch key {
	case "payload":
		if f.Base != "" {
			return importer.Clip("@"+f.Base+","+f.Offset.String()+","+f.Len.String(), maxRuleText)
		}
		return f.Protocol + " " + f.Field
	case "meta", "ct":
		return key + " " + f.Key
	case "exthdr":
		return f.Name + " " + f.Field
	case "prefix":
		return f.Addr + "/" + f.Len.String()
	case "range":
		return list(array(inner), "-")
	case "concat":
		return list(array(inner), " . ")
	case "elem":
		return exprText(f.Val, depth+1)
	case "set":
		var pairs []string
		for i, e := range array(inner) {
			if i == 8 {
				pairs = append(pairs, "...")
				break
			}
			if pair := array(e); len(pair) == 2 {
				pairs = append(pairs, exprText(pair[0], depth+1)+" : "+exprText(pair[1], depth+1))
			} else {
				pairs = append(pairs, exprText(e, depth+1))
			}
		}
		return "{ " + strings.Join(pairs, ", ") + " }"
	case "jump", "goto":
		return key + " " + f.Target
	case "&", "|", "^":
		return "(" + list(array(inner), " "+key+" ") + ")"
	}
	return key
}
