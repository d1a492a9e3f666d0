package policy

import (
	"strings"
	"testing"
)

// A range of ports may become thirty blocks, so that a file within its limit of lines could fill the memory.
func TestBlocksOfAFileAreBounded(t *testing.T) {
	const line = "tcp/1-65534\n" // 30 blocks
	lines := MaxElements/30 + 1
	all, ds := ReadElements(strings.NewReader(strings.Repeat(line, lines)), "services.txt")
	if all != nil || len(ds) != 1 || !strings.Contains(ds[0].Message, "make more than 8388608 entries") {
		t.Errorf("%d entries, %v", len(all), ds)
	}
	all, ds = ReadElements(strings.NewReader(strings.Repeat(line, 100)), "services.txt")
	if len(all) != 3000 || len(ds) != 0 {
		t.Errorf("%d entries, %v; want 3000", len(all), ds)
	}
}
