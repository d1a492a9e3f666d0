package history

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
)

// Query asks for series of a kind over a time.
type Query struct {
	Dev      string // "" is every interface: of all but rules, series are of all together
	Kind     Kind
	From, To int64 // Unix seconds
	Step     int64 // seconds of a point, at least; 0: so that there are some 1,000 points
	Bytes    bool  // else packets
	Peak     bool  // the most in one second, else the mean
	Most     int   // series, besides that of the others; 0: all
}

// Limits of a query.
const (
	mostPoints = 200_000   // of a series
	mostValues = 2_000_000 // of all series
	usual      = 1000      // points
)

// Answer holds the rates that a query asks a store for. Point i begins at From + i*Step.
type Answer struct {
	From   int64
	Step   int64
	Points int
	Series []Rates // those that count most first, that of the others last
}

// Rates are the values of a series: a second, NaN where it was not observed.
type Rates struct {
	Series
	Values         []float32
	Packets, Bytes uint64 // of the whole range
	// Merged is the number of series that this one sums up; its peaks are at least as high as
	// theirs.
	Merged int
}

// ErrQuery is wrapped by errors of who asks.
var ErrQuery = errors.New("this cannot be asked")

// Query answers a query.
func (s *Store) Query(q Query) (*Answer, error) {
	if !slices.Contains(Kinds(), q.Kind) {
		return nil, fmt.Errorf("%w: %q is none of %q", ErrQuery, q.Kind, Kinds())
	}
	if q.To <= q.From || q.From < 0 || q.To > 1<<40 {
		return nil, fmt.Errorf("%w: the time from %d to %d is no range", ErrQuery, q.From, q.To)
	}
	if q.Step <= 0 {
		q.Step = max(1, (q.To-q.From)/usual)
	}
	t, open := s.choose(&q)
	g := &gathering{Query: q, begin: q.From - mod(q.From, q.Step), at: map[Key]*sums{}}
	g.points = int((q.To - g.begin + q.Step - 1) / q.Step)
	if g.points > mostPoints {
		return nil, fmt.Errorf("%w: %d points are more than %d: ask for a longer step", ErrQuery,
			g.points, mostPoints)
	}
	g.observed = make([]uint64, g.points)
	var buf []byte
	for _, seg := range t.segs {
		if seg.points == 0 || seg.end < g.begin || seg.begin >= g.begin+int64(g.points)*q.Step {
			continue
		}
		var err error
		if buf, err = seg.read(buf); errors.Is(err, fs.ErrNotExist) {
			continue // a newer one took its place
		}
		if err != nil {
			return nil, fmt.Errorf("read the history: %w", err)
		}
		if err := g.segment(&seg, buf, t.peaks()); err != nil {
			return nil, err
		}
	}
	if open != nil && g.wants(open.at) {
		i := int((open.at - g.begin) / q.Step)
		g.observed[i] += open.observed
		for _, h := range open.all() {
			if at := g.of(&h.Series); at != nil {
				at.show(i, g.points)
				at.add(i, g.points, &h.value, &g.Query)
			}
		}
	}
	return g.answer()
}

// source lists the segments of a tier that a query reads.
type source struct {
	segs []segment
	step int64
}

func (s source) peaks() bool { return s.step > 1 }

// choose takes the coarsest tier that is fine enough, or a coarser one where that does not reach
// back far enough, and makes the step a multiple of its.
func (s *Store) choose(q *Query) (source, *bucket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := 0
	for i+1 < len(s.tiers) && s.tiers[i+1].step <= q.Step {
		i++
	}
	for i+1 < len(s.tiers) && s.tiers[i].begins() > q.From &&
		s.tiers[i+1].begins() < s.tiers[i].begins() {
		i++
	}
	t := s.tiers[i]
	q.Step = (q.Step + t.step - 1) / t.step * t.step
	var open *bucket
	if b := s.open[i]; b != nil {
		c := &bucket{head: b.head, held: map[Key]*held{}}
		for k, h := range b.held {
			copied := *h
			c.held[k] = &copied
		}
		open = c
	}
	return source{slices.Clone(t.segs), t.step}, open
}

// begins returns the time from which on the tier has all there is.
func (t *tier) begins() int64 {
	if t.segs[0].number == 1 {
		return math.MinInt64
	}
	least := int64(math.MaxInt64)
	for _, s := range t.segs {
		if s.points > 0 {
			least = min(least, s.begin)
		}
	}
	return least
}

// gathering sums points up.
type gathering struct {
	Query
	begin    int64
	points   int
	observed []uint64 // seconds
	at       map[Key]*sums
	order    []*sums
}

// sums are those of one series; one of NaN was not observed.
type sums struct {
	Rates
	sum []float64
}

func (g *gathering) wants(at int64) bool {
	return at >= g.begin && at < g.begin+int64(g.points)*g.Step
}

// of returns where a series is summed up, nil if nobody asks for it.
func (g *gathering) of(s *Series) *sums {
	if s.Kind != g.Kind || g.Dev != "" && s.Dev != g.Dev {
		return nil
	}
	k := s.Key
	if g.Dev == "" && s.Kind != Rule {
		k.Dev = "" // of all interfaces together
	}
	at := g.at[k]
	if at == nil {
		at = &sums{}
		g.at[k] = at
		g.order = append(g.order, at)
	}
	at.Series = *s
	at.Key = k
	return at
}

// show makes a point of a series one that was observed.
func (s *sums) show(i, points int) {
	if s.sum == nil {
		s.sum = make([]float64, points)
		for j := range s.sum {
			s.sum[j] = math.NaN()
		}
	}
	if math.IsNaN(s.sum[i]) {
		s.sum[i] = 0
	}
}

func (s *sums) add(i, points int, v *value, q *Query) {
	s.show(i, points)
	s.Packets += v.packets
	s.Bytes += v.bytes
	switch {
	case q.Peak && q.Bytes:
		s.sum[i] = max(s.sum[i], float64(v.peakBytes))
	case q.Peak:
		s.sum[i] = max(s.sum[i], float64(v.peakPackets))
	case q.Bytes:
		s.sum[i] += float64(v.bytes)
	default:
		s.sum[i] += float64(v.packets)
	}
}

// segment sums a segment up.
func (g *gathering) segment(seg *segment, b []byte, peaks bool) error {
	w := &writer{numbers: map[Key]uint32{}, peaks: peaks}
	var by []*sums // by number
	var there []*sums
	seg.each(b, func(payload []byte) bool {
		if payload[0] != point {
			if !w.note(seg, payload) {
				return false
			}
			if payload[0] == define {
				d := decoder{b: payload[1:]}
				n := d.number()
				if int(n) == len(by) {
					by = append(by, nil)
				}
				by[n] = g.of(&w.shown[n])
				return true
			}
			there = there[:0]
			for _, n := range w.present {
				if by[n] != nil {
					there = append(there, by[n])
				}
			}
			return true
		}
		d := decoder{b: payload[1:]}
		h := d.head()
		if !g.wants(h.at) {
			return true
		}
		i := int((h.at - g.begin) / g.Step)
		g.observed[i] += h.observed
		for _, s := range there {
			s.show(i, g.points)
		}
		for last := uint32(0); len(d.b) > 0; {
			v := d.value(last, peaks)
			last = v.number
			if s := by[last]; s != nil {
				s.add(i, g.points, &v, &g.Query)
			}
		}
		return true
	})
	if len(g.order)*g.points > mostValues {
		return fmt.Errorf("%w: %d series of %d points are too many values: ask for a longer step",
			ErrQuery, len(g.order), g.points)
	}
	return nil
}

// answer makes rates of sums.
func (g *gathering) answer() (*Answer, error) {
	out := &Answer{From: g.begin, Step: g.Step, Points: g.points, Series: []Rates{}}
	all := slices.DeleteFunc(g.order, func(s *sums) bool { return s.sum == nil })
	slices.SortFunc(all, func(a, b *sums) int {
		if a.ID == Others || b.ID == Others {
			return cmp.Compare(btoi(a.ID == Others), btoi(b.ID == Others))
		}
		if g.Bytes {
			return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), compareKeys(a.Key, b.Key))
		}
		return cmp.Or(cmp.Compare(b.Packets, a.Packets), compareKeys(a.Key, b.Key))
	})
	for _, s := range all {
		if g.Kind.sparse() && s.ID != Others {
			if o := g.at[Key{s.Dev, s.Kind, Others}]; o != nil && o.sum != nil {
				for i, v := range o.sum {
					if !math.IsNaN(v) {
						s.show(i, g.points)
					}
				}
			}
		}
		s.Values = make([]float32, g.points)
		for i, v := range s.sum {
			if !g.Peak {
				v /= float64(max(1, g.observed[i]))
			}
			s.Values[i] = float32(v)
		}
	}
	var rest *Rates
	for i, s := range all {
		if g.Most > 0 && i >= g.Most && len(all) > g.Most+1 || s.ID == Others {
			rest = merge(rest, &s.Rates)
			continue
		}
		out.Series = append(out.Series, s.Rates)
	}
	if rest != nil {
		out.Series = append(out.Series, *rest)
	}
	return out, nil
}

// merge adds a series to that of the others.
func merge(to, of *Rates) *Rates {
	n := max(1, of.Merged)
	if of.ID == Others {
		n = 0
	}
	if to == nil {
		c := *of
		c.Values = slices.Clone(of.Values)
		c.Series = Series{Key: Key{of.Dev, of.Kind, Others}}
		c.Merged = n
		return &c
	}
	if to.Dev != of.Dev {
		to.Dev = ""
	}
	to.Merged += n
	to.Packets += of.Packets
	to.Bytes += of.Bytes
	for i, v := range of.Values {
		switch {
		case isNaN(v):
		case isNaN(to.Values[i]):
			to.Values[i] = v
		default:
			to.Values[i] += v
		}
	}
	return to
}

func isNaN(v float32) bool { return math.IsNaN(float64(v)) }
