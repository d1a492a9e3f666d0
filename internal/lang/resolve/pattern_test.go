package resolve

import (
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"

	"levee/internal/lang/policy"
)

// searching is a policy that searches for what stands in a file, and what is reported of it.
func searching(t *testing.T, term, file string) (*policy.Policy, string) {
	t.Helper()
	p, ds := Parse("p.levee", []byte("drop udp payload contains "+term+"\ndefault pass\n"),
		func(path string) (io.ReadCloser, error) {
			if path != "finds.txt" {
				return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
			}
			return io.NopCloser(strings.NewReader(file)), nil
		})
	var b strings.Builder
	if err := ds.Render(&b, false); err != nil {
		t.Fatal(err)
	}
	return p, b.String()
}

func TestAFileOfTextsIsSearchedFor(t *testing.T) {
	var file strings.Builder
	file.WriteString("# scanners\n\n\"sip vicious\"\r\n  0001ff\n/a[bc]+d/\n")
	for i := range 2_000 {
		fmt.Fprintf(&file, "\"name-%d.example\"\n", i)
	}
	for _, term := range []string{`file("finds.txt")`, `{ file("finds.txt"), "more" } any case`} {
		p, said := searching(t, term, file.String())
		if p == nil {
			t.Fatal(said)
		}
		m := p.Rules[0].Match[len(p.Rules[0].Match)-1].Pattern.Machine
		for in, want := range map[string]bool{"xsip viciousx": true, "\x00\x01\xff": true,
			"abcd": true, "name-1999.example": true, "name-2000.example": false, "scanners": false,
		} {
			if m.Match([]byte(in)) != want {
				t.Errorf("%s: %q: want %v", term, in, want)
			}
		}
	}
}

func TestMistakesInFilesOfTextsHaveTheirPlace(t *testing.T) {
	for file, want := range map[string]string{
		"\"ok\"\n\"open\n": "finds.txt:2:1: error: \"open is not closed",
		"ok\n":             "finds.txt:1:1: error: \"ok\" is not bytes in hexadecimal",
		"/(/\n":            "finds.txt:1:1: error: /(/ is no expression",
		"/a*/\n":           "finds.txt:1:1: error: /a*/ is found in every payload",
		"\"\"\n":           "finds.txt:1:1: error: \"\" is found in every payload",
		"/\n":              "finds.txt:1:1: error: / is not closed",
		"# none\n":         "p.levee:1:27: error: nothing to look for stands in \"finds.txt\"",
	} {
		if p, said := searching(t, `file("finds.txt")`, file); p != nil ||
			!strings.Contains(said, want) {
			t.Errorf("%q: %s", file, said)
		}
	}
	if _, said := searching(t, `file("other.txt")`, ""); !strings.Contains(said,
		"cannot read \"other.txt\"") {
		t.Error(said)
	}
}

// TestSearchesTakeSoMuchTogether: each of a thousand rules had its automaton made, a second of work
// each, before anybody counted them; and so had each expression of a list.
func TestSearchesTakeSoMuchTogether(t *testing.T) {
	costly := func(c rune) string { // more than an automaton may be made of
		return "/" + strings.Repeat("["+string(c)+"x]{1000}", 51) + "/"
	}
	var rules strings.Builder
	for c := 'a'; c < 'k'; c++ {
		rules.WriteString("drop udp payload contains " + costly(c) + "\n")
	}
	_, ds := Parse("p.levee", []byte(rules.String()+"default pass\n"), nil)
	var list []string
	for c := 'a'; c < 'k'; c++ {
		list = append(list, costly(c))
	}
	_, listed := searching(t, "{ "+strings.Join(list, ", ")+" }", "")
	_, filed := searching(t, `file("finds.txt")`, strings.Join(list, "\n"))
	var b strings.Builder
	if err := ds.Render(&b, false); err != nil {
		t.Fatal(err)
	}
	for name, said := range map[string]string{"rules": b.String(), "list": listed, "file": filed} {
		large := strings.Count(said, " takes more than ")
		spent := strings.Count(said, " is one search too many: those before it take too long")
		if large == 0 || spent == 0 || large+spent != 10 {
			t.Errorf("%s: %d are too large, and %d were not tried", name, large, spent)
		}
	}
}
