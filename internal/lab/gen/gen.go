// Package gen sends packets, as many and as fast as it is told, into a lab.
//
// In goes a Config: a flood that is described, a template, a trace of frames, or a capture to
// replay. Out comes a Report with exact counts, the rate reached, the gaps between packets, and
// what the receiver's ring refused, so that sent = refused + received can be checked. There are
// four paths to the device (path.go): live frames, where an XDP program writes each packet and
// redirects it to the device without a system call, and three from user space.
//
// Runs are always bounded, by default to 10 s. The package must never transmit on a device that
// is not part of a lab on record, unless the caller says that the network is his own.
package gen

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"levee/internal/host/linklayer"
	"levee/internal/lab"
	"levee/internal/lang/spec"
	"levee/internal/usage"
)

// defaultDuration bounds a run that is bounded by nothing else.
const defaultDuration = 10 * time.Second

// MaxBurst limits the live frames that go at once.
const MaxBurst = gapBatch

// MaxCopies bounds how often the same frame goes in a row.
const MaxCopies = 1_000_000

// What stands for no count, and bounds what is bounded by a count.
const (
	noLimit    = math.MaxUint64
	noDeadline = 24 * time.Hour
)

// Config says what to send, where and how fast. Exactly one of Floods, Template, Frames and Replay
// is given.
type Config struct {
	Namespace  string // of the device, as `ip netns` lists it; "" is the current one
	Device     string
	OwnNetwork bool // the device is not of a lab, and the caller may flood what is behind it
	CPU        int  // the core to run on, negative for any
	// More cores, each of which sends its share of the packets by a socket of its own. Of the paths
	// only Packet, Qdisc and Sendmmsg have more than one.
	More []int

	Floods   []Flood // sent in turn
	Template []spec.Packet
	// To gets packets of a template that do not say where they go; the zero value is the lab's
	// other end.
	To     netip.Addr
	Frames *Frames
	Replay *Replay

	// Path to the device. Frames take Live only, a Replay Packet only.
	Path Path

	// Count of packets to send, 0 for no limit of that kind.
	Count uint64
	// Rate in packets a second, 0 for as fast as possible (a replay: at the capture's own times).
	Rate float64
	// Burst counts the packets of a paced run of live frames that go at once, as a network card
	// hands them over: a power of two up to 64; 0 is one. The clock is read once for each burst.
	Burst int
	// Copies counts the times in a row that a frame that was made is sent, as the kernel's pktgen
	// does by clone_skb; 0 is once. Live frames are written anew each time, whatever is in them.
	Copies int
	// Duration after which to stop, 0 for defaultDuration if there is no Count either (a replay
	// that is not repeated ends with its capture).
	Duration time.Duration
	// Seed of everything that varies: the same seed sends the same packets.
	Seed uint64

	// Rests has a paced run of live frames leave its core a tenth of the time, where otherwise it
	// waits busily: with real-time priority it would be given 95 % of the core together with all
	// else that has one, and then nobody of them runs for the rest of a second (sched(7),
	// sched_rt_runtime_us).
	Rests bool

	// Dropped says that the receiver sends none of the packets back, as XDP programs do in their
	// own memory: live frames of one length then take a fifth less time.
	Dropped bool

	// Progress, if given, is called about ten times a second from the sending goroutine.
	Progress func(Progress)

	share share // of the packets

	// loadLive, if given, loads the program that makes live frames. Tests refuse it.
	loadLive func(*ebpf.CollectionSpec, *liveObjects) error
}

// Progress tells how far a run has got.
type Progress struct {
	Sent    uint64
	Elapsed time.Duration
}

// Report counts the packets of a run, and says how fast they left.
type Report struct {
	Sent    uint64 // packets handed to the device
	Bytes   uint64 // of their frames, without FCS
	Refused uint64 // of Sent, those for which the receiver or the driver had no room
	// packets that the device cannot send (it takes no XDP frames, too long); not in Sent
	Errors   uint64
	TooShort uint64 // of Errors: a frame of a capture that is shorter than an Ethernet header
	TooLong  uint64 // of Errors: longer than the device's MTU allows
	// of Sent: cut by the capture, sent at the length on the wire with zeros at the end
	Filled   uint64
	Duration time.Duration
	Rate     float64 // requested, packets a second; 0 for as fast as possible
	// packets a second: Sent over Duration; in a paced run, over the time to the last packet
	Achieved float64
	Seed     uint64
	Gaps     Gaps
	Path     Path   // that was taken,
	How      string // in words,
	Why      string // and why not Live, if the choice was the generator's
}

// Unsent says why packets were not sent, one reason each with its number; nothing when all were.
func (r *Report) Unsent() []string {
	var why []string
	for _, w := range []struct {
		n    uint64
		text string
	}{
		{r.TooShort, "shorter than an Ethernet header"},
		{r.TooLong, "longer than the MTU of the device allows"},
		{r.Errors - r.TooShort - r.TooLong,
			"not taken by the device: not a frame for it, or it takes none of XDP programs"},
	} {
		if w.n > 0 {
			why = append(why, fmt.Sprintf("%d %s", w.n, w.text))
		}
	}
	return why
}

// ErrNotOurs wraps lab.ErrForeign with what to do about it.
var ErrNotOurs = errors.New("transmits only into a lab (`levee lab up`), or with --own-network " +
	"on a network of your own")

// Run sends until the count, the duration or ctx ends the run, and reports what was sent; being
// ended by ctx is no error. It needs root.
func Run(ctx context.Context, c Config) (Report, error) {
	if err := c.check(); err != nil {
		return Report{}, fmt.Errorf("gen: %w", err)
	}
	if os.Geteuid() != 0 {
		return Report{}, fmt.Errorf("gen: sending on %s needs root: %w", c.Device, os.ErrPermission)
	}
	r, dev, err := c.run(ctx)
	if err != nil && dev.name == "" { // which it says itself
		return r, fmt.Errorf("gen: %w", err)
	}
	if err != nil {
		return r, fmt.Errorf("gen: %s: %w", c.Device, err)
	}
	r.Rate, r.Seed = c.Rate, c.Seed
	return r, nil
}

// run sends from one core, or from each of several.
func (c *Config) run(ctx context.Context) (r Report, dev device, err error) {
	if len(c.More) > 0 {
		return c.shared(ctx)
	}
	err = lab.Inside(c.Namespace, func() error {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		// Timers of this thread may be late by 50 µs otherwise, to save wake-ups.
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
		defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) }() // back to the default
		restore, err := pin(c.CPU)
		if err != nil {
			return err
		}
		defer restore()
		if dev, err = findDevice(*c); err != nil {
			return err
		}
		switch {
		case c.Floods != nil || c.Template != nil:
			r, err = runTemplate(ctx, *c, dev)
		case c.Frames != nil:
			r, err = runFrames(ctx, *c, dev)
		default:
			r, err = runReplay(ctx, *c, dev)
		}
		return err
	})
	return r, dev, err
}

// achieved returns the rate of n packets sent over span. In a paced run the first went at its start
// and the last at its end, which makes one interval less than packets.
func achieved(n uint64, span time.Duration, paced bool) float64 {
	if paced && n > 1 {
		n--
	}
	if span <= 0 {
		return 0
	}
	return float64(n) / span.Seconds()
}

func (c *Config) check() error {
	switch {
	case c.Device == "":
		return usage.Wrongf("no device is named")
	case !one(c.Floods != nil, c.Template != nil, c.Frames != nil, c.Replay != nil):
		return usage.Wrongf("name either a flood, a template, a trace or a capture to replay")
	case c.Path != Auto && !slices.Contains(Paths, c.Path):
		return usage.Wrongf("unknown path %q", c.Path)
	case c.Frames != nil && c.Path != Auto && c.Path != Live:
		return usage.Wrongf("a trace is sent as live frames, not by %s", c.Path)
	case c.Replay != nil && c.Path != Auto && c.Path != Packet:
		return usage.Wrongf("a capture is replayed by a packet socket, not by %s: its frames are "+
			"as many as it has, and all different", c.Path)
	case c.Rate < 0 || math.IsNaN(c.Rate) || c.Rate > 1e9:
		return usage.Wrongf("rate %g: must be 0 to 1e9 packets a second", c.Rate)
	case c.Rate > 0 && c.Rate < 1e-3:
		return usage.Wrongf("rate %g: the lowest is 0.001 packets a second", c.Rate)
	case c.Burst < 0 || c.Burst > MaxBurst || c.Burst&(c.Burst-1) != 0:
		return usage.Wrongf("burst %d: must be a power of two up to %d", c.Burst, MaxBurst)
	case c.Copies < 0 || c.Copies > MaxCopies:
		return usage.Wrongf("%d copies: 1 to %d", c.Copies, MaxCopies)
	case c.Copies > 1 && (c.Path == Auto || c.Path == Live):
		return usage.Wrongf("copies go by the paths from user space: each live frame is written " +
			"anew")
	case len(c.More) > 0 && (c.Floods == nil && c.Template == nil ||
		!slices.Contains(severalCores, c.Path)):
		return usage.Wrongf("several cores send floods and templates by the paths %s", severalCores)
	case c.CPU < -1:
		return usage.Wrongf("core %d: 0 and up, or -1 for any", c.CPU)
	case c.Duration < 0 || c.Duration > noDeadline:
		return usage.Wrongf("duration %s: must be 0 to 24h", c.Duration)
	}
	if c.Duration == 0 {
		c.Duration = noDeadline
		if c.Count == 0 && (c.Replay == nil || c.Replay.Repeat) {
			c.Duration = defaultDuration
		}
	}
	if c.Count == 0 {
		c.Count = noLimit
	}
	if c.Frames != nil {
		return c.Frames.check()
	}
	return nil
}

// one tells whether exactly one is true.
func one(of ...bool) bool {
	n := 0
	for _, v := range of {
		if v {
			n++
		}
	}
	return n == 1
}

// device is the destination of packets.
type device struct {
	name     string
	index    int
	mtu      int
	mac, dst [6]byte    // its own address and, in a lab, its peer's
	to4, to6 netip.Addr // of its lab peer
	inLab    bool
}

// findDevice looks the device up and refuses what is not ours to flood.
func findDevice(c Config) (device, error) {
	d, err := lab.Owned(c.Device)
	if err == nil {
		return device{d.Name, d.Index, d.MTU, d.MAC, d.Peer.MAC, d.Peer.IPv4, d.Peer.IPv6, true},
			nil
	}
	if errors.Is(err, lab.ErrNoDevice) {
		return device{}, err
	}
	if !c.OwnNetwork {
		return device{}, fmt.Errorf("%w: %w", err, ErrNotOurs)
	}
	link, err := netlink.LinkByName(c.Device)
	if err != nil {
		return device{}, err
	}
	if err := linklayer.Ethernet(link); err != nil && c.Path != Sendmmsg {
		return device{}, fmt.Errorf("%w, and all paths but %s send Ethernet frames; use --path "+
			"%[2]s, or the Ethernet interface that carries them", err, Sendmmsg)
	}
	attrs := link.Attrs()
	dev := device{name: c.Device, index: attrs.Index, mtu: attrs.MTU}
	copy(dev.mac[:], attrs.HardwareAddr)
	return dev, nil
}

// pin keeps the calling thread, which is locked, on one core until restore.
func pin(cpu int) (restore func(), err error) {
	if cpu < 0 {
		return func() {}, nil
	}
	var old, set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &old); err != nil {
		return nil, fmt.Errorf("reading the allowed cores: %w", err)
	}
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return nil, usage.Wrongf("core %d: this process cannot run there (%v)", cpu, err)
	}
	return func() { _ = unix.SchedSetaffinity(0, &old) }, nil
}
