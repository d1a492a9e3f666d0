package detect

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"levee/internal/kernel"
	"levee/internal/lab"
	"levee/internal/lab/contender"
	"levee/internal/lab/demo"
	"levee/internal/lab/tally"
)

// sample holds the counters of a moment, since the lab was made.
type sample struct {
	at time.Duration // of the monotonic clock
	// at the server: what XDP took from the ring, and what it dropped or sent back
	xdp, dropped uint64
	// behind XDP: packets of clients, and all others
	arrived, passed uint64
	// at the clients: what left, and what of it found the server's ring full
	sent, refused uint64
	// of what left, what has not arrived by kind, with what the ring refused
	missing [tally.Kinds]int64
}

// good returns how many packets of clients XDP had taken: exact when nothing is under way.
func (s *sample) good() uint64 { return s.sent - min(s.refused, s.sent) }

// flood returns how many packets of a flood XDP had taken.
func (s *sample) flood() uint64 { return s.xdp - min(s.good(), s.xdp) }

// lost returns how many packets of clients XDP dropped; one more or less is under way.
func (s *sample) lost() int64 { return int64(s.good()) - int64(s.arrived) }

// asForged corrects samples of a flood in the names of clients, which the tally behind XDP takes
// for theirs: what arrives beyond what has left them is of the flood. Of clients nothing is known.
func asForged(samples []sample) {
	for i := range samples {
		s := &samples[i]
		all, good := s.arrived+s.passed, s.good()
		s.arrived = min(s.arrived, good)
		s.passed = all - s.arrived
	}
}

// every is the interval of samples: the resolution of all times.
const every = 5 * time.Millisecond

// watch samples the counters of a stage, from outside of what is measured.
type watch struct {
	server, world *lab.Meter
	in, out       *tally.Tally

	mu      sync.Mutex
	samples []sample
	err     error
}

// Names of veth's counters (drivers/net/veth.c) besides those of package contender.
const (
	xdpDropped  = "rx_queue_0_xdp_drops"
	xdpSentBack = "rx_queue_0_xdp_tx"
)

// clients is the network of the lab's good hosts.
var clients = netip.MustParsePrefix("198.18.0.0/24")

func newWatch(s *demo.Stage) (w *watch, err error) {
	w = &watch{}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	in, out := s.Server.Devices[0].Name, s.World.Devices[0].Name
	if w.in, err = tally.On(s.Server, in, tally.In, clients); err != nil {
		return w, err
	}
	if w.out, err = tally.On(s.World, out, tally.Out, clients); err != nil {
		return w, err
	}
	if w.server, err = s.Server.Meter(in); err != nil {
		return w, err
	}
	w.world, err = s.World.Meter(out)
	return w, err
}

func (w *watch) close() error {
	var errs []error
	for _, t := range []*tally.Tally{w.in, w.out} {
		if t != nil {
			errs = append(errs, t.Close())
		}
	}
	for _, m := range []*lab.Meter{w.server, w.world} {
		if m != nil {
			m.Close()
		}
	}
	return errors.Join(errs...)
}

// look takes a sample. Counts of one packet are read within some 100 µs.
func (w *watch) look() (s sample, err error) {
	refused, err := w.world.SentButDropped()
	if err != nil {
		return s, err
	}
	world, err := w.world.Counters()
	if err != nil {
		return s, err
	}
	left, err := w.out.Read()
	if err != nil {
		return s, err
	}
	arrived, err := w.in.Read()
	if err != nil {
		return s, err
	}
	server, err := w.server.Counters()
	if err != nil {
		return s, err
	}
	s.at = kernel.Monotonic()
	// The generator's refused frames are among those of the device.
	s.refused = refused - min(refused, world[contender.Refused])
	s.sent = tally.Packets(&left.Known)
	s.xdp, s.dropped = server[contender.Received], server[xdpDropped]+server[xdpSentBack]
	s.arrived, s.passed = tally.Packets(&arrived.Known), tally.Packets(&arrived.Others)
	for k := range s.missing {
		s.missing[k] = int64(left.Known[k].Packets) - int64(arrived.Known[k].Packets)
	}
	return s, nil
}

// run samples until ctx ends.
func (w *watch) run(ctx context.Context) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for ctx.Err() == nil {
		s, err := w.look()
		w.mu.Lock()
		if err != nil {
			w.err = err
			w.mu.Unlock()
			return
		}
		w.samples = append(w.samples, s)
		w.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// take gives the samples since the last call.
func (w *watch) take() ([]sample, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.samples
	w.samples = nil
	return out, w.err
}
