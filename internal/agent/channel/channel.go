// Package channel has an alarm go on while a transport stream has no signal, or packets of it are
// missing.
//
// In go interfaces and groups, and what is counted of the streams that come, second by second; out
// come the states of parts: one for each group, and one for each interface. It must never follow a
// stream itself, or have more parts than it is allowed, whatever comes from the network.
package channel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"levee/internal/agent/part"
	"levee/internal/monitor/mpegts"
	"levee/internal/quantity"
)

// Config is an interface whose streams are watched.
type Config struct {
	Dev    string
	Groups []netip.AddrPort // none: all that come
}

// Parse reads IF or IF=GROUP, several of one interface together.
func Parse(words []string) (all []Config, err error) {
	for _, word := range words {
		dev, text, only := strings.Cut(word, "=")
		if dev == "" {
			return nil, fmt.Errorf("%q has no interface: write eth1 or eth1=239.1.1.1:5004", word)
		}
		at := slices.IndexFunc(all, func(c Config) bool { return c.Dev == dev })
		if at < 0 {
			at = len(all)
			all = append(all, Config{Dev: dev})
		} else if only != (all[at].Groups != nil) {
			return nil, fmt.Errorf("%s is there with a group and without", dev)
		}
		if only {
			g, err := mpegts.ParseGroup(text)
			if err != nil {
				return nil, err
			}
			all[at].Groups = append(all[at].Groups, g)
		}
		if len(all[at].Groups) > MostGroups {
			return nil, fmt.Errorf("more than %d groups of %s", MostGroups, dev)
		}
	}
	return all, nil
}

// MostGroups limits the groups of an interface that have a part.
const MostGroups = 256

// MostStreams limits the streams of an interface that are followed.
const MostStreams = 1024

// Times of a watch.
const (
	every  = time.Second
	again  = 10 * time.Second // until an interface is tried again
	forget = 10 * time.Minute // a stream that was not asked for
	// Silence is the time without packets after which there is no signal.
	Silence = time.Second
)

// Follower follows the streams of an interface.
type Follower interface {
	Here() error
	Read() ([]mpegts.Stream, mpegts.Totals, error)
	Forget([]mpegts.Flow) error
	Close() error
}

// Watch watches the streams of one interface.
type Watch struct {
	Config
	Parts *part.Register
	Open  func(*Config) (Follower, error)
	Clock func() time.Duration // that the times of streams are of

	known  map[netip.AddrPort]*known
	before *mpegts.Look
}

type known struct {
	*part.Part
	asked bool // it is of Groups
}

// Run watches until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	whole := w.Parts.Begin(part.TransportStream, "", w.Dev)
	defer whole.End()
	for ctx.Err() == nil {
		err := w.follow(ctx, whole)
		if ctx.Err() != nil {
			return
		}
		whole.FailsUntil(part.Do(err, "levee monitor mpegts "+w.Dev), time.Now().Add(again))
		select {
		case <-ctx.Done():
		case <-time.After(again):
		}
	}
}

// follow looks at streams until ctx ends or they cannot be followed.
func (w *Watch) follow(ctx context.Context, whole *part.Part) (err error) {
	f, err := w.Open(&w.Config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w.known, w.before = map[netip.AddrPort]*known{}, nil
	defer func() {
		for _, k := range w.known {
			k.End()
		}
	}()
	for _, g := range w.Groups {
		w.part(g, true)
	}
	begun := w.Clock()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := f.Here(); err != nil {
			return err
		}
		now := &mpegts.Look{}
		if now.Streams, now.Totals, err = f.Read(); err != nil {
			return err
		}
		now.At, now.Clock = time.Now(), w.Clock()
		w.look(now, begun)
		if lost := now.Totals.Unplaced; lost > 0 {
			whole.Saw(now.At, quantity.Plural(lost, "datagram")+" of streams beyond the most")
		} else {
			whole.Works()
		}
		w.end(now)
		if err := f.Forget(now.Gone(forget, w.Groups, w.before)); err != nil {
			return err
		}
		w.before = now
	}
}

// part returns the part of a destination, nil where there are too many.
func (w *Watch) part(to netip.AddrPort, asked bool) *known {
	k := w.known[to]
	if k == nil && len(w.known) < MostGroups {
		k = &known{w.Parts.Begin(part.TransportStream, mpegts.Group(to), w.Dev), asked}
		w.known[to] = k
	}
	return k
}

// group returns the key of a stream: the group that was asked for, or where it goes.
func (w *Watch) group(s *mpegts.Stream) netip.AddrPort {
	g, _ := mpegts.GroupOf(s, w.Groups)
	return g
}

// state adds up what arrived at a destination from all its sources.
type state struct {
	signal  bool
	missing uint64 // since the look before
	broken  uint64 // discontinuities since then
	bits    float64
}

// look tells the parts of one look.
func (w *Watch) look(now *mpegts.Look, begun time.Duration) {
	r := (&mpegts.Watched{Dev: w.Dev, Silence: Silence}).Report(w.before, now)
	all := map[netip.AddrPort]*state{}
	for i := range now.Streams {
		s, told := &now.Streams[i], &r.Streams[i]
		at := all[w.group(s)]
		if at == nil {
			at = &state{}
			all[w.group(s)] = at
		}
		at.signal = at.signal || told.Signal
		at.bits += told.Bps
		b := w.before.Of(s)
		at.broken += s.Discontinuities - b.Discontinuities
		at.missing += max(s.Missing-b.Missing, uint64(told.Loss*r.Seconds+.5))
		w.part(w.group(s), false)
	}
	for to, k := range w.known {
		do := fmt.Sprintf("levee monitor mpegts %s --group %s", w.Dev, mpegts.Group(to))
		at := all[to]
		switch {
		case at == nil && now.Clock-begun < Silence:
		case at == nil:
			k.Fails(part.Do(errors.New("no signal: nothing has come"), do))
		case !at.signal:
			k.Fails(part.Do(errors.New("no signal: nothing comes any more"), do))
		case at.broken > 0 || at.missing > 0:
			k.Fails(part.Do(fmt.Errorf("%s in a second, %s missing at least",
				quantity.Plural(at.broken, "discontinuity"),
				quantity.Plural(at.missing, "packet")), do))
		default:
			k.Saw(now.At, fmt.Sprintf("%.3f Mbit/s", at.bits/1e6))
		}
	}
}

// end ends the parts of streams that nobody asked for and that have had no signal for long.
func (w *Watch) end(now *mpegts.Look) {
	living := map[netip.AddrPort]bool{}
	for i := range now.Streams {
		if s := &now.Streams[i]; now.Clock-s.Last <= forget {
			living[w.group(s)] = true
		}
	}
	for to, k := range w.known {
		if !living[to] && !k.asked {
			k.End()
			delete(w.known, to)
		}
	}
}
