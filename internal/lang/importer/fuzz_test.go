package importer_test

import (
	"bytes"
	"errors"
	"testing"

	"levee/internal/lang/ast"
	"levee/internal/lang/importer"
	"levee/internal/lang/importer/classbench"
	"levee/internal/lang/syntax"
)

// FuzzClassBench holds the importer to its promise for any bytes: either a policy that parses and
// is laid out as `levee fmt` does, or an error and nothing written.
func FuzzClassBench(f *testing.F) {
	for _, seed := range []string{
		"@192.0.2.1/32\t198.51.100.7/32\t0 : 65535\t80 : 80\t0x06/0xFF\t0x0000/0x0200\t\n",
		"@0.0.0.0/0 0.0.0.0/0 0 : 65535 0 : 65535 0x00/0x00\r\n@192.0.2.77/24 0.0.0.0/0 53 : 53 " +
			"1 : 65535 0x11/0xF0 0x0/0x0",
		"@192.0.2.1/32 0.0.0.0/0 80 : 80 0 : 65535 0x01/0xFF",
		"@192.0.2.1/33 ::/0 9 : 8 -1 : 65536 6/0xFF flags",
		"# comment\n\n@\n",
	} {
		f.Add([]byte(seed), "set", byte(0))
	}
	f.Fuzz(func(t *testing.T, in []byte, name string, action byte) {
		var out bytes.Buffer
		rep, err := classbench.Import(bytes.NewReader(in), &out,
			importer.Options{Action: importer.Action(action % 3), Name: name})
		if err != nil {
			var errs *importer.Errors
			if errors.As(err, &errs) && len(errs.Lines) == 0 {
				t.Error("an Errors without any")
			}
			if out.Len() > 0 {
				t.Errorf("wrote %q with error %v", out.Bytes(), err)
			}
			return
		}
		checkLayout(t, out.Bytes(), rep.Rules)
	})
}

// checkLayout fails unless text is a policy of so many rules, laid out as `levee fmt` does.
func checkLayout(t *testing.T, text []byte, rules int) {
	t.Helper()
	file, diags := syntax.Parse("imported.levee", text)
	if err := diags.Err(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	got := 0
	for _, s := range file.Stmts {
		if _, ok := s.(*ast.Rule); ok {
			got++
		}
	}
	if got != rules {
		t.Errorf("%d rules in the policy, %d in the report", got, rules)
	}
	if again := ast.Format(file); !bytes.Equal(again, text) {
		t.Errorf("levee fmt changes it from\n%s\nto\n%s", text, again)
	}
}
