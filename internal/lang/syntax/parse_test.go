package syntax

import (
	"regexp"
	"strings"
	"testing"

	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
	"levee/internal/lang/foreign"
)

func mustParse(t *testing.T, src string) *ast.File {
	t.Helper()
	f, ds := Parse("edge.levee", []byte(src))
	if err := ds.Err(); err != nil {
		t.Fatalf("%v\n%s", err, src)
	}
	return f
}

func TestPlacesOfTermsAndValues(t *testing.T) {
	f := mustParse(t, "# é\ndrop  not from { 10.0.0.0/8,\n  192.0.2.1 } port > 80 as \"é\"\n")
	r := f.Stmts[0].(*ast.Rule)
	for _, tc := range []struct {
		what      string
		got, want diag.Pos
	}{
		{"rule", r.Place(), diag.Pos{Line: 2, Col: 1, EndCol: 5}},
		{"term, to the end of its first line", r.Terms[0].Pos,
			diag.Pos{Line: 2, Col: 7, EndCol: 10}},
		{"first element", r.Terms[0].Value.Elems[0].Pos, diag.Pos{Line: 2, Col: 18, EndCol: 28}},
		{"second element", r.Terms[0].Value.Elems[1].Pos, diag.Pos{Line: 3, Col: 3, EndCol: 12}},
		{"second term", r.Terms[1].Pos, diag.Pos{Line: 3, Col: 15, EndCol: 24}},
		{"label", r.Label.Pos, diag.Pos{Line: 3, Col: 28, EndCol: 31}},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: %v, want %v", tc.what, tc.got, tc.want)
		}
	}
}

// TestRecovery: an error in one statement neither hides nor makes up errors in others.
func TestRecovery(t *testing.T) {
	for _, tc := range []struct {
		name, src string
		lines     []int
	}{
		{"next line", "drop banana\npass tcp\ndrop cherry\n", []int{1, 3}},
		{"open brace before a rule", "set a = {\n 10.0.0.0/8,\ndrop udp\ndrop banana\n",
			[]int{1, 4}},
		{"open brace in a rule", "drop port { 80, 443\npass tcp\ndrop banana\n", []int{1, 3}},
		{"open parenthesis", "set a = dynamic(max 5\npass tcp\n", []int{1}},
		{"error in a multi-line list", "set a = {\n 10.0.0.0/8 10.0.0.1\n 10.0.0.2,\n " +
			"{\n}\n}\npass tcp\n", []int{2, 2, 4}},
		{"open test before a set", "test \"t\" {\n packet tcp expect pass\nset a = { 1 }\ndrop " +
			"banana\n", []int{1, 4}},
		{"steps of a test", "test \"t\" {\n packet banana expect pass\n set x has\n packet tcp " +
			"expect\n packet tcp expect drop }\ndrop udp\n", []int{2, 4, 5}},
		{"several in a line", "accept ip saddr 10.0.0.0/8 dport 22\n", []int{1, 1, 1, 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, ds := Parse("edge.levee", []byte(tc.src))
			var lines []int
			for _, d := range ds {
				lines = append(lines, int(d.Line))
			}
			if len(lines) != len(tc.lines) {
				t.Fatalf("errors in lines %v, want %v: %v", lines, tc.lines, ds)
			}
			for i := range lines {
				if lines[i] != tc.lines[i] {
					t.Fatalf("errors in lines %v, want %v: %v", lines, tc.lines, ds)
				}
			}
		})
	}
}

func TestLineEndsAndMarks(t *testing.T) {
	want := "drop udp # x\n\ndefault pass\n"
	for name, src := range map[string]string{
		"LF":                "drop udp # x\n\ndefault pass\n",
		"CR LF":             "drop udp # x\r\n\r\ndefault pass\r\n",
		"byte order mark":   "\uFEFFdrop udp # x\n\ndefault pass\n",
		"no last line end":  "drop udp # x\n\ndefault pass",
		"CR at the end":     "drop udp # x\r\n\r\ndefault pass\r",
		"many empty lines":  "\n\n\ndrop udp # x\n\n\n\ndefault pass\n\n\n",
		"blanks at the end": "drop udp # x  \n \t \ndefault pass \t",
	} {
		if got := string(ast.Format(mustParse(t, src))); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestBoundsOfOneStatement(t *testing.T) {
	many := strings.Repeat(" udp", ast.MaxTerms+1)
	for name, src := range map[string]string{
		"terms":          "drop" + many + "\n",
		"terms of tests": "test \"t\" { packet" + many + " expect pass }\n",
		"flags":          "drop flags syn" + strings.Repeat(",syn", ast.MaxTerms+1) + "\n",
	} {
		if _, ds := Parse("f", []byte(src)); len(ds) != 1 {
			t.Errorf("%s: %v", name, ds)
		}
	}
}

func TestCanonicalText(t *testing.T) {
	f := mustParse(t, "drop len > 468 from port { 53,123 } udp # why\ntest \"t\" { packet port "+
		"22 tcp expect pass }\n")
	if got, want := f.Stmts[0].(*ast.Rule).String(),
		"drop udp from port { 53, 123 } len > 468"; got != want {
		t.Errorf("rule %q, want %q", got, want)
	}
	if got, want := f.Stmts[1].(*ast.Test).Steps[0].String(), "packet tcp port 22"; got != want {
		t.Errorf("packet %q, want %q", got, want)
	}
}

// The hint for `pass ct state established` was followed to a bare `pass`. What it shows now are
// rules that say what they pass.
func TestHintsAboutConnectionsShowRulesThatWork(t *testing.T) {
	rules := regexp.MustCompile(`\(([^)]*)\)`).FindAllStringSubmatch(foreign.States, -1)
	if len(rules) != 2 {
		t.Fatalf("%q", rules)
	}
	for _, m := range rules {
		f, diags := Parse("test.levee", []byte(m[1]+"\ndefault drop\n"))
		if len(diags) > 0 || len(f.Stmts[0].(*ast.Rule).Terms) < 1 {
			t.Errorf("%s: %v", m[1], diags)
		}
	}
	for _, line := range []string{"pass ct state established", "pass keep state",
		"ct state established accept",
		"pass -m conntrack --ctstate ESTABLISHED"} {
		_, diags := Parse("test.levee", []byte(line+"\ndefault drop\n"))
		if n := len(diags); n == 0 || diags[n-1].Hint != foreign.States {
			t.Errorf("%s: %v", line, diags)
		}
	}
}
