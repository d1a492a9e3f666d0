package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
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
	got, ds := ReadEntries(strings.NewReader(b.String()), "long.txt",
		func(e Element) netip.Prefix { return e.Prefix })
	if err := ds.Err(); err != nil || !slices.Equal(got, want) {
		t.Errorf("%d entries, %v; want %d", len(got), err, len(want))
	}
	got, ds = ReadEntries(strings.NewReader(b.String()+"x\n"), "long.txt",
		func(e Element) netip.Prefix { return e.Prefix })
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
