package path

import (
	"errors"
	"math"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"levee/internal/bench"
	"levee/internal/bench/benchtest"
	"levee/internal/host/hosttest"
	"levee/internal/kernel"
	"levee/internal/usage"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// model is a path of which all is known: what it takes, and queues that add to some round trips.
type model struct {
	base, byte float64 // ns
	mtu        int
	lost       func(bytes int) bool
	refuse     func(bytes int) error
	err        error
	rnd        *rand.Rand
	times      []time.Time
	sizes      []int
	answers    chan answered
	close      func() error
}

func newModel(base, perByte float64) *model {
	m := &model{base: base, byte: perByte, mtu: math.MaxInt, rnd: rand.New(rand.NewPCG(1, 2)),
		lost: func(int) bool { return false }, refuse: func(int) error { return nil }}
	m.close = sync.OnceValue(func() error { close(m.answers); return nil })
	return m
}

func (m *model) Answers() <-chan answered { return m.answers }

func (m *model) Close() error { return m.close() }

func (m *model) Err() error { return m.err }

func (m *model) Send(_ netip.Addr, bytes int, number uint32) error {
	m.times, m.sizes = append(m.times, time.Now()), append(m.sizes, bytes)
	if bytes > m.mtu {
		return errTooLarge
	}
	if err := m.refuse(bytes); err != nil || m.lost(bytes) {
		return err
	}
	ns := m.base + m.byte*float64(bytes)
	if m.rnd.IntN(4) > 0 {
		ns += m.rnd.ExpFloat64() * 1e6
	}
	m.answers <- answered{number, ns}
	m.answers <- answered{number, ns / 2} // a second one, of somebody who guesses
	return nil
}

// measured is the report of a measurement over models.
func measured(t *testing.T, o Options, m *model) (r *Report) {
	t.Helper()
	o.Hosts = []string{"192.0.2.1"}
	if err := o.complete(); err != nil {
		t.Fatal(err)
	}
	targets, err := o.resolve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		m.answers = make(chan answered)
		if r, err = o.run(t.Context(), targets, m); err != nil {
			t.Fatal(err)
		}
	})
	return r
}

// TestALineIsThatOfThePath: the least round trips lie on what the path takes, whatever queues add.
func TestALineIsThatOfThePath(t *testing.T) {
	for _, c := range []struct{ base, perByte float64 }{
		{40_000, 16}, {1_000_000, 0.16}, {3e7, 800}} {
		r := measured(t, Options{Options: bench.Options{Rounds: 60, Seed: 1}},
			newModel(c.base, c.perByte))
		f := r.Targets[0].Fit
		if f == nil || math.Abs(f.Base-c.base) > c.base/1000 ||
			math.Abs(f.Byte-c.perByte) > c.perByte/1000 || f.Low > f.Byte || f.High < f.Byte {
			t.Errorf("a path of %g ns and %g a byte is %+v", c.base, c.perByte, f)
		}
		sent, received := r.Targets[0].counts()
		if sent != 60*16 || received != sent {
			t.Errorf("%d sent, %d received", sent, received)
		}
		benchtest.Output(t, r, "192.0.2.1", "960 of 960")
	}
}

// TestSizesThatDoNotGoThereHaveNoFigure: above the MTU of the interface, and where all are lost.
func TestSizesThatDoNotGoThereHaveNoFigure(t *testing.T) {
	m := newModel(1000, 1)
	m.mtu, m.lost = 6000, func(bytes int) bool { return bytes > 1500 }
	r := measured(t, Options{Options: bench.Options{Rounds: 8}, Sizes: []int{64, 500, 900, 1400,
		3000, 7000}}, m)
	x := r.Targets[0]
	if x.Fit == nil || x.Sizes[3].Received != 8 || x.Sizes[4].Why != "no answer" ||
		x.Sizes[5].Why != errTooLarge.Error() || x.Sizes[5].Sent != 0 {
		t.Errorf("%+v, %+v, %+v", x.Fit, x.Sizes[4], x.Sizes[5])
	}
	benchtest.Output(t, r, "no answer", "MTU")

	m = newModel(1000, 1)
	m.lost = func(bytes int) bool { return bytes > 1000 }
	r = measured(t, Options{Options: bench.Options{Rounds: 8}, Sizes: []int{64, 500, 900, 1400}}, m)
	if x := r.Targets[0]; x.Fit != nil || x.Why != "answers of 3 sizes: a line needs 4" ||
		len(r.Lacking()) != 1 {
		t.Errorf("%+v, %q", x.Fit, x.Why)
	}
}

// TestRefusedRequestsAreNotSent: what the kernel does not take is no packet that was lost.
func TestRefusedRequestsAreNotSent(t *testing.T) {
	m, n := newModel(1000, 1), 0
	m.refuse = func(bytes int) error {
		if n++; bytes == 500 || bytes == 900 && n%2 == 0 {
			return unix.ENETUNREACH
		}
		return nil
	}
	r := measured(t, Options{Options: bench.Options{Rounds: 50, Seed: 1},
		Sizes: []int{64, 500, 900, 1400}}, m)
	x := r.Targets[0].Sizes
	if x[0].Sent != 50 || x[1].Sent != 0 || x[1].Why != unix.ENETUNREACH.Error() ||
		x[2].Sent == 0 || x[2].Sent == 50 || x[2].Received != x[2].Sent {
		t.Errorf("%+v, %+v, %+v", x[0], x[1], x[2])
	}
}

// TestASocketThatFailsEndsTheMeasurement: one that can be read no more is an error, soon.
func TestASocketThatFailsEndsTheMeasurement(t *testing.T) {
	p := &ping{}
	p.receive(-1, false)
	if !errors.Is(p.Err(), unix.EBADF) {
		t.Errorf("a socket that is none: %v", p.Err())
	}
	o := Options{Hosts: []string{"192.0.2.1"}}
	if err := o.complete(); err != nil {
		t.Fatal(err)
	}
	targets, err := o.resolve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		m := newModel(1000, 1)
		m.answers, m.err = make(chan answered), unix.EBADF
		if r, err := o.run(t.Context(), targets, m); !errors.Is(err, unix.EBADF) || r != nil ||
			len(m.times) > 2 {
			t.Errorf("%d requests, %v, %v", len(m.times), r, err)
		}
	})
}

// TestRequestsHaveNoPeriod: times between requests are as those of a Poisson process, and each
// size comes behind each other one.
func TestRequestsHaveNoPeriod(t *testing.T) {
	m := newModel(1000, 1)
	measured(t, Options{Options: bench.Options{Rounds: 500, Seed: 3}, Rate: 200,
		Sizes: []int{64, 500, 900, 1400}}, m)
	behind := map[[2]int]int{}
	var mean, square float64
	n := float64(len(m.times) - 2)
	for i := 2; i < len(m.times); i++ { // behind the one that is not counted
		gap := m.times[i].Sub(m.times[i-1]).Seconds() * 200
		mean, square = mean+gap/n, square+gap*gap/n
		behind[[2]int{m.sizes[i-1], m.sizes[i]}]++
	}
	// of an exponential distribution the deviation is the mean
	if deviation := math.Sqrt(square - mean*mean); math.Abs(mean-1) > 0.1 ||
		math.Abs(deviation-1) > 0.15 {
		t.Errorf("gaps of %.2f ± %.2f, in the mean of the rate", mean, deviation)
	}
	for _, a := range []int{64, 500, 900, 1400} {
		for _, b := range []int{64, 500, 900, 1400} {
			if a != b && behind[[2]int{a, b}] < 100 {
				t.Errorf("%d comes %d times behind %d", b, behind[[2]int{a, b}], a)
			}
		}
	}
}

// TestPacketsOfEachSizeComeBack measures the loopback interface, over both families.
func TestPacketsOfEachSizeComeBack(t *testing.T) {
	if err := kernel.Privileged(); err != nil {
		t.Skip(err)
	}
	hosttest.Enter(t)
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(t.Context(), Options{Options: bench.Options{Rounds: 6, Seed: 1}, Rate: 1000,
		Hosts: []string{"127.0.0.1", "::1", "127.0.0.1"}, Timeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Targets) != 2 {
		t.Fatalf("%d targets", len(r.Targets))
	}
	for _, x := range r.Targets {
		for _, s := range x.Sizes {
			if s.Sent != 6 || s.Received == 0 || s.Least <= 0 || s.Median < s.Least {
				t.Errorf("%s: %+v", x.Name(), s)
			}
		}
	}
}

// TestWrongOptionsAreRefused says what is wrong before anything is sent.
func TestWrongOptionsAreRefused(t *testing.T) {
	for _, o := range []Options{{}, {Hosts: []string{"a"}, Sizes: []int{63}},
		{Hosts: []string{"a"}, Sizes: []int{9001}}, {Hosts: []string{"a"}, Rate: 1001},
		{Hosts: []string{"a"}, Rate: math.NaN()},
		{Hosts: []string{"a"}, Timeout: time.Hour}, {Hosts: make([]string, 257)}} {
		if err := o.complete(); !errors.Is(err, usage.ErrWrong) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	for _, host := range []string{"224.0.0.1", "0.0.0.0", "255.255.255.255", "ff02::1"} {
		o := Options{Hosts: []string{host}}
		if _, err := o.resolve(t.Context()); !errors.Is(err, usage.ErrWrong) {
			t.Errorf("%s: %v", host, err)
		}
	}
	o := Options{Hosts: []string{"192.0.2.1"}, Families: []string{IPv6}}
	if _, err := o.resolve(t.Context()); !errors.Is(err, usage.ErrWrong) {
		t.Errorf("another family: %v", err)
	}
}
