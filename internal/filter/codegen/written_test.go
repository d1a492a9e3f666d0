package codegen_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"levee/internal/filter/codegen"
	"levee/internal/filter/difftest"
	"levee/internal/filter/plan"
	"levee/internal/lang/goldentest"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
	"levee/internal/packet"
)

// No program reads a word of a stack that some way to the read has not written: it would judge by
// what an earlier packet has left there. From Linux 6.3 on the verifier lets programs of root do so
// (commit 6715df8d5d24, "bpf: Allow reads from uninit stack").

// targets are some of the kinds of program, others for each number: one at tc, and another one.
func targets(n int) (all []codegen.Target) {
	others := []codegen.Target{{}, {Frags: true}, {Plain: true}}
	for i, t := range []codegen.Target{{Hook: codegen.TCX}, others[n%3]} {
		t.Link = []packet.Link{packet.Ethernet, packet.L3}[(n+i)/4%2]
		t.CPUs = 1 + n%2
		switch (n + i) % 4 {
		case 0:
			t.CPUs = 2
		case 1:
			t.Bytecode = true
		case 2:
			t.Shadow = plan.Judged{RowBytes: 64, Slots: 2}
			t.Plain = false
		case 3:
			t.Trial, t.Trace, t.Clock = true, true, true
		}
		all = append(all, t)
	}
	return all
}

// The golden has a sum of the programs of each policy in files: a change that is not about what is
// emitted leaves it as it is, and one that is shows of which policies.
func TestProgramsReadNothingOfTheStackThatIsNotWritten(t *testing.T) {
	var names []string
	policies := map[string]*policy.Policy{}
	for _, pattern := range []string{"../../../test/policy/valid/*.levee",
		"../../../examples/*.levee"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no policies: %v", err)
		}
		for _, file := range files {
			p, diags, err := resolve.Load(file)
			if p == nil {
				t.Fatal(err, diags.Err())
			}
			policies[filepath.Base(file)] = p
			names = append(names, filepath.Base(file))
		}
	}
	files := len(names)
	for seed := range uint64(40) {
		p, _, err := difftest.Policy(seed)
		if err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprint("seed ", seed)
		policies[name] = p
		names = append(names, name)
	}
	sums := make([]string, len(names))
	t.Run("all", func(t *testing.T) {
		for half := range 2 {
			t.Run(fmt.Sprint(half), func(t *testing.T) {
				t.Parallel()
				for i := half; i < len(names); i += 2 {
					sums[i] = checkPolicy(t, names[i], policies[names[i]], targets(i/2))
				}
			})
		}
	})
	var golden bytes.Buffer
	for i, name := range names[:files] {
		fmt.Fprintln(&golden, sums[i], name)
	}
	goldentest.Compare(t, "testdata/programs.txt", golden.Bytes())
}

// checkPolicy checks the programs of a policy, and returns their sum.
func checkPolicy(t *testing.T, name string, p *policy.Policy, targets []codegen.Target) string {
	t.Helper()
	sum := sha256.New()
	for _, target := range targets {
		prog, err := codegen.Compile(p, target)
		if err != nil && target.Link == packet.L3 { // it may ask for a tag
			target.Link = packet.Ethernet
			prog, err = codegen.Compile(p, target)
		}
		if err != nil {
			t.Fatal(name, target, err)
		}
		for _, program := range slices.Sorted(maps.Keys(prog.Spec.Programs)) {
			spec := prog.Spec.Programs[program]
			fmt.Fprintln(sum, program, spec.Instructions)
			if wrong := checkWritten(t, slices.Clone(spec.Instructions)); len(wrong) > 0 {
				t.Errorf("%s, %+v, program %s:\n%s", name, target, program,
					strings.Join(wrong, "\n"))
			}
		}
	}
	return fmt.Sprintf("%x", sum.Sum(nil)[:8])
}
