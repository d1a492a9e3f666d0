package capture

import (
	"math"
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

// TestTheFirstPacketOfAJiffyIsNoSurerSample: behind a jiffy in which all samples were taken, or
// that had far more packets, the first packet was always one, or a certain one behind it. Whoever
// sends by a timer comes first, and stood for all that had not been sampled.
func TestTheFirstPacketOfAJiffyIsNoSurerSample(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it runs a program")
	}
	const most, trials, step = 8, 200, 1000
	judge := sampler(t, most)
	jiffies := judge(samplerSampleKind{}).Jiffy
	for name, k := range map[string]samplerSampleKind{
		"all were taken": {Taken: most},
		"fewer come":     {Left: 1 << 40},
	} {
		// As if the jiffy were long ago: what was seen since makes the step.
		first, at := 0, map[uint64]bool{}
		for range trials {
			k.Seen = step * most * jiffies
			now := judge(k)
			if now.Seen != 1 || now.Step < step/2 || now.Step > step {
				t.Fatalf("%s: %+v", name, now)
			}
			if now.Taken > 0 {
				first++
			}
			at[now.Left] = true
		}
		// One in 2 * step is the first.
		if first > trials/20 || len(at) < trials/2 {
			t.Errorf("%s: of %d first packets %d are samples, and the next is one of %d", name,
				trials, first, len(at))
		}
	}
}

// sampler is a function that judges a packet which passes, on the one CPU that there is to the
// program: it takes what was counted of the kind, and says what is counted then.
func sampler(t *testing.T, bound uint64) func(samplerSampleKind) samplerSampleKind {
	spec, _, err := SampleSpec(Sample{Snap: 64, Judge: Judge{RowBytes: 64, Rows: 1, NumSlots: 1}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	for name, v := range map[string]uint64{"bound": bound, "until": math.MaxUint64} {
		if err := c.Variables[name].Set(v); err != nil {
			t.Fatal(err)
		}
	}
	return func(k samplerSampleKind) samplerSampleKind {
		pair := [2]samplerSampleKind{k}
		if err := c.Maps[SampledMap].Put(uint32(0), pair); err != nil {
			t.Fatal(err)
		}
		_, err := c.Programs["sample_xdp"].Run(&ebpf.RunOptions{Data: make([]byte, 64)})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Maps[SampledMap].Lookup(uint32(0), &pair); err != nil {
			t.Fatal(err)
		}
		return pair[0]
	}
}
