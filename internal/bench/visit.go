package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/gen"
	"levee/internal/kernel"
	"levee/internal/lab"
	"levee/internal/peer"
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
}

func newBench(l *lab.Lab, o *Options) (*bench, error) {
	b := &bench{Options: o, server: l.Host(lab.Server), world: l.Host(lab.World)}
	in, out := b.server.Devices[0], b.world.Devices[0]
	b.device, b.napi = in.Name, in.NAPI
	b.receiverCPU, b.generatorCPU = in.CPU, out.CPU
	b.mix = floods(in.IPv4.Addr())
	switch {
	case in.NAPI == 0:
		return nil, kernel.Refuse(nil, "this kernel does not say which thread receives (needs Linux 6.8)")
	case in.CPU < 0 || in.CPU == out.CPU:
		return nil, kernel.Refuse(nil, "measuring needs two cores: one receives, one generates")
	}
	// What else runs on this machine shall wait for the receiver, as it does for the soft interrupt in
	// which most drivers receive.
	if err := unix.Setpriority(unix.PRIO_PROCESS, b.napi, -20); err != nil {
		return nil, fmt.Errorf("raising the priority of the receiving thread: %w", err)
	}
	return b, nil
}

// pinned runs f on the generator's core, so that what this process does is never at the receiver's
// expense.
func (b *bench) pinned(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var old, set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &old); err != nil {
		return fmt.Errorf("reading the allowed cores: %w", err)
	}
	set.Set(b.generatorCPU)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("running on core %d: %w", b.generatorCPU, err)
	}
	defer func() { _ = unix.SchedSetaffinity(0, &old) }() // was allowed before
	prio, err := unix.Getpriority(unix.PRIO_PROCESS, 0)   // 20 - nice, of this thread
	if err == nil {
		err = unix.Setpriority(unix.PRIO_PROCESS, 0, -20)
	}
	if err != nil {
		return fmt.Errorf("raising the priority of the measuring thread: %w", err)
	}
	defer func() { _ = unix.Setpriority(unix.PRIO_PROCESS, 0, 20-prio) }()
	return f()
}

// visit installs a defence, measures one window for each traffic of the mix, and removes it.
func (b *bench) visit(ctx context.Context, d peer.Defence) (windows []Window, err error) {
	site := peer.Site{Host: b.server, Device: b.device}
	defer func() { err = errors.Join(err, d.Remove(context.WithoutCancel(ctx))) }()
	if err := d.Install(ctx, site); err != nil {
		return nil, err
	}
	for _, t := range b.mix {
		w, err := b.window(ctx, d, t)
		if err != nil {
			return nil, err
		}
		w.Traffic = t.name
		windows = append(windows, *w)
	}
	return windows, nil
}

// ends are the counts that must balance, read while nothing is sent.
type ends struct {
	received, refused, dropped uint64
	stack                      stack
}

func (b *bench) ends(ctx context.Context, d peer.Defence) (e ends, err error) {
	err = b.server.Do(func() error {
		c, err := lab.Counters(b.device)
		if err != nil {
			return err
		}
		e.received = c[peer.Received]
		e.stack, err = readStack()
		return err
	})
	if err != nil {
		return e, err
	}
	err = b.world.Do(func() error {
		c, err := lab.Counters(b.device)
		e.refused = c[peer.Refused]
		return err
	})
	if err != nil {
		return e, err
	}
	e.dropped, err = d.Dropped(ctx)
	return e, err
}

// window measures: counts, flood on, warm-up, sample, window, sample, flood off, counts.
func (b *bench) window(ctx context.Context, d peer.Defence, t traffic) (*Window, error) {
	w := &Window{ticks: float64(clockTick) / float64(b.Window)}
	before, err := b.inspect()
	if err != nil {
		return nil, err
	}
	first, err := b.ends(ctx, d)
	if err != nil {
		return nil, err
	}
	stop, wait := b.start(ctx, t)
	start, end, err := b.between(ctx)
	stop()
	sent, genErr := wait()
	if err = errors.Join(err, genErr); err != nil {
		return nil, err
	}
	if err := b.drained(ctx); err != nil {
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
	w.conditions = before.broken(d.Hook())
	if len(w.conditions) == 0 {
		w.conditions = after.broken(d.Hook())
	}
	if skew := start.skew + end.skew; skew > b.Window/200 {
		w.conditions = append(w.conditions, fmt.Sprintf("reading the counters took %v, too long for a window of %v", skew, b.Window))
	}
	w.fill(start, end)
	w.balance(sent, first, last, d.Hook())
	w.judge()
	return w, nil
}

func (w *Window) fill(start, end sample) {
	wall := end.at.Sub(start.at)
	w.Seconds = wall.Seconds()
	w.Packets = end.received - start.received
	w.CoreBusy = end.cpu.busy(start.cpu)
	w.ThreadBusy = min(1, float64(end.thread-start.thread)/float64(wall))
	w.Steal = end.cpu.stolen(start.cpu)
}

func (w *Window) balance(sent gen.Report, first, last ends, hook peer.Hook) {
	w.Offered = sent.Sent
	w.Refused = last.refused - first.refused
	w.Received = last.received - first.received
	w.Dropped = last.dropped - first.dropped
	w.PassedOn = last.stack.received - first.stack.received
	if hook == peer.LocalIn {
		w.PassedOn = last.stack.delivered - first.stack.delivered
	}
	w.Martians = last.stack.martians - first.stack.martians
}

// start sends the flood as fast as it goes until stop.
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
			Frames: t.frames, Seed: b.Seed,
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
func (b *bench) between(ctx context.Context) (start, end sample, err error) {
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
		if err = b.during(ctx, b.Window); err != nil {
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

// drained waits until the receiver counts no more: its ring is empty.
func (b *bench) drained(ctx context.Context) error {
	return b.until(ctx, "packets still arrive after the generator ended", func(last, now uint64) bool { return now == last })
}

// until compares the receiver's count of packets with that 10 ms before.
func (b *bench) until(ctx context.Context, otherwise string, ok func(last, now uint64) bool) error {
	deadline := time.Now().Add(settleTime)
	last, err := b.received()
	for err == nil {
		if err = sleep(ctx, 10*time.Millisecond); err != nil {
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

func (b *bench) received() (n uint64, err error) {
	err = b.server.Do(func() error {
		c, err := lab.Counters(b.device)
		n = c[peer.Received]
		return err
	})
	return n, err
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
