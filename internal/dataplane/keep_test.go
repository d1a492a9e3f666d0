package dataplane

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"levee/internal/await"
	"levee/internal/dataplane/sets"
	"levee/internal/lang/policy"
)

const keepPolicy = "set abusers = dynamic(max %d, lease 10m, keep)\ndrop from abusers as " +
	"\"abuser\"\ndefault pass\n"

func keeping(n int) string { return fmt.Sprintf(keepPolicy, n) }

func TestKeptEntriesAreReadAsTheyWereWritten(t *testing.T) {
	now := time.UnixMilli(1_900_000_000_123)
	entries := []sets.Entry{
		{Prefix: netip.MustParsePrefix("192.0.2.0/24"), Lease: sets.Forever},
		{Prefix: netip.MustParsePrefix("2001:db8::7/128"), Lease: 90 * time.Second},
		{Prefix: netip.MustParsePrefix("198.51.100.1/32"), Lease: 2 * time.Second,
			Service: policy.Service{Proto: 6, Lo: 8000, Hi: 8007}},
		{Service: policy.Service{Proto: 17, Lo: 53, Hi: 53}, Lease: sets.Forever},
	}
	b := sets.EncodeKept(policy.Endpoints, now, entries)
	for _, c := range []struct {
		name  string
		after time.Duration
		left  []time.Duration
	}{
		{"at once", 0, []time.Duration{sets.Forever, 90 * time.Second, 2 * time.Second,
			sets.Forever}},
		{"after 3 s", 3 * time.Second, []time.Duration{sets.Forever, 87 * time.Second, -2,
			sets.Forever}},
		{"with a clock that was set back", -time.Hour,
			[]time.Duration{sets.Forever, 90 * time.Second, 2 * time.Second, sets.Forever}},
	} {
		got, err := sets.DecodeKept(b, policy.Endpoints, 10, now.Add(c.after))
		if err != nil {
			t.Fatal(err)
		}
		var want []sets.Entry
		for i, e := range entries {
			if e.Lease = c.left[i]; e.Lease != -2 {
				want = append(want, e)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", c.name, got, want)
		}
	}
	if got, err := sets.DecodeKept(b, policy.Addresses, 10, now); got != nil || err != nil {
		t.Errorf("a set of another type got %v, %v", got, err)
	}
	for i := range b {
		for _, bad := range [][]byte{b[:i],
			append(bytes.Clone(b[:i]), append([]byte{b[i] ^ 4}, b[i+1:]...)...)} {
			if got, err := sets.DecodeKept(bad, policy.Endpoints, 10, now); !errors.Is(err,
				sets.ErrSpoilt) {
				t.Fatalf("spoilt or cut at byte %d: %v, %v", i, got, err)
			}
		}
	}
}

// TestKeptEntriesOutliveTheirPolicy as they outlive a reboot: nothing but the file is left between.
func TestKeptEntriesOutliveTheirPolicy(t *testing.T) {
	t.Setenv(sets.LibEnv, t.TempDir()) // first: the end of the net saves once more
	newTestNet(t)
	up := func(text string) []string {
		t.Helper()
		r, err := Up(t.Context(), UpOptions{Dev: "lv0", PolicyPath: "/etc/test.levee"},
			compileText(text))
		if err != nil {
			t.Fatal(err)
		}
		return r.Notes
	}
	down := func() {
		t.Helper()
		if notes, err := Down(t.Context(), "lv0"); err != nil || len(notes) > 0 {
			t.Fatal(notes, err)
		}
	}
	up(keeping(10))
	s := must2(sets.Open(t.Context(), "lv0", "abusers"))
	begun := time.Now()
	add := append(entriesOf("192.0.2.1/32", "2001:db8::/48"),
		sets.Entry{Prefix: netip.MustParsePrefix("192.0.2.2/32"), Lease: sets.Forever},
		sets.Entry{Prefix: netip.MustParsePrefix("192.0.2.3/32"), Lease: 300 * time.Millisecond})
	if err := s.Add(t.Context(), add...); err != nil {
		t.Fatal(err)
	}
	s.Close()
	down()
	await.Pass(400*time.Millisecond, "the lease ends")
	up(keeping(10))
	all := must2(sets.List(t.Context(), "lv0", "abusers"))[0].Entries
	if got := listed(t, "lv0"); got != "192.0.2.1/32 192.0.2.2/32 2001:db8::/48" {
		t.Errorf("after the first time it holds %s", got)
	}
	for _, e := range all {
		least := 10*time.Minute - time.Since(begun) - 3*time.Second
		if e.Prefix.Addr().Is6() && (e.Lease < least ||
			e.Lease > 10*time.Minute-400*time.Millisecond+time.Second/10) {
			t.Errorf("%s has %s left", e.Prefix, e.Lease)
		}
		if e.Prefix.String() == "192.0.2.2/32" && e.Lease != sets.Forever {
			t.Errorf("%s has %s left, want for ever", e.Prefix, e.Lease)
		}
	}
	// A replace goes on with what there is, not with the file.
	if _, _, err := sets.Delete(t.Context(), "lv0", "abusers",
		[]policy.Element{{Prefix: netip.MustParsePrefix("192.0.2.1/32")}}); err != nil {
		t.Fatal(err)
	}
	up(keeping(20))
	if got := listed(t, "lv0"); got != "192.0.2.2/32 2001:db8::/48" {
		t.Errorf("after a replace it holds %s", got)
	}
	down()
	// Less room: what fits, and a note.
	if notes := up(keeping(1)); len(notes) != 1 ||
		!strings.Contains(notes[0], `1 of 2 kept entries of dynamic set "abusers" have no room`) {
		t.Errorf("notes %q", notes)
	}
	down()
	// A spoilt file: a note, and the policy is in force.
	path := must2(sets.KeptFile("lv0", "abusers"))
	b := must2(os.ReadFile(path))
	b[20] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	notes := up(keeping(10))
	if len(notes) != 1 || !strings.Contains(notes[0], "its sum is wrong") {
		t.Fatalf("notes %q", notes)
	}
	if got := listed(t, "lv0"); got != "" {
		t.Errorf("a spoilt file gave %s", got)
	}
	// What it held outlives what is saved from then on, under the name that the note says.
	must2(sets.Save(t.Context(), "", ""))
	down()
	aside := must2(filepath.Glob(path + ".damaged-*"))
	if len(aside) != 1 || !strings.Contains(notes[0], aside[0]) {
		t.Fatalf("put aside: %q; note %q", aside, notes[0])
	}
	if got := must2(os.ReadFile(aside[0])); !bytes.Equal(got, b) {
		t.Errorf("%d bytes were put aside of a file of %d, or others", len(got), len(b))
	}
	if notes := up(keeping(10)); len(notes) > 0 {
		t.Errorf("notes %q of the file that was saved since", notes)
	}
	down()
	// So does one that cannot be read at all.
	if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
	notes = up(keeping(10))
	aside = must2(filepath.Glob(path + ".damaged-*"))
	if len(notes) != 1 || len(aside) != 2 || !strings.Contains(notes[0], aside[1]) {
		t.Errorf("put aside: %q; notes %q", aside, notes)
	}
}

// TestASaveThatIsKilledAtAnyStepLeavesTheLastGoodFile or the new one.
func TestASaveThatIsKilledAtAnyStepLeavesTheLastGoodFile(t *testing.T) {
	lib := t.TempDir()
	t.Setenv(sets.LibEnv, lib)
	newTestNet(t)
	if err := bringPolicy(t, "lv0", keeping(10), 0); err != nil {
		t.Fatal(err)
	}
	save := order{Do: "save", Dev: "lv0"}
	steps := record(t, save)
	if len(steps) != 5 {
		t.Fatalf("steps %v", steps)
	}
	path := must2(sets.KeptFile("lv0", "abusers"))
	for i, step := range steps {
		for _, kill := range []bool{true, false} {
			before := must2(os.ReadFile(path))
			if _, err := sets.Replace(t.Context(), "lv0", "abusers",
				entriesOf(fmt.Sprintf("192.0.2.%d/32", i))); err != nil {
				t.Fatal(err)
			}
			inject(t, save, i, kill)
			if after := must2(os.ReadFile(path)); !bytes.Equal(after, before) {
				t.Errorf("step %s, kill %v: the last good file is gone", step, kill)
			}
			if _, err := sets.Save(t.Context(), "", ""); err != nil {
				t.Fatal(err)
			}
			got, err := sets.DecodeKept(must2(os.ReadFile(path)), policy.Addresses, 10, time.Now())
			if err != nil || len(got) != 1 ||
				got[0].Prefix != entriesOf(fmt.Sprintf("192.0.2.%d/32", i))[0].Prefix {
				t.Errorf("after step %s: %v %v", step, got, err)
			}
			if left := must2(filepath.Glob(lib + "/*/*.set*")); len(left) != 1 {
				t.Errorf("after step %s: %v", step, left)
			}
		}
	}
}

// BenchmarkRestore is the time until 1,000,000 kept entries are back, with the policy in force.
func BenchmarkRestore(b *testing.B) {
	b.Setenv(sets.LibEnv, b.TempDir())
	newTestNet(b)
	if err := bringPolicy(b, "lv0", keeping(1_000_000), 0); err != nil {
		b.Fatal(err)
	}
	if _, err := sets.Replace(b.Context(), "lv0", "abusers",
		hosts("10.0.0.0", 1_000_000)); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		b.StopTimer()
		if _, err := Down(b.Context(), "lv0"); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		if err := bringPolicy(b, "lv0", keeping(1_000_000), 0); err != nil {
			b.Fatal(err)
		}
	}
	if n := must2(sets.List(b.Context(), "lv0", "abusers"))[0].Entries; len(n) != 1_000_000 {
		b.Errorf("%d entries are back", len(n))
	}
}
