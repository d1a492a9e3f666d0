package resolve

import (
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"levee/internal/agent/source"
	"levee/internal/agent/source/inlet"
	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
	"levee/internal/lang/dnsname"
	"levee/internal/lang/eve"
	"levee/internal/lang/literal"
	"levee/internal/lang/logline"
	"levee/internal/lang/policy"
)

var formats = map[string]policy.Format{inlet.EVE: policy.EVE, inlet.JSON: policy.JSON,
	inlet.Lines: policy.Lines}

var hows = map[string]policy.How{"": policy.Equals, "contains": policy.Contains,
	"begins": policy.Begins, "ends": policy.Ends,
	"matches": policy.Matches, "in": policy.Listed}

// Bounds of sources.
const (
	maxSources    = 64
	maxSourceName = 32
	maxPatterns   = 64 // of one source
	maxAfter      = 1000
	maxWithin     = 24 * time.Hour
)

// Fields of lines.
const (
	lineProgram = "program"
	lineAddress = "addr"
)

// source resolves a `source` statement.
func (r *resolver) source(s *ast.Source) {
	errors := r.c.Errors()
	out := &policy.Source{Name: strings.Clone(s.Name.Text), Format: formats[s.Format.Text],
		Text: s.Text(), Pos: r.pos(s.Pos)}
	r.sourceName(s)
	r.sourcePlace(s, out)
	for i := range s.Where {
		if c, ok := r.condition(&s.Where[i], out.Format); ok && r.sourceHas(s.Where[i].Field, out) {
			out.Where = append(out.Where, c)
		}
	}
	r.sourcePatterns(s, out)
	r.sourceAfter(s, out)
	r.sourceSet(s, out)
	if f, ok := r.eventField(s.Add, out.Format); ok {
		out.Add = f.Name
		r.sourceAdds(s, f, out)
	}
	if out.Set != nil && out.Set.Type == policy.Names {
		r.sourceLabels(s, out)
	} else {
		r.sourceBits(s, out)
	}
	if len(r.pol.Sources) == maxSources {
		r.c.Errorf(s.Pos, "", "a policy has at most %d sources", maxSources)
	}
	if r.c.Errors() == errors && out.Set != nil { // the set may be the one with the error
		r.pol.Sources = append(r.pol.Sources, out)
	}
}

// sourceAdds checks that a field can be an entry of the set.
func (r *resolver) sourceAdds(s *ast.Source, f eve.Field, out *policy.Source) {
	names := out.Set != nil && out.Set.Type == policy.Names
	switch {
	case names && (out.Format == policy.JSON || f.Domain),
		!names && f.Type == eve.Address, out.Set == nil && f.Domain:
	case names && out.Format == policy.Lines:
		r.c.Errorf(s.Set.Pos, "name a set of addresses.",
			"set %q is of names, and a line gives an address", diag.Clip(s.Set.Text))
	case names:
		r.c.Errorf(s.Add.Pos, "fields with names are dns.rrname, tls.sni, quic.sni, "+
			"dtls.sni and http.hostname.", "%s is no name of the DNS, and the set is of names",
			f.Name)
	default:
		hint := "fields with addresses are src_ip and dest_ip, among others."
		switch {
		case out.Format == policy.Lines:
			hint = "write: add addr to " + diag.Clip(s.Set.Text) + "."
		case f.Domain:
			hint = "names go into a set of names: set " + diag.Clip(s.Set.Text) +
				" = dynamic(of names, max 100000, lease 1h)."
		}
		r.c.Errorf(s.Add.Pos, hint, "%s is a %s, and cannot be an entry of a set of addresses",
			f.Name, f.Type)
	}
}

// sourceLabels checks how much of a name is counted and leased.
func (r *resolver) sourceLabels(s *ast.Source, out *policy.Source) {
	if s.Bits == nil {
		return
	}
	n, err := strconv.ParseUint(s.Bits.Text, 10, 8)
	if err != nil || n < 2 || n > dnsname.MaxLabels {
		r.c.Errorf(s.Bits.Pos, "write how many labels at the end of the name are leased: "+
			diag.Clip(s.Add.Text)+"/2 is example.com of www.example.com.",
			"%q is not a number of labels from 2 to %d", diag.Clip(s.Bits.Text), dnsname.MaxLabels)
	}
	out.Labels = int(n)
}

// sourcePlace checks where the events of a source come from, as the row of its place says.
func (r *resolver) sourcePlace(s *ast.Source, out *policy.Source) {
	row := source.Input(s.Input.Text)
	out.Place = inlet.Place{Input: row.Name, At: strings.Clone(s.At.Text),
		Format: strings.Clone(s.Format.Text)}
	words := map[string]ast.Word{"": s.At, row.Name: s.Input}
	whole := r.placeValue(s.At, &row.At)
	for i := range s.Options {
		o := &s.Options[i]
		at := slices.IndexFunc(row.Options, func(of inlet.Option) bool {
			return of.Word == o.Word.Text
		})
		of := &row.Options[at]
		if out.Place.Options == nil {
			out.Place.Options = map[string]string{}
		}
		out.Place.Options[of.Word] = strings.Clone(o.Value.Text)
		words[of.Word] = o.Value
		whole = r.placeValue(o.Value, &of.Value) && whole
	}
	if row.Flows != nil {
		r.sourceFlows(s, row, out)
	}
	if row.Check == nil || !whole {
		return
	}
	row.Check(&out.Place, func(of, hint, text string) {
		w := words[of]
		r.c.Errorf(w.Pos, hint, "%s", strings.ReplaceAll(text, "%q",
			strconv.Quote(diag.Clip(w.Text))))
	})
}

// placeValue checks a text of a place that is a path.
func (r *resolver) placeValue(w ast.Word, of *inlet.Value) bool {
	switch path := w.Text; {
	case !of.Path || filepath.IsAbs(path):
		return true
	case path == "":
		r.c.Errorf(w.Pos, "write: "+of.Form+".", "the path is empty")
	default:
		r.c.Errorf(w.Pos, "the agent runs in no directory of its own: begin the path with /.",
			"%q is not a whole path", diag.Clip(path))
	}
	return false
}

// sourcePatterns prepares the patterns of lines.
func (r *resolver) sourcePatterns(s *ast.Source, out *policy.Source) {
	if out.Format != policy.Lines {
		if s.Match != nil {
			r.c.Errorf(s.Match.Pos, "conditions on fields stand behind \"where\".",
				"patterns are for lines, and these events are %s", s.Format.Text)
		}
		return
	}
	if s.Match == nil {
		r.c.Errorf(s.Pos, `write: match sshd-failed, or match "login from <addr> failed".`,
			"a source of lines needs a pattern")
		return
	}
	r.spend(s.Match.Pos, len(s.Match.Elems))
	for i, e := range s.Match.Elems {
		texts := []string{strings.Trim(e.Text, `"`)}
		if e.Text[0] != '"' {
			k, ok := logline.Named(e.Text)
			if !ok {
				r.noPattern(e)
				continue
			}
			if i > 0 && !slices.Equal(out.Programs, k.Programs) {
				r.c.Errorf(e.Pos, "write a source for each.",
					"%s is about lines of other programs than what stands before it", k.Name)
			}
			texts, out.Programs = k.Patterns, k.Programs
			out.Except = append(out.Except, k.Except...)
		} else if i > 0 && out.Programs != nil {
			r.c.Errorf(e.Pos, "write a source for each.",
				"this pattern is about lines of any program, and what stands before it is not")
		}
		for _, text := range texts {
			if _, err := logline.Compile(text); err != nil {
				r.c.Errorf(e.Pos, "`levee help agent` has the placeholders of patterns.",
					"this is no pattern: %v", err)
				continue
			}
			out.Patterns = append(out.Patterns, strings.Clone(text))
		}
	}
	if len(out.Patterns) > maxPatterns {
		r.c.Errorf(s.Match.Pos, "write several sources.", "a source has at most %d patterns",
			maxPatterns)
	}
}

// noPattern reports a name that no row of the library has.
func (r *resolver) noPattern(e ast.Elem) {
	var names, some []string
	for _, k := range logline.Library() {
		names = append(names, k.Name)
		if strings.HasPrefix(k.Name, e.Text+"-") {
			some = append(some, k.Name)
		}
	}
	hint := "`levee help agent` lists them; a pattern of your own stands in quotes."
	if m := diag.Nearest(e.Text, names); m != "" {
		hint = diag.DidYouMean(m)
	} else if len(some) > 0 {
		hint = "there are " + strings.Join(some, ", ") + "."
	}
	r.c.Errorf(e.Pos, hint, "no patterns are named %q", diag.Clip(e.Text))
}

// sourceAfter checks how many events of an address are needed.
func (r *resolver) sourceAfter(s *ast.Source, out *policy.Source) {
	if s.After == nil {
		return
	}
	n, err := strconv.Atoi(s.After.Text)
	if err != nil || n < 2 || n > maxAfter {
		r.c.Errorf(s.After.Pos, "without it each event leases the address.",
			"the number of events is from 2 to %d", maxAfter)
	}
	d, p := literal.Lease(s.Within.Text)
	switch {
	case p.Found():
		r.problem(s.Within.Pos, p)
	case d > maxWithin:
		r.c.Errorf(s.Within.Pos, "", "events are counted within %dh at most",
			int(maxWithin.Hours()))
	}
	out.After, out.Within = n, d
}

// What an event leases, without prefix lengths behind its field: all addresses of IPv6 that one
// host can choose from are one (RFC 4291, 2.5.4: 64 bits are the interface's). Nothing that was
// seen once says a thing about a shorter prefix than the last two.
const (
	sourceBits4     = 32
	sourceBits6     = 64
	sourceShortest4 = 16
	sourceShortest6 = 32
)

// sourceBits checks how much of an address is counted and leased.
func (r *resolver) sourceBits(s *ast.Source, out *policy.Source) {
	out.Bits4, out.Bits6 = sourceBits4, sourceBits6
	if s.Bits == nil {
		return
	}
	var ok bool
	if out.Bits4, out.Bits6, ok = r.prefixBits(s.Bits, diag.Clip(s.Add.Text)); !ok {
		return
	}
	if out.Bits4 < sourceShortest4 || out.Bits6 < sourceShortest6 {
		r.c.Errorf(s.Bits.Pos, fmt.Sprintf("write longer ones: /%d,%d is the shortest.",
			sourceShortest4, sourceShortest6), "the events of one address say nothing about so "+
			"many others")
	}
}

// sourceName checks the name of a source, which is that of an origin.
func (r *resolver) sourceName(s *ast.Source) {
	r.agentName(s.Name, s.Pos.Line, "source", "it is typed in commands: levee agent withdraw "+
		"--origin NAME.")
}

// agentName checks the name of a source or detector, which is that of an origin.
func (r *resolver) agentName(w ast.Word, line int32, what, why string) {
	name := w.Text
	switch {
	case name == "" || len(name) > maxSourceName:
		r.c.Errorf(w.Pos, "", "the name of a %s has 1 to %d bytes", what, maxSourceName)
	case strings.ContainsFunc(name, func(c rune) bool {
		return c > unicode.MaxASCII || !unicode.IsLetter(c) && !unicode.IsDigit(c) && c != '-' &&
			c != '_' && c != '.'
	}):
		r.c.Errorf(w.Pos, why, "the name of a %s has letters, digits, -, _ and . only", what)
	case name == policy.CommandOrigin:
		r.c.Errorf(w.Pos, "choose another name.",
			"%q is the origin of entries that commands have added", name)
	}
	if at, twice := r.sources[name]; twice {
		r.c.Errorf(w.Pos, "choose another name.",
			"line %d has the name %q already", at, diag.Clip(name))
	}
	if r.sources == nil {
		r.sources = map[string]int32{}
	}
	r.sources[name] = line
}

// sourceSet binds the set of a source and its lease.
func (r *resolver) sourceSet(s *ast.Source, out *policy.Source) {
	name := s.Set.Text
	d := r.sets[name]
	switch {
	case d == nil && name == selfName:
		r.c.Errorf(s.Set.Pos, "define a dynamic set: set abusers = dynamic(max 100000, lease 1h).",
			"%q holds the addresses of this machine", name)
	case d == nil:
		hint := r.nearestSet(name)
		if !strings.HasPrefix(hint, "did you mean") {
			hint = "define it: set " + diag.Clip(name) + " = dynamic(max 100000, lease 1h)."
		}
		r.c.Errorf(s.Set.Pos, hint, "there is no set named %q", diag.Clip(name))
	case d.bad:
	case d.set.Kind != policy.Dynamic:
		r.c.Errorf(s.Set.Pos, "only a dynamic set takes entries: set "+diag.Clip(name)+
			" = dynamic(max 100000, lease 1h).", "set %q is not dynamic", diag.Clip(name))
	case d.set.Type != policy.Addresses && d.set.Type != policy.Names:
		r.c.Errorf(s.Set.Pos, "name a set of addresses or of names.",
			"set %q is of %s, and what the agent leases is an address or a name",
			diag.Clip(name), d.set.Type)
	default:
		out.Set, out.Lease = d.set, d.set.Lease
	}
	if s.Lease == nil {
		return
	}
	lease, p := literal.Lease(s.Lease.Text)
	if p.Found() {
		r.problem(s.Lease.Pos, p)
		return
	}
	if out.Set != nil && out.Set.Lease > 0 && lease > out.Set.Lease {
		r.c.Errorf(s.Lease.Pos, "shorten it, or raise the lease of the set in line "+
			strconv.Itoa(int(out.Set.Pos.Line))+".",
			"the lease is longer than that of set %q", out.Set.Name)
	}
	out.Lease = lease
}

// eventField looks up a field of events. Those of JSON are any; what they are compared with says
// what they are.
func (r *resolver) eventField(w ast.Word, format policy.Format) (f eve.Field, ok bool) {
	switch format {
	case policy.JSON:
		return eve.Field{Name: strings.Clone(w.Text), Type: eve.Address}, r.jsonPath(w)
	case policy.Lines:
		switch w.Text {
		case lineAddress:
			return eve.Field{Name: lineAddress, Type: eve.Address}, true
		case lineProgram:
			return eve.Field{Name: lineProgram}, true
		}
		r.c.Errorf(w.Pos, "conditions are about the program, and the address is addr.",
			"lines have no field %q", diag.Clip(w.Text))
		return f, false
	}
	if f, ok = eve.Named(w.Text); !ok {
		var names []string
		for _, f := range eve.Fields() {
			names = append(names, f.Name)
		}
		hint := "`levee help agent` lists the fields."
		if m := diag.Nearest(w.Text, names); m != "" {
			hint = diag.DidYouMean(m)
		} else if i := slices.IndexFunc(names, func(n string) bool {
			return strings.HasSuffix(n, "."+w.Text)
		}); i >= 0 {
			hint = diag.DidYouMean(names[i])
		}
		r.c.Errorf(w.Pos, hint, "events have no field %q", diag.Clip(w.Text))
	}
	return f, ok
}

// maxPath is the largest depth of a field of JSON.
const maxPath = 16

// jsonPath checks a path into JSON objects.
func (r *resolver) jsonPath(w ast.Word) bool {
	parts := strings.Split(w.Text, ".")
	if slices.Contains(parts, "") || len(parts) > maxPath {
		r.c.Errorf(w.Pos, "a path is names of members with a dot between them: request.client_ip.",
			"%q is no path of at most %d names", diag.Clip(w.Text), maxPath)
		return false
	}
	return true
}

// condition resolves one condition of a source.
func (r *resolver) condition(c *ast.Condition, format policy.Format) (out policy.Condition,
	ok bool) {
	f, ok := r.eventField(c.Field, format)
	if !ok {
		return out, false
	}
	how := hows[c.How.Text]
	switch {
	case how != policy.Equals && f.Type == eve.Number && format != policy.JSON:
		r.c.Errorf(c.How.Pos, "compare it by =, != or <, or with a list in braces.",
			"%s is a number, and %s is about texts", f.Name, c.How.Text)
		return out, false
	case how == policy.Listed:
		return r.listed(c, f)
	case how == policy.Matches:
		return r.matches(c, f)
	}
	if format == policy.JSON {
		if f.Type = eve.Text; c.Value.Elems[0].Text[0] != '"' && !isBool(c.Value.Elems[0].Text) {
			f.Type = eve.Number
		}
	}
	out = policy.Condition{Field: f.Name, Not: c.Not, Op: c.Value.Op, How: how, AnyCase: c.AnyCase}
	if c.Value.List || how != policy.Equals {
		out.Op = ast.Equal
	}
	if out.Op == ast.NotEqual {
		out.Op, out.Not = ast.Equal, !out.Not
	}
	if f.Type != eve.Number && out.Op != ast.Equal {
		r.c.Errorf(c.Value.Pos, "compare it by = or !=, or with a list in braces.",
			"%s is a %s, and has no order", f.Name, f.Type)
		return out, false
	}
	for _, e := range c.Value.Elems {
		if !r.eventValue(e, f, format, &out) {
			return out, false
		}
	}
	if (how != policy.Equals || c.AnyCase) && len(out.Texts) < len(c.Value.Elems) {
		r.c.Errorf(c.Value.Pos, "write texts in quotes.", "%s is about texts",
			cmp.Or(c.How.Text, "any case"))
		return out, false
	}
	if !r.knownTexts(c, f, format) {
		return out, false
	}
	if slices.Contains(out.Texts, "") && how != policy.Equals {
		r.c.Errorf(c.Value.Pos, "", "every text %s an empty one", map[policy.How]string{
			policy.Contains: "contains", policy.Begins: "begins with",
			policy.Ends: "ends with"}[how])
		return out, false
	}
	r.spend(c.Value.Pos, len(c.Value.Elems))
	slices.Sort(out.Numbers)
	slices.Sort(out.Texts)
	out.Numbers, out.Texts = slices.Compact(out.Numbers), slices.Compact(out.Texts)
	if len(out.Words) > 0 && len(out.Texts) > 0 {
		r.c.Errorf(c.Value.Pos, "write two sources.",
			"a list has texts, numbers, or true and false")
		return out, false
	}
	return out, !r.overspent
}

// eventValue adds a value that a field is compared with to a condition. It returns false, and has
// reported why, for one that the field cannot have.
func (r *resolver) eventValue(e ast.Elem, f eve.Field, format policy.Format,
	out *policy.Condition) bool {
	text := e.Text[0] == '"'
	switch {
	case isBool(e.Text) && format == policy.JSON && f.Type == eve.Text:
		out.Words = append(out.Words, strings.Clone(e.Text))
	case isBool(e.Text):
		r.c.Errorf(e.Pos, "", "%s is a %s, and never true or false", f.Name, f.Type)
		return false
	case text && f.Type == eve.Number:
		r.c.Errorf(e.Pos, "write the number without quotes.", "%s is a number", f.Name)
		return false
	case !text && f.Type != eve.Number:
		r.c.Errorf(e.Pos, "write it in quotes: \""+diag.Clip(e.Text)+"\".", "%s is a %s",
			f.Name, f.Type)
		return false
	case text:
		out.Texts = append(out.Texts, strings.Clone(e.Text[1:len(e.Text)-1]))
	default:
		n, err := strconv.ParseInt(e.Text, 10, 64)
		if err != nil {
			r.c.Errorf(e.Pos, "", "%s is larger than any number of an event", diag.Clip(e.Text))
			return false
		}
		out.Numbers = append(out.Numbers, n)
	}
	return true
}

func isBool(word string) bool { return word == "true" || word == "false" }

// matches returns a condition by an expression.
func (r *resolver) matches(c *ast.Condition, f eve.Field) (out policy.Condition, ok bool) {
	text := c.Value.Elems[0].Text
	text = strings.ReplaceAll(text[1:len(text)-1], `\/`, "/")
	if len(text) > maxExpression {
		r.c.Errorf(c.Value.Pos, "write several sources.", "an expression has at most %d bytes",
			maxExpression)
		return out, false
	}
	if _, err := regexp.Compile(text); err != nil {
		r.c.Errorf(c.Value.Pos, "the syntax is that of RE2 (https://golang.org/s/re2syntax).",
			"this is no expression: %s", strings.TrimPrefix(err.Error(), "error parsing regexp: "))
		return out, false
	}
	return policy.Condition{Field: f.Name, Not: c.Not, Op: ast.Equal, How: policy.Matches,
		AnyCase: c.AnyCase, Expression: strings.Clone(text)}, true
}

// maxExpression bounds an expression, in bytes.
const maxExpression = 1000

// listed returns a condition by a list in a file or a feed, which the agent reads.
func (r *resolver) listed(c *ast.Condition, f eve.Field) (out policy.Condition, ok bool) {
	out = policy.Condition{Field: f.Name, Not: c.Not, Op: ast.Equal, How: policy.Listed,
		AnyCase: c.AnyCase}
	if c.Feed != nil {
		errors := r.c.Errors()
		out.Feed, out.Every = r.feed(c.Feed), r.every(c.Feed)
		return out, r.c.Errors() == errors
	}
	if !filepath.IsAbs(c.File.Text) {
		r.c.Errorf(c.File.Pos, "write the whole path: the agent reads it, wherever it runs.",
			"%q is no whole path", diag.Clip(c.File.Text))
		return out, false
	}
	out.File = strings.Clone(c.File.Text)
	return out, true
}

// knownTexts checks the values beside a field: wildcards and networks are no part of =, and of some
// fields all values are known. What never holds would say nothing, and its negation would always
// hold.
func (r *resolver) knownTexts(c *ast.Condition, f eve.Field, format policy.Format) bool {
	how := cmp.Or(c.How.Text, "is")
	for _, e := range c.Value.Elems {
		if e.Text[0] != '"' {
			continue
		}
		text := e.Text[1 : len(e.Text)-1]
		inner := strings.Trim(text, "*%")
		switch whole := how == "is"; {
		case whole && inner != text && inner != "":
			r.c.Errorf(e.Pos,
				"write: "+f.Name+" contains \""+diag.Clip(inner)+"\", or begins, ends, or "+
					"matches /.../.", "= compares whole texts, and * and %% stand for themselves")
			return false
		case whole && f.Type == eve.Address && strings.Contains(text, "/"):
			r.c.Errorf(e.Pos, "write: "+f.Name+" begins \"192.0.2.\", or matches /.../.",
				"%s is an address, and never the network %q", f.Name, diag.Clip(text))
			return false
		case f.Type == eve.Address && format == policy.EVE:
			if p := literal.PartOfAddress(text, how, c.AnyCase); p.Found() {
				r.c.Report(e.Pos, p)
				return false
			}
		}
		is, near := f.Known(how, text)
		switch {
		case format != policy.EVE || is || near != "" && c.AnyCase:
		case near != "":
			never := strings.Replace("never "+how, "never is", "is never", 1)
			r.c.Errorf(e.Pos, diag.DidYouMean(near), "%s %s %q", f.Name, never, diag.Clip(text))
			return false
		default:
			hint := "known are " + strings.Join(f.Values, ", ") + "."
			if near := diag.Nearest(text, f.Values); near != "" {
				hint = diag.DidYouMean(near)
			}
			r.c.Warnf(e.Pos, hint, "no version of Suricata that is known here writes %s that %s %q",
				f.Name, how, diag.Clip(text))
		}
	}
	return true
}

// checkSources refuses sources whose entries are protected: an attacker who can cause an event
// could let himself in.
func (r *resolver) checkSources() {
	for _, s := range r.pol.Sources {
		for _, rule := range r.pol.Protect {
			if rule.Asks(s.Set) {
				r.fillsProtected(s.Pos, rule, s.Set)
			}
		}
	}
	for _, l := range r.pol.Lists {
		if l.DNS != "" { // the policy names them itself
			continue
		}
		for _, rule := range r.pol.Protect {
			if rule.Asks(l.Set) {
				r.fillsProtected(l.Pos, rule, l.Set)
			}
		}
	}
}

func (r *resolver) fillsProtected(at policy.Pos, rule *policy.Rule, s *policy.Set) {
	r.c.Errorf(diag.Pos{Line: at.Line, Col: at.Col, EndCol: at.Col + 6},
		"let it fill another set.", "the protect rule in line %d asks set %q, which events may "+
			"not fill", rule.Pos.Line, s.Name)
}
