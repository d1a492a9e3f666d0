package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"levee/internal/cli"
	"levee/internal/dataplane/judge"
	"levee/internal/filter/oracle"
	"levee/internal/lang/diag"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

const testLong = `Run the tests that stand in policies: each packet is judged, and the verdict
compared with what the test expects. The reference evaluator judges always; with privileges the
compiled program judges too, in the kernel. A test that fails is shown with what was expected,
what came, and the story of the packet; --verbose names those that pass, too.

Tests may also be kept beside the policy: --tests names a file of test statements, which are run
against each FILE.`

const testExample = `  levee test edge.levee
  levee test --json *.levee
  levee test --engine oracle edge.levee
  levee test edge.levee --tests edge-tests.levee`

type testFlags struct {
	engine string
	link   string
	beside []string
	json   bool
}

func newTest(e *env) *cobra.Command {
	var f testFlags
	cmd := &cobra.Command{
		Use:     "test FILE...",
		Short:   "Run a policy's own tests",
		Long:    testLong,
		Example: testExample,
		Args:    cli.WantSome("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return e.test(cmd, args, &f)
		},
	}
	cmd.Flags().StringVar(&f.engine, "engine", "",
		"oracle, bpf or both (default: both with privileges, else oracle)")
	cmd.Flags().StringArrayVar(&f.beside, "tests", nil,
		"also run the tests of this file; may be repeated")
	linkFlag(cmd, &f.link)
	cli.JsonFlag(cmd, &f.json)
	return cmd
}

// testReport is the object of `levee test --json`.
type testReport struct {
	Passed int          `json:"passed"` // tests, not packets
	Failed int          `json:"failed"`
	Engine string       `json:"engine"`
	Tests  []testResult `json:"tests"`
}

type testResult struct {
	File    cli.Shown    `json:"file"`
	Line    int          `json:"line"`
	Name    string       `json:"name"`
	Passed  bool         `json:"passed"`
	Packets []testPacket `json:"packets"`
}

// testPacket is one packet of a test.
type testPacket struct {
	judge.Judged        // n counts within the test
	Line         int    `json:"line"`
	Packet       string `json:"packet"`          // as written
	Fault        string `json:"fault,omitempty"` // how it differs from what the test expects

	trace *oracle.Trace // of a packet with a fault
}

func (e *env) test(cmd *cobra.Command, files []string, f *testFlags) error {
	choice, err := e.chooseEngine(cmd, f.engine)
	if err != nil {
		return err
	}
	if choice.Link, err = parseLink(cmd, f.link); err != nil {
		return err
	}
	rep := &testReport{Tests: []testResult{}}
	err = e.EachFile(files, func(file string) error {
		suites, err := e.testSuites(file, choice.Link, f.beside)
		if err != nil {
			return err
		}
		for _, s := range suites {
			if err := e.runSuite(s, &choice, f, rep); err != nil {
				return err
			}
		}
		return nil
	})
	rep.Engine = string(choice.Engine)
	if f.json {
		if jerr := e.PrintJSON(rep); jerr != nil {
			return jerr
		}
	} else if err == nil || len(rep.Tests) > 0 {
		fmt.Fprintf(e.Stdout, "%d passed, %d failed (%s)\n", rep.Passed, rep.Failed, &choice)
	}
	if err == nil && rep.Failed > 0 {
		return cli.ErrNo
	}
	return err
}

// suite is the tests of one file, with their policy.
type suite struct {
	file string // base name of the file that the tests stand in
	p    *policy.Policy
}

// testSuites reads a policy with its own tests, and those of the files beside it.
func (e *env) testSuites(file string, link packet.Link, beside []string) ([]suite, error) {
	pr, err := e.Parse(file)
	if err != nil {
		return nil, err
	}
	if pr.Policy == nil {
		e.PrintDiagnostics(pr.Diags)
		return nil, cli.ErrNo
	}
	if err := e.forLink(pr, link, withoutEthernet); err != nil {
		return nil, err
	}
	var all []suite
	for _, path := range beside {
		p, err := e.TestsBeside(pr, path)
		if err != nil {
			return nil, err
		}
		all = append(all, suite{diag.Quoted(filepath.Base(path)), p})
	}
	if len(pr.Policy.Tests) > 0 {
		all = append([]suite{{pr.Policy.File, pr.Policy}}, all...)
	} else if len(beside) == 0 {
		e.Sayf("%s has no tests", pr.Policy.File)
	}
	return all, nil
}

// runSuite runs tests and adds them to rep.
func (e *env) runSuite(s suite, c *judge.Choice, f *testFlags, rep *testReport) error {
	j, err := c.New(s.p)
	if err != nil {
		return err
	}
	defer j.Close()
	for _, t := range s.p.Tests {
		done, err := j.Test(s.file, t)
		if err != nil {
			return err
		}
		res := newTestResult(s, done, j)
		if res.Passed {
			rep.Passed++
		} else {
			rep.Failed++
		}
		rep.Tests = append(rep.Tests, *res)
		if !f.json && (e.Verbose || !res.Passed) {
			e.printTest(res)
		}
	}
	return nil
}

func newTestResult(s suite, r *judge.TestResult, j *judge.Judge) *testResult {
	res := &testResult{
		File: cli.Shown(s.file), Line: int(r.Test.Pos.Line), Name: r.Test.Name, Passed: r.Passed(),
		Packets: []testPacket{},
	}
	for i, p := range r.Packets {
		res.Packets = append(res.Packets, testPacket{
			Line: int(p.Step.Pos.Line), Packet: p.Step.Text, Fault: p.Fault, trace: p.Trace,
			Judged: judge.NewJudged(s.p, j.Slots()[p.Verdict.Slot], p.Verdict.Action,
				i+1, j.Engine()),
		})
	}
	return res
}

// printTest shows one test; of one that failed also each packet that differs, with its story.
func (e *env) printTest(res *testResult) {
	mark := "ok  "
	if !res.Passed {
		mark = "FAIL"
	}
	fmt.Fprintf(e.Stdout, "%s %s:%d %q\n", mark, res.File, res.Line, res.Name)
	for _, p := range res.Packets {
		if p.Fault == "" {
			continue
		}
		fmt.Fprintf(e.Stdout, "     %s:%d %s\n     %s\n\n", res.File, p.Line, p.Packet, p.Fault)
		printTrace(e.Stdout, p.trace, "       ")
		fmt.Fprintln(e.Stdout)
	}
}
