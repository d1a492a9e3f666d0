package calibration

import (
	"math"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestAChainVisitsEveryLineOnceInARound(t *testing.T) {
	for _, bytes := range []int{128, 4096, 1 << 20} {
		c, err := newChain(bytes)
		if err != nil {
			t.Fatal(err)
		}
		seen := make([]bool, bytes/64)
		for i := range seen {
			if seen[c.at] {
				t.Fatalf("%d bytes: line %d comes again after %d loads", bytes, c.at, i)
			}
			seen[c.at] = true
			c.walk(1)
		}
		if c.at != 0 {
			t.Errorf("%d bytes: a round ends at line %d, not where it began", bytes, c.at)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestTheOrderOfAChainIsNotThatOfMemory(t *testing.T) {
	c, err := newChain(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// Among 16,384 lines in random order one is followed by its neighbour once, or a few times.
	neighbours := 0
	for i := range c.lines {
		if d := int(c.lines[i].next) - i; d == 1 || d == -1 {
			neighbours++
		}
	}
	if neighbours > 20 {
		t.Errorf("%d lines of %d are followed by their neighbours: a prefetcher finds them",
			neighbours, len(c.lines))
	}
}

func TestChainsOfNoSizeAreRefused(t *testing.T) {
	for _, bytes := range []int{-64, 0, 64, 100, 129, maxChain + 64, math.MaxInt} {
		if c, err := newChain(bytes); err == nil {
			c.Close()
			t.Errorf("%d bytes: accepted", bytes)
		} else if !strings.Contains(err.Error(), "a chain of loads over") {
			t.Errorf("%d bytes: %v", bytes, err)
		}
	}
}

func TestReadingsArePositiveAndBounded(t *testing.T) {
	m, err := New()
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begun := time.Now()
	r := m.Read()
	// Of light and not of schedulers, on a busy machine as well: a load is no second, an operation
	// no microsecond.
	if r.Load <= 0 || r.Load > 1e6 || r.Step <= 0 || r.Step > 1e3 {
		t.Errorf("%+v", r)
	}
	if took := time.Since(begun); took > time.Minute {
		t.Errorf("reading took %v", took)
	}
	if step := Work(0); step <= 0 {
		t.Errorf("work of no time: %v ns, want that of one block", step)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

func TestBlocksThatWereInterruptedDoNotCount(t *testing.T) {
	if got := undisturbed([]float64{1, 1.5, 2.5, 100, 1}); got != 1.5 {
		t.Errorf("%v, want the mean of all but that of 100", got)
	}
	if got := undisturbed([]float64{7}); got != 7 {
		t.Errorf("%v, want the only one", got)
	}
}
