package receive

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/bench/flood"
	"levee/internal/kernel"
	"levee/internal/lab"
	"levee/internal/lab/contender"
	"levee/internal/lab/gen"
)

// Window is one measurement.
type Window struct {
	Round   int     `json:"round"`   // from 0
	Seconds float64 `json:"seconds"` // of the window itself
	// Within the window: packets that the kernel's receiving thread took from the card's ring, and
	// packets that the reader took.
	Arrived uint64 `json:"arrived"`
	Taken   uint64 `json:"taken"`
	// Shares of the window, 0 to 1, in which the reader and the receiving thread ran.
	ReaderBusy   float64 `json:"reader_busy"`
	ReceiverBusy float64 `json:"receiver_busy"`
	Steal        float64 `json:"steal"`
	// Of the whole run, warm-up and end included: the balance is exact only there.
	Offered  uint64 `json:"offered"`  // by the generator to the device
	Refused  uint64 `json:"refused"`  // of these, no room in the card's ring
	Received uint64 `json:"received"` // by the reader
	Lost     uint64 `json:"lost"`     // by the way's own count
	// Saturated says that the way was the limit: it lost packets, or the card's ring refused some
	// while nothing but the way had the cores that receive.
	Saturated bool   `json:"saturated"`
	Invalid   string `json:"invalid,omitempty"`
}

// window opens a way, sends, and measures once.
func (c *comparison) window(ctx context.Context, w way, cell *Cell) (m Window, err error) {
	receiver, cpu := c.place(cell.Cores)
	var set unix.CPUSet
	set.Set(receiver)
	if err := unix.SchedSetaffinity(c.in.NAPI, &set); err != nil {
		return m, fmt.Errorf("giving the receiving thread core %d: %w", receiver, err)
	}
	from, err := w.open(ctx, site{host: c.lab.Host(lab.Server), device: c.in, cpu: cpu,
		frame: cell.Bytes})
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, from.close()) }()
	watch := flood.NewStopwatch(from.threads()...)
	defer watch.Close()
	sending, stop := context.WithCancel(ctx)
	defer stop()
	var sent gen.Report
	ended := make(chan error, 1)
	go func() {
		var err error
		sent, err = c.send(sending, cell.Bytes)
		ended <- err
	}()
	err = c.sample(ctx, from, watch, &m)
	stop()
	if err = errors.Join(err, <-ended); err != nil {
		return m, err
	}
	m.Offered, m.Refused = sent.Sent, sent.Refused
	if err := c.end(ctx, from, max(w.idle, idle), &m); err != nil {
		return m, err
	}
	m.Saturated = m.Lost > 0 || m.Refused > 0 && receiver != c.out.CPU
	return m, m.judge()
}

// send returns the generator, until ctx ends.
func (c *comparison) send(ctx context.Context, frame int) (gen.Report, error) {
	runtime.LockOSThread() // never unlocked: the thread and its priority end with the goroutine
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, generatorsNice)
	t := flood.Floods([]string{"udp"}, flood.IPv4, c.in)[0].Flood
	t.Lengths = []int{frame - ethernet}
	return gen.Run(ctx, gen.Config{Namespace: c.lab.Host(lab.World).Namespace, Device: c.out.Name,
		CPU: c.out.CPU, Floods: []gen.Flood{t}, Seed: c.Seed, Rate: c.Rate, Dropped: true,
		// bounded, should nobody stop it
		Duration: 2*(warmup+c.Window) + startup + 10*time.Second})
}

const ethernet = 14 // bytes of its header

// sampled are the counts at one moment.
type sampled struct {
	at             time.Duration // of the monotonic clock
	arrived, taken uint64
	reader, kernel time.Duration // run times
	cpu            flood.CPUTimes
}

// sample waits for packets, and takes the counts at both ends of the window.
func (c *comparison) sample(ctx context.Context, from reader, watch *flood.Stopwatch,
	m *Window) error {
	for began := time.Now(); ; {
		n, err := from.taken(ctx)
		if err != nil {
			return err
		}
		if n > 0 {
			break
		}
		if time.Since(began) > startup {
			return fmt.Errorf("nothing was received within %s", startup)
		}
		if err := lab.Sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	if err := lab.Sleep(ctx, warmup); err != nil {
		return err
	}
	a, err := c.read(ctx, from, watch)
	if err != nil {
		return err
	}
	if err := lab.Sleep(ctx, c.Window); err != nil {
		return err
	}
	z, err := c.read(ctx, from, watch)
	if err != nil {
		return err
	}
	wall := z.at - a.at
	m.Seconds = wall.Seconds()
	m.Arrived, m.Taken = z.arrived-a.arrived, z.taken-a.taken
	share := func(d time.Duration) float64 { return min(1, float64(d)/float64(wall)) }
	m.ReaderBusy, m.ReceiverBusy = share(z.reader-a.reader), share(z.kernel-a.kernel)
	m.Steal = z.cpu.Stolen(a.cpu)
	return nil
}

func (c *comparison) read(ctx context.Context, from reader, watch *flood.Stopwatch) (s sampled,
	err error) {
	if s.cpu, err = flood.ReadCPU(c.in.CPU); err != nil {
		return s, err
	}
	s.at = kernel.Monotonic()
	n, err := c.meter.Counters()
	if err != nil {
		return s, err
	}
	s.arrived = n[contender.Received]
	if s.taken, err = from.taken(ctx); err != nil {
		return s, err
	}
	if s.reader, err = watch.Ran(); err != nil {
		return s, err
	}
	s.kernel, err = c.kernel.Ran()
	return s, err
}

// idle is the time after the last packet at which none waits any more for a reader; a packet socket
// hands a block over after retire ms.
const idle = 5 * retire * time.Millisecond

// end waits until what arrived is taken, ends the reader, and takes the counts of the whole run.
func (c *comparison) end(ctx context.Context, from reader, idle time.Duration, m *Window) error {
	arrived := m.Offered - m.Refused
	last, changed := uint64(0), time.Now()
	for began := changed; time.Since(began) < settled; {
		n, err := from.taken(ctx)
		if err != nil {
			return err
		}
		if n != last {
			last, changed = n, time.Now()
		}
		if n >= arrived || time.Since(changed) > idle {
			break
		}
		if err := lab.Sleep(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
	if err := from.halt(); err != nil {
		return err
	}
	var err error
	if m.Received, err = from.taken(ctx); err != nil {
		return err
	}
	m.Lost, err = from.lost()
	return err
}

// judge says why a window does not count.
func (m *Window) judge() error {
	if m.Taken == 0 {
		return errors.New("the reader took no packet within the window")
	}
	found := m.Refused + m.Received + m.Lost
	if off := float64(max(found, m.Offered)-min(found, m.Offered)) / float64(m.Offered); off >
		maxImbalance {
		return fmt.Errorf("packets do not balance: %d offered, %d refused by the card's ring, %d "+
			"received, %d lost (%.2f %% off)", m.Offered, m.Refused, m.Received, m.Lost, off*100)
	}
	if tick := 10 * time.Millisecond; m.Steal > flood.MaxSteal+tick.Seconds()/m.Seconds/2 {
		return fmt.Errorf("the hypervisor took %.1f %% of the time", m.Steal*100)
	}
	return nil
}
