package difftest

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"levee/internal/filter/codegen"
	"levee/internal/filter/oracle"
	"levee/internal/lang/resolve"
	"levee/internal/packet"
)

// The policies that people start from, on frames made for them, and on every packet of the
// captures that stand beside the repository where there are any.
func TestExamplesAgreeWithTheOracle(t *testing.T) {
	needRoot(t)
	files, err := filepath.Glob("../../../examples/*.levee")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	captures, _ := filepath.Glob("../../../../shared/data/pcap/*.pcap")
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			p, diags, err := resolve.Load(file)
			if p == nil {
				t.Fatal(errors.Join(err, diags.Err()))
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			r := load(t, p, codegen.Target{Frags: true})
			o := oracle.New(p)
			for _, name := range captures {
				compareCapture(t, name, o, r)
			}
			// A second program, whose counters start at nothing and whose sets are filled, and that
			// is told who sends.
			full := load(t, p, codegen.Target{Frags: true, Trace: true})
			c := Case{Policy: p, Text: text, Seed: 1, Frames: 5000}
			if err := fill(full, c); err != nil {
				t.Fatal(err)
			}
			if _, err := Compare(t.Context(), c, compiled{full, codegen.XDP, nil}); err != nil {
				t.Error(err)
			}
		})
	}
}

func compareCapture(t *testing.T, name string, o *oracle.Evaluator, e Engine) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := packet.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for {
		rec, err := r.Next()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		slot, action, err := e.Eval(rec.Data)
		if want := o.Eval(rec.Data); err != nil || slot != want.Slot || action != want.Action {
			t.Fatalf("%s, packet %d: slot %d, %s, %v; the oracle says slot %d, %s\n%x",
				filepath.Base(name), rec.Number, slot, action, err, want.Slot, want.Action,
				rec.Data)
		}
	}
}
