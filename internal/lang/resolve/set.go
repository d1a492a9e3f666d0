package resolve

import (
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"

	"levee/internal/host/access"
	"levee/internal/lang/ast"
	"levee/internal/lang/bump"
	"levee/internal/lang/diag"
	"levee/internal/lang/literal"
	"levee/internal/lang/policy"
	"levee/internal/lang/scope"
)

// maxNesting is the largest depth of sets in sets.
const maxNesting = 64

// maxRemembered is the number of a list's elements that are remembered to find doubled ones.
const maxRemembered = 1 << 16

// setDef is a named set while it is resolved.
type setDef struct {
	stmt    *ast.Set
	set     *policy.Set
	state   uint8 // of elements: not yet, in progress, done
	bad     bool  // an error in it was reported; what follows from it is not
	used    bool
	file    bool // a file set, or an inline set that has one
	nesting int  // depth of sets within it: 0 without sets, 1 if those have none
	scope   *scope.Scope
}

const (
	setUnresolved uint8 = iota
	setInProgress
	setDone
)

// collectSets binds all names first, then resolves the elements.
func (r *resolver) collectSets() {
	for _, s := range r.stmts {
		switch s := s.(type) {
		case *ast.Set:
			r.define(s)
		case *ast.Bad:
			if s.Name != "" && r.sets[s.Name] == nil {
				r.sets[s.Name] = &setDef{set: &policy.Set{Name: s.Name}, bad: true, state: setDone}
			}
		}
	}
	for _, d := range r.order {
		r.resolveSet(d, 0)
	}
	r.limitDynamic()
}

// maxDynamicSets is the largest number of dynamic sets that a policy may have.
const maxDynamicSets = 1000

// limitDynamic reports the first dynamic set that is one too many.
func (r *resolver) limitDynamic() {
	n := 0
	for _, d := range r.order {
		if d.stmt.Dynamic == nil {
			continue
		}
		if n++; n == maxDynamicSets+1 {
			r.c.Errorf(d.stmt.Name.Pos, "put entries of several into one.",
				"a policy has at most %d dynamic sets", maxDynamicSets)
			return
		}
	}
}

func (r *resolver) define(s *ast.Set) {
	name := strings.Clone(s.Name.Text) // the source may go
	d := &setDef{stmt: s, set: &policy.Set{Name: name, Pos: r.pos(s.Pos)}}
	if p := literal.CheckSetName(name); p.Found() {
		r.problem(s.Name.Pos, p)
		d.bad = true
	}
	if old := r.sets[name]; old != nil {
		if old.stmt != nil {
			r.c.Errorf(s.Name.Pos, "choose another name, or join the two.",
				"set %q is defined in line %d already", diag.Clip(name), r.pos(old.stmt.Pos).Line)
		}
		d.bad = true
	} else {
		r.sets[name] = d
	}
	r.order = append(r.order, d)
}

// lookup finds the set a word names and marks it as used. It returns nil after reporting that
// there is none, or that it is broken.
func (r *resolver) lookup(e *ast.Elem) *setDef {
	d := r.named(e.Text)
	if d == nil {
		r.c.Errorf(e.Pos, r.nearestSet(e.Text), "there is no set named %q", diag.Clip(e.Text))
		return nil
	}
	d.used = true
	if d.bad {
		return nil
	}
	return d
}

// selfName is the set of the machine's own addresses, unless the policy defines one of that name.
const selfName = "self"

// maxSelf is the largest number of addresses and local routes of a machine where a policy asks for
// them.
const maxSelf = 4096

// named returns the set of a name, nil if there is none.
func (r *resolver) named(name string) *setDef {
	d := r.sets[name]
	if d == nil && name == selfName {
		d = &setDef{
			stmt: &ast.Set{Dynamic: &ast.Dynamic{}}, state: setDone, used: true,
			set: &policy.Set{Name: selfName, Kind: policy.Dynamic, Max: maxSelf, Self: true},
		}
		r.sets[selfName] = d
		r.order = append(r.order, d)
	}
	return d
}

func (r *resolver) nearestSet(name string) string {
	if r.c.Full() { // it will not be shown
		return ""
	}
	var names []string
	for n := range r.sets {
		if len(n) == len(name) && strings.EqualFold(n, name) {
			return diag.DidYouMean(n)
		}
		names = append(names, n)
	}
	if len(names) <= 1000 { // comparing with very many would take long for many errors
		if m := diag.Nearest(name, sorted(names)); m != "" {
			return diag.DidYouMean(m)
		}
	}
	return "define it: set " + diag.Clip(name) + " = { ... }."
}

// resolveSet fills a set with its elements, those of nested sets included.
func (r *resolver) resolveSet(d *setDef, depth int) {
	if d.state != setUnresolved {
		return
	}
	d.state = setInProgress
	before, bad := r.c.Errors(), len(r.fileDiags)
	switch {
	case d.stmt.Dynamic != nil:
		r.dynamicSet(d)
	case d.stmt.Path != nil:
		r.fileSet(d, *d.stmt.Path, d.stmt.Path.Text)
	case d.stmt.Names != nil:
		r.namesSet(d)
	case d.stmt.MMDB != nil:
		r.mmdbSet(d)
	default:
		r.inlineSet(d, depth)
	}
	d.bad = d.bad || r.c.Errors() != before || len(r.fileDiags) != bad
	d.state = setDone
}

func (r *resolver) inlineSet(d *setDef, depth int) {
	v := d.stmt.List
	if len(v.Elems) == 0 {
		r.c.Errorf(v.Pos, "give it an element, or remove the set.", "the set %q is empty",
			diag.Clip(d.set.Name))
		return
	}
	l := r.newList(len(v.Elems))
	l.depth, l.owner = depth, d
	for i := range v.Elems {
		l.add(&v.Elems[i])
	}
	d.set.Type = l.typ
	r.merge(&l.Elements, v.Pos)
	d.set.Prefixes, l.Prefixes = keep(&r.keptPrefixes, l.Prefixes)
	d.set.Ports, l.Ports = keep(&r.keptRanges, l.Ports)
	d.set.Services, l.Services = keep(&r.keptServices, l.Services)
	d.set.Endpoints, l.Endpoints = keep(&r.keptEndpoints, l.Endpoints)
	d.set.Patterns = slices.Clone(l.Names)
	r.done(&l)
	if r.consume {
		d.stmt.List = nil
	}
}

// keep copies a list out of scratch memory, or takes that memory, which is then nil, where the list
// is large.
func keep[T any](s *bump.Allocator[T], list []T) (kept, scratch []T) {
	if len(list) >= bump.Large {
		return slices.Clip(list), nil
	}
	return s.Keep(list), list
}

// list gathers the elements of an inline set, or of a list of addresses, ports, services or
// endpoints in a rule.
type list struct {
	r     *resolver
	owner *setDef // nil for a list in a rule
	depth int
	typed bool // typ is known
	typ   policy.SetType
	what  string // what gave the type, for the message
	literal.Elements
	duplicates duplicates
}

// newList begins a list of n elements. It lies in the scratch memory, which its end gives back: see
// done. A set in it begins another one meanwhile, with memory of its own.
func (r *resolver) newList(n int) list {
	l := list{r: r, Elements: r.scratch, duplicates: r.duplicates}
	r.scratch, r.duplicates = literal.Elements{}, duplicates{}
	l.Reset()
	l.duplicates.begin(min(n, maxRemembered))
	return l
}

// done gives back the memory of a list, of which nothing is in use any more.
func (r *resolver) done(l *list) { r.scratch, r.duplicates = l.Elements, l.duplicates }

// add takes one element.
func (l *list) add(e *ast.Elem) {
	if l.r.overspent {
		return
	}
	if p, ok := literal.PlainIPv4(e.Text); ok { // most elements of long lists
		if l.agree(e, policy.Addresses) {
			l.Prefixes = append(l.Prefixes, p)
			l.spend(e, 1)
			l.remember(e)
		}
		return
	}
	if literal.IsName(e.Text) {
		if d := l.member(e); d != nil && l.agree(e, d.set.Type) {
			l.Prefixes = append(l.Prefixes, d.set.Prefixes...)
			l.Ports = append(l.Ports, d.set.Ports...)
			l.Services = append(l.Services, d.set.Services...)
			l.Endpoints = append(l.Endpoints, d.set.Endpoints...)
			l.Names = append(l.Names, d.set.Patterns...)
			l.spend(e, d.set.Size())
		}
		return
	}
	if e.Text == "any" {
		l.r.c.Errorf(e.Pos, "write it without a list, or leave the term out.",
			"\"any\" cannot stand in a list")
		return
	}
	t := literal.LooksLike(e.Text)
	if t == policy.Addresses && l.owner != nil && !(l.typed && l.typ == policy.Addresses) {
		if p := literal.LoneProtocol(e.Text); p.Found() {
			l.r.problem(e.Pos, p)
			return
		}
	}
	if !l.agree(e, t) {
		return
	}
	n := l.Size()
	if p := l.Parse(t, e.Text); p.Found() {
		l.r.problem(e.Pos, p)
		return
	}
	l.spend(e, l.Size()-n)
	l.remember(e)
}

// remember warns of an element that is in the list already.
func (l *list) remember(e *ast.Elem) {
	if l.duplicates.add(e.Text) {
		l.r.c.Warnf(e.Pos, "remove one of them.", "%s stands in the list already",
			diag.Clip(e.Text))
	}
}

// listOf begins what a list is called whose place says what its elements are.
const listOf = "a list of "

// agree checks that the element is of the type of those before it.
func (l *list) agree(e *ast.Elem, t policy.SetType) bool {
	if !l.typed {
		l.typed, l.typ, l.what = true, t, e.Text
		return true
	}
	if t == l.typ {
		return true
	}
	what := t.One()
	if literal.IsName(e.Text) {
		what = "a set of " + t.String()
	}
	if strings.HasPrefix(l.what, listOf) {
		l.r.c.Errorf(e.Pos, "make a rule of its own for the "+t.String()+".",
			"%s is %s, and this is %s", diag.Clip(e.Text), what, l.what)
		return false
	}
	l.r.c.Errorf(e.Pos, "make a set of its own for the "+t.String()+".",
		"%s is %s, but the list began with %s, %s", diag.Clip(e.Text), what, diag.Clip(l.what),
		l.typ.One())
	return false
}

// member finds a set that stands as an element.
func (l *list) member(e *ast.Elem) *setDef {
	d := l.r.lookup(e)
	if d == nil {
		return nil
	}
	switch {
	case d.stmt.Dynamic != nil:
		l.r.c.Errorf(e.Pos, "use it in a rule of its own.",
			"%q is a dynamic set and cannot be part of a list: its entries are known at run "+
				"time only", diag.Clip(e.Text))
		return nil
	case d.state == setInProgress && d == l.owner:
		l.r.c.Errorf(e.Pos, "remove it.", "the set %q contains itself", diag.Clip(e.Text))
		return nil
	case d.state == setInProgress:
		l.r.c.Errorf(e.Pos, "remove one of the names.", "the sets %q and %q contain each other",
			diag.Clip(l.owner.set.Name), diag.Clip(e.Text))
		return nil
	case l.depth >= maxNesting:
		l.r.tooDeep(e)
		return nil
	}
	l.r.resolveSet(d, l.depth+1)
	if l.owner != nil {
		l.owner.file = l.owner.file || d.file
		l.owner.nesting = max(l.owner.nesting, d.nesting+1)
		if d.nesting == maxNesting && !d.bad { // those below stood in the policy before
			l.r.tooDeep(e)
			return nil
		}
	} else if d.file {
		l.r.c.Errorf(e.Pos, "name the union first: set both = { ..., "+e.Text+" }.",
			"%q is read from a file and cannot stand in the list of a rule", diag.Clip(e.Text))
		return nil
	}
	if d.bad {
		return nil
	}
	return d
}

func (r *resolver) tooDeep(e *ast.Elem) {
	r.c.Errorf(e.Pos, "put the elements of some of them into one set.",
		"sets stand in sets more than %d deep", maxNesting)
}

// spend counts elements against the bound of the whole policy.
func (l *list) spend(e *ast.Elem, n int) {
	l.r.spend(e.Pos, n)
	if l.r.overspent {
		l.Elements = literal.Elements{}
	}
}

// merge is Merge of the elements; the prefixes that ranges become count against the bound too.
func (r *resolver) merge(l *literal.Elements, at diag.Pos) {
	before := l.Size()
	r.spend(at, max(0, l.Merge()-before))
	if r.overspent {
		*l = literal.Elements{}
	}
}

func (r *resolver) spend(at diag.Pos, n int) {
	if r.elements += n; r.elements > r.most && !r.overspent {
		r.overspent = true
		r.c.Errorf(at, "", "the sets and lists of the policy have more than %d elements together",
			r.most)
	}
}

// fileSet reads a set from a file, which open knows by name.
func (r *resolver) fileSet(d *setDef, path ast.Word, name string) {
	d.set.Kind, d.set.Path, d.file = policy.File, strings.Clone(path.Text), true
	in := r.openFile(path, name)
	if in == nil {
		return
	}
	defer in.Close()
	var want *policy.SetType
	if of := d.stmt.Of; of != nil {
		if want = r.fileType(*of); want == nil {
			return
		}
	}
	out, typ, ds := literal.ReadSet(in, path.Text, want)
	r.fileDiags = append(r.fileDiags, ds...)
	if ds.HasErrors() {
		return
	}
	r.spend(path.Pos, out.Size())
	if r.overspent {
		return
	}
	if out.Size() == 0 && !d.set.EmptyOnPurpose() {
		r.c.Warnf(path.Pos, "", "%q has no entries, so the set matches nothing",
			diag.Clip(path.Text))
	}
	d.set.Type = typ
	r.merge(&out, path.Pos)
	d.set.Prefixes, d.set.Ports, d.set.Services, d.set.Endpoints = out.Prefixes, out.Ports,
		out.Services, out.Endpoints
	d.set.Patterns = out.Names
}

// openFile opens a file that open knows by name, or says why it cannot and returns nil.
func (r *resolver) openFile(path ast.Word, name string) io.ReadCloser {
	if path.Text == "" {
		r.c.Errorf(path.Pos, "write: file(\"prefixes.txt\").", "the path is empty")
		return nil
	}
	if r.open == nil {
		r.c.Errorf(path.Pos, "", "set files cannot be read here")
		return nil
	}
	in, err := r.open(name)
	if err == nil {
		return in
	}
	hint := ""
	if errors.Is(err, fs.ErrNotExist) {
		hint = "a relative path starts in the directory of the policy file."
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		if todo := access.Policy(pe.Path, err); todo != "" {
			hint = todo + "."
		}
		err = pe.Err
	}
	r.c.Errorf(path.Pos, hint, "cannot read %q: %v", diag.Clip(path.Text), err)
	return nil
}
