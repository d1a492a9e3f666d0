package commands

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"levee/internal/cli"
	"levee/internal/cli/clitest"
)

// testEnv is an environment without a world, for these commands.
func testEnv(args ...string) (e *env, out, errs *bytes.Buffer) {
	base, out, errs, _ := clitest.New(false, args...)
	return &env{base}, out, errs
}

// run executes one command line.
func run(e *env) int { return cli.Run(e.Env, Root(e.Env)) }

// TestLabsNeedTheSuperuser, whoever runs the test.
func TestLabsNeedTheSuperuser(t *testing.T) {
	for _, verb := range []string{"up", "down"} {
		e, out, errs := testEnv("lab", verb, "nosuchlab")
		if got := run(e); got != cli.ExitRefused || out.Len() > 0 ||
			!strings.Contains(errs.String(), "needs root; run it with sudo") {
			t.Errorf("lab %s: exit status %d, %q%q", verb, got, out, errs)
		}
	}
}

// TestAFileThatIsNotThereWasNamedByASystemCall: all other commands name it first.
func TestAFileThatIsNotThereWasNamedByASystemCall(t *testing.T) {
	e, _, errs := testEnv("probe", "nosuchfile")
	if got := run(e); got != cli.ExitNo || errs.String() != "levee: nosuchfile: no such file\n" {
		t.Errorf("exit status %d, %q", got, errs)
	}
}

// TestTheDemoNamesItsOwnProgram: it starts its service and its visitors from the file that runs.
func TestTheDemoNamesItsOwnProgram(t *testing.T) {
	e, _, errs := testEnv("lab", "demo")
	e.Executable = func() (string, error) { return "", errors.New("no /proc") }
	if got := run(e); got != cli.ExitNo ||
		!strings.Contains(errs.String(),
			"find this program, of which the demo starts more: no /proc") {
		t.Errorf("exit status %d, %q", got, errs)
	}
}

// TestShellsAreOfferedKindsOfFloods, which only the generator knows.
func TestShellsAreOfferedKindsOfFloods(t *testing.T) {
	e, out, _ := testEnv("__complete", "gen", "--kind", "")
	if status := run(e); status != cli.ExitDone || !strings.Contains(out.String(), "fragment\n") {
		t.Errorf("status %d, %q", status, out)
	}
}

func TestParsePorts(t *testing.T) {
	for _, c := range []struct {
		in   []string
		want []uint16
		bad  bool
	}{
		{nil, nil, false},
		{[]string{"53", "1000-1002", "53"}, []uint16{53, 1000, 1001, 1002, 53}, false},
		{[]string{"65535-65535"}, []uint16{65535}, false},
		{[]string{"65536"}, nil, true}, {[]string{"2-1"}, nil, true}, {[]string{"-1"}, nil, true},
		{[]string{"a"}, nil, true},
		{[]string{"0-65535", "1"}, nil, true},
	} {
		got, err := parsePorts(c.in)
		if !slices.Equal(got, c.want) || (err != nil) != c.bad {
			t.Errorf("parsePorts(%q) = %v, %v; want %v", c.in, got, err, c.want)
		}
	}
}
