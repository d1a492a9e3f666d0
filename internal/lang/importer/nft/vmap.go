package nft

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"levee/internal/lang/importer"
	"levee/internal/lang/importer/match"
)

// vmap is a verdict map: the rule becomes one for each verdict.
func (p *nftRule) vmap(inner json.RawMessage) error {
	var m struct{ Key, Data json.RawMessage }
	if json.Unmarshal(inner, &m) != nil || len(m.Key) == 0 || len(m.Data) == 0 {
		return fmt.Errorf("%s is not a verdict map", match.Quote(string(inner)))
	}
	parts, several := p.mapKey(m.Key)
	elems, err := p.keys(m.Data)
	if err != nil {
		return p.soften(err)
	}
	groups, err := p.byVerdict(elems)
	if err != nil {
		return err
	}
	if len(groups) == 0 {
		p.Rule.Alts, p.Rule.Verb = nil, importer.DoCount
		p.Remark(importer.Noticed,
			"the verdict map is empty, or all of it goes on: nothing is decided", "")
		return nil
	}
	p.split = []*importer.ChainRule{}
	p.finishQuiet()
	p.Rule.Unknown = append(p.Rule.Unknown, p.guards...)
	for i, g := range groups {
		r := *p.Rule
		r.Unknown, r.Remarks, r.States = slices.Clone(p.Rule.Unknown), nil,
			slices.Clone(p.Rule.States)
		if i == 0 {
			r.Remarks = p.Rule.Remarks
		}
		if err := p.mapRule(&r, parts, several, g); err != nil {
			return err
		}
		p.split = append(p.split, &r)
	}
	if last := p.split[len(p.split)-1]; drawsAll(m.Key, elems) && len(last.Unknown) > 0 &&
		(last.Verb == importer.DoGoto || last.Verb == importer.DoJump) {
		last.Unknown = last.Unknown[:len(last.Unknown)-1] // what none in front has drawn
	}
	return nil
}

// drawsAll tells whether a number is drawn or counted for each packet, and a map has an element for
// each that may come.
func drawsAll(key json.RawMessage, elems []json.RawMessage) bool {
	kind, inner := object(key)
	var n struct{ Mod, Offset int }
	return kind == "numgen" && json.Unmarshal(inner, &n) == nil && n.Mod == len(elems) &&
		n.Offset == 0
}

func (p *nftRule) finishQuiet() {
	for _, q := range p.quiet {
		p.Remark(importer.Noticed, q.What, q.Instead)
	}
}

// mapKey returns the fields by which a map is asked; several tells that its keys are of several.
func (p *nftRule) mapKey(raw json.RawMessage) (parts []json.RawMessage, several bool) {
	if kind, list := object(raw); kind == "concat" {
		return array(list), true
	}
	return []json.RawMessage{raw}, false
}

// keyGroup is the keys of a map that lead to the same verdict, key, or value.
type keyGroup struct {
	key   string
	inner json.RawMessage
	keys  []json.RawMessage
}

// byVerdict sorts the elements of a verdict map by their verdicts, in order of appearance.
func (p *nftRule) byVerdict(elems []json.RawMessage) (groups []*keyGroup, err error) {
	index := map[string]*keyGroup{}
	for _, e := range elems {
		pair := array(e)
		if len(pair) != 2 {
			return nil, fmt.Errorf("%s is not an element of a verdict map", match.Quote(string(e)))
		}
		key, inner := object(pair[1])
		switch key {
		case "continue": // goes on, as without it
			continue
		case "accept", "drop", "return", "jump", "goto", "queue":
		default:
			return nil, fmt.Errorf("%s is not a verdict", match.Quote(string(pair[1])))
		}
		id := string(pair[1])
		if index[id] == nil {
			index[id] = &keyGroup{key: key, inner: inner}
			groups = append(groups, index[id])
		}
		index[id].keys = append(index[id].keys, pair[0])
	}
	return groups, nil
}

// mapRule narrows r to the keys of a group and gives it the verdict.
func (p *nftRule) mapRule(r *importer.ChainRule, parts []json.RawMessage, several bool,
	g *keyGroup) error {
	if err := p.verdict(r, g.key, g.inner); err != nil {
		return err
	}
	p.narrow(r, parts, several, g.keys)
	r.CheckFragment()
	return nil
}

// narrow leaves of a rule the packets that have one of the keys of a map.
func (p *nftRule) narrow(r *importer.ChainRule, parts []json.RawMessage, several bool,
	keys []json.RawMessage) {
	dims, why := []dim{p.left(parts[0])}, (*importer.Reason)(nil)
	if several {
		dims, why = p.leftAll(parts)
	} else if dims[0].why != nil {
		why = dims[0].why
	}
	if why != nil {
		r.Unknown = append(r.Unknown, *why)
		return
	}
	alts, err := p.mapAlts(r, dims, several, keys)
	if err == nil && alts != nil {
		r.Alts, err = importer.Narrow(r.Alts, alts, &p.n.out.Written)
	}
	if err != nil {
		r.Unknown = append(r.Unknown, importer.Reason{What: importer.Printable(err.Error(), 200),
			Instead: ""})
	}
}

func (p *nftRule) mapAlts(r *importer.ChainRule, dims []dim, several bool,
	keys []json.RawMessage) ([]match.Match,
	error) {
	if several {
		return p.tuples(r, dims, keys, false)
	}
	var v value
	for _, k := range keys {
		one, err := dims[0].value(k, 0)
		if err != nil {
			return nil, err
		}
		v.add(one)
	}
	if v.any {
		return nil, errors.New("has the element * for what is not in the map")
	}
	return p.compareValue(r, &dims[0], "==", v)
}
