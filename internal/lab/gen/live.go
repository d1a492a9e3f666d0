package gen

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"levee/internal/filter/assembler"
	"levee/internal/kernel"
	"levee/internal/packet/template"
)

const (
	liveFrames = 1 << 1 // BPF_F_TEST_XDP_LIVE_FRAMES
	gapBatch   = 64     // packets between clock readings of an unpaced run; BATCH of bpf/gen.bpf.c
	// Program runs between flushes to the device, at which the receiver is woken. The kernel keeps
	// as many pages for reuse, so a small number costs page allocations; the largest it takes is
	// 256, which is also what the ring of a veth device holds. Paced runs flush more often: the
	// ring would be full each time.
	fastBatch, pacedBatch = 256, 128
	// firstRuns and mostRuns are how many times one system call runs a program: as often as in
	// aCall, but for the first ones. After each the context is looked at, and the kernel's grace
	// periods, which others wait for, can end: on a kernel with lazy preemption they do not before.
	firstRuns, mostRuns = 1 << 10, 1 << 17
	aCall               = 10 * time.Millisecond
	// A run that rests sleeps for a ninth of each call's time behind it, and its calls are so short
	// that what it makes up for then has room in the ring.
	aCallThatRests, restsAfter = time.Millisecond, 9
	// sleepBelow is the rate, in packets a second, below which waiting for the next packet is
	// done asleep; above it the program itself waits, which keeps the gaps even.
	sleepBelow = 5000
	// readings of the clock are about 5 us, for which a paced run waits for its packet; for a
	// burst, of which there are fewer, four times as many
	readings = 256
	// wake is the time by which a sleeper is woken before a packet is due, against late timers.
	wake = 100 * time.Microsecond
)

// live is a loaded generator program.
type live struct {
	objs  liveObjects
	pace  livePace
	prog  *template.Program
	state liveRun
}

// nextRuns returns how many runs the next system call makes, so that it takes a time, when one of
// so many took so long.
func nextRuns(runs uint64, took, call time.Duration) uint64 {
	fitting := float64(runs) * float64(call) / float64(max(took, 1))
	return min(max(uint64(min(fitting, 2*float64(runs))), pacedBatch), mostRuns)
}

// refusal is the reason that the kernel or the device sends no live frames. None has been sent
// then.
type refusal struct{ error }

func (r *refusal) Unwrap() error { return r.error }

// slack is by how many bytes live frames begin longer than they are sent. What comes back in their
// pages may be shorter, and is sent again at that length unless a program has changed it
// (frame_was_changed of net/bpf/test_run.c looks elsewhere): so each frame is changed.
func (c *Config) slack() int {
	if c.Dropped {
		return 0
	}
	return 1
}

// runLive sends a template as live frames.
func runLive(ctx context.Context, c Config, dev device, prog *template.Program) (Report, error) {
	l := &live{prog: prog, pace: livePace{Ifindex: uint32(dev.index)}}
	if c.Rate > 0 {
		burst := max(c.Burst, 1)
		interval := 1e9 / c.Rate
		l.pace.Burst = uint32(burst)
		l.pace.Readings = uint64(min(burst, 4)) * readings
		l.pace.Interval = uint64(math.Round(interval * (1 << 16)))
		if c.Rate >= sleepBelow {
			// What a preempted run is behind is made up for at four times the rate, not in
			// bursts that the ring cannot hold.
			l.pace.Smooth = uint64(float64(burst) * interval / 4)
		} else {
			// What is left of a call once its packet has gone would only burn a core.
			l.pace.Patience = uint64(2 * wake)
		}
	}
	if err := l.load(c.loadLive); err != nil {
		return Report{}, &refusal{err}
	}
	defer l.objs.Close()
	return counted(dev, l.objs.Gen, func(m meter) (Report, error) {
		if err := l.run(ctx, c, dev, m); err != nil {
			return Report{}, err
		}
		return l.report(), nil
	})
}

// counted runs a program that redirects to a device, and takes what the device took into the
// report.
func counted(dev device, prog *ebpf.Program, run func(meter) (Report, error)) (Report, error) {
	release, err := kernel.HoldDispatched(prog)
	if err != nil {
		return Report{}, &refusal{fmt.Errorf("keeping the generator program ready: %w", err)}
	}
	defer release()
	m, err := newMeter(dev)
	if err != nil {
		return Report{}, &refusal{err}
	}
	defer m.close()
	r, err := run(m)
	if err != nil {
		return r, err
	}
	if counts := m.counts(); counts != "" {
		r.How += "; " + counts
	}
	t, err := m.read()
	if err != nil {
		return r, err
	}
	return r, t.into(&r)
}

// load puts the generator program into the kernel, with the body that writes the packets.
func (l *live) load(into func(*ebpf.CollectionSpec, *liveObjects) error) error {
	spec, err := loadLive()
	if err != nil {
		return err
	}
	var vars liveVariableSpecs
	if err := spec.Assign(&vars); err != nil {
		return err
	}
	if err := vars.Plan.Set(l.pace); err != nil {
		return fmt.Errorf("pacing the generator program: %w", err)
	}
	gen := spec.Programs["gen"]
	gen.Instructions = assembler.Older(gen.Instructions)
	if gen.Instructions, err = assembler.Replace(gen.Instructions, "frame",
		l.prog.Instructions); err != nil {
		return err
	}
	spec.Maps[template.TableMap] = &ebpf.MapSpec{
		Name: template.TableMap, Type: ebpf.Array, KeySize: 4, ValueSize: uint32(len(l.prog.Table)),
		MaxEntries: 1,
		Contents:   []ebpf.MapKV{{Key: uint32(0), Value: l.prog.Table}},
	}
	if into == nil {
		into = func(spec *ebpf.CollectionSpec, objs *liveObjects) error {
			return spec.LoadAndAssign(objs, nil)
		}
	}
	if err := into(spec, &l.objs); err != nil {
		return fmt.Errorf("loading the generator program: %w", err)
	}
	return nil
}

// run sends until the program says that it is done.
func (l *live) run(ctx context.Context, c Config, dev device, m meter) error {
	start := monotonic()
	st := &l.state
	st.Limit = c.Count
	st.Start = start
	st.Deadline = start + uint64(c.Duration)
	if err := l.objs.State.Set(*st); err != nil {
		return fmt.Errorf("starting the generator program: %w", err)
	}
	shown := time.Now()
	some, call, rests := uint64(firstRuns), aCall, c.Rests && c.Rate >= sleepBelow
	if rests {
		call = aCallThatRests
	}
	seen := false // that the device takes frames, or may
	for ctx.Err() == nil {
		if st.Done != 0 || st.Sent >= st.Limit || monotonic() >= st.Deadline {
			return nil
		}
		runs, batch := some, uint32(pacedBatch)
		if c.Rate == 0 {
			batch = fastBatch
		}
		if c.Rate == 0 {
			runs = min(runs, st.Limit-st.Sent)
		} else if c.Rate < sleepBelow {
			runs = pacedBatch
			due := min(st.Start+st.Due>>16, st.Deadline)
			if now := monotonic(); due > now+uint64(wake) {
				if !sleep(ctx, time.Duration(due-now)-wake) {
					return nil
				}
			}
		}
		began := monotonic()
		_, err := l.objs.Gen.Run(&ebpf.RunOptions{
			Data:      l.prog.First,
			Repeat:    uint32(runs),
			Flags:     liveFrames,
			BatchSize: batch,
		})
		if err != nil {
			err = fmt.Errorf("running the generator program over live frames (needs Linux "+
				"5.18): %w", err)
			if l.objs.State.Get(st) == nil && st.Sent == 0 {
				return &refusal{err}
			}
			return err
		}
		took := time.Duration(monotonic() - began)
		if runs == some {
			some = nextRuns(runs, took, call)
		}
		if rests && !sleep(ctx, took/restsAfter) {
			return nil
		}
		if err := l.objs.State.Get(st); err != nil {
			return fmt.Errorf("reading the generator program's counts: %w", err)
		}
		if st.Errors > 0 {
			return fmt.Errorf("the generator program could not write %d frames", st.Errors)
		}
		if !seen && st.Sent > 0 {
			seen = true
			t, err := m.read()
			if err != nil {
				return err
			}
			if t.frames+t.refused == 0 {
				return &refusal{t.none()}
			}
		}
		if time.Since(shown) < 100*time.Millisecond {
			continue
		}
		shown = time.Now()
		// A redirect to a device that is gone fails without a word.
		if _, err := netlink.LinkByIndex(dev.index); err != nil {
			return fmt.Errorf("the device went away while sending: %w", err)
		}
		if c.Progress != nil {
			c.Progress(Progress{Sent: st.Sent, Elapsed: time.Duration(monotonic() - start)})
		}
	}
	return nil
}

// report returns what the program counted.
func (l *live) report() Report {
	st := &l.state
	r := Report{Sent: st.Sent, Bytes: st.Bytes, Gaps: KernelGaps(st.Gaps[:], st.GapMax), Path: Live}
	r.How = "live frames (BPF_F_TEST_XDP_LIVE_FRAMES): an XDP program writes each packet"
	r.Gaps.Packets = gapBatch
	r.Duration = time.Duration(min(monotonic(), st.Deadline) - st.Start)
	span, paced := r.Duration, l.pace.Interval > 0
	if paced {
		r.Gaps.Packets = int(l.pace.Burst)
		if st.Sent > 1 {
			span = time.Duration(st.Last - st.Start)
		}
	}
	r.Achieved = achieved(st.Sent, span, paced)
	return r
}

// monotonic returns the clock that the program reads, in ns.
func monotonic() uint64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // cannot fail for this clock
	return uint64(ts.Nano())
}

// sleep waits and says whether ctx is still going.
func sleep(ctx context.Context, d time.Duration) bool {
	return kernel.SleepUntil(ctx, kernel.Monotonic()+d)
}
