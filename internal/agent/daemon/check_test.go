package daemon

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// TestAShortTextThatIsCheckedTookAllMemory: a set that stands in others many times is as many
// elements, 900 MB of them for 170 KB of text. Whoever may look at the agent may have a text
// checked.
func TestAShortTextThatIsCheckedTookAllMemory(t *testing.T) {
	var text strings.Builder
	text.WriteString("set a = { 11.0.0.0")
	for i := range 9999 {
		fmt.Fprintf(&text, ", 11.0.%d.%d", i>>7, i&127*2+1)
	}
	text.WriteString(" }\nset b = { a" + strings.Repeat(", a", 800) + " }\ndrop from b\n" +
		"default pass\n")
	in := &checkInput{}
	in.Body.Text = text.String()
	out, err := checkText(t.Context(), in)
	if err != nil || out.OK || len(out.Diagnostics) == 0 ||
		!strings.Contains(fmt.Sprint(out.Diagnostics), "more than 1048576 elements together") {
		t.Errorf("%+v, %v", out, err)
	}
}

// TestNobodyWaitsForACheck: texts of callers that had gone were checked all the same, one after
// another, before that of who still waited.
func TestNobodyWaitsForACheck(t *testing.T) {
	ctx, gone := context.WithCancel(t.Context())
	gone()
	in := &checkInput{}
	in.Body.Text = "default pass\n"
	if out, err := checkText(ctx, in); out != nil || err == nil {
		t.Errorf("%+v, %v", out, err)
	}
}
