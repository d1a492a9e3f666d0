package source

import (
	"strings"
	"testing"

	"levee/docs"
	"levee/internal/agent/source/inlet"
)

// TestEveryPlaceIsWhole: the language, the agent and its advice each had a switch of their own over
// the kinds of sources, and nothing found one that a new kind lacked.
func TestEveryPlaceIsWhole(t *testing.T) {
	words := map[string]bool{}
	page, _ := docs.Page("sources")
	for _, r := range Inputs {
		for _, w := range append([]string{r.Name}, r.Others...) {
			if w == "" || words[w] {
				t.Errorf("%q: the word %q is empty, or taken", r.Name, w)
			}
			words[w] = true
		}
		form := r.Name + ` "`
		if r.At.Words != nil {
			form = r.Name + " " + r.At.Words[0]
		}
		if r.Open == nil || r.Advise == nil || r.At.What == "" ||
			!strings.HasPrefix(r.At.Form, form) {
			t.Errorf("%s: the row lacks something", r.Name)
		}
		if !strings.Contains(page, "`"+r.Name+" ") {
			t.Errorf("%s: sources.md has no line of it", r.Name)
		}
		for _, o := range r.Options {
			if o.Word == "" || o.What == "" ||
				(o.Path || o.Required) && !strings.HasPrefix(o.Form, o.Word+` "`) {
				t.Errorf("%s: the option %q lacks something", r.Name, o.Word)
			}
		}
	}
}

// TestWhatIsReadTogether: a list that is read as another user is another one, and only a journal
// is read otherwise for another format.
func TestWhatIsReadTogether(t *testing.T) {
	place := func(input, format string, options ...string) *inlet.Place {
		p := &inlet.Place{Input: input, At: "/x", Format: format}
		for i := 0; i < len(options); i += 2 {
			p.Options = map[string]string{options[i]: options[i+1]}
		}
		return p
	}
	for _, test := range []struct {
		a, b *inlet.Place
		want bool
	}{
		{place("unix_stream", "eve"), place("unix_stream", "json"), true},
		{place("unix_stream", "eve"), place("unix_dgram", "eve"), false},
		{place("journal", "lines"), place("journal", "json"), false},
		{place("redis", "eve", "list", "a"), place("redis", "json", "list", "a"), true},
		{place("redis", "eve", "list", "a"), place("redis", "eve", "list", "b"), false},
	} {
		if got := Same(test.a, test.b); got != test.want {
			t.Errorf("%+v, %+v: %v", test.a, test.b, got)
		}
	}
}
