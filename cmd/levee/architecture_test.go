package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// repository is the root of the source, and module what its import paths begin with.
const (
	repository   = "../.."
	architecture = repository + "/docs/explanation/ARCHITECTURE.md"
	module       = "levee/"
)

// layers holds the table of packages in ARCHITECTURE.md.
type layers struct {
	of      map[string]int  // package, as `internal/packet`: its row, counted from the top
	callers map[string]bool // that may call bpf(2)
}

// readLayers reads the table of the section "Layers": a row a layer, the uppermost first, with its
// packages and, in the last column, those of them that call bpf(2).
func readLayers(t *testing.T) layers {
	t.Helper()
	l := layers{map[string]int{}, map[string]bool{}}
	for n, row := range tableOf(t, "Layers") {
		for _, p := range packagesIn(row[1]) {
			if _, twice := l.of[p]; twice {
				t.Errorf("ARCHITECTURE.md: %s stands in two layers", p)
			}
			l.of[p] = n
		}
		for _, p := range packagesIn(row[2]) {
			if _, listed := l.of[p]; !listed {
				t.Errorf("ARCHITECTURE.md: %s calls bpf(2), and is in no layer", p)
			}
			l.callers[p] = true
		}
	}
	return l
}

// tableOf is the first table of a section of ARCHITECTURE.md: its rows without the header.
func tableOf(t *testing.T, section string) [][]string {
	t.Helper()
	text, err := os.ReadFile(architecture)
	if err != nil {
		t.Fatal(err)
	}
	_, body, found := strings.Cut(string(text), "\n## "+section+"\n")
	if !found {
		t.Fatalf("ARCHITECTURE.md has no section %q", section)
	}
	body, _, _ = strings.Cut(body, "\n## ")
	var rows [][]string
	for line := range strings.Lines(body) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "|") {
			cells := strings.Split(strings.Trim(line, "|"), "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			rows = append(rows, cells)
		} else if len(rows) > 0 {
			break
		}
	}
	if len(rows) < 3 {
		t.Fatalf("ARCHITECTURE.md: the section %q has no table", section)
	}
	return rows[2:]
}

// packagesIn are the packages that a cell names, each between back quotes.
func packagesIn(cell string) []string {
	var all []string
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell, -1) {
		all = append(all, m[1])
	}
	return all
}

// goFile is one file of a package, without its tests.
type goFile struct {
	pkg       string // as ARCHITECTURE.md calls it: internal/packet
	name      string
	tree      *ast.File
	generated bool
}

// sources are all files of the packages of levee that are no tests.
func sources(t *testing.T) []goFile {
	t.Helper()
	return sourcesIn(t, "internal", "cmd", "docs", "profiles", "ring")
}

func sourcesIn(t *testing.T, roots ...string) []goFile {
	t.Helper()
	var all []goFile
	for _, root := range roots {
		err := filepath.WalkDir(filepath.Join(repository, root),
			func(name string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") ||
					strings.HasSuffix(name, "_test.go") {
					return err
				}
				tree, err := parser.ParseFile(token.NewFileSet(), name, nil,
					parser.ParseComments|parser.SkipObjectResolution)
				if err != nil {
					return err
				}
				dir, err := filepath.Rel(repository, filepath.Dir(name))
				all = append(all, goFile{filepath.ToSlash(dir), name, tree, ast.IsGenerated(tree)})
				return err
			})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// TestNoNameIsForTestsAlone: what a package of internal/ exports, itself or another package uses in
// what is no test: packages for tests may use what others export. Of constants that are declared
// together one that is used is enough, and errors are there for callers to match.
func TestNoNameIsForTestsAlone(t *testing.T) {
	type name struct{ pkg, of string }
	used, forTests := map[name]bool{}, map[string]bool{}
	for _, row := range tableOf(t, "Packages") {
		for _, p := range packagesIn(row[0]) {
			forTests[p] = row[3] == "be imported outside of tests" || strings.HasSuffix(p, "test")
		}
	}
	all := sources(t)
	for _, f := range append(all, sourcesIn(t, "scripts")...) {
		names := f.imports()
		declared := map[*ast.Ident]bool{}
		for _, group := range f.exported() {
			for _, id := range group {
				declared[id] = true
			}
		}
		ast.Inspect(f.tree, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok {
					used[name{strings.TrimPrefix(names[x.Name], module), n.Sel.Name}] = true
				}
				declared[n.Sel] = true // of another package, or a member
			case *ast.Ident:
				if !declared[n] {
					used[name{f.pkg, n.Name}] = true
				}
			}
			return true
		})
	}
	for _, f := range all {
		if f.generated || forTests[f.pkg] || !strings.HasPrefix(f.pkg, "internal/") {
			continue
		}
		for _, group := range f.exported() {
			if !slices.ContainsFunc(group, func(id *ast.Ident) bool {
				return used[name{f.pkg, id.Name}]
			}) {
				t.Errorf("%s: only tests use %s: move it to them, or do without it", f.name,
					group[0].Name)
			}
		}
	}
}

// exported are the names that a file exports, constants together as they are declared. Members and
// errors are left out.
func (f *goFile) exported() [][]*ast.Ident {
	var all [][]*ast.Ident
	for _, d := range f.tree.Decls {
		var names []*ast.Ident
		constants := false
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				names = []*ast.Ident{d.Name}
			}
		case *ast.GenDecl:
			constants = d.Tok == token.CONST
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					names = append(names, s.Name)
				case *ast.ValueSpec:
					names = append(names, s.Names...)
				}
			}
		}
		names = slices.DeleteFunc(names, func(id *ast.Ident) bool {
			return !id.IsExported() || strings.HasPrefix(id.Name, "Err")
		})
		if constants && len(names) > 0 {
			all = append(all, names)
			continue
		}
		for i := range names {
			all = append(all, names[i:i+1])
		}
	}
	return all
}

// imports are the packages that a file imports, by the name that they have in it.
func (f *goFile) imports() map[string]string {
	all := map[string]string{}
	for _, i := range f.tree.Imports {
		to, _ := strconv.Unquote(i.Path.Value)
		name := path.Base(to)
		if i.Name != nil {
			name = i.Name.Name
		}
		all[name] = to
	}
	return all
}

// TestImportsPointDown: a package imports packages of lower layers and no others, so there is no
// circle.
func TestImportsPointDown(t *testing.T) {
	l := readLayers(t)
	seen := map[string]bool{}
	for _, f := range sources(t) {
		from, listed := l.of[f.pkg]
		if !seen[f.pkg] && !listed {
			t.Errorf("ARCHITECTURE.md: the package %s is in no layer", f.pkg)
		}
		seen[f.pkg] = true
		for _, p := range f.imports() {
			p, ours := strings.CutPrefix(p, module)
			if to, ok := l.of[p]; ours && listed && ok && to <= from {
				t.Errorf("%s imports %s, which is not below it", f.name, p)
			}
		}
	}
	for p := range l.of {
		if !seen[p] {
			t.Errorf("ARCHITECTURE.md: the package %s, which is in a layer, does not exist", p)
		}
	}
}

// TestNoPackageIsTooLong: what grows beyond that gets a package below or above.
func TestNoPackageIsTooLong(t *testing.T) {
	const most = 4000
	lines := map[string]int{}
	for _, f := range sources(t) {
		if f.generated || strings.HasPrefix(f.pkg, "cmd/") {
			continue
		}
		text, err := os.ReadFile(f.name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
				lines[f.pkg]++
			}
		}
	}
	for pkg, n := range lines {
		if n > most {
			t.Errorf("%s has %d lines of code without its tests; at most %d are wanted", pkg, n,
				most)
		}
	}
	if lines["internal/dataplane"] == 0 {
		t.Error("no data plane was found")
	}
}

// TestEveryPackageIsDescribed: what goes in, what comes out, what it must never do.
func TestEveryPackageIsDescribed(t *testing.T) {
	described := map[string]bool{}
	for _, row := range tableOf(t, "Packages") {
		for _, p := range packagesIn(row[0]) {
			described[p] = true
		}
	}
	l := readLayers(t)
	for p := range l.of {
		if !described[p] {
			t.Errorf("ARCHITECTURE.md: the table of packages lacks %s", p)
		}
	}
	for p := range described {
		if _, ok := l.of[p]; !ok {
			t.Errorf("ARCHITECTURE.md: %s is described, and in no layer", p)
		}
	}
}

// TestEveryFileOfCIsDescribed: the page says what each program and header in bpf/ is.
func TestEveryFileOfCIsDescribed(t *testing.T) {
	page, err := os.ReadFile(architecture)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(repository + "/bpf/*.[ch]")
	if err != nil || len(files) == 0 {
		t.Fatalf("bpf/ has %d files of C, %v", len(files), err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		if !strings.Contains(string(page), "`"+name+"`") &&
			!strings.Contains(string(page), "`bpf/"+name+"`") {
			t.Errorf("ARCHITECTURE.md does not say what bpf/%s is", name)
		}
	}
}

// TestOnlyLoadersCallBPF: of the packages that know eBPF programs, those that ARCHITECTURE.md names
// load them or hold them open, and no others do.
func TestOnlyLoadersCallBPF(t *testing.T) {
	l := readLayers(t)
	calls := map[string]bool{}
	for _, f := range sources(t) {
		for _, use := range f.bpfCalls() {
			calls[f.pkg] = true
			if !l.callers[f.pkg] {
				t.Errorf("%s: %s, and ARCHITECTURE.md does not say that %s calls bpf(2)", f.name,
					use, f.pkg)
			}
		}
	}
	for p := range l.callers {
		if !calls[p] {
			t.Errorf("ARCHITECTURE.md: %s does not call bpf(2)", p)
		}
	}
}

const library = "github.com/cilium/ebpf"

// atStart makes maps where it is imported, when any command begins.
const atStart = library + "/rlimit"

// TestNoCommandCallsBPFAsItStarts: commands about policies ask the kernel nothing. The limit that
// the package lifts is none for maps and programs since Linux 5.11.
func TestNoCommandCallsBPFAsItStarts(t *testing.T) {
	for _, f := range sources(t) {
		for _, p := range f.imports() {
			if p == atStart {
				t.Errorf("%s imports %s", f.name, p)
			}
		}
	}
}

// live are the packages of the library that talk to the kernel with all that they have, but for
// types and errors of their own.
var live = []string{library + "/link", library + "/features", library + "/perf",
	library + "/ringbuf"}

// bpfCalls are the places of a file that call bpf(2), or hold what a call has made. What bpf2go
// generates for whoever may load does nothing by itself; its functions are looked for where they
// are called.
func (f *goFile) bpfCalls() []string {
	if f.generated {
		return nil
	}
	var all []string
	names := f.imports()
	for _, p := range names {
		if slices.Contains(live, p) {
			all = append(all, "imports "+p)
		}
	}
	ast.Inspect(f.tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			from := ""
			if ok {
				from = names[x.Name]
			}
			if callsBPF(from, n.Sel.Name) {
				all = append(all, "uses "+strings.TrimPrefix(x.Name+".", ".")+n.Sel.Name)
			}
			if n.Sel.Name == "LoadAndAssign" {
				all = append(all, "uses LoadAndAssign")
			}
		case *ast.CallExpr:
			if fn, ok := n.Fun.(*ast.Ident); ok && generatedLoader.MatchString(fn.Name) {
				all = append(all, "calls "+fn.Name)
			}
		}
		return true
	})
	return all
}

// generatedLoader is a function of bpf2go that loads maps and programs; loadX reads the object
// only.
var generatedLoader = regexp.MustCompile(`^load[A-Z]\w*Objects$`)

// callsBPF tells whether a name of a package makes a call, or is the type of what a call has made.
func callsBPF(from, name string) bool {
	made := name == "Map" || name == "Program" || name == "Collection"
	begins := strings.HasPrefix(name, "New") || strings.HasPrefix(name, "Load")
	switch from {
	case library:
		// LoadCollectionSpec and its like read an object file, not the kernel.
		return made || begins && !strings.HasPrefix(name, "LoadCollectionSpec")
	case library + "/btf":
		return strings.HasPrefix(name, "LoadKernel") || strings.HasPrefix(name, "NewHandle")
	case "golang.org/x/sys/unix":
		return name == "SYS_BPF"
	}
	return false
}

// TestCallsOfBPFAreFound, under whatever name a package is imported.
func TestCallsOfBPFAreFound(t *testing.T) {
	for body, want := range map[string]int{
		`import "github.com/cilium/ebpf"; var _ = ebpf.MapSpec{Type: ebpf.Array}`:                       0,
		`import "github.com/cilium/ebpf"; var _ = ebpf.LoadCollectionSpec`:                              0,
		`import "github.com/cilium/ebpf/asm"; var _ = asm.Return()`:                                     0,
		`import "github.com/cilium/ebpf"; var _, _ = ebpf.NewMap(nil)`:                                  1,
		`import lib "github.com/cilium/ebpf"; var _, _ = lib.LoadPinnedProgram("", nil)`:                1,
		`import "github.com/cilium/ebpf"; type t struct { m *ebpf.Map }`:                                1,
		`import "github.com/cilium/ebpf"; func f(s *ebpf.CollectionSpec) { s.LoadAndAssign(nil, nil) }`: 1,
		`import "github.com/cilium/ebpf/link"; var _ link.Link`:                                         1,
		`import "golang.org/x/sys/unix"; const n = unix.SYS_BPF`:                                        1,
		`var err = loadParseObjects(nil, nil)`:                                                          1,
	} {
		tree, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x; "+body, 0)
		if err != nil {
			t.Fatal(err)
		}
		f := goFile{tree: tree}
		if got := f.bpfCalls(); len(got) != want {
			t.Errorf("%s: %q, want %d", body, got, want)
		}
	}
}

// TestTheCommandIsArgumentsAndPrinting: what it knows besides belongs into packages, where an API
// or a test can ask it too.
func TestTheCommandIsArgumentsAndPrinting(t *testing.T) {
	const most = 6000
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		lines += strings.Count(string(text), "\n")
	}
	if lines > most {
		t.Errorf("cmd/levee has %d lines of code files, of at most %d: move what is no argument "+
			"and no printing into the package that it belongs to", lines, most)
	}
}
