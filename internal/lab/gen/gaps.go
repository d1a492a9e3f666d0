package gen

import (
	"math/bits"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Gaps is a histogram of the time between clock readings while sending.
//
// User space reads the clock before each batch that it hands to the kernel. The live path reads it
// in the program that writes the packets: before each packet of a paced run; a run that is as fast
// as possible reads it before every 64th only, as reading it costs more than writing a packet.
// Packets says what a gap spans.
type Gaps struct {
	// Packets sent between two readings: a burst in paced floods, 64 in others, 0 (as many as were
	// due) from user space.
	Packets int
	Log2    [40]uint64 // Log2[i] counts gaps of 2^i up to 2^(i+1) ns
	Max     time.Duration

	hist *hdrhistogram.Histogram
}

// maxGap is the longest gap that is told apart from longer ones, in ns.
const maxGap = 1 << 40

func (g *Gaps) histogram() *hdrhistogram.Histogram {
	if g.hist == nil {
		g.hist = hdrhistogram.New(1, maxGap, 2)
	}
	return g.hist
}

// note counts a gap of ns n times.
func (g *Gaps) note(ns, n uint64) {
	if n == 0 {
		return
	}
	ns = min(ns, maxGap)
	g.Log2[min(max(bits.Len64(ns), 1)-1, len(g.Log2)-1)] += n
	_ = g.histogram().RecordValues(int64(ns), int64(n)) // in bounds
}

// between counts a gap that user space saw.
func (g *Gaps) between(ns uint64) {
	g.note(ns, 1)
	g.Max = max(g.Max, time.Duration(ns))
}

// add adds the gaps between what another core sent: they are of each core by itself.
func (g *Gaps) add(o *Gaps) {
	if o.hist == nil {
		return
	}
	g.histogram().Merge(o.hist)
	for i, n := range o.Log2 {
		g.Log2[i] += n
	}
	g.Max = max(g.Max, o.Max)
}

// Count returns how many gaps there were.
func (g *Gaps) Count() uint64 {
	if g.hist == nil {
		return 0
	}
	return uint64(g.hist.TotalCount())
}

// Quantile returns the gap that a share q, 0 to 1, of the gaps do not exceed; within an eighth of
// it for live frames, and within a hundredth for what user space sent.
func (g *Gaps) Quantile(q float64) time.Duration {
	if g.hist == nil {
		return 0
	}
	return min(time.Duration(g.hist.ValueAtQuantile(q*100)), max(g.Max, 1))
}

const gapBits = 3 // GAP_BITS of bpf/gaps.h

// KernelGaps reads the buckets of a program (bpf/gaps.h): up to 2^gapBits each is a number of ns,
// then there are 2^gapBits for each power of two. A gap is taken for the middle of its bucket.
func KernelGaps(buckets []uint64, longest uint64) Gaps {
	g := Gaps{Max: time.Duration(longest)}
	for i, n := range buckets {
		ns := uint64(i)
		if i >= 1<<gapBits {
			e := i>>gapBits - 1
			ns = (uint64(i&(1<<gapBits-1)|1<<gapBits) << e) + 1<<e/2
		}
		g.note(ns, n)
	}
	return g
}
