package agent

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"levee/internal/agent/ledger"
	"levee/internal/dataplane/sets"
	"levee/internal/lang/policy"
)

// ends is a kernel that notes when leases end there.
type ends struct {
	fake
	at map[netip.Prefix]time.Time
}

func (k *ends) Raise(_ context.Context, _ string, entries []sets.Entry, began time.Time) (
	int, int, error) {
	for _, e := range entries {
		k.at[e.Prefix] = began.Add(e.Lease)
	}
	return 0, 0, nil
}

// TestLeasesEndInTheKernelWhenTheyEndInTheLedger: the time that a slow disk or a long comparison
// took was given to entries besides. What ends half a second later than the ledger says counts as
// leased by somebody else, so that a withdrawal left it in the kernel.
func TestLeasesEndInTheKernelWhenTheyEndInTheLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		k := &ends{at: map[netip.Prefix]time.Time{}}
		a := start(t, dir, k, one)
		a.opts.Others = func(context.Context) (map[netip.Prefix]string, error) {
			time.Sleep(600 * time.Millisecond) // as a disk may
			return nil, nil
		}
		check := func(when string) {
			t.Helper()
			n, late := 0, time.Duration(0)
			if err := a.ledger.Each(func(l ledger.Lease) bool {
				n++
				late = max(late, k.at[l.Entry.Prefix].Sub(l.Until).Abs())
				return true
			}); err != nil {
				t.Fatal(err)
			}
			if n != len(k.at) || late > 400*time.Millisecond {
				t.Errorf("%s: %d leases of %d differ by up to %v", when, n, len(k.at), late)
			}
		}
		write(t, dir+"/eve.json", "198.51.100.1")
		a.poll(t.Context())
		check("an event")

		until := time.Now().Add(time.Hour)
		var many []ledger.Lease
		for i := range 3 * atOnce {
			p := netip.PrefixFrom(netip.AddrFrom4([4]byte{100, 64, byte(i >> 8), byte(i)}), 32)
			many = append(many, ledger.Lease{Set: "s", Entry: ledger.Of(p), Origin: "ids",
				Since: until, Until: until})
		}
		if err := a.ledger.Record(many, nil); err != nil {
			t.Fatal(err)
		}
		a.compare(t.Context())
		check("a comparison")
	})
}

// TestAnAlarmThatGoesOnIsOne: a full ledger alarmed with each batch of events, ten times a second,
// until the status had no room for others.
func TestAnAlarmThatGoesOnIsOne(t *testing.T) {
	a := start(t, t.TempDir(), &fake{}, one)
	logged := 0
	a.opts.Log = func(string, ...any) { logged++ }
	for range 100 {
		a.alarm("the ledger is full: new leases are not taken")
	}
	if n := len(a.current().Alarms); n != 1 || logged != 1 {
		t.Errorf("%d alarms, %d lines", n, logged)
	}
	if lag := a.current().Sources[0].LagSeconds; lag > 60 { // since the year 1
		t.Errorf("a source that was not read yet lags by %v s", lag)
	}
}

// TestAFullLedgerIsNotReadForEachBatch: while a ledger was full, all of it was read for each batch
// of events, ten times a second.
func TestAFullLedgerIsNotReadForEachBatch(t *testing.T) {
	a := start(t, t.TempDir(), &fake{}, one)
	now := time.Now()
	ended := ledger.Lease{Set: "s", Origin: "ids",
		Entry: ledger.Of(netip.MustParsePrefix("192.0.2.1/32")),
		Since: now.Add(-time.Hour), Until: now.Add(-time.Minute)}
	fill := func() {
		t.Helper()
		if err := a.ledger.Record([]ledger.Lease{ended}, nil); err != nil {
			t.Fatal(err)
		}
	}
	fill()
	if !a.makeRoom(now) || a.ledger.Leases() != 0 || !a.nextRoom.After(now) {
		t.Errorf("%d leases are left, the next look is at %v", a.ledger.Leases(), a.nextRoom)
	}
	fill()
	if a.makeRoom(a.nextRoom.Add(-1)) || a.ledger.Leases() != 1 {
		t.Error("the ledger was read again")
	}
	if !a.makeRoom(a.nextRoom) || a.ledger.Leases() != 0 {
		t.Error("the ledger was not read again after its time")
	}
}

// TestASetOfNamesWithoutRoomSaysWhichRoom: "raise max" helps nobody whose names have too many
// different numbers of labels.
func TestASetOfNamesWithoutRoomSaysWhichRoom(t *testing.T) {
	for of, labels := range map[policy.SetType]bool{policy.Addresses: false, policy.Names: true} {
		text := noRoom(&policy.Set{Name: "s", Type: of}, 2)
		if strings.Contains(text, "32 different numbers of labels") != labels ||
			!strings.Contains(text, "raise max") {
			t.Errorf("%v: %s", of, text)
		}
	}
}
