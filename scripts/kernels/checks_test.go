package main

import (
	"os"
	"path/filepath"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"testing"
)

// TestEachCheckNamesWhatIsThere: each alternative of what a check runs is a test of its package, or
// a story. One that was renamed would be run on no kernel, and the check would pass.
func TestEachCheckNamesWhatIsThere(t *testing.T) {
	tests := map[string][]string{} // by package
	for _, c := range slices.Concat(checks, driverChecks()) {
		for _, m := range namedTests.FindAllStringSubmatch(c.script, -1) {
			there, known := tests[m[1]]
			if !known {
				there = testsOf(t, filepath.Join("../..", m[1]))
				tests[m[1]] = there
			}
			for _, one := range alternatives(t, strings.Trim(m[2], "'")) {
				if !slices.ContainsFunc(there, regexp.MustCompile(one).MatchString) {
					t.Errorf("%s: %s has no test like %s", c.name, m[1], one)
				}
			}
		}
		for _, m := range namedStories.FindAllStringSubmatch(c.script, -1) {
			for name := range strings.SplitSeq(strings.Trim(m[1], "'"), "|") {
				pattern := strings.ReplaceAll(name, ".*", "*") + ".txtar"
				if there, err := filepath.Glob("../../test/script/" + pattern); len(there) == 0 {
					t.Errorf("%s: no story %s (%v)", c.name, name, err)
				}
			}
		}
	}
}

var (
	namedTests = regexp.MustCompile(
		`\b(?:tests|sometests|handed [a-z]+) ([a-z/]+) ('[^']*'|[^ \n]+)`)
	namedStories = regexp.MustCompile(`\bstories ('[^']*'|[^ \n]+)`)
)

// testsOf returns the names of the tests of a package.
func testsOf(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no tests (%v)", dir, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range testFunc.FindAllStringSubmatch(string(text), -1) {
			names = append(names, m[1])
		}
	}
	return names
}

var testFunc = regexp.MustCompile(`(?m)^func (Test\w*)\(`)

// alternatives returns the patterns without alternatives that a pattern of tests stands for: what
// is behind a slash, of their parts, is left out.
func alternatives(t *testing.T, pattern string) (out []string) {
	t.Helper()
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range expanded(re) {
		test, _, _ := strings.Cut(one, "/")
		out = append(out, test)
	}
	return out
}

func expanded(re *syntax.Regexp) (out []string) {
	switch re.Op {
	case syntax.OpAlternate:
		for _, sub := range re.Sub {
			out = append(out, expanded(sub)...)
		}
	case syntax.OpCapture:
		out = expanded(re.Sub[0])
	case syntax.OpConcat:
		out = []string{""}
		for _, sub := range re.Sub {
			var longer []string
			for _, before := range out {
				for _, then := range expanded(sub) {
					longer = append(longer, before+then)
				}
			}
			out = longer
		}
	default:
		out = []string{re.String()}
	}
	return out
}
