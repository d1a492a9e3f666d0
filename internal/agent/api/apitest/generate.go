package apitest

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// strange are texts that programs trip over.
var strange = []string{"", " ", "\x00", "\n", "../../etc/passwd", "%2e%2e%2f", "'\"<script>",
	"\u202e",
	"ä\u0301", "\xff\xfe", "-1", "1e309", "0x10", "9223372036854775808", "NaN", "null", "true",
	"{}",
	"0.0.0.0/0", "::/0", "fe80::1%eth0", "203.0.113.9/33", "127.0.0.1", "999.1.1.1", "1-2",
	"10.0.0.0-10.255.255.255", "tcp/443", "forever", "0s", "10m", "-5m", "1000000w",
	strings.Repeat("a", 5000)}

// generator makes values of schemas.
type generator struct {
	*rand.Rand
	doc    *document
	values map[string][]string
}

func (g *generator) one(n int) bool { return g.IntN(n) == 0 }

func pick[T any](g *generator, of []T) T { return of[g.IntN(len(of))] }

// text is one for a parameter or field of a name.
func (g *generator) text(name string) string {
	if known := g.values[name]; len(known) > 0 && !g.one(4) {
		return pick(g, known)
	}
	if g.one(2) {
		return pick(g, strange)
	}
	b := make([]byte, g.IntN(40))
	for i := range b {
		b[i] = byte(32 + g.IntN(95))
	}
	return string(b)
}

func number(v any) (float64, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	f, err := n.Float64()
	return f, err == nil
}

// value is one of a schema, or with wrong one that is mostly not.
func (g *generator) value(schema map[string]any, name string, wrong bool, depth int) any {
	schema = g.doc.resolve(schema)
	if wrong && (g.one(3) || depth > 6) {
		return pick(g, []any{nil, true, -1, math.MaxInt64, 1e300, g.text(name), []any{},
			map[string]any{},
			[]any{nil, 1, "x", []any{[]any{}}}, map[string]any{"": 0}})
	}
	if of, ok := schema["enum"].([]any); ok && len(of) > 0 && !wrong {
		return pick(g, of)
	}
	kind, _ := schema["type"].(string)
	if kinds, ok := schema["type"].([]any); ok && len(kinds) > 0 {
		kind, _ = pick(g, kinds).(string)
	}
	switch kind {
	case "boolean":
		return g.one(2)
	case "integer", "number":
		low, high := -1000.0, 1e6
		if v, ok := number(schema["minimum"]); ok {
			low = v
		}
		if v, ok := number(schema["maximum"]); ok {
			high = v
		}
		if wrong {
			return pick(g, []any{low - 1, high + 1, 1.5, "1", math.MinInt64})
		}
		return int64(low + g.Float64()*(high-low))
	case "array":
		low, high := 0, 4
		if v, ok := number(schema["minItems"]); ok {
			low = int(v)
		}
		if v, ok := number(schema["maxItems"]); ok {
			if high = min(int(v), low+4); wrong && g.one(4) {
				high = int(v) + 1
				low = high
			}
		}
		out := []any{}
		for range low + g.IntN(high-low+1) {
			out = append(out, g.value(object(schema, "items"), name, wrong && g.one(4), depth+1))
		}
		return out
	case "object":
		return g.object(schema, wrong, depth)
	}
	s := g.text(name)
	if most, ok := number(schema["maxLength"]); ok && !wrong && len(s) > int(most) {
		s = strings.ToValidUTF8(s[:int(most)], "")
	}
	return s
}

func (g *generator) object(schema map[string]any, wrong bool, depth int) any {
	out := map[string]any{}
	required, _ := schema["required"].([]any)
	for field, of := range object(schema, "properties") {
		if needed := slices.Contains(required, any(field)); needed && (!wrong || !g.one(4)) ||
			g.one(2) {
			out[field] = g.value(object(of), field, wrong && g.one(2), depth+1)
		}
	}
	if wrong && g.one(4) {
		out[g.text("")] = g.text("")
	}
	return out
}

// body returns the body of a request, with its content type.
func (g *generator) body(schema map[string]any, wrong bool) ([]byte, string) {
	kind := "application/json"
	if schema == nil {
		if wrong && g.one(2) {
			return []byte(g.text("")), kind
		}
		return nil, kind
	}
	b := text(g.value(schema, "", wrong, 0))
	if !wrong {
		return b, kind
	}
	switch g.IntN(8) {
	case 0:
		b = b[:g.IntN(len(b)+1)]
	case 1:
		if len(b) > 0 {
			b[g.IntN(len(b))] = byte(g.IntN(256))
		}
	case 2:
		b = []byte(strings.Repeat("[", 1+g.IntN(20_000)))
	case 3:
		kind = pick(g, []string{"", "text/plain", "application/xml", "a",
			"application/json; charset=x"})
	}
	return b, kind
}

// target returns the path with its parameters.
func (g *generator) target(op *operation, wrong bool) string {
	path, query := op.path, url.Values{}
	for _, v := range op.params {
		p := object(v)
		name, _ := p["name"].(string)
		needed, _ := p["required"].(bool)
		if p["in"] == "header" || !needed && g.one(2) {
			continue
		}
		var texts []string
		switch v := g.value(object(p, "schema"), name, wrong && g.one(2), 0).(type) {
		case []any:
			for _, e := range v {
				texts = append(texts, plain(e))
			}
		default:
			texts = []string{plain(v)}
		}
		if p["in"] == "path" {
			word := append(texts, "x")[0]
			switch word {
			case "", ".", "..", "/": // of which net/http makes another path
				word = "x"
			}
			path = strings.ReplaceAll(path, "{"+name+"}", url.PathEscape(word))
			continue
		}
		query[name] = texts
	}
	if wrong && g.one(4) {
		query.Add(g.text(""), g.text(""))
	}
	if len(query) == 0 {
		return path
	}
	return path + "?" + query.Encode()
}

// plain returns a value as a parameter has it.
func plain(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return string(text(v))
}
