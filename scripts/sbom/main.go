// Command sbom reads what `go version -m -json` says of a binary, and prints a bill of materials in
// the form of CycloneDX 1.6: the modules that are linked into it, with their versions.
//
//	go version -m -json levee | go run ./scripts/sbom levee VERSION
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"
)

type component struct {
	Type    string `json:"type"`
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	PURL    string `json:"purl,omitempty"`
}

type bom struct {
	Format     string      `json:"bomFormat"`
	Spec       string      `json:"specVersion"`
	Version    int         `json:"version"`
	Metadata   metadata    `json:"metadata"`
	Components []component `json:"components"`
}

type metadata struct {
	Component component `json:"component"`
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: go version -m -json BINARY | sbom NAME VERSION")
		os.Exit(2)
	}
	if err := run(os.Stdin, os.Stdout, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer, name, version string) error {
	var info debug.BuildInfo
	if err := json.NewDecoder(in).Decode(&info); err != nil {
		return fmt.Errorf("read what go version says: %w", err)
	}
	b := bom{Format: "CycloneDX", Spec: "1.6", Version: 1,
		Metadata: metadata{component{Type: "application", Name: name, Version: version}}}
	b.Components = append(b.Components, component{Type: "library", Name: "std",
		Version: info.GoVersion, PURL: "pkg:golang/std@" + info.GoVersion[len("go"):]})
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		b.Components = append(b.Components, component{Type: "library", Name: m.Path,
			Version: m.Version, PURL: "pkg:golang/" + m.Path + "@" + m.Version})
	}
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(b)
}
