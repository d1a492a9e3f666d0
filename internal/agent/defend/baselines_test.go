package defend

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"levee/internal/agent/detect"
	"levee/internal/lang/policy"
)

// TestBaselinesOutliveTheAgent: what one has put and saved the next one gets, for the same
// statement alone.
func TestBaselinesOutliveTheAgent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "baselines.json")
	now := time.Now()
	open := func() *Baselines {
		b := OpenBaselines(path)
		if b.Damaged != nil {
			t.Fatal(b.Damaged)
		}
		return b
	}
	d := detect.New(detect.Options{})
	learned := d.Baseline(now)
	learned.Syn, learned.Fresh = 0.25, 30
	b := open()
	for i := range 3 * mostBaselines {
		if err := b.put(fmt.Sprintf("eth%d", i), "floods", "detect", learned); err != nil {
			t.Fatal(err)
		}
	}
	last := fmt.Sprintf("eth%d", 3*mostBaselines-1)
	for range 10 { // the place of one is its own
		if err := b.put(last, "floods", "detect", learned); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.save(); err != nil {
		t.Fatal(err)
	}
	if b = open(); len(b.all) != mostBaselines {
		t.Errorf("%d are kept", len(b.all))
	}
	got := b.get(last, "floods", "detect")
	if got == nil || got.Syn != 0.25 || got.Fresh != 30 || !got.At.Equal(now) {
		t.Errorf("got %+v", got)
	}
	if b.get(last, "floods", "detect above 1kpps") != nil || b.get("eth0", "floods", "") != nil ||
		b.get(last, "others", "detect") != nil {
		t.Error("another detector's is given")
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != keptMode {
		t.Error(info.Mode(), err)
	}
	if err := os.WriteFile(path, []byte(`[{"dev"`), 0o600); err != nil {
		t.Fatal(err)
	}
	if b := OpenBaselines(path); b.Damaged == nil || len(b.all) != 0 {
		t.Error(b)
	}
	if _, err := os.Stat(path + ".damaged"); err != nil {
		t.Error(err)
	}
	open()
}

// TestAnAgentThatEndsKeepsBaselines of its detectors, and one that begins goes on with them.
func TestAnAgentThatEndsKeepsBaselines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "baselines.json")
	b := OpenBaselines(path)
	var said []string
	o := Options{Dev: "eth0", Baselines: b, Log: func(format string, args ...any) {
		said = append(said, fmt.Sprintf(format, args...))
	}}
	statement := &policy.Detect{Name: "floods", Text: `detect "floods" enforce`}
	w := New(o)
	w.eyes = []*eye{{Detect: statement, detector: detect.New(detect.Options{})}}
	w.keepBaselines(time.Now())
	m := NewManager(ManagerOptions{Baselines: b, Log: o.Log})
	m.save()
	o.Baselines = OpenBaselines(path)
	u := &eye{Detect: statement, detector: detect.New(detect.Options{})}
	New(o).restore(u, time.Now())
	if len(said) != 1 {
		t.Errorf("said %q", said)
	}
}
