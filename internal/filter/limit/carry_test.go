package limit

import (
	"math/rand/v2"
	"testing"

	"levee/internal/lang/policy"
)

// TestWhatWasSpentStaysSpentInAnyShape carries random budgets between random shapes: a key owes in
// the new memory what it owed in the old one, or what the new burst pays, if that is less.
func TestWhatWasSpentStaysSpentInAnyShape(t *testing.T) {
	const hz = 250
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	for range 300 {
		a := r.IntN(8)
		b := max(0, a+r.IntN(6)-3)
		if b > a+maxUnknown {
			continue
		}
		shape := func() Shape {
			return Shape{Depth: 1000 + r.Uint64N(1<<38-1000), Shift: uint(r.IntN(20)), Keyed: true}
		}
		was, is := shape(), shape()
		from := make([]byte, Head+policy.LineBytes<<a)
		to := make([]byte, Head+policy.LineBytes<<b)
		Seed(from)
		jiffies := uint64(1)<<33 + r.Uint64N(1<<30)
		now := jiffies * Tick(hz)
		type key struct{ hash, debt uint64 } // ns
		var keys []key
		used := map[uint64]bool{}
		for range 1 << a { // one a line, on average: all find a place
			k := key{r.Uint64(), (1 + r.Uint64N(was.Depth)) << was.Shift}
			line := k.hash >> 1 >> (63 - a)
			tag := k.hash << a >> timeBits
			if used[line] {
				continue
			}
			used[line] = true
			*word(from, Head+int(line)*policy.LineBytes+8*r.IntN(8)) =
				(now>>was.Shift+k.debt>>was.Shift)<<tagBits | tag
			keys = append(keys, k)
		}
		c := NewCarrier(from, was, to, is, jiffies, hz)
		check := func(when string, ns, more uint64) {
			for _, k := range keys {
				line := k.hash >> 1 >> (63 - b)
				tag := k.hash << b >> timeBits
				want := min((k.debt+more+1<<is.Shift-1)>>is.Shift, is.Depth)
				got := uint64(0)
				for s := range policy.SlotsInLine {
					w := *word(to, Head+int(line)*policy.LineBytes+8*s)
					if w != 0 && w&(1<<tagBits-1) == tag {
						got = (w - ns>>is.Shift<<tagBits) >> tagBits
					}
				}
				if got < want || got > want+2 {
					t.Fatalf("%s: %d to %d lines, %+v to %+v: owes %d units, want %d", when, 1<<a,
						1<<b, was, is, got, want)
				}
			}
		}
		check("begun", now, 0)
		if len(keys) == 0 || keys[0].debt>>was.Shift+8 > was.Depth {
			continue
		}
		// what the old program charges before the new one judges
		keys = keys[:1]
		line, tag := keys[0].hash>>1>>(63-a), keys[0].hash<<a>>timeBits
		for s := range policy.SlotsInLine {
			if p := word(from, Head+int(line)*policy.LineBytes+8*s); *p&(1<<tagBits-1) == tag {
				*p += 7 << tagBits
			}
		}
		c.Finish(jiffies, hz)
		check("finished", now, 7<<was.Shift)
	}
}
