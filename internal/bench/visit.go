package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/kernel"
	"levee/internal/lab"
	"levee/internal/lab/app"
	"levee/internal/lab/contender"
	"levee/internal/lab/gen"
)

// bench is a lab that is ready to be measured in.
type bench struct {
	*Options
	server, world *lab.Host
	device        string // the same name at both ends
	napi          int    // process id of the receiving thread
	receiverCPU   int
	generatorCPU  int
	mix           []traffic
	sink          *app.Sink // nil if no rung needs the application
	hardware      *hardware
	threadTime    *stopwatch             // of the receiving thread
	appTime       *stopwatch             // of the application; nil without it
	procStat      func() (string, error) // /proc/stat
	rate          float64                // packets a second of the generator, 0 for as fast as it goes
	flows         float64                // new flows a second that conntrack is expected to take
}

func newBench(l *lab.Lab, o *Options) (*bench, error) {
	b := &bench{Options: o, server: l.Host(lab.Server), world: l.Host(lab.World), procStat: readProcStat, flows: firstFlows}
	in, out := &b.server.Devices[0], &b.world.Devices[0]
	b.device, b.napi = in.Name, in.NAPI
	b.receiverCPU, b.generatorCPU = in.CPU, out.CPU
	for _, family := range o.Families {
		b.mix = append(b.mix, floods(o.Traffic, family, in)...)
	}
	switch {
	case in.NAPI == 0:
		return nil, kernel.Refuse(nil, "this kernel does not say which thread receives (needs Linux 6.8)")
	case in.CPU < 0 || in.CPU == out.CPU:
		return nil, kernel.Refuse(nil, "measuring needs two cores: one receives, one generates")
	}
	// What else runs on this machine shall wait for the receiver, as it does for the soft interrupt in
	// which most drivers receive.
	if err := unix.Setpriority(unix.PRIO_PROCESS, b.napi, receiverNice); err != nil {
		return nil, fmt.Errorf("raising the priority of the receiving thread: %w", err)
	}
	b.hardware = openHardware(b.receiverCPU)
	b.threadTime = newStopwatch(b.napi)
	return b, nil
}

// listen starts the application on a port; first lets it go before all else on its core.
func (b *bench) listen(port uint16, first bool) (err error) {
	if b.sink, err = app.Listen(b.server, port, b.receiverCPU, first); err != nil {
		return err
	}
	b.appTime = newStopwatch(b.sink.Threads()...)
	return nil
}

// close ends what newBench and listen have started.
func (b *bench) close() error {
	b.hardware.close()
	b.threadTime.close()
	if b.sink == nil {
		return nil
	}
	b.appTime.close()
	return b.sink.Close()
}

// visit installs a defence, measures one window for each traffic of the mix that is wanted, and removes it.
// What was measured before an error is kept.
func (b *bench) visit(ctx context.Context, d contender.Defence, wanted func(traffic) bool) (windows []Window, err error) {
	site := contender.Site{Host: b.server, Device: b.device, Sink: b.sink}
	defer func() { err = errors.Join(err, d.Remove(context.WithoutCancel(ctx))) }()
	if err := d.Install(ctx, site); err != nil {
		return nil, err
	}
	for _, t := range b.mix {
		if !wanted(t) {
			continue
		}
		w, err := b.window(ctx, d, t)
		if err != nil {
			return windows, err
		}
		w.Traffic, w.Family = t.name, t.family
		windows = append(windows, *w)
	}
	return windows, nil
}

// ends are the counts that must balance, read while nothing is sent.
type ends struct {
	received, refused, dropped, reached uint64
	stack                               stack
}

func (b *bench) ends(ctx context.Context, d contender.Defence) (e ends, err error) {
	err = b.server.Do(func() error {
		c, err := lab.Counters(b.device)
		if err != nil {
			return err
		}
		e.received = c[contender.Received]
		e.stack, err = readStack(b.receiverCPU)
		return err
	})
	if err != nil {
		return e, err
	}
	err = b.world.Do(func() error {
		c, err := lab.Counters(b.device)
		e.refused = c[contender.Refused]
		return err
	})
	if err != nil {
		return e, err
	}
	if b.sink != nil {
		if e.reached, err = b.sink.Received(); err != nil {
			return e, err
		}
	}
	e.dropped, err = d.Dropped(ctx)
	return e, err
}

// window measures: counts, flood on, warm-up, sample, window, sample, flood off, counts. Where a condition is
// broken from the start nothing is sent.
func (b *bench) window(ctx context.Context, d contender.Defence, t traffic) (*Window, error) {
	if tracks(d) {
		if err := b.server.Forget(); err != nil {
			return nil, err
		}
	}
	length := b.length(d)
	w := &Window{ticks: float64(clockTick) / float64(length), application: d.Hook() == contender.Application, lets: t.lets}
	before, err := b.inspect()
	if err != nil {
		return nil, err
	}
	if w.Invalid = before.broken(d.Hook(), tracks(d), false); len(w.Invalid) > 0 {
		return w, nil
	}
	if err := b.read(w, 0); err != nil {
		return nil, err
	}
	first, err := b.ends(ctx, d)
	if err != nil {
		return nil, err
	}
	stop, wait := b.start(ctx, t)
	start, end, err := b.between(ctx, length)
	stop()
	sent, genErr := wait()
	if err = errors.Join(err, genErr); err != nil {
		return nil, err
	}
	if err := b.drained(ctx, batch(start, end)); err != nil {
		return nil, err
	}
	if err := b.read(w, 1); err != nil {
		return nil, err
	}
	last, err := b.ends(ctx, d)
	if err != nil {
		return nil, err
	}
	after, err := b.inspect()
	if err != nil {
		return nil, err
	}
	w.conditions = after.broken(d.Hook(), tracks(d), true)
	if skew := start.skew + end.skew; skew > length/200 {
		w.conditions = append(w.conditions, fmt.Sprintf("reading the counters took %v, too long for a window of %v", skew, length))
	}
	w.fill(start, end)
	w.balance(sent, first, last, d.Hook())
	if w.Tracked = after.tracked; tracks(d) {
		b.flows = max(b.flows, float64(w.Received)/sent.Duration.Seconds())
	}
	w.judge()
	return w, nil
}

// read takes the readings of the cores, before (0) or behind (1) a run.
func (b *bench) read(w *Window, at int) (err error) {
	if w.Distance[at], err = coreDistance(b.generatorCPU, b.receiverCPU); err != nil {
		return err
	}
	w.Work[at], err = workOn(b.generatorCPU, b.receiverCPU)
	return err
}

// Where conntrack follows the flood, its table has to hold a flow for each packet of a run: its size is
// one for the whole machine, and not levee's to change.
const (
	tableShare = 0.8 // of the table that a run may fill
	firstFlows = 1e6 // flows a second, before any was measured
	leastTrack = 50 * time.Millisecond
)

// length is that of a window of a defence, shorter for one that fills the conntrack table.
func (b *bench) length(d contender.Defence) time.Duration {
	room := number("nf_conntrack_max")
	if !tracks(d) || room == 0 {
		return b.Window
	}
	seconds := tableShare * float64(room) / b.flows
	return min(b.Window, max(leastTrack, time.Duration(seconds*float64(time.Second))-b.Warmup))
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
	w.Steal = end.cpu.stolen(start.cpu)
	for i := range end.hardware {
		w.hardware = append(w.hardware, end.hardware[i]-start.hardware[i])
	}
}

func (w *Window) balance(sent gen.Report, first, last ends, hook contender.Hook) {
	w.Offered = sent.Sent
	w.Refused = last.refused - first.refused
	w.Received = last.received - first.received
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

// start sends the flood until stop.
func (b *bench) start(ctx context.Context, t traffic) (stop func(), wait func() (gen.Report, error)) {
	ctx, stop = context.WithCancel(ctx)
	type result struct {
		gen.Report
		error
	}
	done := make(chan result, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread and its priority end with the goroutine
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, -15)
		c := gen.Config{
			Namespace: b.world.Namespace, Device: b.device, CPU: b.generatorCPU,
			Frames: t.frames, Seed: b.Seed, Rate: b.rate,
			Duration: 2*(b.Warmup+b.Window) + 10*time.Second, // bounded, should nobody stop it
		}
		if f := t.flood; t.frames == nil {
			c.Flood = &f
		}
		r, err := gen.Run(ctx, c)
		done <- result{r, err}
	}()
	return stop, func() (gen.Report, error) { r := <-done; return r.Report, r.error }
}

// between takes a sample after the warm-up and one after the window.
func (b *bench) between(ctx context.Context, length time.Duration) (start, end sample, err error) {
	// The generator needs a moment to load; the warm-up begins with its first packet.
	if err = b.flowing(ctx); err != nil {
		return
	}
	if err = sleep(ctx, b.Warmup); err != nil {
		return
	}
	err = b.server.Do(func() error {
		if start, err = b.take(); err != nil {
			return err
		}
		if err = b.during(ctx, length); err != nil {
			return err
		}
		end, err = b.take()
		return err
	})
	return
}

// settleTime bounds the waits for the first packet of a flood and for the last.
const settleTime = 3 * time.Second

// flowing waits until the receiver counts packets of the flood.
func (b *bench) flowing(ctx context.Context) error {
	first, err := b.received()
	if err != nil {
		return err
	}
	// Counted from the start: a slow rung takes few packets in 10 ms.
	return b.until(ctx, "no packet of the generator arrived", func(_, now uint64) bool { return now-first > minPackets/10 })
}

// batch is how long the receiver works between two updates of its counters: it counts when it has taken as many packets
// as it may at a time (NAPI_POLL_WEIGHT), which is 64 ms where each takes one.
func batch(start, end sample) time.Duration {
	const weight = 64
	return weight * end.at.Sub(start.at) / time.Duration(max(end.received-start.received, 1))
}

// drained waits until neither the receiver nor the application counts any more, for the time of a batch: ring and queue
// are empty.
func (b *bench) drained(ctx context.Context, batch time.Duration) error {
	changed := time.Now()
	return b.until(ctx, "packets still arrive after the generator ended", func(last, now uint64) bool {
		if now != last {
			changed = time.Now()
		}
		return now == last && time.Since(changed) >= min(2*batch, settleTime/4)
	})
}

// until compares the count of packets with that 5 ms before.
func (b *bench) until(ctx context.Context, otherwise string, ok func(last, now uint64) bool) error {
	deadline := time.Now().Add(settleTime)
	last, err := b.received()
	for err == nil {
		if err = sleep(ctx, 5*time.Millisecond); err != nil {
			return err
		}
		var now uint64
		if now, err = b.received(); err == nil && ok(last, now) {
			return nil
		}
		if last = now; time.Now().After(deadline) {
			return fmt.Errorf("%s within %v", otherwise, settleTime)
		}
	}
	return err
}

// received counts what the receiver has taken from its ring, and the application from its queue.
func (b *bench) received() (n uint64, err error) {
	err = b.server.Do(func() error {
		c, err := lab.Counters(b.device)
		n = c[contender.Received]
		return err
	})
	if err != nil || b.sink == nil {
		return n, err
	}
	reached, err := b.sink.Received()
	return n + reached, err
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
