package codegen_test

import (
	"fmt"
	"strings"
	"testing"

	"levee/internal/dataplane/loader"
	"levee/internal/filter/codegen"
	"levee/internal/lang/resolve"
)

// TestAsManyTermsOnThePayloadAsThereMayBeLoad: in the worst form, 15 bytes under masks, none of
// which decides the others.
func TestAsManyTermsOnThePayloadAsThereMayBeLoad(t *testing.T) {
	needRoot(t)
	var b strings.Builder
	for i := range 1024 {
		fmt.Fprintf(&b, "drop udp len > %d not payload at %d %030x/%s as \"r%d\"\n", i, i,
			i<<4, strings.Repeat("f0", 13)+"fff0", i)
	}
	b.WriteString("default pass\n")
	p, ds := resolve.Parse("p.levee", []byte(b.String()), nil)
	if ds.HasErrors() {
		t.Fatal(ds.Err())
	}
	for _, target := range []codegen.Target{
		{CPUs: 2, Trace: true}, {CPUs: 2, Trace: true, Frags: true},
		{CPUs: 2, Trace: true, Hook: codegen.TCX},
	} {
		prog, err := codegen.Compile(p, target)
		if err != nil {
			t.Fatal(err)
		}
		run, err := loader.NewRunner(prog)
		if err != nil {
			t.Fatalf("%+v: %v", target, err)
		}
		if target.Hook == codegen.XDP && !target.Frags { // the others do not run on every frame
			compare(t, p, run, 1, 300)
		}
		run.Close()
	}
}
