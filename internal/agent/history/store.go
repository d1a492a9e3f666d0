package history

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
)

// Tier says what a tier keeps.
type Tier struct {
	Step   int64 // seconds
	Points int   // at least so many, where Bytes allow
	Bytes  int64 // of its files, at most
}

// Tiers returns what a store has, by default.
func Tiers() []Tier {
	return []Tier{
		{1, 7200, 24 << 20},            // two hours
		{10, 17_280, 32 << 20},         // two days
		{60, 44_640, 80 << 20},         // 31 days
		{600, 400 * 24 * 6, 108 << 20}, // 400 days
		{7200, 400 * 12, 12 << 20},     // the same, for a year at a glance
	}
}

// Series of sparse kinds, besides that of all others, that an interface has in a second and in a
// point of a coarser tier, and that are summed up while such a point is open.
const (
	mostInSecond = 12
	mostInPoint  = 24
	mostHeld     = 1024
)

// syncEvery is after how many seconds all is written through to the disk: what a power cut loses.
const syncEvery = 60

// held is a series with its counts in one point.
type held struct {
	Series
	value
}

// bucket is an open point of a coarse tier.
type bucket struct {
	head
	held map[Key]*held
}

// Store is open until Close. It may be used concurrently.
type Store struct {
	// Damaged says what of the files could not be read when they were opened.
	Damaged []string

	mu    sync.Mutex
	tiers []*tier
	open  []*bucket // by tier; the finest has none
	count uint64    // of seconds ever kept
}

// Open opens the store in a directory, or makes it.
func Open(dir string) (*Store, error) { return open(dir, Tiers()) }

func open(dir string, tiers []Tier) (*Store, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("make the directory of the history: %w", err)
	}
	s := &Store{open: make([]*bucket, len(tiers))}
	for _, of := range tiers {
		t := &tier{dir: dir, step: of.Step, points: (of.Points + fullSegments - 1) / fullSegments,
			bytes: of.Bytes / (fullSegments + 1)}
		s.tiers = append(s.tiers, t)
		damaged, err := t.open()
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open the history: %w", err), s.closeFiles())
		}
		s.Damaged = append(s.Damaged, damaged...)
		s.count = max(s.count, t.last)
	}
	if err := s.replay(); err != nil {
		return nil, errors.Join(fmt.Errorf("read the history: %w", err), s.closeFiles())
	}
	return s, nil
}

// replay feeds the coarse tiers with the seconds that none of their points has.
func (s *Store) replay() error {
	least := s.count
	for _, t := range s.tiers[1:] {
		least = min(least, t.last)
	}
	var buf []byte
	for _, seg := range slices.Clone(s.tiers[0].segs) {
		var err error
		if buf, err = seg.read(buf); err != nil {
			return err
		}
		w := s.tiers[0].begin()
		seg.each(buf, func(payload []byte) bool {
			of := seg
			if payload[0] != point {
				return w.note(&of, payload)
			}
			d := decoder{b: payload[1:]}
			h := d.head()
			if h.last <= least {
				return true
			}
			sec := w.second(h.at, &d)
			for i, t := range s.tiers[1:] {
				if h.last > t.last {
					err = errors.Join(err, s.feed(i+1, sec, h.last))
				}
			}
			return true
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// second returns what a point of the finest tier says.
func (w *writer) second(at int64, d *decoder) Second {
	amounts := map[uint32]Amount{}
	for _, n := range w.present {
		amounts[n] = Amount{Series: w.shown[n]}
	}
	for last := uint32(0); len(d.b) > 0; {
		v := d.value(last, false)
		last = v.number
		amounts[last] = Amount{w.shown[last], v.packets, v.bytes}
	}
	out := Second{Unix: at}
	for _, a := range amounts {
		out.Amounts = append(out.Amounts, a)
	}
	return out
}

// Add keeps a second. Series that it does not have were not observed. With an error the second may
// be missing in some tiers; the store goes on.
func (s *Store) Add(sec Second) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	sec.Amounts = foremost(sec.Amounts)
	s.count++
	var err error
	for i := range s.tiers[1:] {
		err = errors.Join(err, s.feed(i+1, sec, s.count))
	}
	all := make([]*held, len(sec.Amounts))
	for i, a := range sec.Amounts {
		all[i] = &held{a.Series, value{packets: a.Packets, bytes: a.Bytes,
			peakPackets: a.Packets, peakBytes: a.Bytes}}
	}
	err = errors.Join(err, s.tiers[0].append(head{sec.Unix, 1, s.count}, all))
	if s.count%syncEvery == 0 {
		for _, t := range s.tiers {
			err = errors.Join(err, t.sync())
		}
	}
	return err
}

// foremost bounds the series, and leaves of sparse kinds those that count most.
func foremost(all []Amount) []Amount {
	type group struct {
		dev  string
		kind Kind
	}
	var out []Amount
	others := map[group]int{} // where in out
	sparse := map[group][]Amount{}
	for _, a := range all {
		a.Series = a.Series.bounded()
		g := group{a.Dev, a.Kind}
		if !a.Kind.sparse() {
			out = append(out, a)
			continue
		}
		if _, there := others[g]; !there {
			others[g] = len(out)
			out = append(out, Amount{Series: Series{Key: Key{a.Dev, a.Kind, Others}}})
		}
		if a.ID == Others {
			out[others[g]].Packets += a.Packets
			out[others[g]].Bytes += a.Bytes
			continue
		}
		sparse[g] = append(sparse[g], a)
	}
	for g, some := range sparse {
		slices.SortFunc(some, func(a, b Amount) int {
			return cmp.Or(cmp.Compare(b.Packets, a.Packets), compareKeys(a.Key, b.Key))
		})
		for i, a := range some {
			if i < mostInSecond {
				out = append(out, a)
				continue
			}
			out[others[g]].Packets += a.Packets
			out[others[g]].Bytes += a.Bytes
		}
	}
	return out
}

// feed adds a second to the open point of a tier; number is that of the second.
func (s *Store) feed(i int, sec Second, number uint64) error {
	t, b := s.tiers[i], s.open[i]
	at := sec.Unix - mod(sec.Unix, t.step)
	var err error
	if b != nil && b.at != at {
		err = t.append(b.head, b.all())
		b = nil
	}
	if b == nil {
		b = &bucket{head: head{at: at}, held: map[Key]*held{}}
		s.open[i] = b
	}
	b.observed++
	b.last = number
	for _, a := range sec.Amounts {
		k := a.Key
		h := b.held[k]
		if h == nil && k.Kind.sparse() && k.ID != Others && len(b.held) >= mostHeld {
			k.ID = Others
			a.Series = Series{Key: k}
			h = b.held[k]
		}
		if h == nil {
			h = &held{}
			b.held[k] = h
		}
		h.Series = a.Series
		h.packets += a.Packets
		h.bytes += a.Bytes
		h.peakPackets = max(h.peakPackets, a.Packets)
		h.peakBytes = max(h.peakBytes, a.Bytes)
	}
	return err
}

func mod(a, n int64) int64 { return (a%n + n) % n }

// all returns what the point holds, of sparse kinds the series that count most.
func (b *bucket) all() (out []*held) {
	for _, h := range b.held {
		c := *h
		out = append(out, &c)
	}
	slices.SortFunc(out, func(a, b *held) int {
		return cmp.Or(cmp.Compare(b.packets, a.packets), compareKeys(a.Key, b.Key))
	})
	type group struct {
		dev  string
		kind Kind
	}
	seen, others := map[group]int{}, map[group]*held{}
	for _, h := range out {
		if h.Kind.sparse() && h.ID == Others {
			others[group{h.Dev, h.Kind}] = h
		}
	}
	return slices.DeleteFunc(out, func(h *held) bool {
		g := group{h.Dev, h.Kind}
		if !h.Kind.sparse() || h.ID == Others {
			return false
		}
		if seen[g]++; seen[g] <= mostInPoint {
			return false
		}
		o := others[g]
		o.packets += h.packets
		o.bytes += h.bytes
		o.peakPackets = max(o.peakPackets, h.peakPackets)
		o.peakBytes = max(o.peakBytes, h.peakBytes)
		return true
	})
}

// Close writes through to the disk what was kept.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	for _, t := range s.tiers {
		err = errors.Join(err, t.sync())
	}
	return errors.Join(err, s.closeFiles())
}

func (s *Store) closeFiles() (err error) {
	for _, t := range s.tiers {
		if t.file != nil {
			err = errors.Join(err, t.file.Close())
		}
	}
	return err
}
