package defend

import (
	"math/rand/v2"
	"slices"
	"sort"
	"time"

	"levee/internal/agent/signature"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// snap is the number of bytes of a packet that are read.
const snap = 128

// frame is the beginning of a packet that has passed.
type frame struct {
	at     time.Time
	length int
	by     string // the ID of the slot that passed it
	isNew  bool   // its source was new
	n      uint8  // bytes
	head   [snap]byte
}

func (f *frame) add(s *signature.Sample, buf *[]byte) {
	rec := packet.Record{Data: f.head[:f.n], Length: f.length}
	whole, missing := rec.Whole(*buf)
	if missing > 0 {
		*buf = whole
	}
	s.AddPassed(whole, missing, f.by)
}

// recent are the last packets that have passed, the oldest first.
type recent struct {
	ring []frame
	next int
}

const mostRecent = 8192

func (r *recent) add(at time.Time, b []byte, length int, by string) *frame {
	if len(r.ring) < mostRecent {
		r.ring = append(r.ring, frame{})
	}
	f := &r.ring[r.next]
	r.next = (r.next + 1) % mostRecent
	f.at, f.length, f.by = at, length, by
	f.n = uint8(copy(f.head[:], b))
	return f
}

// since returns the packets from a time on that a function wants.
func (r *recent) since(at time.Time, want func(*frame) bool) (out []frame) {
	for i := range r.ring {
		if f := &r.ring[(r.next+i)%len(r.ring)]; !f.at.Before(at) && want(f) {
			out = append(out, *f)
		}
	}
	return out
}

// Times and sizes of good traffic.
const (
	chunkTime  = 10 * time.Second
	goodAge    = time.Hour
	goodCalm   = 3 * time.Second  // traffic is good when no alarm came for so long
	goodRaised = 20 * time.Minute // the same for traffic that was unlike that before
	// Where so many packets are older than goodKnown, the others are not asked: a flood that rises
	// slowly begins among them.
	goodKnown  = time.Minute
	raisedFrom = 5 * time.Second // before a second that is unlike the others
	knownGood  = 1000
	ofSecond   = 2000
	mostGood   = 20_000
	mostSpared = 2000
)

// good is recent good traffic: packets of the last hour, evenly drawn from each ten seconds, but
// for those around incidents.
type good struct {
	rnd    *rand.Rand
	chunks []*chunk
	total  int
	spared []frame // that rules should not have dropped
}

// chunk is the good traffic of a second or, once it is old, of ten.
type chunk struct {
	from   time.Time
	seen   int
	frames []frame
	raised bool // it was unlike the traffic before
}

// replaced has a policy come in the place of another one. Of packets that rules have passed which
// it lacks, or has in other words by the same label, nobody knows what would pass them now.
func (g *good) replaced(old, by *policy.Policy) {
	texts, same := map[string]string{}, map[string]bool{}
	for _, s := range old.Slots() {
		if s.Rule != nil {
			texts[s.ID] = s.Rule.Text
		}
	}
	for _, s := range by.Slots() {
		same[s.ID] = s.Rule == nil || texts[s.ID] == s.Rule.Text
	}
	for _, c := range g.chunks {
		for i := range c.frames {
			if f := &c.frames[i]; !same[f.by] {
				f.by = signature.Unsaid
			}
		}
	}
}

func newGood() *good { return &good{rnd: rand.New(rand.NewPCG(20261125, 1))} }

// add draws from what passes now.
func (g *good) add(f *frame) {
	c := g.current(f.at)
	c.seen++
	if len(c.frames) < ofSecond {
		c.frames = append(c.frames, *f)
		g.total++
	} else if at := g.rnd.IntN(c.seen); at < ofSecond {
		c.frames[at] = *f
	}
}

func (g *good) current(at time.Time) *chunk {
	if n := len(g.chunks); n > 0 && at.Sub(g.chunks[n-1].from) < time.Second {
		return g.chunks[n-1]
	}
	c := &chunk{from: at}
	g.chunks = append(g.chunks, c)
	return c
}

// tidy joins seconds to tens, and lets go of what is old or too much. raised is of the last second.
func (g *good) tidy(now time.Time, raised bool) {
	for i := len(g.chunks) - 1; i >= 0 && raised && now.Sub(g.chunks[i].from) < raisedFrom; i-- {
		g.chunks[i].raised = true
	}
	var out []*chunk
	for _, c := range g.chunks {
		age := now.Sub(c.from)
		if age > goodAge {
			continue
		}
		if n := len(out); n > 0 && age > 2*chunkTime && out[n-1].raised == c.raised &&
			c.from.Sub(out[n-1].from) < chunkTime {
			l := out[n-1]
			l.seen += c.seen
			l.frames = append(l.frames, c.frames...)
			continue
		}
		out = append(out, c)
	}
	g.chunks, g.total = out, 0
	for _, c := range g.chunks {
		g.total += len(c.frames)
	}
	if g.total > mostGood*5/4 {
		most := g.level()
		g.total = 0
		for _, c := range g.chunks {
			c.frames = g.thin(c.frames, max(most, 20))
			g.total += len(c.frames)
		}
	}
}

// level returns how many packets of a chunk are kept, at most, for all together to be mostGood.
func (g *good) level() int {
	return sort.Search(mostGood, func(most int) bool {
		sum := 0
		for _, c := range g.chunks {
			sum += min(most+1, len(c.frames))
		}
		return sum > mostGood
	})
}

// thin draws so many.
func (g *good) thin(frames []frame, n int) []frame {
	if len(frames) <= n {
		return frames
	}
	g.rnd.Shuffle(len(frames), func(i, j int) { frames[i], frames[j] = frames[j], frames[i] })
	return slices.Clone(frames[:n])
}

// spare takes packets that rules have dropped, and should not have.
func (g *good) spare(frames []frame) {
	g.spared = append(g.spared, frames...)
	g.spared = g.spared[max(0, len(g.spared)-mostSpared):]
}

// forget drops the samples since a time, and those that were unlike the traffic before.
func (g *good) forget(since time.Time) {
	g.chunks = slices.DeleteFunc(g.chunks, func(c *chunk) bool {
		return !c.from.Before(since.Add(-goodCalm)) || c.raised && since.Sub(c.from) < goodRaised
	})
}

// isGood says whether no alarm came for so long behind it that it is good.
func (c *chunk) isGood(now time.Time) bool {
	age := now.Sub(c.from)
	return age >= goodCalm && (!c.raised || age >= goodRaised)
}

// sample returns what is good at a time.
func (g *good) sample(now time.Time, link packet.Link, p *policy.Policy) *signature.Sample {
	s := signature.NewSample(link, p, mostGood)
	var buf []byte
	g.each(now, func(f *frame) { f.add(s, &buf) })
	return s
}

// each gives what is good at a time.
func (g *good) each(now time.Time, look func(*frame)) {
	youngest, known := goodCalm, 0
	for _, c := range g.chunks {
		if now.Sub(c.from) >= goodKnown && c.isGood(now) {
			known += len(c.frames)
		}
	}
	if known >= knownGood {
		youngest = goodKnown
	}
	for _, c := range g.chunks {
		if now.Sub(c.from) < youngest || !c.isGood(now) {
			continue
		}
		for i := range c.frames {
			look(&c.frames[i])
		}
	}
	for i := range g.spared {
		if f := &g.spared[i]; now.Sub(f.at) < goodAge {
			look(f)
		}
	}
}
