package prefix

import "math"

// A level answers for the prefixes of a run of lengths, (.., top]. The address is cut at top-span
// bits: what is before is the key of a block, the next span bits choose one of its 2^span bits. A
// prefix longer than the key is a run of bits in one block, a shorter one is 2^n whole blocks.
// Since the networks are disjoint, an address is a member if any level says so; no level depends
// on another, and their memory accesses overlap.
type level struct {
	layout
	top     int // bits of the address on this level
	minLen  int // shortest and longest prefix in it
	maxLen  int
	blocks  int // slots in use
	slots   int
	logDisp int // log2 of the entries of the displacement table
	seed    int
	disp    int // byte offset of the displacement table
	data    int // byte offset of the slots
}

// layout is the form in which the blocks of a level are stored.
type layout struct {
	span   int  // log2 of the bits of a block; 0: the key alone says it
	size   int  // bytes of a slot
	direct bool // indexed by the key itself, which is not stored
	wide   bool // keys longer than 64 bits, in two words
}

// The layouts to choose from. An IPv4 slot is one word, key over bitmap, so that one load gets
// both.
var (
	layouts4 = []layout{{span: 0, size: 4}, {span: 5, size: 8}, {span: 6, size: 8, direct: true}}
	layouts6 = []layout{{span: 0, size: 8}, {span: 6, size: 16}, {span: 6, size: 8, direct: true}}
	layoutsW = []layout{{span: 0, size: 16, wide: true}, {span: 6, size: 24, wide: true}}
)

const (
	// bytes of a table indexed by the key, of which at least a sixteenth is used
	maxDirect = 4 << 20
	maxBlocks = 1 << 26 // of one level, when short prefixes would be spread over long keys
	// slots in use of a hashed level; the perfect hash is found quickly up to here
	load = 0.88
)

// planner says what levels may be chosen.
type planner struct {
	layouts4, layouts6, layoutsW []layout
	levelNs                      float64 // what a level costs besides its loads, if it is hashed
	maxBytes                     int     // of one level
}

// ofStatic plans code for one set alone.
var ofStatic = planner{layouts4, layouts6, layoutsW, 3, math.MaxInt}

func (l *level) key() int { return l.top - l.span }

// lengthStat describes the networks of one length.
type lengthStat struct {
	len   int
	count int
	keys  [129]int // how many different keys of so many bits they have, up to len
}

// statistics of the sorted networks by length, shortest first.
func statistics(nets []network) []*lengthStat {
	var byLen [129]*lengthStat
	var last [129]network
	for _, n := range nets {
		s := byLen[n.len]
		if s == nil {
			s = &lengthStat{len: n.len}
			byLen[n.len] = s
		} else {
			// Sorted, a network brings a new key of g bits if it shares fewer with the one before.
			s.keys[common(last[n.len].hi, last[n.len].lo, n.hi, n.lo)+1]++
		}
		s.count++
		last[n.len] = n
	}
	var out []*lengthStat
	for _, s := range byLen {
		if s == nil {
			continue
		}
		s.keys[0] = 1
		for g := 1; g <= s.len; g++ {
			s.keys[g] += s.keys[g-1]
		}
		out = append(out, s)
	}
	return out
}

// blocks returns how many keys of g bits these networks touch.
func (s *lengthStat) blocks(g int) int {
	if g > s.len {
		if g-s.len > 26 {
			return maxBlocks + 1
		}
		return min(s.count<<(g-s.len), maxBlocks+1)
	}
	return s.keys[g]
}

// loadTime is about what one load from a table of so many bytes costs, in ns, when any part of it
// is as likely as any other. Measured with dependent loads on a core with 1 MB of second-level
// cache; only the order of the results matters.
func loadTime(bytes float64) float64 {
	curve := []struct{ log2, ns float64 }{{6, 1}, {14, 3}, {18, 9}, {20, 20}, {22, 32}, {25, 80},
		{29, 130}}
	x := math.Log2(max(bytes, 1))
	if x <= curve[0].log2 {
		return curve[0].ns
	}
	for i := 1; i < len(curve); i++ {
		a, b := curve[i-1], curve[i]
		if x <= b.log2 {
			return a.ns + (b.ns-a.ns)*(x-a.log2)/(b.log2-a.log2)
		}
	}
	return curve[len(curve)-1].ns
}

// cost estimates a level that holds the given lengths, and says whether it may be built at all.
func (p *planner) cost(l *level, stats []*lengthStat) (ns float64, ok bool) {
	g := l.key()
	if l.direct {
		if n := l.touched(stats); g >= 26 || 8<<g > min(maxDirect, p.maxBytes) || n<<4 < 1<<g {
			return 0, false
		}
		return p.levelNs - 2 + loadTime(float64(int(8)<<g)), true
	}
	n := l.touched(stats)
	if n > maxBlocks || n*l.size > p.maxBytes {
		return 0, false
	}
	slots, disp := float64(n*l.size)/load, float64(n)
	return p.levelNs + loadTime(slots) + loadTime(disp)/2, true
}

// touched is about how many blocks the networks of these lengths need.
func (l *level) touched(stats []*lengthStat) int {
	n := 0
	for _, s := range stats {
		n += s.blocks(l.key())
	}
	return n
}

// candidates returns the levels whose longest prefixes have so many bits.
func (p *planner) candidates(longest, width int) []level {
	var out []level
	set := p.layouts6
	switch {
	case width == 32:
		set = p.layouts4
	case longest > 64:
		set = p.layoutsW
	}
	for _, ly := range set {
		l := level{layout: ly, top: max(longest, ly.span+1)}
		if ly.wide {
			l.top = max(longest, 65+ly.span) // two words of key
		}
		if l.top <= width {
			out = append(out, l)
		}
	}
	return out
}

// plan partitions the lengths in use into levels so that the sum of their costs is least. There are
// none where a length fits no level.
func (p *planner) plan(nets []network, width int) []level {
	stats := statistics(nets)
	type choice struct {
		ns   float64
		from int // first of the lengths in the last level
		last level
	}
	best := make([]choice, len(stats)+1)
	for j := 1; j <= len(stats); j++ {
		best[j].ns = math.Inf(1)
		for _, l := range p.candidates(stats[j-1].len, width) {
			for i := j - 1; i >= 0; i-- {
				ns, ok := p.cost(&l, stats[i:j])
				if !ok {
					continue
				}
				if ns += best[i].ns; ns < best[j].ns {
					l.minLen, l.maxLen = stats[i].len, stats[j-1].len
					best[j] = choice{ns, i, l}
				}
			}
		}
	}
	if math.IsInf(best[len(stats)].ns, 1) {
		return nil
	}
	var out []level
	for j := len(stats); j > 0; j = best[j].from {
		out = append(out, best[j].last)
	}
	return out
}
