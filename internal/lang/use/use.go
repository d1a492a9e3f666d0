// Package use puts profiles into policies, in the place of each statement `use`.
//
// In goes the tree of a policy, out come its statements with those of profiles among them: their
// parameters have values, their sets and labels have names of their own. It must never bind a name
// or judge a rule: that is package resolve's.
package use

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
	"levee/internal/lang/literal"
	"levee/internal/lang/policy"
	"levee/internal/lang/syntax"
	"levee/profiles"
)

// shippedPrefix begins the name by which a profile that levee comes with is opened, as set files
// are by their paths: who keeps what a policy has read keeps it, too.
const shippedPrefix = "profile:"

// Shipped returns the text of a profile that comes with levee, by the path under which a policy
// opens it; ok is false for other paths.
func Shipped(path string) (text []byte, ok bool, err error) {
	name, ok := strings.CutPrefix(path, shippedPrefix)
	if !ok {
		return nil, false, nil
	}
	text, err = profiles.Text(name)
	return text, true, err
}

// Head is the head of a profile.
type Head struct {
	Name       string
	Version    int
	About      string
	Takes      []string // the floods that it takes
	Misses     []string // what gets past it
	Costs      []string
	Tried      []string // clients and servers that were tried
	Parameters []Parameter
}

// Parameter is one parameter of a profile.
type Parameter struct {
	Name    string
	Type    string
	Default string // as it is written
	About   string

	Value *ast.Value
}

// expander is one run of Expand.
type expander struct {
	file  *ast.File
	c     *diag.Collector
	open  func(string) (io.ReadCloser, error)
	diags diag.Diagnostics // about profiles
}

// Expand returns the statements of a policy with those of profiles in the place of each `use`, and
// what was said about the profiles. What is wrong with the policy itself, c is told.
func Expand(f *ast.File, c *diag.Collector,
	open func(string) (io.ReadCloser, error)) ([]ast.Stmt, diag.Diagnostics) {
	isUse := func(s ast.Stmt) bool { _, is := s.(*ast.Use); return is }
	if !slices.ContainsFunc(f.Stmts, isUse) {
		return f.Stmts, nil
	}
	x := &expander{file: f, c: c, open: open}
	var out []ast.Stmt
	uses := 0
	names := map[string]int32{}
	for _, s := range f.Stmts {
		u, is := s.(*ast.Use)
		if !is {
			out = append(out, s)
			continue
		}
		if uses++; uses > syntax.MaxUses {
			c.Errorf(u.Pos, "", "a policy uses at most %d profiles", syntax.MaxUses)
			break
		}
		out = append(out, x.use(u, names)...)
	}
	return out, x.diags
}

// use returns the statements of a profile with the values that a policy gives it.
func (x *expander) use(u *ast.Use, names map[string]int32) []ast.Stmt {
	title, path := u.Title(), shippedPrefix+u.Title()
	if u.Path != nil {
		path = u.Path.Text
	} else {
		title += ".levee"
	}
	text, ok := x.readProfile(u, path)
	if !ok {
		return nil
	}
	part := ast.Part{Title: title, Use: u}
	head, file, ds := Read(title, text)
	if !x.partDiagnostics(part, ds) {
		return nil
	}
	name := head.Name
	if u.As != nil {
		name = u.As.Text
	}
	errors := x.c.Errors()
	at := u.Pos
	if u.As != nil {
		at = u.As.Pos
	}
	profileName(name, at, x.c)
	if line, twice := names[name]; twice {
		x.c.Errorf(at, "give it a name of its own: use "+u.Title()+" ... as \"NAME\".",
			"what line %d uses is called %q, too", line, name)
	}
	names[name] = u.Pos.Line
	if v := u.Version; v != nil && v.Text != strconv.Itoa(head.Version) {
		x.c.Errorf(v.Pos, fmt.Sprintf("read what it does now, by `levee profile show %s`, and "+
			"write: use %[1]s %d.", u.Title(), head.Version), "%s is here in version %d",
			head.Name, head.Version)
	}
	values := x.arguments(u, head)
	if x.c.Errors() > errors {
		return nil
	}
	own := SetNames(file)
	file, ds = syntax.Include(x.file, part, text, Bindings(values, own, name+"-"))
	if !x.partDiagnostics(part, ds) {
		return nil
	}
	return inPolicy(file, name)
}

// readProfile reads the text of a profile.
func (x *expander) readProfile(u *ast.Use, path string) ([]byte, bool) {
	at, hint := u.Name.Pos, "`levee profile list` shows them."
	if u.Path != nil {
		at, hint = u.Path.Pos, ""
	} else if near := diag.Nearest(u.Name.Text, profiles.Names()); near != "" {
		hint = diag.DidYouMean(near)
	}
	text, err := x.readPart(path)
	// Who opens no files, or another's, has levee's profiles all the same.
	shipped, is, none := Shipped(path)
	if is && (err != nil || len(text) == 0) {
		text, err = shipped, none
	}
	switch {
	case is && errors.Is(err, fs.ErrNotExist):
		x.c.Errorf(at, hint, "there is no profile %q",
			diag.Clip(strings.TrimPrefix(u.Title(), shippedPrefix)))
	case err != nil:
		var path *fs.PathError
		if errors.As(err, &path) {
			err = path.Err
		}
		x.c.Errorf(at, hint, "%q cannot be read: %s", diag.Clip(u.Title()), err)
	case len(text) > syntax.MaxPartSize:
		x.c.Errorf(at, "", "%q is longer than %d KiB", diag.Clip(path), syntax.MaxPartSize>>10)
	default:
		return text, true
	}
	return nil, false
}

func (x *expander) readPart(path string) ([]byte, error) {
	if x.open == nil {
		return nil, errors.New("files are not read here")
	}
	f, err := x.open(path)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, syntax.MaxPartSize+1))
	return text, errors.Join(err, f.Close())
}

// partDiagnostics takes what was said about a part; false where that has errors.
func (x *expander) partDiagnostics(part ast.Part, ds diag.Diagnostics) bool {
	for i := range ds {
		ds[i].Message += part.Used(x.file.Name)
	}
	x.diags = append(x.diags, ds...)
	return !ds.HasErrors()
}

// Read parses a profile, whose names stand for nothing yet, and reads its head.
func Read(title string, text []byte) (*Head, *ast.File, diag.Diagnostics) {
	f, ds := syntax.Parse(title, text)
	if ds.HasErrors() {
		return nil, nil, ds
	}
	c := &diag.Collector{File: title}
	var head *Head
	for i, s := range f.Stmts {
		switch s := s.(type) {
		case *ast.Profile:
			if i > 0 {
				c.Errorf(s.Pos, "", "\"profile\" stands once, in front of all other statements")
			} else {
				head = profileHead(s, c)
			}
		case *ast.Rule:
			if s.Action == "protect" {
				c.Errorf(s.Pos, "write it into the policy.", "a profile protects nobody")
			} else if s.Label == nil {
				c.Errorf(s.Pos, "write at its end: as \"what it counts\".",
					"each rule of a profile has a label, by which status names it")
			}
		case *ast.Set, *ast.Prove, *ast.Test:
			set, is := s.(*ast.Set)
			if !is {
				continue
			}
			if name, is := strings.CutPrefix(set.Name.Text, "$"); !is {
				c.Errorf(set.Name.Pos, "write: set $"+name+" = ...",
					"the name of a set of a profile begins with $")
			} else if head != nil && head.parameter(name) != nil {
				c.Errorf(set.Name.Pos, "choose another name for the set.",
					"there is a parameter %q already", diag.Clip(name))
			}
		default:
			c.Errorf(s.Place(), "write it into the policy.", "a profile has rules, sets, proofs "+
				"by echo and tests, and nothing else")
		}
	}
	if head == nil {
		c.Errorf(diag.Pos{Line: 1, Col: 1, EndCol: 2},
			"write: profile my-game 1 { about \"what it is for\" }.",
			"a profile begins with its head")
	}
	ds = diag.Merge(ds, f.Diagnostics(c))
	return head, f, ds
}

// profileHead reads the head of a profile.
func profileHead(s *ast.Profile, c *diag.Collector) *Head {
	out := &Head{Name: strings.Clone(s.Name.Text)}
	profileName(out.Name, s.Name.Pos, c)
	var err error
	if out.Version, err = strconv.Atoi(s.Version.Text); err != nil || out.Version < 1 ||
		out.Version > 1e6 {
		c.Errorf(s.Version.Pos, "count them: 1, 2, 3.", "%s is no version",
			diag.Clip(s.Version.Text))
	}
	for _, l := range s.Lines {
		text := strings.Clone(l.Text.Text)
		switch l.Word.Text {
		case "about":
			out.About = text
		case "takes":
			out.Takes = append(out.Takes, text)
		case "misses":
			out.Misses = append(out.Misses, text)
		case "costs":
			out.Costs = append(out.Costs, text)
		case "tried":
			out.Tried = append(out.Tried, text)
		case "parameter":
			p := Parameter{Name: l.Name.Text, Type: l.Type.Text, About: text, Value: l.Value,
				Default: l.Value.String()}
			switch {
			case out.parameter(p.Name) != nil:
				c.Errorf(l.Name.Pos, "choose another name.", "there is a parameter %q already",
					diag.Clip(p.Name))
			case p.Name != "port":
				profileName(p.Name, l.Name.Pos, c)
			}
			p.check(l.Value, c)
			out.Parameters = append(out.Parameters, p)
		}
	}
	if out.About == "" {
		c.Errorf(s.Pos, "write into its head: about \"what it is for\".",
			"the profile does not say what it is for")
	}
	return out
}

// profileName checks a name, which begins those of sets.
func profileName(name string, at diag.Pos, c *diag.Collector) {
	if p := literal.CheckSetName(name); p.Found() {
		c.Errorf(at, p.Hint, "%s", strings.ReplaceAll(p.Message, "a set", "a profile"))
	}
}

func (p *Head) parameter(name string) *Parameter {
	i := slices.IndexFunc(p.Parameters, func(q Parameter) bool { return q.Name == name })
	if i < 0 {
		return nil
	}
	return &p.Parameters[i]
}

// names returns the names of the parameters.
func (p *Head) names() (all []string) {
	for _, q := range p.Parameters {
		all = append(all, q.Name)
	}
	return all
}

// arguments returns the values of all parameters.
func (x *expander) arguments(u *ast.Use, head *Head) map[string]*ast.Value {
	values := map[string]*ast.Value{}
	for _, a := range u.Args {
		p := head.parameter(a.Name.Text)
		switch {
		case p == nil:
			hint := "it has " + strings.Join(head.names(), ", ") + "."
			if near := diag.Nearest(a.Name.Text, head.names()); near != "" {
				hint = diag.DidYouMean(near)
			} else if len(head.Parameters) == 0 {
				hint = "it has none."
			}
			x.c.Errorf(a.Name.Pos, hint, "profile %s has no parameter %q", head.Name,
				diag.Clip(a.Name.Text))
			continue
		case values[p.Name] != nil:
			x.c.Errorf(a.Name.Pos, "remove one of the two.", "%q is given twice", p.Name)
			continue
		}
		p.check(a.Value, x.c)
		values[p.Name] = a.Value
	}
	for i := range head.Parameters {
		if p := &head.Parameters[i]; values[p.Name] == nil {
			values[p.Name] = p.Value
		}
	}
	return values
}

// check reports a value that is none of the parameter's type.
func (p *Parameter) check(v *ast.Value, c *diag.Collector) {
	one := func(e ast.Elem) diag.Problem {
		switch p.Type {
		case "rate":
			return (&policy.Limit{}).SetRate(e.Text)
		case "number":
			if _, err := strconv.ParseUint(e.Text, 10, 32); err != nil {
				return diag.Problemf("", "%q is not a number", diag.Clip(e.Text))
			}
			return diag.Problem{}
		}
		if literal.IsName(e.Text) { // of a set
			return diag.Problem{}
		}
		var all literal.Elements
		if p.Type == "ports" {
			return all.Parse(policy.Ports, e.Text)
		}
		return all.Parse(policy.Addresses, e.Text)
	}
	if v.List && (p.Type == "rate" || p.Type == "number") {
		c.Errorf(v.Pos, "write one value, without braces.", "%q is one %s", p.Name, p.Type)
		return
	}
	for _, e := range v.Elems {
		if q := one(e); q.Found() {
			c.Errorf(e.Pos, q.Hint, "%s: %s", p.Name, q.Message)
		}
	}
}

// SetNames returns the names of the sets of a profile, without the sign.
func SetNames(f *ast.File) map[string]bool {
	all := map[string]bool{}
	for _, s := range f.Stmts {
		if set, is := s.(*ast.Set); is {
			all[strings.TrimPrefix(set.Name.Text, "$")] = true
		}
	}
	return all
}

// Bindings returns what names that begin with a dollar sign stand for: values of parameters, and
// sets, whose names begin otherwise in a policy.
func Bindings(values map[string]*ast.Value, sets map[string]bool,
	prefix string) func(string) (*ast.Value, bool) {
	return func(name string) (*ast.Value, bool) {
		if v := values[name]; v != nil {
			return v, true
		}
		if sets[name] {
			return &ast.Value{Elems: []ast.Elem{{Text: prefix + name}}}, true
		}
		return nil, false
	}
}

// inPolicy returns the statements of a profile that a policy gets: without its head and its tests,
// with its name in front of what status shows.
func inPolicy(f *ast.File, name string) (out []ast.Stmt) {
	for _, s := range f.Stmts {
		switch s := s.(type) {
		case *ast.Profile, *ast.Test:
			continue
		case *ast.Rule:
			s.Label.Text = name + "/" + s.Label.Text
		case *ast.Prove:
			s.Name.Text = name + "/" + s.Name.Text
		}
		out = append(out, s)
	}
	return out
}

// Open opens a profile of levee's, by the name under which a policy opens it.
func Open(path string) (f io.ReadCloser, ok bool, err error) {
	text, ok, err := Shipped(path)
	return io.NopCloser(bytes.NewReader(text)), ok, err
}
