package rulebook

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var since = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

func filled(t *testing.T, path string) *Book {
	t.Helper()
	b := Open(path)
	for _, origin := range []string{"api:a", "api:b"} {
		id := b.Next()
		err := b.Put(Rule{ID: id, Origin: origin, Dev: "eth0", Rule: `drop udp as "` + id + `"`,
			Action: "drop", Since: since, Until: since.Add(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// TestRulesOutliveARestartByOrigin, and no number is given twice.
func TestRulesOutliveARestartByOrigin(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.json")
	filled(t, path)
	b := Open(path)
	all := b.Of("eth0")
	if len(all) != 2 || all[0].Origin != "api:a" || all[1].Origin != "api:b" || b.Damaged != nil {
		t.Fatalf("%+v, %v", all, b.Damaged)
	}
	if id := b.Next(); id != "live-3" {
		t.Error(id)
	}
	if err := b.Remove("live-1"); err != nil {
		t.Fatal(err)
	}
	if err := b.Expire(since); err != nil || len(Open(path).Of("eth0")) != 1 {
		t.Errorf("%v, %+v", err, b.Of("eth0"))
	}
	if err := b.Expire(since.Add(time.Hour)); err != nil || len(Open(path).Of("eth0")) != 0 {
		t.Errorf("%v, %+v", err, b.Of("eth0"))
	}
	if _, ok := b.Get("live-2"); ok {
		t.Error("a rule whose time is over is kept")
	}
}

// TestARuleStayedUntilTheClockHadComeToItsEndAgain: a machine has booted with an older time.
func TestARuleStayedUntilTheClockHadComeToItsEndAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.json")
	filled(t, path)
	b, boot := Open(path), since.Add(-24*time.Hour)
	for _, now := range []time.Time{boot, boot.Add(time.Minute)} {
		if err := b.Expire(now); err != nil {
			t.Fatal(err)
		}
		for _, r := range append(b.Of("eth0"), Open(path).Of("eth0")...) {
			if !r.Since.Equal(boot) || !r.Until.Equal(boot.Add(time.Hour)) {
				t.Errorf("a rule of an hour is there from %v to %v", r.Since, r.Until)
			}
		}
	}
	if err := b.Expire(boot.Add(time.Hour)); err != nil || len(b.Of("eth0")) != 0 {
		t.Errorf("%v, %+v", err, b.Of("eth0"))
	}
}

// TestATimeServerEndedTheRulesOfABoot: a rule of a machine that had booted in 1970 was moved there,
// and was over as soon as a time server had set the clock.
func TestATimeServerEndedTheRulesOfABoot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.json")
	filled(t, path)
	b := Open(path)
	for i := range b.all { // of a machine whose clock was ahead of the one that the test has
		b.all[i].Since = time.Now().Add(time.Hour).Round(0)
		b.all[i].Until = b.all[i].Since.Add(time.Hour)
	}
	now := time.Now()
	if err := b.Expire(now); err != nil {
		t.Fatal(err)
	}
	for _, r := range b.Of("eth0") {
		left := r.Until.Sub(now)
		if left != time.Hour || !strings.Contains(r.Until.String(), " m=") {
			t.Errorf("a rule of an hour has %v left, and ends at %v, which a clock that is set "+
				"decides", left, r.Until)
		}
	}
	if len(b.Of("eth0")) != 2 {
		t.Errorf("%+v", b.Of("eth0"))
	}
}

// TestWhatCannotBeWrittenIsNotKept: a rule is in force after it is on the disk.
func TestWhatCannotBeWrittenIsNotKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b := Open(filepath.Join(file, "rules.json"))
	if err := b.Put(Rule{ID: "live-1", Dev: "eth0"}); err == nil || len(b.Of("eth0")) != 0 {
		t.Errorf("%v, %+v", err, b.Of("eth0"))
	}
}

// TestABookWithAnyByteChangedStopsNothing: it is read whole, or put aside.
func TestABookWithAnyByteChangedStopsNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "rules.json")
	filled(t, path)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	spoilt := filepath.Join(dir, "spoilt.json")
	for at := range text {
		other := append([]byte{}, text...)
		other[at] ^= 4
		if err := os.WriteFile(spoilt, other, 0o600); err != nil {
			t.Fatal(err)
		}
		b := Open(spoilt)
		want := 2
		if b.Damaged != nil {
			want = 0
		}
		if all := b.Of("eth0"); len(all) != want {
			t.Fatalf("byte %d: %+v, %v", at, all, b.Damaged)
		}
		if err := b.Expire(since.Add(2 * time.Hour)); err != nil {
			t.Fatalf("byte %d: %v", at, err)
		}
	}
}
