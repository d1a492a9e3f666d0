package policy

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"slices"
	"strings"

	"levee/internal/lang/ast"
	"levee/internal/lang/bump"
	"levee/internal/lang/diag"
	"levee/internal/lang/dnsname"
	"levee/internal/lang/field"
	"levee/internal/lang/syntax"
)

// maxNesting is how deep sets may stand in sets.
const maxNesting = 64

// maxRemembered is how many elements of a list are remembered to find doubled ones.
const maxRemembered = 1 << 16

// setDef is a named set while it is resolved.
type setDef struct {
	stmt    *ast.Set
	set     *Set
	state   uint8 // of elements: not yet, in progress, done
	bad     bool  // an error in it was reported; what follows from it is not
	used    bool
	file    bool // a file set, or an inline set that has one
	nesting int  // of sets in it: 0 has none, 1 has some that have none
	scope   *scope
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
				r.sets[s.Name] = &setDef{set: &Set{Name: s.Name}, bad: true, state: setDone}
			}
		}
	}
	for _, d := range r.order {
		r.resolveSet(d, 0)
	}
	r.limitDynamic()
}

// maxDynamicSets is how many dynamic sets a policy may have.
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
	d := &setDef{stmt: s, set: &Set{Name: name, Pos: r.pos(s.Pos)}}
	if p := checkSetName(name); p.found() {
		r.problem(s.Name.Pos, p)
		d.bad = true
	}
	if old := r.sets[name]; old != nil {
		if old.stmt != nil {
			r.c.Errorf(s.Name.Pos, "choose another name, or join the two.",
				"set %q is defined in line %d already", short(name), r.pos(old.stmt.Pos).Line)
		}
		d.bad = true
	} else {
		r.sets[name] = d
	}
	r.order = append(r.order, d)
}

func checkSetName(name string) problem {
	const most = 32
	switch {
	case syntax.IsKeyword(name):
		return problemf("choose another name, such as my-"+name+".",
			"%q is a word of the language and cannot name a set", name)
	case len(name) > most:
		return problemf(fmt.Sprintf("this one has %d.", len(name)),
			"the name of a set has at most %d characters", most)
	}
	for i, c := range name {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		switch {
		case letter:
		case i == 0:
			return problemf(didYouMean("s"+short(name)),
				"the name of a set starts with a letter, not with %q", c)
		case c >= '0' && c <= '9' || c == '_' || c == '-':
		default:
			return problemf("write - or _ instead, or leave it out.",
				"the name of a set has letters, digits, _ and -, not %q", c)
		}
	}
	return problem{}
}

// isName tells whether an element is the name of a set rather than a value.
func isName(text string) bool {
	if !mayBeName(text) { // no need to work out what is wrong with it
		return false
	}
	return !checkSetName(text).found()
}

// mayBeName tells what cannot be the name of a set at a glance: a value that begins with a digit or
// a sign, an IPv6 address.
func mayBeName(text string) bool {
	return text != "" && text[0] >= 'A' && strings.IndexByte(text, ':') < 0
}

// lookup finds the set a word names and marks it as used. It returns nil after reporting that
// there is none, or that it is broken.
func (r *resolver) lookup(e *ast.Elem) *setDef {
	d := r.named(e.Text)
	if d == nil {
		r.c.Errorf(e.Pos, r.nearestSet(e.Text), "there is no set named %q", short(e.Text))
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

// maxSelf is how many addresses and local routes a machine may have where a policy asks for them.
const maxSelf = 4096

// named is the set of a name, nil if there is none.
func (r *resolver) named(name string) *setDef {
	d := r.sets[name]
	if d == nil && name == selfName {
		d = &setDef{
			stmt: &ast.Set{Dynamic: &ast.Dynamic{}}, state: setDone, used: true,
			set: &Set{Name: selfName, Kind: Dynamic, Max: maxSelf, Self: true},
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
			return didYouMean(n)
		}
		names = append(names, n)
	}
	if len(names) <= 1000 { // comparing with very many would take long for many errors
		if m := diag.Nearest(name, sorted(names)); m != "" {
			return didYouMean(m)
		}
	}
	return "define it: set " + short(name) + " = { ... }."
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
			short(d.set.Name))
		return
	}
	l := r.newList(len(v.Elems))
	l.depth, l.owner = depth, d
	for i := range v.Elems {
		l.add(&v.Elems[i])
	}
	d.set.Type = l.typ
	r.merge(&l.elements, v.Pos)
	d.set.Prefixes, l.prefixes = keep(&r.keptPrefixes, l.prefixes)
	d.set.Ports, l.ports = keep(&r.keptRanges, l.ports)
	d.set.Services, l.services = keep(&r.keptServices, l.services)
	d.set.Endpoints, l.endpoints = keep(&r.keptEndpoints, l.endpoints)
	d.set.Patterns = slices.Clone(l.names)
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
	typ   SetType
	what  string // what gave the type, for the message
	elements
	doubles doubles
}

// newList begins a list of n elements. It lies in the scratch memory, which its end gives back: see
// done. A set in it begins another one meanwhile, with memory of its own.
func (r *resolver) newList(n int) list {
	l := list{r: r, elements: r.scratch, doubles: r.doubles}
	r.scratch, r.doubles = elements{}, doubles{}
	l.prefixes, l.ports, l.services, l.endpoints = l.prefixes[:0], l.ports[:0], l.services[:0],
		l.endpoints[:0]
	l.spans, l.names = l.spans[:0], l.names[:0]
	l.doubles.begin(min(n, maxRemembered))
	return l
}

// done gives back the memory of a list, of which nothing is in use any more.
func (r *resolver) done(l *list) { r.scratch, r.doubles = l.elements, l.doubles }

// elements are those of a list or a file, of one type.
type elements struct {
	prefixes  []netip.Prefix
	ports     []field.Range
	services  []Service
	endpoints []Element
	names     []dnsname.Pattern
	spans     []span // ranges of addresses that are not prefixes yet: see spread
	apart     bool   // ranges become prefixes at once: each is an entry of its own
}

func (l *elements) size() int {
	return len(l.prefixes) + len(l.ports) + len(l.services) + len(l.endpoints) + len(l.spans) +
		len(l.names)
}

// size is the number of elements of a static set.
func (s *Set) size() int {
	return len(s.Prefixes) + len(s.Ports) + len(s.Services) + len(s.Endpoints) + len(s.Patterns)
}

// merge sorts the elements and joins those that one can stand for, in place. It returns how many
// are left; of more than MaxElements it makes none.
func (l *elements) merge() int {
	if len(l.spans) > 0 {
		return l.spread()
	}
	l.prefixes = MergePrefixes(l.prefixes)
	l.ports = field.Join(l.ports)
	l.services = mergeServices(l.services)
	l.endpoints = mergeEndpoints(l.endpoints)
	l.names = dnsname.Merge(l.names)
	return l.size()
}

// parse reads one element of a type; a range of addresses is kept as one, or becomes several where
// ranges are apart.
func (l *elements) parse(t SetType, text string) (p problem) {
	if !l.apart && (t == Addresses || t == Endpoints) {
		parse := parseSpan
		if t == Endpoints {
			parse = parseEndpointSpan
		}
		if s, ok, p := parse(text); ok {
			if !p.found() {
				l.spans = append(l.spans, s)
			}
			return p
		}
	}
	switch t {
	case Addresses:
		l.prefixes, p = parseAddresses(l.prefixes, text)
	case Ports:
		var rg field.Range
		rg, p = portNumber.element(text)
		l.ports = append(l.ports, rg)
	case Services:
		var s Service
		s, p = parseService(text)
		l.services = append(l.services, s)
	case Endpoints:
		l.endpoints, p = parseEndpoint(l.endpoints, text)
	case Names:
		var n dnsname.Pattern
		if n, p = parseName(text); !p.found() {
			l.names = append(l.names, n)
		}
	}
	return p
}

// looksLike tells by its look what an element is meant to be.
func looksLike(text string) SetType {
	const digit, minus, slash, dot, other = 1, 2, 4, 8, 16
	if ast.IsQuoted(text) {
		return Names
	}
	seen := 0
	for i := range len(text) {
		switch c := text[i]; {
		case c >= '0' && c <= '9':
			seen |= digit
		case c == '-':
			seen |= minus
		case c == '/':
			seen |= slash
		case c == '.' || c == ':':
			seen |= dot
		case c == ' ':
			return Endpoints
		default:
			seen |= other
		}
	}
	switch {
	case seen&slash != 0 && seen&dot == 0:
		if head, rest, _ := strings.Cut(text, "/"); !allDigits(head) || !allDigits(rest) {
			return Services
		}
	case seen&^(digit|minus) == 0:
		return Ports
	}
	return Addresses
}

// String names what a set of the type has, such as "addresses".
func (t SetType) String() string { return t.plural() }

func (t SetType) plural() string {
	return [...]string{"addresses", "ports", "services", "endpoints", "names"}[t]
}
func (t SetType) one() string {
	return [...]string{"an address", "a port", "a service", "an endpoint", "a name"}[t]
}

// add takes one element.
func (l *list) add(e *ast.Elem) {
	if l.r.overspent {
		return
	}
	if p, ok := plainIPv4(e.Text); ok { // most elements of long lists
		if l.agree(e, Addresses) {
			l.prefixes = append(l.prefixes, p)
			l.spend(e, 1)
			l.remember(e)
		}
		return
	}
	if isName(e.Text) {
		if d := l.member(e); d != nil && l.agree(e, d.set.Type) {
			l.prefixes = append(l.prefixes, d.set.Prefixes...)
			l.ports = append(l.ports, d.set.Ports...)
			l.services = append(l.services, d.set.Services...)
			l.endpoints = append(l.endpoints, d.set.Endpoints...)
			l.names = append(l.names, d.set.Patterns...)
			l.spend(e, d.set.size())
		}
		return
	}
	if e.Text == "any" {
		l.r.c.Errorf(e.Pos, "write it without a list, or leave the term out.",
			"\"any\" cannot stand in a list")
		return
	}
	t := looksLike(e.Text)
	if t == Addresses && l.owner != nil && !(l.typed && l.typ == Addresses) {
		if p := loneProtocol(e.Text); p.found() {
			l.r.problem(e.Pos, p)
			return
		}
	}
	if !l.agree(e, t) {
		return
	}
	n := l.size()
	if p := l.parse(t, e.Text); p.found() {
		l.r.problem(e.Pos, p)
		return
	}
	l.spend(e, l.size()-n)
	l.remember(e)
}

// remember warns of an element that is in the list already.
func (l *list) remember(e *ast.Elem) {
	if l.doubles.add(e.Text) {
		l.r.c.Warnf(e.Pos, "remove one of them.", "%s stands in the list already", short(e.Text))
	}
}

// listOf begins what a list is called whose place says what its elements are.
const listOf = "a list of "

// agree checks that the element is of the type of those before it.
func (l *list) agree(e *ast.Elem, t SetType) bool {
	if !l.typed {
		l.typed, l.typ, l.what = true, t, e.Text
		return true
	}
	if t == l.typ {
		return true
	}
	what := t.one()
	if isName(e.Text) {
		what = "a set of " + t.plural()
	}
	if strings.HasPrefix(l.what, listOf) {
		l.r.c.Errorf(e.Pos, "make a rule of its own for the "+t.plural()+".",
			"%s is %s, and this is %s", short(e.Text), what, l.what)
		return false
	}
	l.r.c.Errorf(e.Pos, "make a set of its own for the "+t.plural()+".",
		"%s is %s, but the list began with %s, %s", short(e.Text), what, short(l.what), l.typ.one())
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
				"time only", short(e.Text))
		return nil
	case d.state == setInProgress && d == l.owner:
		l.r.c.Errorf(e.Pos, "remove it.", "the set %q contains itself", short(e.Text))
		return nil
	case d.state == setInProgress:
		l.r.c.Errorf(e.Pos, "remove one of the names.", "the sets %q and %q contain each other",
			short(l.owner.set.Name), short(e.Text))
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
			"%q is read from a file and cannot stand in the list of a rule", short(e.Text))
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
		l.elements = elements{}
	}
}

// merge is elements.merge; the prefixes that ranges become count against the bound too.
func (r *resolver) merge(l *elements, at diag.Pos) {
	before := l.size()
	r.spend(at, max(0, l.merge()-before))
	if r.overspent {
		*l = elements{}
	}
}

func (r *resolver) spend(at diag.Pos, n int) {
	if r.elements += n; r.elements > MaxElements && !r.overspent {
		r.overspent = true
		r.c.Errorf(at, "", "the sets and lists of the policy have more than %d elements together",
			MaxElements)
	}
}

// fileSet reads a set from a file, which open knows by name.
func (r *resolver) fileSet(d *setDef, path ast.Word, name string) {
	d.set.Kind, d.set.Path, d.file = File, strings.Clone(path.Text), true
	in := r.openFile(path, name)
	if in == nil {
		return
	}
	defer in.Close()
	f := newSetFile(in, path.Text)
	if of := d.stmt.Of; of != nil {
		if f.typed = true; !r.fileType(f, *of) {
			return
		}
	}
	ds := f.read()
	r.fileDiags = append(r.fileDiags, ds...)
	if ds.HasErrors() {
		return
	}
	r.spend(path.Pos, f.out.size())
	if r.overspent {
		return
	}
	if f.out.size() == 0 && !d.set.EmptyOnPurpose() {
		r.c.Warnf(path.Pos, "", "%q has no entries, so the set matches nothing", short(path.Text))
	}
	d.set.Type = f.typ
	r.merge(&f.out, path.Pos)
	d.set.Prefixes, d.set.Ports, d.set.Services, d.set.Endpoints = f.out.prefixes, f.out.ports,
		f.out.services, f.out.endpoints
	d.set.Patterns = f.out.names
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
		err = pe.Err
	}
	r.c.Errorf(path.Pos, hint, "cannot read %q: %v", short(path.Text), err)
	return nil
}
