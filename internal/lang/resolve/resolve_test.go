package resolve

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestLoadReadsFilesRelativeToThePolicy(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	absolute := write("elsewhere/list.txt", "203.0.113.0/24\n")
	write("conf/lists/near.txt", "192.0.2.0/24\n")
	path := write("conf/edge.levee", "set a = file(\"lists/near.txt\")\nset b = file(\""+absolute+
		"\")\ndrop from a\ndrop to b\ndefault pass\n")
	p, ds, err := Load(path)
	if err != nil || len(ds) > 0 {
		t.Fatal(err, ds)
	}
	if p.File != "edge.levee" || len(p.Sets) != 2 ||
		p.Sets[0].Prefixes[0].String() != "192.0.2.0/24" ||
		p.Sets[1].Prefixes[0].String() != "203.0.113.0/24" {
		t.Errorf("%s", describe(p))
	}
}

// TestLoadRefusesWhatIsNoFile: a directory or a device neither hangs nor fills the memory; a pipe
// is read, so that `levee check <(...)` works.
func TestLoadRefusesWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{dir, "/dev/zero", filepath.Join(dir, "missing.levee")} {
		if _, _, err := Load(path); err == nil {
			t.Errorf("%s: no error", path)
		}
	}
	policy := filepath.Join(dir, "p.levee")
	if err := os.WriteFile(
		policy, []byte("set a = file(\"/dev/zero\")\ndrop from a\ndefault pass\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	if _, ds, err := Load(policy); err != nil || !ds.HasErrors() {
		t.Errorf("a set file that never ends: %v, %v", err, ds)
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skipf("no named pipes here: %v", err)
	}
	go func() {
		f, err := os.OpenFile(pipe, os.O_WRONLY, 0)
		if err != nil {
			return // Load then reports that it read nothing
		}
		defer f.Close()
		io.WriteString(f, "default pass\n")
	}()
	if p, ds, err := Load(pipe); p == nil {
		t.Errorf("a pipe: %v, %v", err, ds)
	}
}

// TestErrorsOfBothStagesAreReportedTogether: a mistake in the text does not hide one in the
// meaning.
func TestErrorsOfBothStagesAreReportedTogether(t *testing.T) {
	src := "drop from 192.0.2.1/24\npass tcp dport 70000\ndrop from nets\nset nets = { " +
		"10.0.0.0/8 10.0.0.1 }\ndrop from file\n"
	p, ds := Parse("edge.levee", []byte(src), nil)
	var got []string
	for _, d := range ds {
		got = append(got, d.String()[:strings.Index(d.String(), ": ")])
	}
	want := "edge.levee:1:11 edge.levee:2:10 edge.levee:2:16 edge.levee:4:25 edge.levee:5:1 " +
		"edge.levee:5:11"
	if p != nil || strings.Join(got, " ") != want {
		t.Errorf("%v\n%v", got, ds)
	}
}

// TestSelfIsASetThatNobodyDefines, unless the policy does.
func TestSelfIsASetThatNobodyDefines(t *testing.T) {
	p, ds := Parse("p.levee", []byte("pass to self\ndrop not from self\ndefault drop\n"), nil)
	if ds.HasErrors() || len(p.Sets) != 1 || !p.Sets[0].Self ||
		p.Rules[0].Match[0].Set != p.Sets[0] ||
		p.Rules[1].Match[0].Set != p.Sets[0] {
		t.Errorf("%v, %+v", ds, p)
	}
	own := "set self = { 192.0.2.1 }\npass to self\ndefault drop\n"
	if p, ds = Parse("p.levee", []byte(own), nil); ds.HasErrors() || p.Sets[0].Self {
		t.Errorf("%v, %+v", ds, p)
	}
	for _, text := range []string{
		"pass port self\ndefault drop\n", "set a = { self }\npass to a\ndefault drop\n",
		"pass to { self, 192.0.2.1 }\ndefault drop\n",
	} {
		if _, ds := Parse("p.levee", []byte(text), nil); !ds.HasErrors() {
			t.Errorf("%q is taken", text)
		}
	}
	if _, ds := Parse("p.levee",
		[]byte("default drop\ntest \"t\" {\n    set self has 192.0.2.1\n}\n"),
		nil); ds.HasErrors() {
		t.Error(ds)
	}
}
