package calibration

import (
	"fmt"
	"math/rand/v2"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Chain is memory whose every line of cache says which is next: each is visited once in a round, in
// an order that no prefetcher can foresee, and none before the one before it has come.
type Chain struct {
	memory []byte
	lines  []line
	at     uint32 // where the last walk ended
}

// line is one of the cache. Larger ones (128 bytes) would halve the loads that miss, on every
// reading alike.
type line struct {
	next uint32
	_    [60]byte
}

// chainSeed fixes the order, which two runs are to have in common.
const chainSeed = 1

// maxChain bounds the bytes of a chain.
const maxChain = 1 << 30

// newChain makes a chain over so many bytes, a multiple of 64, 128 or more. Close gives them back.
func newChain(bytes int) (*Chain, error) {
	const size = int(unsafe.Sizeof(line{}))
	if bytes < 2*size || bytes > maxChain || bytes%size != 0 {
		return nil, fmt.Errorf("a chain of loads over %d bytes: it has %d to %d, whole lines of %d",
			bytes, 2*size, maxChain, size)
	}
	m, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("getting %d bytes for a chain of loads: %w", bytes, err)
	}
	// Without large pages a reading is also of the translation of addresses: higher, and still a
	// reading.
	_ = unix.Madvise(m, unix.MADV_HUGEPAGE)
	c := &Chain{memory: m, lines: unsafe.Slice((*line)(unsafe.Pointer(&m[0])), bytes/size)}
	order := rand.New(rand.NewPCG(chainSeed, uint64(bytes))).Perm(len(c.lines))
	for i, l := range order {
		c.lines[l].next = uint32(order[(i+1)%len(order)])
	}
	return c, nil
}

// Close gives the memory back; the chain must not be used any more.
func (c *Chain) Close() error {
	c.lines = nil
	if err := unix.Munmap(c.memory); err != nil {
		return fmt.Errorf("giving back the memory of a chain of loads: %w", err)
	}
	return nil
}

// Warm visits every line once.
func (c *Chain) Warm() { c.walk(len(c.lines)) }

// Time returns the ns that a load takes, over so many from where the last walk ended, in the
// calling thread's own run time: what else runs on the core does not count, but for what it leaves
// in the caches. The caller's thread must be locked to its goroutine.
func (c *Chain) Time(loads int) float64 {
	begun := ran()
	c.walk(loads)
	return float64(ran()-begun) / float64(max(loads, 1))
}

func (c *Chain) walk(loads int) {
	at, lines := c.at, c.lines
	for range loads {
		at = lines[at].next
	}
	c.at = at
}

// ran returns the calling thread's run time, in ns.
func ran() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) // cannot fail for this clock
	return t.Nano()
}
