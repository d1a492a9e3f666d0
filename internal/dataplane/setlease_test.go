package dataplane

import (
	"net/netip"
	"testing"
	"time"
)

// TestEntriesThatWereRolledUpAreHeld: hosts that a full set had replaced by their /24 were missing
// to Raise, which added them again, and had them rolled up again, each time.
func TestEntriesThatWereRolledUpAreHeld(t *testing.T) {
	newTestNet(t)
	ctx := t.Context()
	const text = "set abusers = dynamic(max 64, lease 1h, rollup)\ndrop from abusers\n" +
		"default pass\n"
	if err := bringPolicy(t, "lv0", text, 0); err != nil {
		t.Fatal(err)
	}
	s, err := OpenSet(ctx, "lv0", "abusers")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var hosts []SetEntry
	for i := range 100 {
		a := netip.AddrFrom4([4]byte{198, 51, 100, byte(i)})
		hosts = append(hosts, SetEntry{Prefix: netip.PrefixFrom(a, 32), Lease: time.Hour})
	}
	if raised, left, err := s.Raise(ctx, hosts); raised != 100 || left != 0 || err != nil {
		t.Fatalf("raised %d, left %d: %v", raised, left, err)
	}
	if raised, left, err := s.Raise(ctx, hosts); raised != 0 || left != 0 || err != nil {
		t.Errorf("raised %d again, left %d: %v", raised, left, err)
	}
	if raised, _, err := s.Raise(ctx, []SetEntry{{Prefix: hosts[0].Prefix,
		Lease: 2 * time.Hour}}); raised != 1 || err != nil {
		t.Errorf("a longer lease: raised %d: %v", raised, err)
	}
}

// TestWhatAFullSetHasNoRoomForIsRefusedOnce: entries that did not fit together were tried in
// halves, and counted as refused with each.
func TestWhatAFullSetHasNoRoomForIsRefusedOnce(t *testing.T) {
	newTestNet(t)
	ctx := t.Context()
	if err := bringPolicy(t, "lv0", abuserPolicy(10), 0); err != nil {
		t.Fatal(err)
	}
	s, err := OpenSet(ctx, "lv0", "abusers")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var hosts []SetEntry
	for i := range 25 {
		hosts = append(hosts, SetEntry{Prefix: netip.PrefixFrom(address(i), 32), Lease: Forever})
	}
	if raised, left, err := s.Raise(ctx, hosts); raised != 10 || left != 15 || err != nil {
		t.Fatalf("raised %d, left %d: %v", raised, left, err)
	}
	if n := s.maps[0].Refused(); n != 15 {
		t.Errorf("%d refused, want 15", n)
	}
	if err := s.Add(ctx, hosts[20]); err == nil || s.maps[0].Refused() != 16 {
		t.Errorf("%v, %d refused in all", err, s.maps[0].Refused())
	}
}
