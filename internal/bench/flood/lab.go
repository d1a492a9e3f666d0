package flood

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/bench"
	"levee/internal/kernel"
	"levee/internal/lab"
	"levee/internal/lab/app"
	"levee/internal/lab/contender"
	"levee/internal/usage"
)

// Options of windows.
type Options struct {
	bench.Options
	Warmup   time.Duration
	Attempts int // at a round that is disturbed, 0 for 3
	// Budget is the time after which no round is tried again, and none begun beyond the sixth; 0
	// for no bound.
	Budget time.Duration
	// Watch, if given, is called for each window, while the flood arrives, warmed up. It must call
	// wait, which returns when the window is over, and return what that returns. What it does
	// besides runs on the generator's core.
	Watch func(r Receiver, wait func() error) error
	// Wire, if given, is another machine that sends the flood over a real card.
	Wire *Wire
}

// Receiver is the kernel thread that takes packets from the ring, and its core.
type Receiver struct {
	CPU    int
	Thread int // process id
}

// Usual holds the default options of a measurement. Windows last MinWindow to MaxWindow unless it
// says otherwise.
type Usual struct {
	bench.Usual
	Warmup, QuickWarmup time.Duration
}

// Bounds of windows.
const (
	MinWindow = 50 * time.Millisecond
	MaxWindow = time.Minute
)

// Many is usual for many rungs: as long windows as six minutes have room for, and rather more
// rounds than longer windows, because what disturbs this kind of machine comes and goes within
// seconds (decision 0018). Few is for comparisons of few rungs, which have the time for long ones.
var (
	Many = Usual{
		bench.Usual{Rounds: 16, QuickRounds: 6, Window: 400 * time.Millisecond,
			QuickWindow: 150 * time.Millisecond},
		100 * time.Millisecond, 50 * time.Millisecond,
	}
	Few = Usual{
		bench.Usual{Rounds: 6, Window: time.Second, QuickWindow: 250 * time.Millisecond},
		300 * time.Millisecond, 150 * time.Millisecond,
	}
)

// Complete fills in what is usual and refuses what cannot be measured.
func (o *Options) Complete(u Usual) error {
	if o.Quick {
		u.Warmup = cmp.Or(u.QuickWarmup, u.Warmup)
	}
	if u.Longest == 0 {
		u.Shortest, u.Longest = MinWindow, MaxWindow
	}
	o.Warmup, o.Attempts = cmp.Or(o.Warmup, u.Warmup), cmp.Or(o.Attempts, maxAttempts)
	switch {
	case o.Attempts < 1 || o.Attempts > bench.MaxRounds:
		return usage.Wrongf("%d attempts at a round: there must be 1 to %d", o.Attempts,
			bench.MaxRounds)
	case o.Warmup < 0 || o.Warmup > MaxWindow:
		return usage.Wrongf("%v of warm-up: it lasts %v at most", o.Warmup, MaxWindow)
	}
	if o.Wire != nil {
		if err := o.Wire.Check(); err != nil {
			return err
		}
	}
	return o.Options.Complete(u.Usual)
}

// Lab is a lab that is ready for measurements.
type Lab struct {
	*Options
	Server *lab.Host
	World  *lab.Host // nil if it is another machine
	// GeneratorCPU is also the core of what measures; over a wire it is that alone.
	ReceiverCPU, GeneratorCPU int

	lab        *lab.Lab
	wire       *Joined          // nil if the world is a host of the lab
	how        string           // a peer sends
	device     string           // the same name at both ends of a veth pair
	napi       int              // process id of the receiving thread
	app        *app.Application // nil if no rung needs it
	hardware   *hardware
	threadTime *Stopwatch             // of the receiving thread
	appTime    *Stopwatch             // of the application; nil without it
	procStat   func() (string, error) // /proc/stat
	flows      float64                // new flows a second that conntrack is expected to take
}

// Open makes a lab. Options are complete. Close removes it.
func Open(ctx context.Context, o *Options) (*Lab, error) {
	if o.Wire != nil {
		return openWire(ctx, o)
	}
	// The lab stays for the tidying up after an interrupted window.
	made, err := lab.New(context.WithoutCancel(ctx), lab.Standard())
	if err != nil {
		return nil, err
	}
	l := &Lab{
		Options: o, lab: made, Server: made.Host(lab.Server), World: made.Host(lab.World),
		procStat: readProcStat, flows: firstFlows,
	}
	if err := l.prepare(); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *Lab) prepare() error {
	in := l.In()
	l.device, l.napi, l.ReceiverCPU = in.Name, in.NAPI, in.CPU
	if l.World != nil {
		l.GeneratorCPU = l.World.Devices[0].CPU
	}
	switch {
	case in.NAPI == 0:
		return kernel.Refuse(
			nil, "this kernel does not say which thread receives (needs Linux 6.8)")
	case in.CPU < 0 || in.CPU == l.GeneratorCPU:
		return kernel.Refuse(nil, "measuring needs two cores: one receives, one generates")
	}
	// What else runs on this machine shall wait for the receiver, as it does for the soft interrupt
	// in which most drivers receive.
	if err := unix.Setpriority(unix.PRIO_PROCESS, l.napi, receiverNice); err != nil {
		return fmt.Errorf("raising the priority of the receiving thread: %w", err)
	}
	l.hardware = openHardware(l.ReceiverCPU)
	l.threadTime = NewStopwatch(l.napi)
	return nil
}

// In returns the device on which the flood arrives.
func (l *Lab) In() *lab.Device { return &l.Server.Devices[0] }

// NoCounters says why there are no cycles, empty if there are.
func (l *Lab) NoCounters() string { return l.hardware.why }

// Listen starts the application on a port; first lets it go before all else on its core.
func (l *Lab) Listen(port uint16, first bool) (err error) {
	if l.app, err = app.Listen(l.Server, port, l.ReceiverCPU, first); err != nil {
		return err
	}
	l.appTime = NewStopwatch(l.app.Threads()...)
	return nil
}

// Close ends what Open and Listen have started.
func (l *Lab) Close() (err error) {
	if l.hardware != nil {
		l.hardware.close()
		l.threadTime.Close()
	}
	if l.app != nil {
		l.appTime.Close()
		err = l.app.Close()
	}
	if l.wire != nil {
		return errors.Join(err, l.wire.Close())
	}
	return errors.Join(err, l.lab.Close())
}

// Behind runs f while a defence is in place.
func (l *Lab) Behind(ctx context.Context, d contender.Defence, f func() error) (err error) {
	site := contender.Site{Host: l.Server, Device: l.device, Application: l.app}
	defer func() { err = errors.Join(err, d.Remove(context.WithoutCancel(ctx))) }()
	if err := d.Install(ctx, site); err != nil {
		return err
	}
	return f()
}
