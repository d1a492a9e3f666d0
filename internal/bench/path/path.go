package path

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"levee/internal/bench"
	"levee/internal/usage"
)

// Sizes of IP packets that can be measured, in bytes: the least has room for what tells an
// answer.
const (
	minSize = 64
	MaxSize = 9000
)

// Rates of requests, a second, to all hosts together.
const (
	usualRate = 100
	maxRate   = 1000
)

// Options of a measurement. The zero value has no host.
type Options struct {
	bench.Options
	Hosts    []string // names or addresses
	Families []string // IPv4, IPv6; nil: as the host has addresses
	Sizes    []int    // nil: 16 from minSize to MaxSize
	Rate     float64  // requests a second; 0: 100
	// Timeout is the longest wait for the last answer; 0: a second.
	Timeout time.Duration
}

// Families of addresses.
const (
	IPv4 = "IPv4"
	IPv6 = "IPv6"
)

var usual = bench.Usual{Rounds: 100, QuickRounds: 20}

// maxHosts bounds the addresses that are measured at once.
const maxHosts = 256

func (o *Options) complete() error {
	if err := o.Options.Complete(usual); err != nil {
		return err
	}
	if len(o.Hosts) == 0 {
		return usage.Wrongf("no host: name one or more")
	}
	if len(o.Hosts) > maxHosts {
		return usage.Wrongf("%d hosts: %d are the most", len(o.Hosts), maxHosts)
	}
	if o.Sizes == nil {
		const steps = 16
		for i := range steps {
			o.Sizes = append(o.Sizes, minSize+(MaxSize-minSize)*i/(steps-1))
		}
	}
	slices.Sort(o.Sizes)
	o.Sizes = slices.Compact(o.Sizes)
	for _, n := range o.Sizes {
		if n < minSize || n > MaxSize {
			return usage.Wrongf("packets of %d bytes: %d to %d", n, minSize, MaxSize)
		}
	}
	o.Rate, o.Timeout = cmp.Or(o.Rate, usualRate), cmp.Or(o.Timeout, time.Second)
	if !(o.Rate >= 1 && o.Rate <= maxRate) {
		return usage.Wrongf("%g requests a second: 1 to %d", o.Rate, maxRate)
	}
	if o.Timeout < 10*time.Millisecond || o.Timeout > time.Minute {
		return usage.Wrongf("a timeout of %v: 10ms to 1m", o.Timeout)
	}
	return nil
}

// request is one that is to be sent.
type request struct {
	target, size int // indexes
}

// answered is an answer that came.
type answered struct {
	number uint32
	ns     float64 // round trip
}

// wire sends requests and has their answers.
type wire interface {
	// Send sends request number to a host, as an IP packet of so many bytes. An error that
	// matches errTooLarge is about that size alone.
	Send(to netip.Addr, bytes int, number uint32) error
	// Answers are closed when the wire is.
	Answers() <-chan answered
	// Err is the reason that no more answers can come, nil while they can.
	Err() error
	Close() error
}

// errTooLarge is that of a packet that the interface towards the host does not take.
var errTooLarge = errors.New("more than the MTU of the interface")

// Run measures. When ctx ends early the report has what was measured until then, says that it is
// incomplete, and comes with the error. It needs root.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := bench.Ready("path", o.complete()); err != nil {
		return nil, err
	}
	targets, err := o.resolve(ctx)
	if err != nil {
		return nil, err
	}
	w, err := open(targets, o.Seed)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	return o.run(ctx, targets, w)
}

// run measures by a wire.
func (o *Options) run(ctx context.Context, targets []*Target, w wire) (*Report, error) {
	r := &Report{Head: o.Head(0, caveats...), Rate: o.Rate, Targets: targets}
	requests := o.order(len(targets))
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		taken := make([]bool, len(requests))
		for a := range w.Answers() {
			// an answer may come twice, or be somebody's who guesses
			if int(a.number) < len(requests) && !taken[a.number] && a.ns > 0 {
				taken[a.number] = true
				q := requests[a.number]
				s := targets[q.target].Sizes[q.size]
				s.ns = append(s.ns, a.ns)
			}
		}
	}()
	err := o.greet(ctx, targets, w)
	if err == nil {
		err = o.send(ctx, targets, requests, w)
	}
	if err == nil {
		err = pause(ctx, o.Timeout)
	}
	err = errors.Join(err, w.Close())
	<-heard
	for _, t := range targets {
		t.finish()
	}
	return bench.Ended(ctx, r, &r.Head, err)
}

// greet sends a request to each target that is not counted, and waits: what has to be found on the
// way to a host, such as a neighbour, would make the first round trips long or lose their requests.
func (o *Options) greet(ctx context.Context, targets []*Target, w wire) error {
	for i, t := range targets {
		// an error comes again with the first request that counts
		_ = w.Send(t.Address, o.Sizes[0], math.MaxUint32-uint32(i))
	}
	return pause(ctx, o.Timeout)
}

// order returns all requests: in each round one of each host and size, in a random order.
func (o *Options) order(targets int) (all []request) {
	rnd := rand.New(rand.NewPCG(o.Seed, 1))
	round := make([]request, 0, targets*len(o.Sizes))
	for t := range targets {
		for s := range o.Sizes {
			round = append(round, request{t, s})
		}
	}
	for range o.Rounds {
		rnd.Shuffle(len(round), func(i, k int) { round[i], round[k] = round[k], round[i] })
		all = append(all, round...)
	}
	return all
}

// mostGap bounds the time between two requests, in the mean of these times.
const mostGap = 8

// send sends all requests, each at its time. One that is late, as the machine was busy, does not
// make those behind it later.
func (o *Options) send(ctx context.Context, targets []*Target, all []request, w wire) error {
	rnd := rand.New(rand.NewPCG(o.Seed, 2))
	next := time.Now()
	for i, q := range all {
		gap := min(rnd.ExpFloat64(), mostGap) / o.Rate
		next = next.Add(time.Duration(gap * float64(time.Second)))
		if err := pause(ctx, time.Until(next)); err != nil {
			return err
		}
		t := targets[q.target]
		s := t.Sizes[q.size]
		if i%16 == 0 {
			o.Tell(fmt.Sprintf("%d bytes to %s", s.Bytes, t.Name()), i, len(all))
		}
		if s.Why != "" {
			continue
		}
		switch err := w.Send(t.Address, s.Bytes, uint32(i)); {
		case errors.Is(err, errTooLarge):
			s.Why = err.Error()
		case err != nil:
			// a host that is not there is one without answers
			s.refused = err
		default:
			s.Sent++
		}
		if err := w.Err(); err != nil {
			return fmt.Errorf("read the answers: %w", err)
		}
	}
	return nil
}

// pause waits for a time, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return bench.Interrupted(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return bench.Interrupted(ctx)
	}
}

// resolve finds the addresses of the hosts: of each family the first.
func (o *Options) resolve(ctx context.Context) (all []*Target, err error) {
	wants := func(family string) bool { return bench.Wanted(o.Families, family) }
	seen := map[netip.Addr]bool{}
	for _, host := range o.Hosts {
		addrs := []netip.Addr{}
		if a, err := netip.ParseAddr(host); err == nil {
			addrs = append(addrs, a)
		} else if addrs, err = net.DefaultResolver.LookupNetIP(ctx, "ip", host); err != nil {
			return nil, fmt.Errorf("find %s: %w", host, err)
		}
		found := map[string]bool{}
		for _, a := range addrs {
			a = a.Unmap()
			family := IPv6
			if a.Is4() {
				family = IPv4
			}
			if found[family] || !wants(family) {
				continue
			}
			if a.IsMulticast() || a.IsUnspecified() || a == netip.AddrFrom4([4]byte{255, 255, 255,
				255}) {
				return nil, usage.Wrongf("%s is no address of one host", a)
			}
			if found[family] = true; seen[a] {
				continue
			}
			seen[a] = true
			t := &Target{Host: host, Family: family, Address: a}
			for _, n := range o.Sizes {
				t.Sizes = append(t.Sizes, &Size{Bytes: n})
			}
			all = append(all, t)
		}
		if len(found) == 0 {
			return nil, usage.Wrongf("%s has no address of the family that is asked for", host)
		}
	}
	return all, nil
}

// Target is one address.
type Target struct {
	Host    string
	Family  string
	Address netip.Addr
	Sizes   []*Size
	Fit     *Fit   // nil: there is none
	Why     string // there is none
}

// Name tells targets apart.
func (t *Target) Name() string {
	if t.Host == t.Address.String() {
		return t.Host
	}
	return fmt.Sprintf("%s (%s)", t.Host, t.Family)
}

// Size is the round trips of packets of one size.
type Size struct {
	Bytes          int
	Sent, Received int     // Sent: those that the kernel took
	Least, Median  float64 // ns; 0 if none was received
	Why            string  // no packet of the size goes there

	ns      []float64
	refused error
}

// finish draws together what came.
func (t *Target) finish() {
	var points []point
	received := 0
	for _, s := range t.Sizes {
		s.Received = len(s.ns)
		received += s.Received
		if s.Received == 0 {
			if s.Why == "" && s.refused != nil {
				s.Why = s.refused.Error()
			}
			s.Why = cmp.Or(s.Why, "no answer")
			continue
		}
		slices.Sort(s.ns)
		s.Least, s.Median = s.ns[0], s.ns[len(s.ns)/2]
		points = append(points, point{float64(s.Bytes), s.Least})
	}
	f, ok := fit(points)
	switch {
	case received == 0:
		t.Why = "no answer"
	case !ok:
		t.Why = fmt.Sprintf("answers of %d sizes: a line needs %d", len(points), minPoints)
	case f.Low <= 0 && f.High <= 0, math.IsNaN(f.Byte):
		t.Why = "longer packets take less time: the line says nothing"
	default:
		t.Fit = &f
	}
}

// token is the mark by which a run knows the answers to its own requests.
type token [8]byte

func newToken(seed uint64) (t token) {
	binary.BigEndian.PutUint64(t[:], rand.Uint64()^seed)
	return t
}

// zone returns the index of the interface by which a link-local address is reached, 0 of others.
func zone(a netip.Addr) uint32 {
	if a.Zone() == "" {
		return 0
	}
	if i, err := net.InterfaceByName(a.Zone()); err == nil {
		return uint32(i.Index)
	}
	n, _ := strconv.ParseUint(a.Zone(), 10, 32)
	return uint32(n)
}
