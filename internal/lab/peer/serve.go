package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/host"
	"levee/internal/kernel"
	"levee/internal/lab"
	"levee/internal/lab/echo"
	"levee/internal/lab/gen"
)

const (
	// hello begins the line that a peer says first; its version follows.
	hello = "levee-lab peer "
	// silence is after how long without a question a peer ends, and a client asks in between.
	silence, heartbeat = time.Minute, 10 * time.Second
	// Longest bounds a flood and a run of probes, and most the packets of a flood a second.
	Longest = 2 * time.Minute
	most    = 20e6
)

// Peer has the methods that a client calls.
type Peer struct {
	ctx   context.Context
	roles map[string][]string
	mu    sync.Mutex
	lab   *lab.Lab
	nice  int // of what receives
	trace *gen.Frames
	run   *run // the flood that is on, or was
	procs []*lab.Process
}

// run is a flood.
type run struct {
	stop context.CancelFunc
	done chan struct{}
	sent gen.Report
	err  error
}

// Facts describes the machine and the card of one end, on which figures depend.
type Facts struct {
	Machine host.Info
	Card    lab.Card
}

// Clock holds the readings of a machine's two clocks at one moment, in ns.
type Clock struct{ Wall, Monotonic int64 }

// End names the interface that a peer takes, and what it has to know of the other end.
type End struct {
	Device string
	CPU    int
	Peer   lab.MAC
	// Nice is that of the threads that receive. 0 has them go as probes do, before all programs.
	Nice int
}

// Taken holds a peer's part of the wire: the core that receives, and the addresses of clients.
type Taken struct {
	CPU      int
	Clients4 []netip.Addr
}

// Load is a flood: Floods as in gen.Config, or the trace that the peer was given before.
type Load struct {
	Floods   []gen.Flood `json:",omitempty"`
	Seed     uint64
	Rate     float64 // packets a second, 0 for as fast as it goes
	Burst    int
	Duration time.Duration // unless it is ended before
	Dropped  bool
}

// Sent counts the packets of a flood.
type Sent struct {
	Sent, Bytes, Refused, Errors uint64
	Duration                     time.Duration
	Achieved                     float64
	How, Why                     string
}

// Timed holds the results of probes: the round trip of each in ns, or Late. Late is how long after
// their planned start the peer heard of them; none was sent then.
type Timed struct {
	Took []int64
	Late time.Duration
}

// Serving holds the facts about a peer that its machine does not tell.
type Serving struct {
	Version string
	// Roles are the command lines of the processes that it may be asked for, by name; arguments are
	// added.
	Roles map[string][]string
}

// Serve is a peer, until in ends, ctx does, or nobody asks for a minute. It leaves nothing behind.
// A frame is sent on no other interface than the one that End names.
func Serve(ctx context.Context, x Serving, in io.Reader, out io.Writer) (err error) {
	// Who measures may be gone while an answer is written: an error then, and not the end of this
	// process before it has given the interface back.
	gone := make(chan os.Signal, 1)
	signal.Notify(gone, unix.SIGPIPE)
	defer signal.Stop(gone)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := &Peer{ctx: ctx, roles: x.Roles}
	defer func() { err = errors.Join(err, p.close()) }()
	s := rpc.NewServer()
	if err := s.Register(p); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, "%s%s\n", hello, x.Version); err != nil {
		return err
	}
	heard := time.AfterFunc(silence, cancel)
	defer heard.Stop()
	go func() {
		defer cancel()
		s.ServeCodec(jsonrpc.NewServerCodec(&stream{Reader: &bounded{r: in,
			read: func() { heard.Reset(silence) }, end: cancel}, Writer: out}))
	}()
	<-ctx.Done()
	return nil
}

// Facts tells what the machine and an interface are, if it may be taken.
func (p *Peer) Facts(device string, f *Facts) error {
	if err := kernel.Privileged(); err != nil {
		return err
	}
	if err := Guard(p.ctx, device); err != nil {
		return err
	}
	f.Machine = host.Fingerprint(0)
	var err error
	f.Card, err = lab.ReadCard(device)
	return err
}

// Clock tells the time.
func (p *Peer) Clock(_ struct{}, c *Clock) error {
	c.Monotonic, c.Wall = int64(kernel.Monotonic()), time.Now().UnixNano()
	return nil
}

// Take takes an interface, and tells what is there.
func (p *Peer) Take(e End, t *Taken) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lab != nil {
		return errors.New("an interface is taken already")
	}
	if p.ctx.Err() != nil { // nobody would give it back
		return errors.New("the peer has ended")
	}
	if err := Guard(p.ctx, e.Device); err != nil {
		return err
	}
	// It stays for the tidying up: close removes it.
	l, err := lab.Take(context.WithoutCancel(p.ctx), lab.Taking{Device: e.Device, End: lab.World,
		Peer: e.Peer, CPU: e.CPU})
	if err != nil {
		return err
	}
	d := &l.Hosts[0].Devices[0]
	p.lab, p.nice, *t = l, e.Nice, Taken{max(d.CPU, 0), d.Clients4}
	if e.Nice != 0 && d.NAPI != 0 {
		if err := unix.Setpriority(unix.PRIO_PROCESS, d.NAPI, e.Nice); err != nil {
			return fmt.Errorf("the priority of the receiving thread: %w", err)
		}
	}
	return nil
}

// PacketSockets counts those that are open beside the interface: each packet is copied for them.
func (p *Peer) PacketSockets(_ struct{}, n *int) error {
	h, err := p.host()
	if err != nil {
		return err
	}
	return h.Do(func() error {
		*n, err = lab.PacketSockets()
		return err
	})
}

// Trace is given frames, for floods that send them in turn.
func (p *Peer) Trace(frames [][]byte, _ *struct{}) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trace = &gen.Frames{Frames: frames}
	return nil
}

// Begin begins a flood.
func (p *Peer) Begin(l Load, _ *struct{}) error {
	h, err := p.host()
	if err != nil {
		return err
	}
	if l.Rate > most || l.Duration <= 0 || l.Duration > Longest {
		return fmt.Errorf("a flood of %g packets a second for %v: at most %g for %v", l.Rate,
			l.Duration, most, Longest)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run != nil {
		return errors.New("a flood is on already")
	}
	ctx, stop := context.WithCancel(p.ctx)
	d := &h.Devices[0]
	c := gen.Config{Namespace: h.Namespace, Device: d.Name, CPU: max(d.CPU, 0), Floods: l.Floods,
		Seed: l.Seed, Rate: l.Rate, Burst: l.Burst, Duration: l.Duration, Dropped: l.Dropped}
	if l.Floods == nil {
		c.Frames = p.trace
	}
	r := &run{stop: stop, done: make(chan struct{})}
	p.run = r
	go func() {
		defer close(r.done)
		runtime.LockOSThread() // never unlocked: the thread and its priority end with the goroutine
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, sendingNice)
		r.sent, r.err = gen.Run(ctx, c)
	}()
	return nil
}

// sendingNice is before what else runs on the machine.
const sendingNice = -15

// End ends the flood, or says how it ended.
func (p *Peer) End(_ struct{}, s *Sent) error {
	p.mu.Lock()
	r := p.run
	p.run = nil
	p.mu.Unlock()
	if r == nil {
		return errors.New("no flood is on")
	}
	r.stop()
	<-r.done
	if r.err != nil {
		return r.err
	}
	*s = Sent{r.sent.Sent, r.sent.Bytes, r.sent.Refused, r.sent.Errors, r.sent.Duration,
		r.sent.Achieved, r.sent.How, r.sent.Why}
	return nil
}

// Probe times round trips; from where, and on which core, the peer knows itself.
func (p *Peer) Probe(probes echo.Probes, t *Timed) error {
	wait := probes.Begin - kernel.Monotonic()
	if probes.Begin != 0 && wait > Longest {
		return fmt.Errorf("probes are to begin %v from now: up to %v, by the peer's clock", wait,
			Longest)
	}
	if probes.Begin != 0 && wait <= 0 {
		t.Late = max(-wait, 1)
		return nil
	}
	h, err := p.host()
	if err != nil {
		return err
	}
	if n := len(probes.At); n == 0 || probes.At[n-1] > int64(Longest) || n > mostProbes ||
		probes.Patience > Longest {
		return fmt.Errorf("%d probes: 1 to %d within %v", len(probes.At), mostProbes, Longest)
	}
	d := &h.Devices[0]
	probes.From, probes.CPU = d.Clients4[0], max(d.CPU, 0)
	if d.NAPI != 0 && p.nice == 0 { // answers arrive there
		if err := echo.First(d.NAPI); err != nil {
			return err
		}
	}
	t.Took, err = probes.Run(p.ctx, h)
	return err
}

// mostProbes are those of a run.
const mostProbes = 10_000_000

// host returns the host of the interface that was taken.
func (p *Peer) host() (*lab.Host, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lab == nil {
		return nil, errors.New("no interface is taken yet")
	}
	return p.lab.Hosts[0], nil
}

// close ends what is on, and gives the interface back.
func (p *Peer) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run != nil {
		p.run.stop()
		<-p.run.done
	}
	if p.lab == nil {
		return nil
	}
	return p.lab.Close()
}

// stream is the connection that a codec reads and writes.
type stream struct {
	io.Reader
	io.Writer
	end func() error
}

func (s *stream) Close() error {
	if s.end == nil {
		return nil
	}
	return s.end()
}

// longestLine bounds a message: a trace of packets, or the round trips of many probes.
const longestLine = 256 << 20

// bounded reads lines, none of which is too long. read is called when something came, and end when
// nothing more does.
type bounded struct {
	r         io.Reader
	line      int
	read, end func()
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	for _, c := range p[:n] {
		if b.line++; c == '\n' {
			b.line = 0
		}
	}
	if b.line > longestLine {
		err = fmt.Errorf("a message of more than %d bytes: %w", longestLine, os.ErrInvalid)
	}
	if n > 0 && b.read != nil {
		b.read()
	}
	if err != nil && b.end != nil {
		b.end()
	}
	return n, err
}
