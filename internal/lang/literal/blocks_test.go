package literal

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"levee/internal/lang/policy"
)

// A long file is read in pieces: what is in them is what ReadPrefixes reads in a row, or with a bad
// line nothing.
func TestEntriesOfALongFileAreInOrder(t *testing.T) {
	var b strings.Builder
	for i := range 3*pieceSize + 7 {
		fmt.Fprintf(&b, "10.%d.%d.%d\n", i>>16, i>>8&0xff, i&0xff)
		if i%pieceSize == pieceSize-2 {
			b.WriteString("2001:db8::1-2001:db8:ffff:ffff:ffff:ffff:ffff:fffe # many prefixes\n")
		}
	}
	want, ds := ReadPrefixes(strings.NewReader(b.String()), "long.txt")
	if err := ds.Err(); err != nil {
		t.Fatal(err)
	}
	got, ds := ReadEntries(strings.NewReader(b.String()), "long.txt", policy.Addresses,
		func(e policy.Element, _ time.Duration) netip.Prefix { return e.Prefix })
	if err := ds.Err(); err != nil || !slices.Equal(got, want) {
		t.Errorf("%d entries, %v; want %d", len(got), err, len(want))
	}
	got, ds = ReadEntries(strings.NewReader(b.String()+"x\n"), "long.txt", policy.Addresses,
		func(e policy.Element, _ time.Duration) netip.Prefix { return e.Prefix })
	if !ds.HasErrors() || len(got) > 0 {
		t.Errorf("%d entries of a file with a bad line, %v", len(got), ds)
	}
}

// A range of ports may become thirty blocks, so that a file within its limit of lines could fill
// the memory.
func TestBlocksOfAFileAreBounded(t *testing.T) {
	const line = "tcp/1-65534\n" // 30 blocks
	lines := MaxElements/30 + 1
	all, ds := ReadElements(strings.NewReader(strings.Repeat(line, lines)), "services.txt")
	if all != nil || len(ds) != 1 || !strings.Contains(ds[0].Message,
		"make more than 8388608 entries") {
		t.Errorf("%d entries, %v", len(all), ds)
	}
	all, ds = ReadElements(strings.NewReader(strings.Repeat(line, 100)), "services.txt")
	if len(all) != 3000 || len(ds) != 0 {
		t.Errorf("%d entries, %v; want 3000", len(all), ds)
	}
}

// What "levee set list --export" prints: an entry with what is left of its lease.
func TestEntriesWithLeases(t *testing.T) {
	type entry struct {
		policy.Element
		lease time.Duration
	}
	read := func(text string) ([]entry, error) {
		all, ds := ReadEntries(strings.NewReader(text), "saved.txt", policy.Addresses,
			func(e policy.Element, d time.Duration) entry { return entry{e, d} })
		return all, ds.Err()
	}
	one := func(text string) policy.Element {
		e, err := ParseElements(text)
		if err != nil {
			t.Fatal(err)
		}
		return e[0]
	}
	got, err := read("192.0.2.1\n192.0.2.2 lease 90s # a comment\n192.0.2.4-192.0.2.6\tlease " +
		"500ms\n" +
		"192.0.2.8 lease forever\n192.0.2.9\n")
	want := []entry{
		{one("192.0.2.1"), 0}, {one("192.0.2.2"), 90 * time.Second},
		{one("192.0.2.4/31"), time.Second / 2}, {one("192.0.2.6"), time.Second / 2},
		{one("192.0.2.8"), Forever}, {one("192.0.2.9"), 0},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	got, err = read("192.0.2.1 tcp/80\n192.0.2.2 tcp/8-11 lease 1h\n192.0.2.3 tcp/12-17 lease 2h\n")
	want = []entry{
		{one("192.0.2.1 tcp/80"), 0}, {one("192.0.2.2 tcp/8-11"), time.Hour},
		{one("192.0.2.3 tcp/12-15"), 2 * time.Hour}, {one("192.0.2.3 tcp/16-17"), 2 * time.Hour},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	for _, bad := range []string{"192.0.2.1 lease", "192.0.2.1 lease 5", "192.0.2.1 lease 0s",
		"192.0.2.1 lease 5s 5s", "lease 5s", "192.0.2.1 lease 600w"} {
		if got, err := read(bad); err == nil || len(got) > 0 {
			t.Errorf("%q: %v, %v", bad, got, err)
		}
	}
	if _, err := ParseElements("192.0.2.1 lease 5s"); err == nil {
		t.Error("a lease is lost where nobody asks for it")
	}
}
