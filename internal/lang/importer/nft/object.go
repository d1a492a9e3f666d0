package nft

import (
	"encoding/json"
	"fmt"
	"strings"

	"levee/internal/lang/importer"
	"levee/internal/lang/importer/match"
)

// object takes one object of a ruleset, or a command of a file for nft -j -f that adds one. What a
// command would take away or put elsewhere is refused: such a file says what to change, and not
// what there is.
func (n *nftables) object(key string, inner json.RawMessage, line int) error {
	switch key {
	case "table", "chain", "set", "map", "rule", "element":
		return n.define(key, inner, line)
	case "add", "create":
		what, inner := object(inner)
		switch {
		case what == "table" && n.hasTable(inner):
			return nil // to add what is there already is no mistake
		case what == "add", what == "create":
			return fmt.Errorf("the command %s of a command", match.Quote(key))
		}
		return n.object(what, inner, line)
	case "flush":
		if what, _ := object(inner); what == "ruleset" && len(n.tables) == 0 {
			return nil
		}
		return commandError(key)
	case "insert", "delete", "destroy", "replace", "rename", "reset", "list":
		return commandError(key)
	case "limit":
		var l struct{ Family, Table, Name string }
		_ = json.Unmarshal(inner, &l)
		n.limits[l.Family+" "+l.Table+" "+l.Name] = inner
		return nil
	case "metainfo", "counter", "quota", "flowtable", "ct helper", "ct timeout",
		"ct expectation", "secmark", "synproxy":
		return nil // rules refer to them, and are left out where that matters
	}
	n.out.Report.Add(importer.Remark{File: n.name, Line: line, Kind: importer.Noticed,
		Text: "the ruleset has an object " + match.Quote(key) +
			", which levee does not know; rules that refer to it are left out"})
	return nil
}

func commandError(key string) error {
	return fmt.Errorf("the command %s changes a ruleset: load the file where it does no harm, "+
		"and give what there is then: unshare -n sh -c 'nft -j -f FILE; nft -j list ruleset'",
		match.Quote(key))
}

func (n *nftables) hasTable(inner json.RawMessage) bool {
	var t jsonTable
	return json.Unmarshal(inner, &t) == nil && n.tables[t.Family+" "+t.Name] != nil
}

// define takes a table, chain, set, map, rule or element.
func (n *nftables) define(key string, inner json.RawMessage, line int) error {
	switch key {
	case "table":
		return decoded(inner, n.newTable)
	case "chain":
		return decoded(inner, func(c *jsonChain) error { return n.chain(c, line) })
	case "rule":
		return decoded(inner, func(r *jsonRule) error { return n.rule(r, line) })
	case "element":
		return decoded(inner, n.elements)
	}
	return decoded(inner, n.set)
}

// decoded calls take with what stands in raw.
func decoded[T any](raw json.RawMessage, take func(*T) error) error {
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		return fmt.Errorf("reading an object of the ruleset: %s",
			importer.Printable(err.Error(), 200))
	}
	return take(&v)
}

func (n *nftables) newTable(j *jsonTable) error {
	key := j.Family + " " + j.Name
	if n.tables[key] != nil {
		return fmt.Errorf("table %s is defined twice", match.Quote(key))
	}
	n.tables[key] = &nftTable{j.Family, j.Name, map[string]*nftChain{}, map[string]*nftSet{},
		strings.Contains(string(j.Flags), "dormant")}
	return nil
}

func (n *nftables) elements(j *jsonElement) error {
	t, err := n.table(j.Family, j.Table)
	if err != nil {
		return err
	}
	s := t.sets[j.Name]
	if s == nil {
		return fmt.Errorf("there is no set %s", match.Quote(j.Name))
	}
	s.elems = append(s.elems, j.Elem...)
	return nil
}
