package difftest

import "slices"

// again makes of most frames one that has come before, mostly some time later, where the policy
// asks who comes again.
func (r *comparison) again(frames [][]byte, i int) {
	if !r.greylist || r.clock.rand.IntN(3) == 0 {
		return
	}
	frames[i] = slices.Clone(frames[max(0, i-r.clock.rand.IntN(6))])
	const most = 3000 // jiffies: 3 to 30 s
	if r.clock.rand.IntN(3) > 0 {
		r.clock.pass(r.clock.rand.Uint64N(1<<r.clock.rand.Uint64N(12)) % most)
	}
}
