package pf

import (
	"path"
	"slices"
	"strings"

	"levee/internal/lang/importer"
	"levee/internal/lang/importer/match"
)

// anchor reads rules between braces; those from elsewhere are not in the input.
func (p *pf) anchor(at importer.Origin, s pfStatement, under []match.Match) error {
	name := within(p.at, anchorName(s))
	if body, ok := p.bodies[name]; ok {
		s.body, s.inline = body, true
	}
	defer func(at string) { p.at = at }(p.at)
	p.at = name
	r := p.newRule(at, s, under)
	r.Rule.Verb = importer.DoJump // so that nothing of its states is asked for
	r.read()
	if r.out {
		return nil
	}
	if s.inline && len(r.Rule.Alts) == 0 {
		return nil
	}
	if s.inline && len(r.Rule.Unknown) == 0 {
		first, last := p.first, p.last
		if r.quick { // what matches within it decides
			p.first, p.last = nil, nil
		}
		err := p.take(s.body, r.Rule.Alts)
		if r.quick {
			slices.Reverse(p.last)
			p.first, p.last = slices.Concat(first, p.first, p.last), last
		}
		return err
	}
	r.Rule.Verb = importer.DoNothing
	const hint = "give the file that is loaded behind this one, or the rules of the anchor in " +
		"their place: pfctl -a NAME -sr"
	if !s.inline && !p.loaded(name) { // pf begins it empty
		p.seen = true
		p.out.Report.Add(at.Remark(importer.Changed,
			"the anchor is empty in the source: what a program, such "+
				"as ftp-proxy or relayd, puts into it while pf runs is not in the policy", hint))
		return nil
	}
	r.Unknown("the rules of the anchor are not known here", hint)
	p.add(r)
	return nil
}

// anchorName is the name that a statement gives to an anchor, or "".
func anchorName(s pfStatement) string {
	if len(s.tokens) < 2 {
		return ""
	}
	return s.tokens[1].text
}

// anchorLoaded is the name of the anchor that a statement loads, or "".
func anchorLoaded(s pfStatement) string {
	name, _ := loadsAnchor(s.tokens)
	return name
}

// within is the path of an anchor that is named in another one.
func within(anchor, name string) string {
	if rest, ok := strings.CutPrefix(name, "/"); ok || anchor == "" {
		return rest
	}
	return strings.TrimSuffix(anchor, "/*") + "/" + name
}

// loadsAnchor returns the anchor that a statement loads rules into, or "", and the file.
func loadsAnchor(t []pfToken) (name, file string) {
	if len(t) < 3 || !t[0].is("load") || !t[1].is("anchor") {
		return "", ""
	}
	if len(t) > 4 && t[3].is("from") {
		file = t[4].text
	}
	return t[2].text, file
}

// loaded tells whether a file that is not in the input may bring rules into an anchor, or into one
// within it.
func (p *pf) loaded(name string) bool {
	name, within := strings.CutSuffix(name, "*")
	name = strings.TrimSuffix(name, "/")
	for to, body := range p.bodies { // of `x/*` those within x are evaluated, and not x
		if within && to == name && slices.ContainsFunc(body, func(s pfStatement) bool {
			return s.inline || s.tokens[0].is("load")
		}) {
			return true
		}
	}
	return slices.ContainsFunc(p.loads, func(l string) bool {
		return l == name || name == "" || strings.HasPrefix(l, name+"/") ||
			strings.HasPrefix(name, l+"/")
	})
}

// readAnchor reads a file that the statements load into anchors.
func (p *pf) readAnchor(in importer.Source, statements []pfStatement) error {
	r := pfReader{name: in.Title(), macros: map[string][]pfToken{}}
	if err := r.read(in.R); err != nil {
		return err
	}
	body, err := r.statements(0)
	if err != nil {
		return err
	}
	loaded, from := map[string]string{}, "" // what is loaded last is what an anchor has
	for _, s := range statements {
		name, file := loadsAnchor(s.tokens)
		if loaded[within("", name)] = file; path.Base(file) != in.Name {
			continue
		}
		if from != "" && from != file {
			return r.fail(0, "%s and %s are both loaded, and are files of one name: rename one",
				match.Quote(from), match.Quote(file))
		}
		from = file
	}
	var anchors []string
	for name, file := range loaded {
		if name != "" && path.Base(file) == in.Name {
			p.bodies[name] = body
			p.loads = slices.DeleteFunc(p.loads, func(l string) bool { return l == name })
			anchors = append(anchors, name)
		}
	}
	if from == "" {
		return r.fail(0, "no `load anchor NAME from \"PATH\"` of %s names this file",
			p.reader.name)
	}
	for _, s := range body {
		if t := s.tokens; t[0].is("table") && len(t) > 3 && p.tables[t[2].text] != nil {
			return r.fail(s.line, "the table %s is in another file, too: pf has one for each "+
				"anchor, and a policy one set of a name; rename one", match.Quote(t[2].text))
		}
	}
	for _, name := range anchors {
		p.findTables(body, name)
	}
	return nil
}
