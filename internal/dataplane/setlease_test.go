package dataplane

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"levee/internal/dataplane/sets"
	"levee/internal/filter/names"
)

// openAbusers is the set abusers of a policy in force on lv0 of a network of the test's own.
func openAbusers(t *testing.T, policy string) *sets.Set {
	t.Helper()
	return openAbusersUnder(t.Context(), t, policy)
}

// openAbusersUnder is openAbusers under a context.
func openAbusersUnder(ctx context.Context, t *testing.T, policy string) *sets.Set {
	t.Helper()
	newTestNet(t)
	if err := bringPolicy(t, "lv0", policy, 0); err != nil {
		t.Fatal(err)
	}
	s, err := sets.Open(ctx, "lv0", "abusers")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestEntriesThatWereRolledUpAreHeld: hosts that a full set had replaced by their /24 were missing
// to Raise, which added them again, and had them rolled up again, each time.
func TestEntriesThatWereRolledUpAreHeld(t *testing.T) {
	ctx, now := t.Context(), time.Now() // a second later all would have to be raised
	const text = "set abusers = dynamic(max 64, lease 1h, rollup)\ndrop from abusers\n" +
		"default pass\n"
	s := openAbusers(t, text)
	var hosts []sets.Entry
	for i := range 100 {
		a := netip.AddrFrom4([4]byte{198, 51, 100, byte(i)})
		hosts = append(hosts, sets.Entry{Prefix: netip.PrefixFrom(a, 32), Lease: time.Hour})
	}
	if raised, left, err := s.Raise(ctx, hosts, now); raised != 100 || left != 0 ||
		err != nil {
		t.Fatalf("raised %d, left %d: %v", raised, left, err)
	}
	if raised, left, err := s.Raise(ctx, hosts, now); raised != 0 || left != 0 ||
		err != nil {
		t.Errorf("raised %d again, left %d: %v", raised, left, err)
	}
	if raised, _, err := s.Raise(ctx, []sets.Entry{{Prefix: hosts[0].Prefix,
		Lease: 2 * time.Hour}}, now); raised != 1 || err != nil {
		t.Errorf("a longer lease: raised %d: %v", raised, err)
	}
}

// TestWhatAFullSetHasNoRoomForIsRefusedOnce: entries that did not fit together were tried in
// halves, and counted as refused with each.
func TestWhatAFullSetHasNoRoomForIsRefusedOnce(t *testing.T) {
	ctx, now := t.Context(), time.Now()
	s := openAbusers(t, abuserPolicy(10))
	var hosts []sets.Entry
	for i := range 25 {
		hosts = append(hosts, sets.Entry{Prefix: netip.PrefixFrom(address(i), 32),
			Lease: sets.Forever})
	}
	if raised, left, err := s.Raise(ctx, hosts, now); raised != 10 || left != 15 ||
		err != nil {
		t.Fatalf("raised %d, left %d: %v", raised, left, err)
	}
	if n := s.Maps[0].Refused(); n != 15 {
		t.Errorf("%d refused, want 15", n)
	}
	if err := s.Add(ctx, hosts[20]); err == nil || s.Maps[0].Refused() != 16 {
		t.Errorf("%v, %d refused in all", err, s.Maps[0].Refused())
	}
}

// TestNamesOfTooManyNumbersOfLabelsKeptOthersOut: whoever chose names with more numbers of labels
// than a set has room for kept all names out that came with his, each time they were tried again.
func TestNamesOfTooManyNumbersOfLabelsKeptOthersOut(t *testing.T) {
	ctx, now := t.Context(), time.Now()
	s := openAbusers(t, "set abusers = dynamic(of names, max 200, lease 1h)\n"+
		"drop udp port 53 dns name in abusers\ndefault pass\n")
	var entries []sets.Entry
	for labels := names.MaxCodes + 8; labels >= 1; labels-- {
		entries = append(entries, sets.Entry{Name: strings.Repeat("a.", labels) + "example"})
	}
	for i := range 50 {
		entries = append(entries, sets.Entry{Name: fmt.Sprintf("n%d.example", i)})
	}
	for _, want := range []int{names.MaxCodes + 50, 0} {
		raised, left, err := s.Raise(ctx, entries, now)
		if raised != want || left != 8 || err != nil {
			t.Fatalf("raised %d, left %d: %v", raised, left, err)
		}
	}
	if n := s.Maps[0].Refused(); n != 16 {
		t.Errorf("%d refused, want 16", n)
	}
}

// TestTimeThatAWriterWaitsIsNotGivenToEntries: what waited for another writer lasted so much longer
// than its lease. It then counted as leased by somebody else, and no withdrawal took it out.
func TestTimeThatAWriterWaitsIsNotGivenToEntries(t *testing.T) {
	ctx := t.Context()
	s := openAbusers(t, abuserPolicy(10))
	began := time.Now().Add(-time.Hour)
	e := sets.Entry{Prefix: netip.PrefixFrom(address(1), 32), Lease: 3 * time.Hour}
	if raised, left, err := s.Raise(ctx, []sets.Entry{e}, began); raised != 1 || left != 0 ||
		err != nil {
		t.Fatalf("raised %d, left %d: %v", raised, left, err)
	}
	if left, err := s.Leases(ctx, []sets.Entry{e}); err != nil ||
		left[0] > 2*time.Hour+sets.LeaseSlack {
		t.Errorf("%v are left of 3 h, an hour after they began: %v", left, err)
	}
	if raised, _, err := s.Raise(ctx, []sets.Entry{e}, began); raised != 0 || err != nil {
		t.Errorf("raised %d again: %v", raised, err)
	}
	if n, err := s.Lower(ctx, []sets.Lowered{{Entry: e, Was: time.Hour}},
		began.Add(-time.Hour)); n != 0 ||
		err != nil {
		t.Errorf("lowered %d that somebody else has leased since: %v", n, err)
	}
	e.Lease = 0
	if n, err := s.Lower(ctx, []sets.Lowered{{Entry: e, Was: 3 * time.Hour}}, began); n != 1 ||
		err != nil {
		t.Errorf("took out %d: %v", n, err)
	}
}
