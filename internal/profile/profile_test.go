package profile

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"levee/internal/dataplane/judge"
	"levee/internal/dataplane/judge/judgetest"
	"levee/internal/filter/ir"
	"levee/internal/kernel"
	"levee/internal/lang/ast"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
	"levee/internal/lang/syntax"
	"levee/profiles"
)

// TestProfilesKeepWhatTheySay runs the tests of each profile that levee comes with, through both
// engines where that is allowed, and holds it against what all have: the name of its file, `levee
// fmt`'s layout, a head that says everything, a test for each rule, a row in the docs.
func TestProfilesKeepWhatTheySay(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/profiles.md")
	if err != nil {
		t.Fatal(err)
	}
	engine := judge.Both
	if os.Getuid() != 0 || kernel.Privileged() != nil {
		engine = judge.Oracle
	}
	for _, name := range profiles.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := profiles.Text(name)
			if err != nil {
				t.Fatal(err)
			}
			f, _ := syntax.Parse(name, text)
			if got := ast.Format(f); !bytes.Equal(got, text) {
				t.Errorf("levee fmt prints:\n%s", got)
			}
			head, p, ds := resolve.ParseProfile(name, text, nil)
			if len(ds) > 0 {
				t.Fatal(ds)
			}
			switch {
			case head.Name != name:
				t.Errorf("its head calls it %q", head.Name)
			case len(head.Takes) == 0, len(head.Misses) == 0, len(head.Costs) == 0,
				len(head.Tried) == 0:
				t.Errorf("its head does not say everything: %+v", head)
			case !strings.Contains(string(page), "| `"+name+"` |"):
				t.Error("docs/reference/profiles.md has no row for it")
			}
			decides(t, p, engine)
		})
	}
}

// decides runs the tests of a profile; each rule that decides has to decide a packet of one.
func decides(t *testing.T, p *policy.Policy, engine judge.Engine) {
	t.Helper()
	j, err := judge.New(p, engine)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	tried := map[string]bool{}
	for _, test := range p.Tests {
		res, err := j.Test(p.File, test)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range res.Packets {
			if q.Fault != "" {
				t.Errorf("%q: %s: %s", test.Name, q.Step.Text, q.Fault)
			}
			tried[p.LabelOf(j.Slots()[q.Verdict.Slot])] = true
		}
	}
	for _, r := range p.Rules {
		if r.Action.Decides() && !tried[r.Label] {
			t.Errorf("no test has a packet for %q", r.Label)
		}
	}
}

// TestAProfileInAPolicyDecidesAsByItself puts each profile into a policy, whose verdicts on the
// packets of the profile's tests have to be those of the profile.
func TestAProfileInAPolicyDecidesAsByItself(t *testing.T) {
	for _, name := range profiles.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, _ := profiles.Text(name)
			_, alone, _ := resolve.ParseProfile(name, text, nil)
			p, ds := resolve.Parse("edge.levee", []byte("use "+name+" as \"x\"\ndefault drop\n"),
				nil)
			if p == nil {
				t.Fatal(ds)
			}
			for _, test := range alone.Tests {
				for i := range test.Steps {
					s := &test.Steps[i]
					if s.Label != "" {
						s.Label = "x/" + s.Label
					}
					if s.Set != nil {
						s.Set = setNamed(p, "x-"+s.Set.Name)
					}
				}
			}
			p.Tests = alone.Tests
			results, err := judgetest.Run(p)
			if err != nil {
				t.Fatal(err)
			}
			for _, res := range results {
				if !res.Passed() {
					t.Errorf("%q decides otherwise: %+v", res.Test.Name, res.Packets)
				}
			}
		})
	}
}

// TestAProfileByItselfIsWarnedOfNothing: what `levee check` warns of in a policy that has a profile
// and its defaults, nobody can mend who only uses it. One asked who was proven where nobody could
// be, and its clients would have asked over TCP for ever.
func TestAProfileByItselfIsWarnedOfNothing(t *testing.T) {
	for _, name := range profiles.Names() {
		p, ds := resolve.Parse("edge.levee",
			[]byte("use "+name+"\ndrop fragments as \"fragment\"\n"+
				"default drop\n"), nil)
		if p == nil || len(ds) > 0 {
			t.Errorf("%s: %v", name, ds)
			continue
		}
		for _, f := range ir.Build(p).Findings {
			t.Errorf("%s: %s; %s", name, f.Message, f.Hint)
		}
	}
}

func setNamed(p *policy.Policy, name string) *policy.Set {
	for _, s := range p.Sets {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// TestPackagesHaveTheProfiles: what is read there is what the program has.
func TestPackagesHaveTheProfiles(t *testing.T) {
	for file, line := range map[string]string{
		"../../packaging/nfpm.yaml": `src: "profiles/*.levee", dst: /usr/share/levee/profiles/`,
		"../../scripts/release":     " profiles ",
	} {
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), line) {
			t.Errorf("%s lacks %q (%v)", filepath.Base(file), line, err)
		}
	}
}
