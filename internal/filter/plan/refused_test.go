package plan

import (
	"errors"
	"testing"

	"levee/internal/filter/ir"
	"levee/internal/lang/resolve"
	"levee/internal/lang/syntax"
)

// TestMoreConnectionsThanMemoryHaveAPlace: `check` ended at the first policy that asked for too
// many, without its line, and its JSON had nothing of it.
func TestMoreConnectionsThanMemoryHaveAPlace(t *testing.T) {
	tree, _ := syntax.Parse("large.levee", []byte("# a router\nconnections max 4000000\n"+
		"pass established\ndefault drop\n"))
	p, ds := resolve.Resolve(tree, nil)
	if p == nil {
		t.Fatal(ds)
	}
	_, err := New(ir.Build(p), Target{Memory: 128 << 20})
	all := Refused(p, tree, err)
	if len(all) != 1 || all[0].Line != 2 || !all.HasErrors() ||
		all[0].Hint != "write at most connections max 1048576." ||
		all[0].Source != "connections max 4000000" {
		t.Errorf("%+v", all)
	}
	if _, err := New(ir.Build(p), Target{Memory: 1 << 30}); err != nil {
		t.Error(err)
	}
	if all := Refused(p, tree, errors.New("a map is too large")); all != nil {
		t.Errorf("an error without a place: %v", all)
	}
}
