package codegen_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"levee/internal/filter/codegen"
)

// TestSourcesCompileToNothing: a policy with sources is the program that it is without them.
func TestSourcesCompileToNothing(t *testing.T) {
	const text = "set abusers = dynamic(max 1000, lease 1h)\nprotect from 192.0.2.0/24\n" +
		"drop from abusers\npass tcp port { 22, 443 }\ndefault drop\n"
	const source = `source "ids" eve file "/eve.json" where event_type = "alert" ` +
		"add src_ip to abusers lease 1m\n"
	var told [2]string
	for i, text := range []string{text, text + source} {
		p := resolved(t, text)
		if len(p.Sources) != i {
			t.Fatalf("%d sources", len(p.Sources))
		}
		prog, err := codegen.Compile(p, codegen.Target{})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range slices.Sorted(maps.Keys(prog.Spec.Programs)) {
			told[i] += name + fmt.Sprint(prog.Spec.Programs[name].Instructions)
		}
		told[i] += fmt.Sprint(slices.Sorted(maps.Keys(prog.Spec.Maps)))
	}
	if told[0] != told[1] {
		t.Errorf("without:\n%s\nwith:\n%s", told[0], told[1])
	}
}
