package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"time"

	"levee/internal/kernel"
	"levee/internal/lab/gen"
	"levee/internal/packet"
)

// burst is the number of the flood's packets that come at once: what a network card hands over at a
// time.
const burst = 32

// order is a line to the process that floods.
type order struct {
	Rate float64 `json:"rate"` // packets a second, 0 for as fast as it goes
	NS   int64   `json:"ns"`   // how long
}

// sent is a line from it: when the flood began and ended, and how much it was, or why it was not.
type sent struct {
	Began int64   `json:"began"` // ns of the monotonic clock
	Ended int64   `json:"ended"`
	Rate  float64 `json:"rate"` // packets a second
	Error string  `json:"error,omitempty"`
}

// flooder is the role that floods: a process of its own, so that what else runs on the machine can
// be made to wait for all of the demo. It sends what it is told to, an order after the other.
//
// The arguments are the device, its core, the address of the service, a seed, and a capture to
// replay, if any.
func flooder(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error {
	if len(args) != 5 {
		return errors.New("the flood needs a device, a core, an address, a seed and a capture")
	}
	cpu, err1 := strconv.Atoi(args[1])
	to, err2 := netip.ParseAddrPort(args[2])
	seed, err3 := strconv.ParseUint(args[3], 10, 64)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	c := gen.Config{Device: args[0], CPU: cpu, Seed: seed, Burst: burst, Rests: true}
	if err := aimed(&c, to, args[4]); err != nil {
		return err
	}
	fmt.Fprintln(stdout, "ready")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	orders := make(chan order)
	go func() {
		defer close(orders)
		defer cancel() // the parent has ended
		for in := bufio.NewScanner(stdin); in.Scan(); {
			var o order
			if json.Unmarshal(in.Bytes(), &o) == nil {
				orders <- o
			}
		}
	}()
	out := json.NewEncoder(stdout)
	for o := range orders {
		if err := out.Encode(execute(ctx, c, o)); err != nil {
			return err
		}
	}
	return nil
}

// aimed sets what is sent: a capture, or packets of all kinds in turn.
func aimed(c *gen.Config, to netip.AddrPort, path string) (err error) {
	if path != "" {
		c.Replay, err = capture(path, to)
		return err
	}
	for _, f := range Kinds[len(Kinds)-1].Floods {
		c.Floods = append(c.Floods, Spoofed(f, to.Addr()))
	}
	return nil
}

// execute sends what an order says.
func execute(ctx context.Context, c gen.Config, o order) (s sent) {
	c.Rate, c.Duration = o.Rate, time.Duration(o.NS)
	r, err := gen.Run(ctx, c)
	s.Ended = int64(kernel.Monotonic())
	s.Began, s.Rate = s.Ended-r.Duration.Nanoseconds(), r.Achieved
	if err != nil {
		s.Error = err.Error()
	}
	return s
}

// flood is the process that floods, as its parent sees it.
type flood struct {
	*child
	orders *json.Encoder
}

// startFlood starts it on the core of the world.
func (s *Stage) startFlood(ctx context.Context, seed uint64, path string) (*flood, error) {
	d := s.World.Devices[0]
	c, err := start(ctx, s.self, s.World, Core(d), floodRank, roleFlood, d.Name,
		strconv.Itoa(Core(d)), s.Service(packet.IPv4).String(), strconv.FormatUint(seed, 10), path)
	if err != nil {
		return nil, err
	}
	if err := c.ready(); err != nil {
		return nil, err
	}
	return &flood{c, json.NewEncoder(c.stdin)}, nil
}

// send floods for so long, and returns after it.
func (f *flood) send(rate float64, d time.Duration) (s sent, err error) {
	if err := f.orders.Encode(order{rate, d.Nanoseconds()}); err != nil {
		return s, fmt.Errorf("asking for a flood: %w", err)
	}
	if !f.stdout.Scan() {
		return s, errors.New("the process that floods has ended")
	}
	if err := json.Unmarshal(f.stdout.Bytes(), &s); err != nil {
		return s, fmt.Errorf("reading what was sent: %w", err)
	}
	if s.Error != "" {
		return s, fmt.Errorf("flooding: %s", s.Error)
	}
	return s, nil
}
