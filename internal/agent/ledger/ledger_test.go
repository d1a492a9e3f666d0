package ledger

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"levee/internal/kernel"
)

func lease(i int, origin string, until time.Time) Lease {
	a := netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)})
	return Lease{Set: "abusers", Entry: Of(netip.PrefixFrom(a, 32)), Origin: origin,
		Since: time.UnixMilli(1000), Until: until}
}

func all(t *testing.T, l *Ledger) (out []string) {
	t.Helper()
	if err := l.Each(func(l Lease) bool {
		out = append(out, fmt.Sprint(l.Set, " ", l.Entry, " ", l.Origin, " ", l.Until.UnixMilli()))
		return true
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestLeasesOutliveAProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.db")
	l, err := Open(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, 0); !errors.Is(err, ErrBusy) {
		t.Errorf("opened twice: %v", err)
	}
	end := time.UnixMilli(1 << 40)
	later := end.Add(time.Hour)
	six := lease(0, "ids", end)
	six.Entry.Prefix = netip.MustParsePrefix("2001:db8::/64")
	if err := l.Record([]Lease{lease(1, "ids", end), lease(1, "feed", later), lease(2, "ids",
		time.Time{}), six}, map[string][]byte{"ids": []byte("7")}); err != nil {
		t.Fatal(err)
	}
	// sooner changes nothing, later does
	if err := l.Record([]Lease{lease(1, "feed", end), lease(1, "ids", later), lease(2, "ids", end)},
		nil); err != nil {
		t.Fatal(err)
	}
	want := all(t, l)
	if len(want) != 4 || l.Leases() != 4 {
		t.Fatalf("%d leases: %q", l.Leases(), want)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if l, err = Open(path, 0); err != nil || l.Damaged != "" {
		t.Fatal(err, l.Reason)
	}
	defer l.Close()
	if got := all(t, l); fmt.Sprint(got) != fmt.Sprint(want) || l.Leases() != 4 {
		t.Errorf("%q, was %q", got, want)
	}
	if string(l.Position("ids")) != "7" || l.Position("other") != nil {
		t.Error("the position is lost")
	}
	var entry []Lease
	err = l.Entries("abusers", []Entry{lease(1, "", end).Entry},
		func(_ int, of Lease) { entry = append(entry, of) })
	if err != nil || len(entry) != 2 || !entry[0].Until.Equal(later) {
		t.Errorf("%v %v", entry, err)
	}
	gone, err := l.Remove(func(of Lease) bool { return of.Origin == "feed" })
	if err != nil || len(gone) != 1 || l.Leases() != 3 || len(all(t, l)) != 3 {
		t.Errorf("%v %v, %d are left", gone, err, l.Leases())
	}
}

// TestADamagedLedgerIsSetAside spoils each part of a file: what is opened then either has every
// lease or says that the file was damaged, and keeps it.
func TestADamagedLedgerIsSetAside(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "agent.db")
	l, err := Open(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	var leases []Lease
	for i := range 2000 {
		leases = append(leases, lease(i, "ids", time.UnixMilli(1<<40)))
	}
	if err := l.Record(leases, nil); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	aside := 0
	check := func(text []byte, what string) {
		t.Helper()
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := Open(path, 0)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		defer l.Close()
		switch {
		case l.Damaged == "" && l.Leases() != 2000 && len(text) > 0:
			t.Errorf("%s: %d leases, and nothing is said", what, l.Leases())
		case l.Damaged != "":
			aside++
			kept, err := os.ReadFile(l.Damaged)
			if err != nil || len(kept) < len(text) || l.Leases() != 0 || l.Reason == nil {
				t.Errorf("%s: it is not kept: %v", what, err)
			}
			os.Remove(l.Damaged)
		}
	}
	for at := 0; at < len(whole); at += len(whole)/60 + 13 {
		spoilt := append([]byte{}, whole...)
		for i := at; i < min(at+64, len(spoilt)); i++ {
			spoilt[i] ^= 0x5a
		}
		check(spoilt, fmt.Sprint("64 bytes at ", at))
	}
	check(whole[:len(whole)/2], "half a file")
	check(whole[:100], "100 bytes")
	check([]byte("this is another file"), "another file")
	if aside < 10 {
		t.Errorf("only %d files were found damaged", aside)
	}
}

// TestACommandHoldsUpNobody: whoever opens the ledger while a command has it open waits for that.
func TestACommandHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "agent.db")
		command, err := Open(path, 0)
		if err != nil {
			t.Fatal(err)
		}
		closed := make(chan error, 1)
		go func() {
			time.Sleep(20 * time.Millisecond)
			closed <- command.Close()
		}()
		l, err := Open(path, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(<-closed, l.Close()); err != nil {
			t.Error(err)
		}
	})
}

// TestManyLeasesInAnyOrderTakeNoLonger: a backlog of 160,000 new addresses took a minute to write,
// and four times that for twice as many. It is the processor's time: others take that of the clock.
func TestManyLeasesInAnyOrderTakeNoLonger(t *testing.T) {
	const n = 100_000
	leases := make([]Lease, n)
	for i := range leases {
		leases[i] = Lease{Set: "s", Origin: "o", Since: time.Now(),
			Entry: Of(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8),
				byte(i)}), 32))}
	}
	record := func(what string) time.Duration {
		l, err := Open(filepath.Join(t.TempDir(), "l"), 0)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		begun := kernel.ProcessorTime()
		if err := l.Record(leases, nil); err != nil || l.Leases() != n {
			t.Fatalf("%s: %d leases, %v", what, l.Leases(), err)
		}
		return kernel.ProcessorTime() - begun
	}
	inOrder := record("in order")
	rand.Shuffle(n, func(i, k int) { leases[i], leases[k] = leases[k], leases[i] })
	if mixed := record("mixed"); mixed > 4*inOrder+time.Second {
		t.Errorf("%v in any order, %v in theirs", mixed, inOrder)
	}
}

// TestEntriesInAnyOrder: the leases of entries are found wherever these stand in the list, twice
// too, among others and behind the last, and a change knows which it had.
func TestEntriesInAnyOrder(t *testing.T) {
	l, err := Open(filepath.Join(t.TempDir(), "agent.db"), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	end := time.UnixMilli(1 << 40)
	name := func(s string) Entry { return Entry{Name: s} }
	there := []Entry{lease(1, "", end).Entry, lease(2, "", end).Entry, lease(9, "", end).Entry,
		name("a.example"), name("a.example.b")}
	var some []Lease
	for _, e := range there {
		some = append(some, Lease{Set: "s", Entry: e, Origin: "x", Since: end, Until: end},
			Lease{Set: "s", Entry: e, Origin: "y", Since: end, Until: end})
	}
	if err := l.Record(append(some, Lease{Set: "t", Entry: there[0], Origin: "x", Since: end,
		Until: end}), nil); err != nil {
		t.Fatal(err)
	}
	all := append(slices.Clone(there), lease(0, "", end).Entry, lease(5, "", end).Entry,
		lease(200, "", end).Entry, name("a"), name("b"), there[2], there[0], there[4])
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		got := make([]int, len(all))
		err := l.Entries("s", all, func(i int, of Lease) {
			if of.Entry != all[i] || of.Set != "s" {
				t.Fatalf("%v for %v", of, all[i])
			}
			got[i]++
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range all {
			want := 0
			if slices.Contains(there, e) {
				want = 2
			}
			if got[i] != want {
				t.Fatalf("%d leases of %v in %v, not %d", got[i], e, all, want)
			}
		}
	}
	later := end.Add(time.Hour)
	var change []Lease
	for _, e := range []Entry{there[4], there[0], lease(5, "", end).Entry} {
		change = append(change, Lease{Set: "s", Entry: e, Origin: "x", Since: later, Until: later})
	}
	before := l.Leases()
	if err := l.Change("s", "x", change, there[1:2], nil); err != nil || l.Leases() != before {
		t.Errorf("%d leases, of %d: %v", l.Leases(), before, err)
	}
	for i, since := range []time.Time{end, end, later} {
		found := false
		err := l.Entries("s", []Entry{change[i].Entry}, func(_ int, of Lease) {
			if of.Origin == "x" {
				found = of.Since.Equal(since) && of.Until.Equal(later)
			}
		})
		if err != nil || !found {
			t.Errorf("%v: %v", change[i].Entry, err)
		}
	}
}
