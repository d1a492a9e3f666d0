package echo

import (
	"encoding/binary"
	"testing"
)

// TestAMemoryOfAnotherVersionIsRead: the agent and status read the memory of a policy that another
// version has put in force, whose marks take a byte a line, or none. Those of the last lines were
// looked for behind its end.
func TestAMemoryOfAnotherVersionIsRead(t *testing.T) {
	for _, less := range []int{0, lines, 2 * lines} {
		memory := make([]byte, Size-less)
		Seed(memory, 250)
		const now = 1000
		for _, line := range []int{0, lines / 2, lines - 1} {
			hash := uint64(line)<<48 | 77
			at := len(memory) - (lines-line)*perLine*place
			binary.NativeEndian.PutUint64(memory[at:], 77<<32|now+250)
			if !Has(memory, hash, now) {
				t.Errorf("%d bytes less: the flow in line %d is not proven", less, line)
			}
			if Has(memory, hash+2, now) {
				t.Errorf("%d bytes less: another flow in line %d is proven", less, line)
			}
		}
		if s := Read(memory, now); s.Flows != 3 {
			t.Errorf("%d bytes less: %d flows are proven, want 3", less, s.Flows)
		}
	}
}
