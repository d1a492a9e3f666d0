package commands

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	document "levee/internal/report"
)

// half is a measurement that was interrupted.
type half struct{}

func (half) Text(w io.Writer) error {
	_, err := io.WriteString(w, "half a table\n")
	return err
}

func (half) Raw() any { return map[string]any{"windows": []int{1, 2}} }

func (half) Document() *document.Document {
	d := &document.Document{Bench: "half", Title: "Half", Incomplete: "interrupted"}
	d.Chart(document.Chart{ID: "chart", Kind: document.Bar}).Add("a", document.Value(0, 1).Of("b"))
	d.Chart(document.Chart{ID: "nothing-yet"})
	return d
}

func TestAnInterruptedMeasurementIsWrittenAndMarked(t *testing.T) {
	dir := t.TempDir()
	e, out, _ := testEnv()
	o := &benchOutput{json: true, csv: filepath.Join(dir, "a.csv"),
		html: filepath.Join(dir, "a.html"), svg: dir, png: dir}
	stopped := errors.New("interrupted")
	if err := e.printBench(half{}, stopped, o); !errors.Is(err, stopped) {
		t.Errorf("error %v, want that it was interrupted", err)
	}
	if d, err := document.Read(strings.NewReader(out.String()), "stdout"); err != nil ||
		d.Incomplete != "interrupted" || !strings.Contains(out.String(), `"windows"`) {
		t.Errorf("%v: %s", err, out)
	}
	for name, want := range map[string]string{"a.csv": "chart,a,b",
		"a.html":    "<strong>Incomplete.</strong> interrupted",
		"chart.svg": "INCOMPLETE: interrupted", "chart.png": "\x89PNG"} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil ||
			!strings.Contains(string(text), want) {
			t.Errorf("%s: %v, want one with %q", name, err, want)
		}
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 4 {
		t.Errorf("%v in the directory, want four files and nothing temporary", files)
	}
}

func TestOneFileThatFailsDoesNotKeepTheOthersBack(t *testing.T) {
	dir := t.TempDir()
	e, out, _ := testEnv()
	o := &benchOutput{csv: filepath.Join(dir, "gone", "a.csv"), html: filepath.Join(dir, "a.html")}
	if err := e.printBench(half{}, nil, o); err == nil || !strings.Contains(err.Error(), "a.csv") {
		t.Errorf("error %v, want that a.csv could not be written", err)
	}
	if _, err := os.Stat(o.html); err != nil || out.String() != "half a table\n" {
		t.Errorf("%v, printed %q: want the page and the table all the same", err, out)
	}
}
