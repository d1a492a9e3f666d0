package tap

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/store"
	"levee/internal/filter/capture"
	"levee/internal/filter/codegen"
	"levee/internal/filter/logging"
	"levee/internal/filter/state"
	"levee/internal/kernel"
	"levee/internal/packet"
)

// Event is a packet that a log has told.
type Event struct {
	At     time.Time // when it was read
	CPU    int
	Rule   generation.SlotCounter // without counts; of a rule that is gone only its zero value
	Bytes  int                    // of the whole frame
	Packet []byte                 // the first of them, up to logging.EventPacket
	Link   packet.Link            // what they begin with
}

// Losses are packets of a rule that were not told of, since the watch began or told of losses last.
// Each packet is told of or counted once.
type Losses struct {
	Rule   generation.SlotCounter // without counts
	Bound  uint64                 // above what a CPU tells a second
	Ring   uint64                 // no place in the ring: the reader was too slow
	Reader uint64                 // they were in the ring when the reader ended
}

// Sizes of the ring of events that wait for the reader: for each CPU, and at most.
const (
	logRing     = 256 << 10
	mostLogRing = 16 << 20
)

// Watch tells of events of an interface's logs, and once a second of losses, until ctx ends or the
// interface has no policy any more. Only one may watch an interface.
func Watch(ctx context.Context, dev string, event func(Event), lost func(Losses)) error {
	w := &Watching{Dev: dev, Rules: map[uint32]generation.SlotCounter{},
		Before: map[string]logging.Losses{}}
	defer w.Close()
	if err := w.Open(ctx); err != nil {
		return err
	}
	for ctx.Err() == nil {
		w.Reader.SetDeadline(time.Now().Add(200 * time.Millisecond))
		err := w.Reader.ReadInto(&w.Record)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
		case err != nil:
			return fmt.Errorf("read events: %w", err)
		default:
			w.Tell(event)
		}
		if time.Since(w.looked) > time.Second {
			there, err := w.Look(ctx, lost)
			if ctx.Err() != nil {
				break // what the look could not do is done below
			}
			if err != nil || !there {
				return err
			}
		}
	}
	// From here on the program counts what has no reader.
	if err := w.Leave(); err != nil {
		return err
	}
	if err := Drain(w.Reader, &w.Record, func() { w.Tell(event) }); err != nil {
		return err
	}
	_, err := w.Look(context.WithoutCancel(ctx), lost)
	return err
}

// Drain reads what lies in a ring, and no more than that.
func Drain(r *ringbuf.Reader, record *ringbuf.Record, tell func()) error {
	r.SetDeadline(time.Now())
	for {
		switch err := r.ReadInto(record); {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil
		case err != nil:
			return fmt.Errorf("read the last events: %w", err)
		}
		tell()
	}
}

// Watching is one under way.
type Watching struct {
	Dev    string
	link   packet.Link
	Only   sole
	Ring   *ebpf.Map
	Events *ebpf.Map // where programs find it
	Reader *ringbuf.Reader
	Record ringbuf.Record
	Rules  map[uint32]generation.SlotCounter // of logs, by number
	Before map[string]logging.Losses         // losses by generation and identity, as they were last
	looked time.Time
}

// Leave takes the ring away. No program uses it any more when this returns.
func (w *Watching) Leave() error {
	if w.Events == nil {
		return nil
	}
	err := errors.Join(w.Events.Delete(uint32(0)), w.Events.Close())
	if w.Events = nil; err != nil {
		return fmt.Errorf("end the reading of events: %w", err)
	}
	return nil
}

func (w *Watching) Close() {
	_ = w.Leave() // what stays there is replaced by the next watch
	if w.Reader != nil {
		w.Reader.Close()
	}
	if w.Ring != nil {
		w.Ring.Close()
	}
	w.Only.Release()
}

// Open finds the logs of the policy in force. What they have lost is read when their events have a
// reader.
func (w *Watching) Open(ctx context.Context) error {
	return generation.TransactOn(ctx, w.Dev, func(s *store.Store, a *attach.Attachment) error {
		g := a.Current()
		name, ok := codegen.MapOf(g.Maps, state.HoldsEvents)
		switch {
		case !ok && len(g.Logs) > 0:
			return fmt.Errorf("the policy on %s was loaded by an older levee, whose logs go to "+
				"perf events: load it again with `levee up`", w.Dev)
		case !ok:
			return fmt.Errorf("the policy on %s has no log: write one, such as `log tcp syn "+
				"sample 1/100`, or watch what it decides: `levee watch --verdict drop`", w.Dev)
		}
		w.link = g.Link
		err := w.Only.take(s, a.Key, "watch")
		if errors.Is(err, errTaken) {
			return fmt.Errorf("somebody else watches %s already; events go to one", w.Dev)
		}
		if err != nil {
			return err
		}
		events, err := s.OpenPinned(a.Key, g.Generation, name)
		if err == nil && events == nil {
			err = fmt.Errorf("the policy on %s has gone", w.Dev)
		}
		if err != nil {
			return err
		}
		if err := w.listen(events); err != nil {
			return err
		}
		w.looked = time.Now()
		_, err = w.readLosses(s, a)
		return err
	})
}

// listen has events come to a new ring. Whoever watched before and was killed has left his.
func (w *Watching) listen(events *ebpf.Map) (err error) {
	defer func() {
		if w.Events == nil {
			events.Close()
		}
	}()
	size := capture.RingFor(ebpf.MustPossibleCPU(), logRing, mostLogRing)
	if w.Ring, err = ebpf.NewMap(logging.RingSpec(size)); err != nil {
		return kernel.LoadError("make the ring of events", err)
	}
	if w.Reader, err = ringbuf.NewReader(w.Ring); err != nil {
		return kernel.Refuse(err, "read events")
	}
	if err := events.Put(uint32(0), w.Ring); err != nil {
		return kernel.Refuse(err, "have events come here")
	}
	w.Events = events
	return nil
}

// Tell hands one event on.
func (w *Watching) Tell(event func(Event)) {
	raw := w.Record.RawSample
	if len(raw) < logging.EventBytes {
		return
	}
	word := func(at int) uint32 { return binary.NativeEndian.Uint32(raw[at:]) }
	e := Event{At: time.Now(), Rule: w.Rules[word(0)], Bytes: int(word(4)), CPU: int(word(8)),
		Link: w.link, Packet: raw[logging.EventBytes:]}
	e.Packet = e.Packet[:min(len(e.Packet), e.Bytes, logging.EventPacket)]
	event(e)
}

// Look tells of losses, learns the rules of a policy that has come since, and reports whether there
// is a policy.
func (w *Watching) Look(ctx context.Context, lost func(Losses)) (there bool, err error) {
	w.looked = time.Now()
	var all []Losses
	err = generation.TransactOn(ctx, w.Dev, func(s *store.Store, a *attach.Attachment) error {
		there = true
		all, err = w.readLosses(s, a)
		return err
	})
	for _, l := range all {
		lost(l)
	}
	if !there && generation.IsGone(err) {
		return false, nil
	}
	return there, err
}

// readLosses gives what is new of the losses of a generation's logs, in the order of their rules.
func (w *Watching) readLosses(s *store.Store, a *attach.Attachment) (out []Losses, err error) {
	g := a.Current()
	name, ok := codegen.MapOf(g.Maps, state.HoldsLosses)
	if !ok {
		return nil, nil
	}
	m, err := ebpf.LoadPinnedMap(filepath.Join(s.Pins(a.Key, g.Generation), name), s.PinOptions())
	if err != nil {
		return nil, kernel.Refuse(err, "open the losses of logs")
	}
	defer m.Close()
	memory, err := store.CopyOfMap(m)
	if err != nil {
		return nil, err
	}
	for i, now := range logging.ReadLosses(memory, len(g.Logs)) {
		id := g.Logs[i]
		c := generation.CounterOf(g, id)
		w.Rules[logging.Number(id)] = c
		key := fmt.Sprint(g.Generation, " ", id)
		was := w.Before[key] // none of a policy that has come since
		w.Before[key] = now
		d := Losses{Rule: c, Bound: now.Bound - was.Bound, Ring: now.Ring - was.Ring}
		if d.Bound > 0 || d.Ring > 0 {
			out = append(out, d)
		}
	}
	return out, nil
}
