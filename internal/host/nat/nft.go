package nat

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// An object of a ruleset as nft(8) prints it as JSON (libnftables-json(5)).
type object struct {
	Chain, Rule, Set, Map *struct {
		Family, Table, Name, Chain string
		Hook, Policy               string
		Expr                       []map[string]any
		Elem                       []any
	}
}

// reader makes a ruleset of objects.
type reader struct {
	*ruleset
	sets   map[string][]any // elements of sets and maps, by table and name
	opaque bool             // there are rules of iptables, which nft does not tell
}

// parseNft reads a ruleset as JSON. opaque says that some rules are of iptables, which prints them.
func parseNft(text []byte) (r *ruleset, opaque bool, err error) {
	var all struct{ Nftables []object }
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, false, fmt.Errorf("read what nft prints: %w", err)
	}
	n := &reader{&ruleset{chains: map[string][]step{}}, map[string][]any{}, false}
	for _, o := range all.Nftables {
		if s := o.Set; s != nil {
			n.sets[s.Family+" "+s.Table+" "+s.Name] = s.Elem
		}
		if s := o.Map; s != nil {
			n.sets[s.Family+" "+s.Table+" "+s.Name] = s.Elem
		}
	}
	for _, o := range all.Nftables {
		c, rule := o.Chain, o.Rule
		switch {
		case c != nil && ofIP(c.Family):
			name := c.Family + " " + c.Table + " " + c.Name
			switch c.Hook {
			case "prerouting":
				n.arrive = append(n.arrive, name)
			case "forward":
				n.forward = append(n.forward, name)
				n.closed = n.closed || c.Policy == "drop"
			}
		case rule != nil && ofIP(rule.Family):
			table := rule.Family + " " + rule.Table + " "
			name := table + rule.Chain
			n.chains[name] = append(n.chains[name], n.steps(table, rule.Expr)...)
		}
	}
	return n.ruleset, n.opaque, nil
}

func ofIP(family string) bool { return slices.Contains([]string{"ip", "ip6", "inet"}, family) }

// steps reads the expressions of a rule. A map by which it decides makes a step of each entry.
func (n *reader) steps(table string, exprs []map[string]any) (out []step) {
	base := step{when: []cond{{}}, text: "table " + strings.TrimSpace(table)}
	end := func(when []cond, verdict map[string]any) {
		s := base
		s.when = when
		for word, of := range verdict {
			switch word {
			case "dnat", "redirect":
				s.sends = true
			case "drop", "reject":
				s.drops = true
			case "jump", "goto":
				s.into = table + str(dig(of, "target"))
			}
		}
		if s.sends || s.drops || s.into != "" {
			if s.sends {
				s.text += ": " + words(verdict)
			}
			out = append(out, s)
		}
	}
	for _, e := range exprs {
		for word, of := range e {
			switch word {
			case "match":
				base.states = base.states || dig(of, "left", "ct") != nil
				if op := str(dig(of, "op")); op == "==" || op == "in" {
					base.when = meet(base.when, n.alternatives(table, dig(of, "left"),
						dig(of, "right")))
				}
			case "xt":
				n.opaque = true
			case "vmap":
				for _, entry := range n.elements(table, dig(of, "data")) {
					pair, _ := entry.([]any)
					if len(pair) != 2 {
						continue
					}
					verdict, _ := pair[1].(map[string]any)
					end(meet(base.when, n.alternatives(table, dig(of, "key"), pair[0])), verdict)
				}
			case "dnat", "redirect":
				when := base.when
				if m := dig(of, "addr", "map"); m != nil {
					when = meet(when, n.keys(table, m))
				} else if m := dig(of, "port", "map"); m != nil {
					when = meet(when, n.keys(table, m))
				}
				end(when, e)
			default:
				end(base.when, e)
			}
		}
	}
	return out
}

// words returns what sends packets elsewhere, as nft prints it.
func words(verdict map[string]any) string {
	for word, of := range verdict {
		addr, port := scalar(dig(of, "addr")), scalar(dig(of, "port"))
		if port != "" {
			port = ":" + port
		}
		if addr+port != "" {
			return word + " to " + addr + port
		}
		return word
	}
	return ""
}

// keys returns what the entries of a map ask.
func (n *reader) keys(table string, m any) []cond {
	out := []cond{}
	for _, entry := range n.elements(table, dig(m, "data")) {
		if pair, _ := entry.([]any); len(pair) == 2 {
			out = append(out, n.alternatives(table, dig(m, "key"), pair[0])...)
		}
	}
	return out
}

// meet returns what meets one of some and one of others.
func meet(some, others []cond) (out []cond) {
	for _, a := range some {
		for _, b := range others {
			if c, ok := a.both(b); ok {
				out = append(out, c)
			}
		}
	}
	return out
}

// alternatives are conditions, one of which a packet meets that has a value at the left, or one of
// a set there.
func (n *reader) alternatives(table string, left, right any) []cond {
	out := []cond{}
	fields := []any{left}
	if all, ok := dig(left, "concat").([]any); ok {
		fields = all
	}
	for _, value := range n.elements(table, right) {
		parts := []any{value}
		if all, ok := dig(value, "concat").([]any); ok {
			parts = all
		}
		var c cond
		for i, f := range fields {
			if len(parts) == len(fields) {
				c.has(f, parts[i])
			}
		}
		out = append(out, c)
	}
	return out
}

// has adds that a field has a value, if both are known.
func (c *cond) has(field, value any) {
	word := scalar(value)
	if str(dig(field, "payload", "field")) == "dport" {
		if p, ok := protos[str(dig(field, "payload", "protocol"))]; ok {
			c.protos = []uint8{p}
		}
		r, ok := rangeOf(word, "-")
		if ends, both := dig(value, "range").([]any); both && len(ends) == 2 {
			r, ok = rangeOf(scalar(ends[0])+"-"+scalar(ends[1]), "-")
		}
		if ok {
			c.ports = append(c.ports, r)
		}
		return
	}
	if p := dig(value, "prefix"); p != nil {
		word = str(dig(p, "addr")) + "/" + scalar(dig(p, "len"))
	}
	switch str(dig(field, "payload", "protocol")) + " " + str(dig(field, "payload", "field")) +
		str(dig(field, "meta", "key")) {
	case "ip daddr", "ip6 daddr":
		if p, ok := prefixOf(word); ok {
			c.to = append(c.to, p)
		}
	case "ip saddr", "ip6 saddr":
		if p, ok := prefixOf(word); ok {
			c.from = append(c.from, p)
		}
	case "ip protocol", "ip6 nexthdr", " l4proto":
		if p, ok := protoOf(word); ok {
			c.protos = append(c.protos, p)
		}
	case " iifname", " iif":
		if name, any := strings.CutSuffix(word, "*"); any {
			word = name + "+"
		}
		c.devs = append(c.devs, word)
	}
}

// elements returns the elements of a value that is a set, by name or not, and else the value.
func (n *reader) elements(table string, v any) (out []any) {
	all, known := dig(v, "set").([]any)
	if name, named := strings.CutPrefix(str(v), "@"); named {
		all, known = n.sets[table+name]
	}
	if !known {
		all = []any{v}
	}
	for _, e := range all {
		if pair, ok := e.([]any); ok && len(pair) == 2 { // of a map
			e = []any{bare(pair[0]), pair[1]}
		}
		out = append(out, bare(e))
	}
	return out
}

// bare returns an element without its comment, timeout and counter.
func bare(e any) any {
	if val := dig(e, "elem", "val"); val != nil {
		return val
	}
	return e
}

// dig goes down into objects; nil where there is nothing.
func dig(v any, path ...string) any {
	for _, key := range path {
		m, _ := v.(map[string]any)
		v = m[key]
	}
	return v
}

func str(v any) string { s, _ := v.(string); return s }

// scalar returns a string or a number, as a word.
func scalar(v any) string {
	if f, ok := v.(float64); ok {
		return fmt.Sprint(int64(f))
	}
	return str(v)
}
