// Package benchtest holds the reports of measurements against their forms.
package benchtest

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"levee/internal/bench"
)

// Output holds a report against its forms: text, which must have what is wanted, JSON, and the
// document with all that is made of it. It returns the text.
func Output(t *testing.T, r bench.Report, wanted ...string) string {
	t.Helper()
	var text bytes.Buffer
	if err := r.Text(&text); err != nil || text.Len() == 0 {
		t.Errorf("text: %v", err)
	}
	for _, want := range wanted {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, &text)
		}
	}
	var raw any
	if own, ok := r.(interface{ Raw() any }); ok {
		raw = own.Raw()
	}
	d := r.Document()
	if err := errors.Join(d.JSON(io.Discard, raw), d.HTML(io.Discard)); err != nil {
		t.Error(err)
	}
	for _, c := range d.Charts {
		if !c.Drawable() {
			continue
		}
		if svg, err := d.SVG(c); err != nil || len(svg) == 0 {
			t.Errorf("%s: %v", c.ID, err)
		}
	}
	return text.String()
}
