package salvage

import (
	"io"
	"io/fs"
	"strings"
	"testing"

	"levee/internal/lang/policy"
)

// TestOnErrorIsReadOfAPolicyWithErrors with the protect rules that are right, whatever else is
// wrong, and never with half a rule.
func TestOnErrorIsReadOfAPolicyWithErrors(t *testing.T) {
	const head = `on error drop
set admins = { 198.51.100.0/24 }
protect from admins tcp port 22
protect from 192.0.2.0/24
`
	const rest = "drop from bad\ndefault pass\n"
	files := map[string]string{"half.txt": "192.0.2.0/24\n198.51.",
		"nul.txt":  "192.0.2.0/24\n\x00\x00\x00",
		"good.txt": "203.0.113.0/24\n"}
	open := func(path string) (io.ReadCloser, error) {
		if text, ok := files[path]; ok {
			return io.NopCloser(strings.NewReader(text)), nil
		}
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	for _, c := range []struct {
		name, text string
		protect    int // -1: nothing can be read
	}{
		{"a set file is missing", head + "set bad = file(\"none.txt\")\n" + rest, 2},
		{"a set file is half written", head + "set bad = file(\"half.txt\")\n" + rest, 2},
		{"a set file has NULs",
			head + "set bad = file(\"nul.txt\")\nprotect from bad\ndefault pass\n", 2},
		{"a set file is right",
			head + "set x = file(\"good.txt\")\nprotect from x\ndrop oops\ndefault pass\n", 3},
		{"a rule is wrong", head + "drop tcp prot 22\ndefault pass\n", 2},
		{"a protect rule is wrong",
			head + "protect from nobody\nprotect udp\ndefault pass\n", 3},
		{"a protect rule is cut", head + "protect from 198.51.100.7 tcp por", 2},
		{"the default is missing", head, 2},
		{"the rest is NULs", head + "drop from \x00\x00\x00\x00\n", 2},
		{"all of it is wrong", "on error drop\n}{\nset x = \n", 0},
		{"nothing says what to do",
			strings.Replace(head, "on error drop", "", 1) + "drop oops\n", -1},
		{"what to do is wrong",
			strings.Replace(head, "on error drop", "on error open", 1), -1},
		{"it is empty", "", -1},
		{"it is NULs", strings.Repeat("\x00", 100), -1},
	} {
		p := Policy("eth0.levee", []byte(c.text), open)
		switch {
		case (p == nil) != (c.protect < 0):
			t.Errorf("%s: %+v", c.name, p)
		case p == nil:
		case p.OnError != policy.ErrorDrop || len(p.Protect) != c.protect || len(p.Rules) != 0:
			t.Errorf("%s: %d protect rules, %d others", c.name, len(p.Protect), len(p.Rules))
		}
	}
}

func FuzzPolicy(f *testing.F) {
	f.Add([]byte("on error drop\nset a = { 192.0.2.1 }\nprotect from a\ndrop x\x00"))
	f.Add([]byte("on error drop\nprotect from nobody"))
	f.Add([]byte("on error pass; protect udp; set\n\ndefault"))
	f.Fuzz(func(t *testing.T, src []byte) {
		if p := Policy("x", src, nil); p != nil &&
			(p.OnError == policy.KeepLast || len(p.Rules) > 0) {
			t.Errorf("%+v", p)
		}
	})
}
