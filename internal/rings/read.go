package rings

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"levee/internal/cli"
	"levee/internal/dataplane/tap"
	"levee/internal/packet"
	"levee/internal/quantity"
	"levee/internal/usage"
	"levee/ring"
)

const readLong = `Read a ring until Ctrl-C, and say each second how many packets came and how many were lost.
With --write they go to a capture in the format pcapng, each with the time at which it was read; "-"
is standard output, for a program that reads captures from a pipe.

The ring is read from all receive queues of the interface, or from those that --queue names; another
process may read the others. The command stays when the policy is replaced, and when it is taken
off: it reads the next one that has the ring. With --socket it needs no rights: the ring is one that
"levee ring serve" serves at that path.

--frames is how many packets may wait for the command in each queue. What finds no room is lost, and
counted.`

const readExample = `  sudo levee ring read dns
  sudo levee ring read dns --write dns.pcapng --count 1000
  levee ring read dns --socket /run/levee-ring/dns.sock --write - | tshark -r -`

type reading struct {
	*cli.Env
	name, dev, socket, write string
	queues                   []int
	count                    uint64
	lasts                    time.Duration
	options                  ring.Options
	json                     bool

	source  source
	file    *capture
	counts  Counts
	printed Counts // when a line was printed last
	at      time.Time
	asked   *ring.Reader // last, what it has lost
	told    uint64       // packets, by that one
}

// Counts is the object of `levee ring read --json`.
type Counts struct {
	Packets  uint64 `json:"packets"`
	Bytes    uint64 `json:"bytes"`
	Lost     uint64 `json:"lost"`      // that came, and found no room
	ZeroCopy bool   `json:"zero_copy"` // the driver wrote into the memory of the command
}

func newRead(e *cli.Env, inForce Reads) *cobra.Command {
	r := reading{Env: e}
	var lasts string
	cmd := &cobra.Command{
		Use:     "read NAME",
		Short:   "Read a ring, and write its packets to a capture",
		Long:    readLong,
		Example: readExample,
		Args:    cli.WantArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			r.name = args[0]
			if err := cli.DurationFlag(cmd, "duration", lasts, &r.lasts); err != nil {
				return err
			}
			if err := r.check(cmd); err != nil {
				return err
			}
			if r.socket == "" {
				if r.dev, err = ofRing(e, cmd, inForce, r.dev, r.name); err != nil {
					return err
				}
			}
			return r.run()
		},
	}
	cli.DevFlag(cmd, &r.dev, "the interface whose ring it is")
	fl := cmd.Flags()
	fl.StringVar(&r.socket, "socket", "", "get the ring from levee ring serve at this `path`")
	fl.StringVar(&r.write, "write", "", "write a capture to `FILE`, \"-\" being standard output")
	fl.IntSliceVar(&r.queues, "queue", nil,
		"read from the receive queue of this `number`; may be given again")
	fl.Uint64Var(&r.count, "count", 0, "end after `N` packets; 0: go on")
	fl.StringVar(&lasts, "duration", "", "end after this `TIME`")
	fl.IntVar(&r.options.Frames, "frames", 8192, "`N` packets may wait in each queue")
	fl.BoolVar(&r.options.Copy, "copy", false, "have the kernel copy packets, also where the "+
		"driver could write them into the memory of the command")
	cli.JsonFlag(cmd, &r.json)
	return cmd
}

func (r *reading) check(cmd *cobra.Command) error {
	fl := cmd.Flags()
	for _, name := range []string{"dev", "queue", "frames", "copy"} {
		if r.socket != "" && fl.Changed(name) {
			return cli.Usagef(cmd, "--%s is said by who serves the ring at --socket", name)
		}
	}
	switch n := r.options.Frames; {
	case slices.ContainsFunc(r.queues, func(q int) bool { return q < 0 }):
		return cli.Usagef(cmd, "--queue takes the number of a receive queue, from 0 on")
	case n < 64 || n > ring.MaxFrames || n&(n-1) != 0:
		return cli.Usagef(cmd, "--frames takes a power of two, 64 to %d", ring.MaxFrames)
	case r.write == cli.StdinName && r.json:
		return cli.Usagef(cmd, "--write - and --json would write to the same place")
	case r.write == cli.StdinName && r.Stdout.Terminal:
		return usage.Wrongf("a capture is no text for a terminal: give --write a file, or leave " +
			"it out for counts")
	}
	return nil
}

// source is the file or socket from which a ring is read.
type source interface {
	// look sees to it that the ring is read, if it is there, and says what has changed; "" for
	// nothing.
	look(ctx context.Context) (said string, err error)
	reader() *ring.Reader // nil: the ring is not there
	Close() error
}

// lookAgain is the interval between two looks for the ring.
const lookAgain = time.Second

func (r *reading) run() (err error) {
	ctx, stop := r.Signals()
	defer stop()
	if r.lasts > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.lasts)
		defer cancel()
	}
	if r.socket != "" {
		r.source = &served{path: r.socket, name: r.name}
	} else if r.source, err = openOwn(r.dev, r.name, r.queues, r.options); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.source.Close()) }()
	if err := r.read(ctx); err != nil {
		return err
	}
	if r.file != nil {
		if err := r.file.end(&r.counts); err != nil {
			return err
		}
	}
	if r.json {
		return r.PrintJSON(r.counts)
	}
	r.Sayf("%s read, %d lost", cli.Plural(r.counts.Packets, "packet"), r.counts.Lost)
	return nil
}

// read reads until ctx ends or the count is reached. What is wrong at the beginning is an error;
// later it may pass.
func (r *reading) read(ctx context.Context) error {
	first, before := true, ""
	for r.at = time.Now(); ctx.Err() == nil && !r.full(); first = false {
		said, err := r.source.look(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && (first || errors.Is(err, errGone)):
			return err
		case err != nil:
			said = err.Error()
		}
		if said != "" && said != before {
			r.Sayf("%s", said)
		}
		if before = said; said == "" {
			before = "reading"
		}
		if err := r.second(ctx); err != nil {
			return err
		}
		r.line()
	}
	return nil
}

func (r *reading) full() bool { return r.count > 0 && r.counts.Packets >= r.count }

// pause waits until it is worth looking again.
func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-time.After(lookAgain):
	}
	return nil
}

// second reads for as long as nothing else is to be done.
func (r *reading) second(ctx context.Context) error {
	in := r.source.reader()
	if in == nil {
		return pause(ctx)
	}
	if r.write != "" && r.file == nil {
		var err error
		if r.file, err = r.create(in); err != nil {
			return err
		}
	}
	r.counts.ZeroCopy = in.ZeroCopy()
	var failed error
	var ended bool
	var now time.Time
	each := func(queue int, frame []byte) {
		if r.full() || failed != nil {
			return
		}
		r.counts.Packets++
		r.counts.Bytes += uint64(len(frame))
		if r.file != nil {
			failed = r.file.packet(now, queue, frame)
		}
	}
	for end := time.Now().Add(lookAgain); ctx.Err() == nil && !r.full(); {
		if now = time.Now(); now.After(end) {
			break
		}
		_, err := in.Read(min(time.Until(end)+time.Millisecond, 100*time.Millisecond), each)
		if ended = errors.Is(err, ring.ErrEnded); ended {
			break
		}
		if err = errors.Join(err, failed); err != nil {
			return err
		}
	}
	err := r.lose(in)
	if r.file != nil {
		err = errors.Join(err, r.file.flush())
	}
	if ended && err == nil {
		return pause(ctx) // the next look tells
	}
	return err
}

// lose counts what a reader has lost since it was asked last, in between two seconds, too.
func (r *reading) lose(in *ring.Reader) error {
	s, err := in.Statistics()
	if err != nil {
		return err
	}
	if in != r.asked {
		r.asked, r.told = in, 0
	}
	r.counts.Lost += s.Lost() - r.told
	r.told = s.Lost()
	return nil
}

// line says what came since the last line.
func (r *reading) line() {
	now, was := time.Now(), r.printed
	seconds := now.Sub(r.at).Seconds()
	r.at, r.printed = now, r.counts
	if r.write != "" || r.json || r.counts == was && was.Packets == 0 {
		return
	}
	rate := func(n uint64, unit string) string { return quantity.Print(float64(n)/seconds, unit) }
	fmt.Fprintf(r.Stdout, "%s %s, %s, %d lost\n", now.Format("15:04:05"),
		rate(r.counts.Packets-was.Packets, "packets/s"),
		rate(8*(r.counts.Bytes-was.Bytes), "bit/s"), r.counts.Lost-was.Lost)
}

// capture is a capture that is written.
type capture struct {
	to     *bufio.Writer
	file   io.Closer
	ng     *packet.NGWriter
	number int
}

// create opens what --write names.
func (r *reading) create(in *ring.Reader) (*capture, error) {
	c := &capture{to: r.Stdout.Buffered(), file: io.NopCloser(nil)}
	if r.write != cli.StdinName {
		f, err := os.OpenFile(r.write, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return nil, err
		}
		c.to, c.file = bufio.NewWriterSize(f, 1<<20), f
	}
	link := packet.Ethernet
	if in.L3 {
		link = packet.L3
	}
	var err error
	if c.ng, err = packet.NewNGWriter(c.to, cli.VersionLine(), runtime.GOARCH); err != nil {
		return nil, err
	}
	c.number, err = c.ng.Interface(packet.NGInterface{Name: in.Dev, Link: link, Snap: 1 << 18,
		Filter: "ring " + r.name})
	return c, err
}

func (c *capture) packet(at time.Time, queue int, frame []byte) error {
	return c.ng.Packet(&packet.NGPacket{Interface: c.number, At: at, Data: frame,
		Length: len(frame)})
}

func (c *capture) flush() error { return c.to.Flush() }

// end ends the capture with what was lost.
func (c *capture) end(n *Counts) error {
	err := c.ng.Statistics(c.number, time.Now(), n.Packets+n.Lost, n.Lost)
	return errors.Join(err, c.flush(), c.file.Close())
}

// own is a ring whose queues this process opens.
type own struct {
	ring   *tap.Ring
	index  int // of the interface
	queues []*ring.Queue
	in     *ring.Reader
	joined bool
}

// errGone ends a reading for good.
var errGone = errors.New("there is nothing to read any more")

func openOwn(dev, name string, numbers []int, o ring.Options) (_ *own, err error) {
	s := &own{ring: &tap.Ring{Dev: dev, Name: name}}
	if s.queues, err = open(s.ring, numbers, o); err != nil {
		return nil, err
	}
	s.in = ring.NewReader(dev, s.queues)
	i, err := net.InterfaceByName(dev)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.index = i.Index
	return s, nil
}

// open opens queues of an interface, all of them if none is named.
func open(of *tap.Ring, numbers []int, o ring.Options) (queues []*ring.Queue, err error) {
	dev, n, err := of.Queues()
	if err != nil {
		return nil, err
	}
	all := numbers == nil
	for i := 0; all && i < n; i++ {
		numbers = append(numbers, i)
	}
	for _, i := range numbers {
		q, err := ring.Open(dev, i, o)
		switch {
		case err == nil:
			queues = append(queues, q)
			continue
		case !errors.Is(err, unix.EINVAL):
		case all && i > 0:
			return queues, nil // the interface may have more queues, and has not
		default:
			err = fmt.Errorf("%w: it has queues from 0 on (ethtool -l %s)", err, dev.Name)
		}
		if err != nil {
			return nil, errors.Join(err, ring.NewReader(dev.Name, queues).Close())
		}
	}
	return queues, nil
}

func (s *own) look(ctx context.Context) (string, error) {
	was := s.joined
	var err error
	if s.joined, err = s.ring.Join(ctx, s.queues); err != nil {
		if i, ierr := net.InterfaceByName(s.ring.Dev); ierr != nil || i.Index != s.index {
			err = fmt.Errorf("%s has gone, and its queues with it: %w", s.ring.Dev, errGone)
		}
		return "", err
	}
	if was {
		return "", nil
	}
	s.in.L3 = s.ring.Link == packet.L3
	return reads(s.ring.Name, s.in), nil
}

// reads says that a ring is read.
func reads(name string, in *ring.Reader) string {
	return fmt.Sprintf("reading ring %q of %s from %s", name, in.Dev,
		cli.Plural(len(in.Queues()), "queue"))
}

func (s *own) reader() *ring.Reader {
	if !s.joined {
		return nil
	}
	return s.in
}

func (s *own) Close() error { return errors.Join(s.in.Close(), s.ring.Close()) }

// served is a ring that another process serves.
type served struct {
	path, name string
	in         *ring.Reader
}

func (s *served) look(ctx context.Context) (string, error) {
	if s.in != nil && !s.in.Ended() {
		return "", nil
	}
	err := s.Close()
	if s.in = nil; err != nil {
		return "", err
	}
	if s.in, err = ring.DialContext(ctx, s.path); err != nil {
		s.in = nil
		return "", err
	}
	return reads(s.name, s.in), nil
}

func (s *served) reader() *ring.Reader { return s.in }

func (s *served) Close() error {
	if s.in == nil {
		return nil
	}
	return s.in.Close()
}
