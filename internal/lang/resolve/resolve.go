// Package resolve gives a parsed policy its meaning.
//
// In goes a tree (package ast), out comes a policy.Policy. Names are bound, profiles stand in the
// place of their `use`, set files are read, terms that no packet can match together are refused.
// All errors of a policy are reported at once, each with its place. It must never depend on the
// machine that it runs on.
package resolve

import (
	"cmp"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"levee/internal/lang/action"
	"levee/internal/lang/ast"
	"levee/internal/lang/bump"
	"levee/internal/lang/diag"
	"levee/internal/lang/field"
	"levee/internal/lang/literal"
	"levee/internal/lang/pattern"
	"levee/internal/lang/policy"
	"levee/internal/lang/setfile"
	"levee/internal/lang/syntax"
	"levee/internal/lang/use"
)

// Load reads, parses and resolves the policy file at path; set files are looked for relative to
// its directory. The error is about reading the policy itself. The Policy is nil when the
// diagnostics have errors.
func Load(path string) (*policy.Policy, diag.Diagnostics, error) {
	src, err := readPolicy(path)
	if err != nil {
		return nil, nil, fmt.Errorf("read policy: %w", err)
	}
	p, ds := Parse(filepath.Base(path), src, setfile.In(filepath.Dir(path)))
	return p, ds, nil
}

// Parse parses and resolves a policy; open reads its set files, as for Resolve.
func Parse(name string, src []byte, open func(string) (io.ReadCloser, error)) (*policy.Policy,
	diag.Diagnostics) {
	f, ds := syntax.Parse(name, src)
	p, more := Consume(f, open)
	if ds.HasErrors() {
		p = nil
	}
	return p, diag.Merge(ds, more)
}

func readPolicy(path string) ([]byte, error) {
	f, err := setfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// one more: Parse says that it is too long
	return io.ReadAll(io.LimitReader(f, syntax.MaxSource+1))
}

// Resolve gives a parsed policy its meaning: names are bound, types checked, prefixes masked and
// merged, comparisons turned into ranges, test packets built. open reads set files, by the path as
// it is written in the policy; nil refuses them. All errors are reported at once; the Policy is nil
// when there is one, or when f could not be parsed as a whole.
func Resolve(f *ast.File, open func(path string) (io.ReadCloser, error)) (*policy.Policy,
	diag.Diagnostics) {
	return resolve(newResolver(f, open))
}

// Question is Resolve for a policy whose first statement is no rule of it, but a question about its
// packets: that may ask what programs cannot beside the other rules.
func Question(f *ast.File, open func(path string) (io.ReadCloser, error)) (*policy.Policy,
	diag.Diagnostics) {
	r := newResolver(f, open)
	r.questions = 1
	return resolve(r)
}

// Consume is Resolve for a file whose statements nobody needs any more: each is let go as soon as
// it has its meaning, so that a large policy is not in memory twice. What is left of f has its name
// and its source, for diagnostics.
func Consume(f *ast.File, open func(path string) (io.ReadCloser, error)) (*policy.Policy,
	diag.Diagnostics) {
	r := newResolver(f, open)
	r.consume = true
	p, ds := resolve(r)
	f.Stmts, f.End = nil, nil
	return p, ds
}

// Sets returns those sets of a policy that have no errors, whatever there is in the rest of it.
func Sets(f *ast.File, open func(path string) (io.ReadCloser, error)) (all []*policy.Set) {
	r := newResolver(f, open)
	r.collectSets()
	for _, d := range r.order {
		if !d.bad {
			all = append(all, d.set)
		}
	}
	return all
}

func newResolver(f *ast.File, open func(path string) (io.ReadCloser, error)) *resolver {
	r := &resolver{
		file: f, empty: len(f.Stmts) == 0,
		c:    &diag.Collector{File: f.Name},
		open: open, most: cmp.Or(f.Most, literal.MaxElements),
		sets: make(map[string]*setDef), patterns: make(map[string]*policy.Pattern),
		pol: &policy.Policy{File: fileName(f), Essential: true},
	}
	r.stmts, r.fileDiags = use.Expand(f, r.c, open)
	return r
}

func resolve(r *resolver) (*policy.Policy, diag.Diagnostics) {
	f := r.file
	if ast.IsProfile(f) {
		c := &diag.Collector{File: f.Name}
		c.Errorf(f.Stmts[0].Place(), "try it by `levee profile test FILE`; a policy says: use \""+
			diag.Base(f.Name)+"\".", "this is a profile, a part of policies")
		return nil, f.Diagnostics(c)
	}
	r.collectSets()
	stmts := r.stmts
	if r.consume {
		f.Stmts, r.stmts = nil, nil
	}
	for i, s := range stmts {
		r.statement(s)
		if r.consume {
			stmts[i] = nil
		}
	}
	r.finish()
	ds := diag.Merge(f.Diagnostics(r.c), r.fileDiags)
	if f.Failed || ds.HasErrors() {
		return nil, ds
	}
	return r.pol, ds
}

// fileName returns what verdicts call the file of a policy.
func fileName(f *ast.File) string { return diag.Base(f.Name) }

// resolver is one run of Resolve.
type resolver struct {
	file      *ast.File
	stmts     []ast.Stmt // of the file, with those of profiles
	empty     bool       // the file has none
	consume   bool       // statements are let go
	questions int        // rules in front that ask about the others
	c         *diag.Collector
	fileDiags diag.Diagnostics // about set files
	open      func(string) (io.ReadCloser, error)
	sets      map[string]*setDef
	order     []*setDef
	elements  int // of sets and lists
	most      int // how many there may be
	overspent bool
	pol       *policy.Policy

	// the first of each, where there is one
	iface, essential, connections, onError, def, outDef ast.Stmt
	inners                                              *[]*policy.Inner // of the side of the rule
	// a statement could not be parsed that may be the default
	broken bool
	// of the last statement, once there are rules of the last of these
	last        diag.Pos
	behindRules bool // there are; what could not be parsed counts as one
	rules       int  // statements
	limits      int  // of them
	cookies     int
	greylists   int
	rings       []string                   // their names
	looks       int                        // terms on the payload
	patterns    map[string]*policy.Pattern // by their words and text
	searching   pattern.Work
	streams     int            // of them, that search streams
	logs        int            // likewise
	resolved    []*policy.Rule // those without errors
	labelled    []labelled
	tests       []*ast.Test
	labels      map[string]int   // how many rules have each
	frames      int              // bytes of test packets, spent of maxFrames
	sources     map[string]int32 // lines, by name
	protectSets []string         // file and dynamic look-ups of protect rules

	memory
}

// labelled is the label of a rule, which is number rule of its kind of statements.
type labelled struct {
	text string
	pos  diag.Pos
	line int32 // of the rule
	rule int
}

// memory holds resolved terms and their values, and what is used again for each rule and
// list.
type memory struct {
	keptTerms     bump.Allocator[policy.Term]
	keptPrefixes  bump.Allocator[netip.Prefix]
	keptRanges    bump.Allocator[field.Range]
	keptServices  bump.Allocator[policy.Service]
	keptEndpoints bump.Allocator[policy.Element]
	keptGiven     bump.Allocator[policy.Given]

	text       []byte           // scratch: canonical text
	terms      []resolvedTerm   // scratch: of the rule
	scratch    literal.Elements // of the list; taken while one is read
	duplicates duplicates       // likewise
}

// pos returns a place in the policy file: of what a profile has, the place where that is used.
func (r *resolver) pos(p diag.Pos) policy.Pos {
	p = r.file.Own(p)
	return policy.Pos{Line: p.Line, Col: p.Col}
}

// problem reports p at a place, if there is one.
func (r *resolver) problem(at diag.Pos, p diag.Problem) {
	if p.Found() {
		r.c.Report(at, p)
	}
}

func (r *resolver) statement(s ast.Stmt) {
	switch s.(type) {
	case *ast.Rule, *ast.Bad:
		r.last, r.behindRules = s.Place(), true
	default:
		if !r.behindRules {
			r.last = s.Place()
		}
	}
	switch s := s.(type) {
	case *ast.Interface:
		if r.once(&r.iface, s, "interface") {
			for i := range s.Names.Elems {
				r.checkInterface(&s.Names.Elems[i], s.Names.Elems[:i])
			}
		}
	case *ast.Essential:
		if r.once(&r.essential, s, "essential off") {
			r.pol.Essential = false
		}
	case *ast.Connections:
		if r.once(&r.connections, s, "connections max") {
			r.maxConnections(s.Max)
		}
	case *ast.Prove:
		r.prove(s)
	case *ast.OnError:
		if r.once(&r.onError, s, "on error") {
			r.pol.OnError, r.pol.ErrorPos = policy.ErrorDrop, r.pos(s.Pos)
			if named(s.Action.Text) == action.Pass {
				r.pol.OnError = policy.ErrorPass
			}
		}
	case *ast.Default:
		if s.Out {
			r.outDefault(s)
		} else if r.once(&r.def, s, "default") {
			r.pol.Default = policy.Default{Action: named(s.Action.Text), Pos: r.pos(s.Pos)}
		}
	case *ast.Rule:
		r.rule(s)
	case *ast.Source:
		r.source(s)
	case *ast.List:
		r.list(s)
	case *ast.Detect:
		r.detect(s)
	case *ast.Profile:
		r.c.Errorf(s.Pos, "it stands in a file of its own.", "a policy has no head of a profile")
	case *ast.Test:
		r.test(s)
	case *ast.Bad:
		r.broken = r.broken || s.Keyword == "default" || !syntax.IsKeyword(s.Keyword)
	}
}

// named returns the action of a word that the parser took for one.
func named(word string) action.Action {
	a, _ := action.Named(word)
	return a
}

// once keeps the first statement of a kind and reports any other.
func (r *resolver) once(first *ast.Stmt, s ast.Stmt, what string) bool {
	if *first != nil {
		r.c.Errorf(s.Place(), "remove one of the two.", "%q stands in line %d already", what,
			(*first).Place().Line)
		return false
	}
	*first = s
	return true
}

// checkInterface applies the kernel's rule for names (dev_valid_name in net/core/dev.c), of which a
// pattern has to leave one.
func (r *resolver) checkInterface(e *ast.Elem, before []ast.Elem) {
	const most = 127 // ALTIFNAMSIZ - 1; a name itself has up to 15
	name := e.Text
	switch {
	case len(strings.ReplaceAll(name, "*", "")) > most:
		r.c.Errorf(e.Pos, "`ip link` shows the names.",
			"the name of an interface has at most %d bytes", most)
	case name == "." || name == ".." || strings.ContainsAny(name, "/: \t\n"):
		r.c.Errorf(e.Pos, "`ip link` shows the names.",
			"%q cannot be the name of an interface", diag.Clip(name))
	case slices.ContainsFunc(before, func(b ast.Elem) bool { return b.Text == name }):
		r.c.Errorf(e.Pos, "remove one of the two.", "%q is given twice", diag.Clip(name))
	}
	r.pol.Interfaces = append(r.pol.Interfaces, strings.Clone(name))
}

// finish does what needs all statements.
func (r *resolver) finish() {
	if r.def == nil && !r.broken && !(r.file.Failed && r.empty) {
		r.c.Errorf(r.last, "end the rules with \"default drop\" or \"default pass\".",
			"the policy does not say what happens to packets that no rule decides")
	}
	r.identify()
	r.gidsBesideMessages()
	r.checkRollUp()
	r.checkSources()
	r.checkFlows()
	r.checkProofs()
	for _, t := range r.tests {
		r.resolveTest(t)
	}
	for _, d := range r.order {
		r.pol.Sets = append(r.pol.Sets, d.set)
		// the rule that uses it may be the one with the error
		if !d.used && !d.bad && !r.file.Failed {
			r.c.Warnf(d.stmt.Name.Pos, "use it in a rule, or remove it.",
				"set %q is not used by any rule", d.set.Name)
		}
	}
}

// identify gives the rules their identities: the label where it is the only one of its name, else
// the text and its ordinal among equal ones.
func (r *resolver) identify() {
	first := make(map[string]int32, len(r.labelled))
	count := make(map[string]int, len(r.labelled))
	r.labels = count
	for _, l := range r.labelled {
		if count[l.text]++; count[l.text] == 1 {
			first[l.text] = l.line
			continue
		}
		r.c.Warnf(l.pos, "give each rule a label of its own, so that counters can be told apart.",
			"label %q is used in line %d already", diag.Clip(l.text), first[l.text])
	}
	texts := make(map[string]int, max(0, len(r.resolved)-len(r.labelled)))
	limits := map[string]int{} // by what they are about
	for _, rule := range r.resolved {
		if rule.Label != "" && count[rule.Label] == 1 {
			rule.ID = "label:" + rule.Label
		} else if texts[rule.Text]++; texts[rule.Text] > 1 || rule.ID == "" {
			rule.ID = fmt.Sprintf("text:%s#%d", rule.Text, texts[rule.Text])
		}
		if l := rule.Limit; l != nil {
			alike := l.Alike + l.ByKeys()
			limits[alike]++
			l.Alike = fmt.Sprintf("%s#%d", alike, limits[alike])
		}
		protect, rules := &r.pol.Protect, &r.pol.Rules
		if rule.Out {
			protect, rules = &r.pol.Out.Protect, &r.pol.Out.Rules
		}
		if rule.Action.First() {
			*protect = append(*protect, rule)
		} else {
			*rules = append(*rules, rule)
		}
	}
}

// sorted returns names in order, so that messages do not depend on the order of a map.
func sorted(names []string) []string {
	slices.Sort(names)
	return names
}
