package capture

import (
	"os"
	"testing"

	"github.com/cilium/ebpf"

	"levee/internal/filter/plan"
)

// TestSamplesHaveARingOnAnyNumberOfCPUs: the kernel refused one for three CPUs.
func TestSamplesHaveARingOnAnyNumberOfCPUs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes maps")
	}
	for cpus, want := range map[int]uint32{1: 256 << 10, 2: 512 << 10, 3: 1 << 20, 6: 2 << 20,
		64: 16 << 20, 1000: 16 << 20} {
		spec, _, err := SampleSpec(Sample{Snap: MostSnap, Judge: Judge{RowBytes: 64, Rows: cpus,
			Note: plan.SlotBytes, NumSlots: 1}})
		if err != nil {
			t.Fatal(err)
		}
		ring := spec.Maps[SamplesMap]
		m, err := ebpf.NewMap(ring)
		if err != nil || ring.MaxEntries != want {
			t.Errorf("%d CPUs: %d bytes, not %d: %v", cpus, ring.MaxEntries, want, err)
		}
		m.Close()
	}
	if _, _, err := SampleSpec(Sample{Snap: MostSnap + 1}); err == nil {
		t.Error("a sample has more of a packet than its room")
	}
}
