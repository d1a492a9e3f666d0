package demo

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"levee/internal/bench/calibration"
	"levee/internal/kernel"
	"levee/internal/lab"
	"levee/internal/lab/contender"
)

// The service is held at a rate if this share of the requests was answered within a time that is
// this much above the p99 without a flood: a page that takes longer feels slow.
const (
	heldShare = 0.95
	heldExtra = 200 * time.Millisecond
)

const (
	calmRequests = 8                     // in a row, after which a flood is over
	calmWithin   = 50 * time.Millisecond // each of them
	calmPatience = 5 * time.Second       // for that
	calmPoll     = 10 * time.Millisecond
	drained      = 30 * time.Millisecond // after a flood its last packets are counted
	// enough is the share of the rate that was asked for below which the sender has kept no pace
	enough = 0.9
)

// pace is the length of the parts of the demo.
type pace struct {
	quiet  time.Duration // without a flood
	settle time.Duration // of a flood, before requests count
	count  time.Duration // in which they do
	floods time.Duration // of all acts, after which none begins
}

var usualPace = pace{2 * time.Second, 150 * time.Millisecond, 750 * time.Millisecond,
	45 * time.Second}

// outcomes collects finished requests. Its methods may be called from several goroutines.
type outcomes struct {
	mu   sync.Mutex
	list []Request
}

func (o *outcomes) add(r Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = append(o.list, r)
}

// take returns all, and forgets them.
func (o *outcomes) take() []Request {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := o.list
	o.list = nil
	return list
}

// calm tells that the last few requests were due after a time and soon answered.
func (o *outcomes) calm(after int64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.list) < calmRequests {
		return false
	}
	for _, r := range o.list[len(o.list)-calmRequests:] {
		if r.Due < after || r.NS == 0 || r.NS > calmWithin.Nanoseconds() {
			return false
		}
	}
	return true
}

// served counts the answers to requests that were due within a time. Those of which nothing was
// heard took longer than all others.
type served struct {
	latency []time.Duration // of the answered ones, rising
	all     int
}

// servedOf judges the requests that were due from..to, of which there should be PerSecond.
func servedOf(list []Request, from, to int64) (s served) {
	told := 0
	for _, r := range list {
		if r.Due < from || r.Due >= to {
			continue
		}
		told++
		if r.NS > 0 {
			s.latency = append(s.latency, time.Duration(r.NS))
		}
	}
	slices.Sort(s.latency)
	s.all = max(told, int(math.Round(float64(to-from)*PerSecond/1e9)))
	return s
}

// within returns the share that was answered within a time.
func (s *served) within(d time.Duration) float64 {
	n := 0
	for n < len(s.latency) && s.latency[n] <= d {
		n++
	}
	return float64(n) / float64(max(s.all, 1))
}

// percentile is false where it is one of those that were not answered.
func (s *served) percentile(p float64) (time.Duration, bool) {
	if i := int(float64(s.all) * p / 100); i < len(s.latency) {
		return s.latency[i], true
	}
	return 0, false
}

// counts are read before and after a flood.
type counts struct{ received, refused, dropped uint64 }

// trial is a flood at one rate, and what the visitors got meanwhile.
type trial struct {
	step  int     // that was asked for
	sent  int     // that was sent
	rate  float64 // that was sent, packets a second
	share float64 // of the requests, answered in time
	served
	held          bool
	dropped, lost float64 // shares of the packets that came: by the rules, before any rule
	// line is the time of a cache line between the cores right after, in ns; 0 is not known.
	line float64
}

// quiet measures the service without a flood, and returns the time within which it has to answer
// under one.
func (p *play) quiet(ctx context.Context) (served, time.Duration, error) {
	for range 3 {
		p.outcomes.take()
		from := int64(kernel.Monotonic()) + p.pace.settle.Nanoseconds()
		if err := lab.Sleep(ctx, p.pace.settle+p.pace.quiet); err != nil {
			return served{}, 0, err
		}
		if err := p.calm(ctx, from+p.pace.quiet.Nanoseconds()); err != nil {
			return served{}, 0, err
		}
		s := servedOf(p.outcomes.take(), from, from+p.pace.quiet.Nanoseconds())
		if p99, ok := s.percentile(99); ok {
			return s, p99 + heldExtra, nil
		}
	}
	return served{}, 0, errors.New("also without a flood the service did not answer 99 % of the " +
		"requests: this machine is too busy for the demo")
}

// calm waits until the service answers as it does without a flood, but not for ever: what it does
// not recover from is for the next flood to show.
func (p *play) calm(ctx context.Context, after int64) error {
	for end := time.Now().Add(calmPatience); !p.outcomes.calm(after) && time.Now().Before(end); {
		if err := lab.Sleep(ctx, calmPoll); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// carried returns how many packets a second the machine sends and receives where a program drops
// all of them at once: the better of two floods.
func (p *play) carried(ctx context.Context) (rate float64, err error) {
	d := contender.XDPDrop()
	if err := d.Install(ctx, p.site()); err != nil {
		return 0, err
	}
	for range 2 {
		s, c, failed := p.flooded(ctx, d, 0, p.pace.count)
		if err = failed; err != nil {
			break
		}
		rate = max(rate, s.Rate*(1-c.share(c.refused)))
	}
	if err := errors.Join(err, d.Remove(context.WithoutCancel(ctx))); err != nil {
		return 0, err
	}
	return rate, p.calm(ctx, int64(kernel.Monotonic()))
}

// try floods at the rate of a step, or with all that the sender has.
func (p *play) try(ctx context.Context, d contender.Defence, step int, all bool) (t trial,
	err error) {
	rate := rateOf(step)
	if all {
		rate = 0
	}
	p.outcomes.take()
	// A request counts if the time within which it has to be answered ends before the flood does.
	s, c, err := p.flooded(ctx, d, rate, p.pace.settle+p.pace.count+p.bound)
	if err != nil {
		return t, err
	}
	if err := p.calm(ctx, s.Ended); err != nil {
		return t, err
	}
	from := s.Began + p.pace.settle.Nanoseconds()
	t = trial{step: step, rate: s.Rate, dropped: c.share(c.dropped), lost: c.share(c.refused),
		served: servedOf(p.outcomes.take(), from, from+p.pace.count.Nanoseconds())}
	t.share = t.within(p.bound)
	t.held, t.sent = t.share >= heldShare, step
	if all || t.rate < enough*rateOf(step) {
		t.sent = stepBelow(t.rate)
	}
	t.line, err = p.apart()
	return t, err
}

// apart returns how long a cache line takes from the world's core to the server's and back, in ns,
// and 0 where that could not be told. Each packet brings some lines along. On one guest it was 55
// to 90 ns in some minutes and 330 to 440 in others, in which the same flood ended at half the
// rate.
func (p *play) apart() (float64, error) {
	return calibration.Distance(Core(p.World.Devices[0]), Core(p.Server.Devices[0]))
}

// flooded floods and returns what was sent, and what became of these packets.
func (p *play) flooded(ctx context.Context, d contender.Defence, rate float64,
	span time.Duration) (s sent, c counts, err error) {
	before, err := p.read(ctx, d, true)
	if err != nil {
		return s, c, err
	}
	if s, err = p.flood.send(rate, span); err != nil {
		return s, c, err
	}
	if err := lab.Sleep(ctx, drained); err != nil {
		return s, c, err
	}
	after, err := p.read(ctx, d, false)
	return s, counts{after.received - before.received, after.refused - before.refused,
		after.dropped - before.dropped}, err
}

// share returns a part of all packets that came, which the device has taken or refused.
func (c *counts) share(of uint64) float64 {
	return float64(of) / float64(max(c.received+c.refused, 1))
}

// read reads the counters: of the device before those of the rules, or after them. Packets that
// come in between are then never dropped without having come.
func (p *play) read(ctx context.Context, d contender.Defence, first bool) (c counts, err error) {
	rules := func() (err error) {
		c.dropped, err = d.Dropped(ctx)
		return err
	}
	device := func() error {
		return errors.Join(p.Server.Do(func() error {
			v, err := lab.Counters(p.Server.Devices[0].Name)
			c.received = v[contender.Received]
			return err
		}), p.World.Do(func() (err error) {
			c.refused, err = lab.SentButDropped(p.World.Devices[0].Name)
			return err
		}))
	}
	if first {
		err = errors.Join(device(), rules())
	} else {
		err = errors.Join(rules(), device())
	}
	if err != nil {
		return c, fmt.Errorf("reading the counters: %w", err)
	}
	return c, nil
}
