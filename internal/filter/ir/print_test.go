package ir_test

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"levee/internal/filter/ir"
	"levee/internal/lang/goldentest"
	"levee/internal/lang/resolve"
)

// NAME.ir is what is asked in each class of packets, beside the policy NAME.levee.
func TestLoweredForm(t *testing.T) {
	files, err := filepath.Glob("../../../test/policy/valid/*.levee")
	if err != nil || len(files) == 0 {
		t.Fatalf("no policies: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			p, diags, err := resolve.Load(file)
			if p == nil {
				t.Fatal(errors.Join(err, diags.Err()))
			}
			var got bytes.Buffer
			if err := ir.Build(p).Print(&got); err != nil {
				t.Fatal(err)
			}
			golden := strings.TrimSuffix(file, ".levee") + ".ir"
			goldentest.Compare(t, golden, got.Bytes())
		})
	}
}
