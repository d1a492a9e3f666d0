package resolve

import (
	"slices"
	"testing"
)

func TestAPolicyNamesSeveralInterfaces(t *testing.T) {
	for text, want := range map[string][]string{
		"": nil, "interface eth0": {"eth0"}, "interface eth*": {"eth*"},
		"interface { eth0, wg*, }": {"eth0", "wg*"}, "interface {\n eth0\n eth1\n}": nil,
		"interface { }": nil, "interface { eth0, eth0 }": nil, "interface { a/b }": nil,
	} {
		p, ds := Parse("test.levee", []byte(text+"\ndefault pass\n"), nil)
		if ds.HasErrors() != (want == nil && text != "") {
			t.Errorf("%q: %v", text, ds.Err())
		}
		if !ds.HasErrors() && !slices.Equal(p.Interfaces, want) {
			t.Errorf("%q: %q, want %q", text, p.Interfaces, want)
		}
	}
}
