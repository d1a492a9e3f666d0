package calibration

import (
	"runtime"
	"slices"
	"time"
)

// A block is some 15 µs of arithmetic: short against what shares a core, and long against two
// readings of the clock.
const (
	blockRounds = 10_000
	blockWidth  = 12 // operations of a round
	// interrupted is the multiple of the least block that marks an interrupted one, by the
	// host too, which the guest's clocks need not know: two threads of one core get half of it each
	// at the worst.
	interrupted = 2.5
)

// Work returns the ns that an operation takes among many that do not wait for each other, over so
// much of the calling thread's run time, and over one block at least. Such work fills what executes
// in a core; so it takes longer, by a third or more, while the core's other thread works, and no
// longer whatever caches and memory are given. The caller's thread must be locked to its goroutine.
func Work(d time.Duration) float64 {
	var blocks []float64
	var result uint64
	begun := ran()
	for now := begun; len(blocks) == 0 || now-begun < int64(d); {
		result += block(blockRounds)
		then := ran()
		blocks = append(blocks, float64(then-now)/(blockRounds*blockWidth))
		now = then
	}
	runtime.KeepAlive(result)
	return undisturbed(blocks)
}

// undisturbed returns the mean of the blocks that were not interrupted.
func undisturbed(blocks []float64) float64 {
	most := interrupted * slices.Min(blocks)
	sum, n := 0.0, 0
	for _, b := range blocks {
		if b <= most {
			sum, n = sum+b, n+1
		}
	}
	return sum / float64(n)
}

// block is operations on six registers, few of which wait for another.
//
//go:noinline
func block(rounds int) uint64 {
	a, b, c, d, e, f := uint64(1), uint64(2), uint64(3), uint64(4), uint64(5), uint64(6)
	for range rounds {
		a += c ^ 0x55
		b += d ^ 0x33
		c ^= e + 3
		d ^= f + 7
		e += a
		f ^= b
		a ^= 9
		b += 11
		c += 13
		d ^= 15
		e ^= 17
		f += 19
	}
	return a + b + c + d + e + f
}
