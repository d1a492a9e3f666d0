package flood

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/bench/calibration"
	"levee/internal/lab"
	"levee/internal/lab/contender"
	"levee/internal/lab/gen"
)

// ends are the counts that must balance, read while nothing is sent.
type ends struct {
	received, refused, dropped, reached uint64
	stack                               stack
}

func (l *Lab) ends(ctx context.Context, d contender.Defence) (e ends, err error) {
	err = l.Server.Do(func() error {
		if e.received, err = l.taken(); err != nil {
			return err
		}
		e.stack, err = readStack(l.ReceiverCPU)
		return err
	})
	if err != nil {
		return e, err
	}
	if l.wire == nil {
		err = l.World.Do(func() error {
			c, err := lab.Counters(l.device)
			e.refused = c[contender.Refused]
			return err
		})
	}
	if err != nil {
		return e, err
	}
	if l.app != nil {
		if e.reached, err = l.app.Received(); err != nil {
			return e, err
		}
	}
	e.dropped, err = d.Dropped(ctx)
	return e, err
}

// settled is ends once all that was sent is refused or received, or after settleTime. A receiver
// that gets no time from a busy machine counts nothing, and looks as if its ring were empty: what
// still lies there would be of the next window.
func (l *Lab) settled(ctx context.Context, d contender.Defence, first ends, sent uint64) (ends,
	error) {
	for began := time.Now(); ; {
		last, err := l.ends(ctx, d)
		there := last.refused - first.refused + last.received - first.received
		// over a wire, what did not come by now is lost
		if err != nil || there >= sent || l.wire != nil || time.Since(began) > settleTime {
			return last, err
		}
		if err := lab.Sleep(ctx, 10*time.Millisecond); err != nil {
			return last, err
		}
	}
}

// Window measures: counts, flood on, warm-up, sample, window, sample, flood off, counts. The
// defence is in place. Where a condition is broken from the start nothing is sent.
func (l *Lab) Window(ctx context.Context, d contender.Defence, t *Traffic) (*Window, error) {
	if tracks(d) {
		if err := l.Server.Forget(); err != nil {
			return nil, err
		}
	}
	length := l.length(d)
	w := &Window{
		Traffic: t.Name, Family: t.Family, passes: t.Passes,
		ticks: float64(clockTick) / float64(length), application: d.Hook() == contender.Application,
	}
	before, err := l.inspect(d)
	if err != nil {
		return nil, err
	}
	if w.Invalid = before.broken(d.Hook(), tracks(d), false); len(w.Invalid) > 0 {
		return w, nil
	}
	if err := l.read(w, 0); err != nil {
		return nil, err
	}
	first, err := l.ends(ctx, d)
	if err != nil {
		return nil, err
	}
	var start, end sample
	sent, err := l.flood(ctx, t, func() (time.Duration, error) {
		start, end, err = l.samples(ctx, length)
		return batch(start, end), err
	})
	if err != nil {
		return nil, err
	}
	if err := l.read(w, 1); err != nil {
		return nil, err
	}
	last, err := l.settled(ctx, d, first, sent.Sent)
	if err != nil {
		return nil, err
	}
	after, err := l.inspect(d)
	if err != nil {
		return nil, err
	}
	w.conditions = after.broken(d.Hook(), tracks(d), true)
	if skew := start.skew + end.skew; skew > length/200 {
		w.conditions = append(w.conditions,
			fmt.Sprintf("reading the counters took %v, too long for a window of %v", skew, length))
	}
	w.fill(start, end)
	l.balance(w, sent, first, last, d.Hook())
	if w.Tracked = after.tracked; tracks(d) {
		l.flows = max(l.flows, float64(w.Received)/sent.Duration.Seconds())
	}
	w.judge()
	return w, nil
}

// read takes the readings of the cores, before (0) or behind (1) a run.
func (l *Lab) read(w *Window, at int) (err error) {
	if l.wire == nil { // else no cache line goes from core to core
		w.Distance[at], err = calibration.Distance(l.GeneratorCPU, l.ReceiverCPU)
		if err != nil {
			return err
		}
	}
	w.Work[at], err = calibration.WorkOn(l.GeneratorCPU, l.ReceiverCPU)
	return err
}

// Where conntrack follows the flood, its table has to hold a flow for each packet of a run: its
// size is one for the whole machine, and not levee's to change.
const (
	tableShare = 0.8 // of the table that a run may fill
	firstFlows = 1e6 // flows a second, before any was measured
	leastTrack = 50 * time.Millisecond
)

// length is that of a window of a defence, shorter for one that fills the conntrack table.
func (l *Lab) length(d contender.Defence) time.Duration {
	room := number("nf_conntrack_max")
	if !tracks(d) || room == 0 {
		return l.Options.Window
	}
	seconds := tableShare * float64(room) / l.flows
	return min(l.Options.Window, max(leastTrack,
		time.Duration(seconds*float64(time.Second))-l.Warmup))
}

func (w *Window) fill(start, end sample) {
	wall := end.at.Sub(start.at)
	w.Seconds = wall.Seconds()
	w.Packets = end.received - start.received
	w.Reached = end.reached - start.reached
	w.CoreBusy = end.cpu.busy(start.cpu)
	share := func(d time.Duration) float64 { return min(1, float64(d)/float64(wall)) }
	w.ThreadBusy = share(end.thread - start.thread)
	w.ApplicationBusy = share(end.app - start.app)
	waited := end.schedule.waited - start.schedule.waited
	w.ThreadRunnable = share(end.schedule.ran - start.schedule.ran + waited)
	if !w.application {
		w.ThreadWaited = share(waited)
	}
	w.Steal = end.cpu.Stolen(start.cpu)
	for i := range end.hardware {
		w.hardware = append(w.hardware, end.hardware[i]-start.hardware[i])
	}
}

func (l *Lab) balance(w *Window, sent gen.Report, first, last ends, hook contender.Hook) {
	w.Offered = sent.Sent
	w.Refused = last.refused - first.refused
	w.Received = last.received - first.received
	if l.wire != nil {
		// by the peer's card, the wire or the ring here: nobody counts all of these
		w.Refused = sent.Sent - min(sent.Sent, w.Received)
	}
	w.Dropped = last.dropped - first.dropped
	w.Martians = last.stack.martians - first.stack.martians
	w.trackerDrops = last.stack.tracker - first.stack.tracker
	switch hook {
	case contender.Application:
		w.Overflow = last.stack.overflow - first.stack.overflow
	case contender.Socket:
		w.PassedOn = last.reached - first.reached + last.stack.overflow - first.stack.overflow
	case contender.LocalIn, contender.Prerouting:
		w.PassedOn = last.stack.delivered - first.stack.delivered
	default:
		w.PassedOn = last.stack.received - first.stack.received
	}
}

// flood sends, and runs f once the traffic has arrived and the warm-up is over. The end of f ends
// it too; f returns how long the receiver may go on without counting (batch).
func (l *Lab) flood(ctx context.Context, t *Traffic, f func() (time.Duration, error)) (gen.Report,
	error) {
	sending, stop := context.WithCancel(ctx)
	defer stop()
	var sent gen.Report
	ended := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread and its priority end with the goroutine
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, generatorNice)
		c := gen.Config{
			Device: l.device, CPU: l.GeneratorCPU, Frames: t.Frames, Seed: l.Seed,
			Rate: t.Rate, Dropped: true,
			// bounded, should nobody stop it
			Duration: 2*(l.Warmup+l.Options.Window) + 10*time.Second,
		}
		if t.Frames == nil {
			c.Floods = []gen.Flood{t.Flood}
		}
		var err error
		if l.wire != nil {
			sent, err = l.wire.Peer.Send(sending, c)
		} else {
			c.Namespace = l.World.Namespace
			sent, err = gen.Run(sending, c)
		}
		ended <- err
	}()
	// The generator needs a moment to load; the warm-up begins with its first packet.
	err := l.flowing(ctx)
	if err == nil {
		err = lab.Sleep(ctx, l.Warmup)
	}
	var batch time.Duration
	if err == nil {
		batch, err = f()
	}
	stop()
	if err = errors.Join(err, <-ended); err != nil {
		return sent, err
	}
	return sent, l.drained(ctx, batch)
}

// samples takes one sample now and one after the window.
func (l *Lab) samples(ctx context.Context, length time.Duration) (start, end sample, err error) {
	wait := func() error { return lab.Sleep(ctx, length) }
	err = l.Server.Do(func() error {
		if start, err = l.take(); err != nil {
			return err
		}
		if l.Watch == nil {
			err = wait()
		} else {
			err = l.Watch(Receiver{l.ReceiverCPU, l.napi}, wait)
		}
		if err == nil {
			end, err = l.take()
		}
		return err
	})
	return start, end, err
}

// Beside runs f while traffic, nil for none, meets a defence that is in place and whose application
// is none. It tells what the generator sent, which part of the time the hypervisor took, and what
// makes the run invalid; f is not called where a condition is broken from the start.
func (l *Lab) Beside(ctx context.Context, d contender.Defence, t *Traffic,
	f func() error) (sent gen.Report, steal float64, invalid []string, err error) {
	conditions, err := l.inspect(d)
	if err != nil {
		return sent, 0, nil, err
	}
	if invalid = conditions.broken(d.Hook(), false, false); len(invalid) > 0 {
		return sent, 0, invalid, nil
	}
	before, err := l.cpuTimes()
	if err != nil {
		return sent, 0, nil, err
	}
	if t != nil {
		sent, err = l.flood(ctx, t, func() (time.Duration, error) { return 0, f() })
	} else if err = lab.Sleep(
		// packets are lost for some ms after an XDP program has come to a veth device
		ctx, l.Warmup); err == nil {
		err = f()
	}
	if err != nil {
		return sent, 0, nil, err
	}
	after, err := l.cpuTimes()
	if steal = after.Stolen(before); steal > MaxSteal {
		invalid = append(invalid, fmt.Sprintf("the hypervisor took %.1f %% of the time", 100*steal))
	}
	return sent, steal, invalid, err
}

// settleTime bounds the waits for the first packet of a flood and for the last, of a process that
// is not held up; lookEach is the time between two looks.
const (
	settleTime = 3 * time.Second
	lookEach   = 5 * time.Millisecond
)

// flowing waits until the receiver counts packets of the flood.
func (l *Lab) flowing(ctx context.Context) error {
	first, err := l.received()
	if err != nil {
		return err
	}
	// Counted from the start: a slow rung takes few packets in 10 ms.
	return l.until(ctx, "no packet of the generator arrived",
		func(_, now uint64) bool { return now-first > minPackets/10 })
}

// batch returns the time that the receiver works between two updates of its counters: it counts
// when it has taken as many packets as it may at a time (NAPI_POLL_WEIGHT), which is 64 ms where
// each takes one.
func batch(start, end sample) time.Duration {
	const weight = 64
	return weight * end.at.Sub(start.at) / time.Duration(max(end.received-start.received, 1))
}

// drained waits until neither the receiver nor the application counts any more, for the time of a
// batch: ring and queue are empty.
func (l *Lab) drained(ctx context.Context, batch time.Duration) error {
	changed := time.Now()
	return l.until(ctx, "packets still arrive after the generator ended",
		func(last, now uint64) bool {
			if now != last {
				changed = time.Now()
			}
			return now == last && time.Since(changed) >= min(2*batch, settleTime/4)
		})
}

// until compares the count of packets with that of the look before. Looks are bounded, not the
// clock: a generator that shares this process is held up with it.
func (l *Lab) until(ctx context.Context, otherwise string, ok func(last, now uint64) bool) error {
	last, err := l.received()
	for range settleTime / lookEach {
		if err == nil {
			err = lab.Sleep(ctx, lookEach)
		}
		if err != nil {
			return err
		}
		var now uint64
		if now, err = l.received(); err == nil && ok(last, now) {
			return nil
		}
		last = now
	}
	return errors.Join(err, fmt.Errorf("%s within %v", otherwise, settleTime))
}

// received counts what the receiver has taken from its ring, and the application from its queue.
func (l *Lab) received() (n uint64, err error) {
	err = l.Server.Do(func() error {
		n, err = l.taken()
		return err
	})
	if err != nil || l.app == nil {
		return n, err
	}
	reached, err := l.app.Received()
	return n + reached, err
}
