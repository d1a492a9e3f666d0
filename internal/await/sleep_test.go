package await

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestTestsDoNotSleep: a test that slept for as long as something takes failed on a busy machine,
// and held up an idle one. A sleep in a test stands in a function that is given to synctest.Test,
// or right before synctest.Wait, which panics elsewhere; Pass is for the others.
func TestTestsDoNotSleep(t *testing.T) {
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), "time.") {
			return err
		}
		for _, at := range sleeps(t, path, text) {
			t.Errorf("%s: a sleep. Wait for an event, or with internal/await, or in synctest.Test",
				at)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestSleepsAreFound(t *testing.T) {
	const text = `package p
func a() {
	time.Sleep(1)
	for ; ; time.Sleep(1) {
		<-time.After(1)
	}
	synctest.Test(t, func(t *testing.T) { time.Sleep(1); go func() { <-time.After(1) }() })
	time.Sleep(1)
	synctest.Wait()
	select {
	case <-time.After(1):
		time.Sleep(1)
	}
}
`
	var lines []int
	for _, at := range sleeps(t, "p_test.go", []byte(text)) {
		lines = append(lines, at.Line)
	}
	if want := []int{3, 4, 5, 12}; !slices.Equal(lines, want) {
		t.Errorf("found in lines %v, want %v", lines, want)
	}
}

// sleeps are the places of those that may not be.
func sleeps(t *testing.T, name string, text []byte) (out []token.Position) {
	t.Helper()
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, name, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	may := map[ast.Node]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if calls(n, "synctest", "Test") {
				return false
			}
			if calls(n, "time", "Sleep") && !may[n] {
				out = append(out, files.Position(n.Pos()))
			}
		case *ast.BlockStmt:
			for i, s := range n.List[min(1, len(n.List)):] {
				before, ok := n.List[i].(*ast.ExprStmt)
				if e, is := s.(*ast.ExprStmt); is && ok && calls(e.X, "synctest", "Wait") {
					may[before.X] = true
				}
			}
			for _, s := range n.List {
				e, ok := s.(*ast.ExprStmt)
				if !ok {
					continue
				}
				if r, ok := e.X.(*ast.UnaryExpr); ok && calls(r.X, "time", "After") {
					out = append(out, files.Position(r.Pos()))
				}
			}
		}
		return true
	})
	return out
}

// calls tells whether an expression is a call of pkg.name.
func calls(e ast.Expr, pkg, name string) bool {
	c, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	s, ok := c.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == pkg && s.Sel.Name == name
}
