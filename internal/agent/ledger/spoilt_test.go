package ledger

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

// written is a ledger of so many leases, closed.
func written(t *testing.T, path string, n int) []byte {
	t.Helper()
	l, err := Open(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	var leases []Lease
	for i := range n {
		leases = append(leases, lease(i, "ids", time.UnixMilli(1<<40)))
	}
	if err := errors.Join(l.Record(leases, map[string][]byte{"file": []byte("17")}),
		l.Close()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// use does with a ledger what an agent does.
func use(path string) error {
	l, err := Open(path, 0)
	if err != nil {
		return err
	}
	_ = l.Position("file")
	_ = l.Each(func(Lease) bool { return true })
	_ = l.Record([]Lease{lease(3, "ids", time.UnixMilli(1<<41)),
		lease(70_000, "dns", time.UnixMilli(1<<41))}, nil)
	_, _ = l.Remove(func(of Lease) bool { return of.Origin == "dns" })
	if err := l.Close(); err != nil {
		return err
	}
	again, err := Open(path, 0) // also where it was put aside meanwhile
	if err != nil {
		return err
	}
	return again.Close()
}

// TestALedgerWithAnyByteChangedStopsNothing: bbolt ended the process, or never ended, at pages that
// point to each other, and at free pages that there are not.
func TestALedgerWithAnyByteChangedStopsNothing(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "levee-ledger-") // where a sync takes no time
	if err != nil {
		dir = t.TempDir()
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "agent.db")
	for _, size := range []struct{ leases, step int }{{20, 1}, {400, 17}} {
		whole := written(t, path, size.leases)
		seen := 0
		for at := range whole {
			if whole[at] == 0 && at%61 != 0 {
				continue
			}
			if seen++; seen%size.step != 0 {
				continue
			}
			spoilt := append([]byte{}, whole...)
			spoilt[at] ^= 1 << (seen / size.step % 8)
			if err := os.WriteFile(path, spoilt, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := use(path); err != nil {
				t.Errorf("byte %d of %d: %v", at, len(whole), err)
			}
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// TestADamagedNoteIsNotBelieved: a bit of the time of the newest event made it one of times to
// come, and no event after it counted, without a word. So did one of a position, or of the clock.
func TestADamagedNoteIsNotBelieved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.db")
	newest := []byte("2026-11-30T10:00:00Z")
	l, err := Open(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.Record([]Lease{lease(1, "ids", time.UnixMilli(1<<40))},
		map[string][]byte{"newest ssh": newest}), l.Close()); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range newest {
		spoilt := bytes.ReplaceAll(whole, newest, append(append(bytes.Clone(newest[:i]),
			newest[i]^1), newest[i+1:]...))
		if err := os.WriteFile(path, spoilt, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := Open(path, 0)
		if err != nil || l.Damaged == "" || l.Position("newest ssh") != nil {
			t.Fatalf("%v: byte %d: %s is believed", err, i, l.Position("newest ssh"))
		}
		if err := errors.Join(l.Close(), os.Remove(l.Damaged)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNotesOfAnOlderVersionAreRead, which has no sums, also where it ran after this one: what was
// noted before it was newer than what it had noted.
func TestNotesOfAnOlderVersionAreRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.db")
	l, err := Open(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"17", "18", "19", "30", "31"} {
		if want == "17" || want == "30" {
			if err := l.db.Update(func(tx *bbolt.Tx) error {
				return tx.Bucket(bucketPositions).Put([]byte("file"), []byte(want))
			}); err != nil {
				t.Fatal(err)
			}
		}
		if got := string(l.Position("file")); got != want {
			t.Errorf("%s is noted, want %s", got, want)
		}
		next := map[string][]byte{"file": {want[0], want[1] + 1}}
		if err := errors.Join(l.Record(nil, next), l.Close()); err != nil {
			t.Fatal(err)
		}
		if l, err = Open(path, 0); err != nil || l.Damaged != "" {
			t.Fatalf("%+v, %v", l, err)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestALedgerOfANewerVersionIsPutAside: its leases are longer.
func TestALedgerOfANewerVersionIsPutAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.db")
	written(t, path, 3)
	db, err := bbolt.Open(path, fileMode, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucketLeases).Put(make([]byte, prefixKey+originKey+2),
			make([]byte, valueBytes+8))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	l, err := Open(path, 0)
	if err != nil || l.Damaged == "" || l.Leases() != 0 {
		t.Fatalf("%+v, %v", l, err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestALedgerIsWholeAfterAnyChanges, of which pages grow, split, merge and empty.
func TestALedgerIsWholeAfterAnyChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.db")
	r := rand.New(rand.NewPCG(38, 4))
	for round := range 12 {
		l, err := Open(path, 0)
		if err != nil {
			t.Fatal(err)
		}
		if l.Damaged != "" {
			t.Fatalf("round %d: %v", round, l.Reason)
		}
		var leases []Lease
		for range r.IntN(3000) {
			leases = append(leases, lease(r.IntN(1<<16), []string{"ids", "dns"}[r.IntN(2)],
				time.UnixMilli(1<<40)))
		}
		share := r.IntN(5) // all of them, or a part
		_, err = l.Remove(func(Lease) bool { return r.IntN(4) < share })
		if err := errors.Join(err, l.Record(leases, nil), l.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestALedgerOfTwoVersionsLosesNothing: a levee that knows no names took one that has some for
// damaged, and its addresses went with it. What this one does not know stays for the next.
func TestALedgerOfTwoVersionsLosesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.db")
	written(t, path, 3)
	l, err := Open(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	name := lease(0, "ids", time.UnixMilli(1<<40))
	name.Entry = Entry{Name: "evil.example"}
	if err := errors.Join(l.Record([]Lease{name}, nil), l.Close()); err != nil {
		t.Fatal(err)
	}
	newer := []byte("of a kind to come")
	db, err := bbolt.Open(path, fileMode, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket(newer)
		if err != nil {
			return err
		}
		return errors.Join(b.Put([]byte("key"), []byte("value")),
			tx.Bucket(bucketLeases).ForEach(func(k, _ []byte) error {
				if len(k) != prefixKey+originKey || isName(k) {
					t.Errorf("an older levee finds %x", k)
				}
				return nil
			}))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	if l, err = Open(path, 0); err != nil || l.Damaged != "" || l.Leases() != 4 {
		t.Fatalf("%+v, %v", l, err)
	}
	defer l.Close()
	var read []Lease
	for after, more := "", true; more; more = after != "" {
		after, err = l.Page(after, func(of Lease) bool { read = append(read, of); return false })
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(read) != 4 || read[3].Entry != name.Entry {
		t.Errorf("page by page: %v", read)
	}
	read = nil
	_, err = l.Of(name.Set, "ids", nil, func(of Lease) { read = append(read, of) })
	if err != nil || len(read) != 4 {
		t.Errorf("of a source: %v, %v", read, err)
	}
	gone, err := l.Remove(func(of Lease) bool { return of.Entry.Name != "" })
	if err != nil || len(gone) != 1 || len(all(t, l)) != 3 {
		t.Errorf("%v, %v: %v are left", gone, err, all(t, l))
	}
	_ = l.view(func(tx *bbolt.Tx) error {
		if b := tx.Bucket(newer); b == nil || string(b.Get([]byte("key"))) != "value" {
			t.Error("what a newer levee has written is gone")
		}
		return nil
	})
}
