package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func TestEachModuleIsListed(t *testing.T) {
	in := `{"GoVersion": "go1.26.8", "Deps": [{"Path": "example.org/a", "Version": "v1.2.3"},
		{"Path": "example.org/b", "Version": "v1",
			"Replace": {"Path": "example.org/c", "Version": "v2"}}]}`
	var out bytes.Buffer
	if err := run(strings.NewReader(in), &out, "levee-lab", "0.1.0"); err != nil {
		t.Fatal(err)
	}
	var b bom
	if err := json.Unmarshal(out.Bytes(), &b); err != nil {
		t.Fatal(err)
	}
	if c := b.Metadata.Component; c.Name != "levee-lab" || c.Version != "0.1.0" {
		t.Errorf("%+v", c)
	}
	if len(b.Components) != 3 || b.Components[0].PURL != "pkg:golang/std@1.26.8" ||
		b.Components[1].PURL != "pkg:golang/example.org/a@v1.2.3" ||
		b.Components[2].Name != "example.org/c" {
		t.Errorf("%+v", b.Components)
	}
	if err := run(strings.NewReader("no"), &out, "levee-lab", "0.1.0"); err == nil {
		t.Error("no error for what is no JSON")
	}
}
