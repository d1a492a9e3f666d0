package dataplane

import (
	"net/netip"
	"testing"
	"time"

	"levee/internal/dataplane/sets"
	"levee/internal/dataplane/store"
)

// TestLargeSetsAreMerged adds prefixes of many lengths, few at a time, so that nothing but a merge
// gives the set other memory, and compares members and leases before and after. A merge that fails
// changes nothing, and is made good later.
func TestLargeSetsAreMerged(t *testing.T) {
	fails := false
	ctx := stepping(t.Context(), func(step string) error {
		if fails && step == "put" {
			return errInjected
		}
		return nil
	})
	s := openAbusersUnder(ctx, t, abuserPolicy(5000))
	memory := func() uint64 {
		t.Helper()
		id, err := store.MapID(s.Maps[0].Inner)
		if err != nil {
			t.Fatal(err)
		}
		return uint64(id)
	}
	want := map[netip.Prefix]time.Duration{}
	add := func(from, to int) {
		t.Helper()
		var some []sets.Entry
		for i := from; i < to; i++ {
			a := netip.AddrFrom4([4]byte{100, byte(64 + i>>7), byte(i << 1), 0})
			p := netip.PrefixFrom(a, 23+i%8)
			lease := sets.Forever
			if i%2 == 0 {
				lease = time.Hour
			}
			want[p] = lease
			some = append(some, sets.Entry{Prefix: p, Lease: lease})
		}
		if err := s.Add(ctx, some...); err != nil {
			t.Fatal(err)
		}
	}
	check := func() {
		t.Helper()
		entries, err := s.List(ctx)
		if err != nil || len(entries) != len(want) {
			t.Fatalf("%d entries, want %d: %v", len(entries), len(want), err)
		}
		for _, e := range entries {
			lease, ok := want[e.Prefix]
			if !ok || lease == sets.Forever != (e.Lease == sets.Forever) ||
				e.Lease > lease+time.Minute {
				t.Errorf("%v with %v, want %v, %v", e.Prefix, e.Lease, lease, ok)
			}
		}
	}
	first := memory()
	add(0, 1000)
	if memory() != first {
		t.Fatal("merged though there are few entries")
	}
	fails = true
	add(1000, 1500)
	if memory() != first {
		t.Fatal("a merge that failed has other memory in place")
	}
	check()
	fails = false
	s.Maps[0].Rest(0)
	add(1500, 1600)
	merged := memory()
	if merged == first {
		t.Fatal("not merged")
	}
	check()
	gone := netip.MustParsePrefix("100.64.0.0/23")
	if n, err := s.Delete(ctx, gone); n != 1 || err != nil {
		t.Fatalf("deleted %d: %v", n, err)
	}
	delete(want, gone)
	check()
	if memory() != merged {
		t.Error("merged again after one change")
	}
}
