package ir_test

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"levee/internal/filter/ir"
	"levee/internal/lang/policy"
)

var update = flag.Bool("update", false, "write the goldens of lowered policies anew")

// NAME.ir is what is asked in each class of packets, beside the policy NAME.levee.
func TestLoweredForm(t *testing.T) {
	files, err := filepath.Glob("../../../test/policy/valid/*.levee")
	if err != nil || len(files) == 0 {
		t.Fatalf("no policies: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			p, diags, err := policy.Load(file)
			if p == nil {
				t.Fatal(errors.Join(err, diags.Err()))
			}
			var got bytes.Buffer
			if err := ir.Build(p).Print(&got); err != nil {
				t.Fatal(err)
			}
			golden := strings.TrimSuffix(file, ".levee") + ".ir"
			if *update {
				if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatalf("%v (go test ./internal/filter/ir -update writes it)", err)
			}
			if d := cmp.Diff(string(want), got.String()); d != "" {
				t.Errorf("%s (-golden +got):\n%s", golden, d)
			}
		})
	}
}
