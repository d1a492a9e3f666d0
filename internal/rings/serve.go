package rings

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"levee/internal/cli"
	"levee/internal/dataplane/tap"
	"levee/internal/host/socketfile"
	"levee/internal/packet"
	"levee/ring"
)

const serveLong = `Hand a ring to processes that have no rights: who may open the socket gets AF_XDP
sockets that are ready, and their memory, and reads as root would ("levee ring read --socket", or
the Go package levee/ring). One process at a time reads the ring. When it ends, or is killed, its
sockets are gone, and the policy says what becomes of the packets until the next one comes.

The socket belongs to root and --group, and to nobody else without it. Who is in that group sees all
packets that the policy hands to the ring. The command stays when the policy is replaced; when the
ring goes, so does what was handed out.`

const serveExample = `  sudo levee ring serve dns --dev eth0 --group analysts
  levee ring read dns --socket /run/levee-ring/dns.sock`

// runDir is the directory of sockets, without --socket.
const runDir = "/run/levee-ring"

// handing is the longest time from dialling to getting the ring.
const handing = 5 * time.Second

type serving struct {
	*cli.Env
	name, dev, socket, group string
	options                  ring.Options

	desk *desk
	last string // who had the ring last, by the turn
}

func newServe(e *cli.Env, inForce Reads) *cobra.Command {
	s := &serving{Env: e, desk: newDesk()}
	cmd := &cobra.Command{
		Use:     "serve NAME",
		Short:   "Hand a ring to processes that have no rights",
		Long:    serveLong,
		Example: serveExample,
		Args:    cli.WantArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			s.name = args[0]
			if s.dev, err = ofRing(e, cmd, inForce, s.dev, s.name); err != nil {
				return err
			}
			if n := s.options.Frames; n < 64 || n > ring.MaxFrames || n&(n-1) != 0 {
				return cli.Usagef(cmd, "--frames takes a power of two, 64 to %d", ring.MaxFrames)
			}
			return s.run()
		},
	}
	cli.DevFlag(cmd, &s.dev, "the interface whose ring it is")
	fl := cmd.Flags()
	fl.StringVar(&s.socket, "socket", "", "serve at this `path`; "+runDir+"/NAME.sock without")
	fl.StringVar(&s.group, "group", "", "who is in this `group` may read the ring")
	fl.IntVar(&s.options.Frames, "frames", 8192, "`N` packets may wait in each queue")
	fl.BoolVar(&s.options.Copy, "copy", false, "have the kernel copy packets, also where the "+
		"driver could write them into the memory of the reader")
	return cmd
}

func (s *serving) run() (err error) {
	gid := 0
	if s.group != "" {
		g, err := user.LookupGroup(s.group)
		if err != nil {
			return cli.Refusedf("find the group of --group: %w", err)
		}
		if gid, err = strconv.Atoi(g.Gid); err != nil {
			return fmt.Errorf("read the number of group %s: %w", s.group, err)
		}
	}
	if s.socket == "" {
		s.socket = filepath.Join(runDir, s.name+".sock")
		if err := os.MkdirAll(runDir, 0o755); err != nil {
			return cli.Refusedf("make the directory of rings: %w", err)
		}
		defer os.Remove(runDir) // it stays while another has a socket there
	}
	of := &tap.Ring{Dev: s.dev, Name: s.name}
	if _, _, err := of.Queues(); err != nil {
		return err
	}
	if _, err := of.Still(context.Background()); errors.As(err, new(*tap.NoRingError)) {
		return err // a policy is in force, and no reader would ever get a packet
	}
	l, err := listen(s.socket, gid)
	if err != nil {
		return err
	}
	defer l.Close()
	ctx, stop := s.Signals()
	defer stop()
	end := context.AfterFunc(ctx, func() { l.Close() })
	defer end()
	s.Sayf("ring %q of %s is at %s, until Ctrl-C", s.name, s.dev, s.socket)
	return s.accept(ctx, l, s.serve)
}

// accept answers who dials, until ctx ends.
func (s *serving) accept(ctx context.Context, l *net.UnixListener,
	serve func(context.Context, *client) error) error {
	var all sync.WaitGroup
	defer all.Wait()
	for {
		conn, err := l.AcceptUnix()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("wait for readers: %w", err)
		}
		c := &client{UnixConn: conn}
		c.know()
		if err := s.desk.enter(c.user); err != nil {
			_ = ring.Refuse(conn, err) // there is room for a first message
			c.Close()
			continue
		}
		all.Go(func() {
			defer s.desk.leave(c.user)
			defer c.Close()
			end := context.AfterFunc(ctx, func() { _ = c.SetWriteDeadline(time.Unix(1, 0)) })
			defer end()
			err := serve(ctx, c)
			if err != nil && ctx.Err() == nil && !errors.Is(err, unix.EPIPE) { // who has gone
				s.Sayf("%s does not read ring %q: %v", c, s.name, err)
				_ = ring.Refuse(conn, err) // who has gone needs no reason
			}
		})
	}
}

// listen makes the socket, in the place of one that a killed server has left. What is no socket
// stays: it refuses who connects, too.
func listen(path string, gid int) (*net.UnixListener, error) {
	at := &net.UnixAddr{Name: path, Net: "unixpacket"}
	l, err := net.ListenUnix(at.Net, at)
	if errors.Is(err, unix.EADDRINUSE) {
		if st, serr := os.Lstat(path); serr == nil && st.Mode().Type() != fs.ModeSocket {
			return nil, cli.Refusedf("%s is there already, and is no socket: remove it, or give "+
				"--socket another path", path)
		}
		if c, cerr := net.DialUnix(at.Net, nil, at); cerr == nil {
			c.Close()
			return nil, cli.Refusedf("%s is in use: another process serves it", path)
		} else if !errors.Is(cerr, unix.ECONNREFUSED) {
			return nil, cli.Refusedf("%s is no socket of a ring: %w", path, cerr)
		}
		if err := os.Remove(path); err != nil {
			return nil, cli.Refusedf("remove what a killed server has left: %w", err)
		}
		l, err = net.ListenUnix(at.Net, at)
	}
	if err != nil {
		return nil, cli.Refusedf("serve a ring: %w", err)
	}
	mode := os.FileMode(0o600)
	if gid != 0 {
		mode = 0o660
	}
	if err := socketfile.Share(l, path, gid, mode); err != nil {
		return nil, errors.Join(cli.Refusedf("give the socket its rights: %w", err), l.Close())
	}
	return l, nil
}

// client is a process that has dialled.
type client struct {
	*net.UnixConn
	process int32
	user    uint32
}

// know asks the kernel who it is.
func (c *client) know() {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		if u, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			c.process, c.user = u.Pid, u.Uid
		}
	})
}

func (c *client) String() string { return fmt.Sprintf("process %d of user %d", c.process, c.user) }

// gone is closed once the client has ended the connection; what he says is thrown away.
func (c *client) gone() <-chan struct{} {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for some := make([]byte, 1); ; {
			if n, err := c.Read(some); err != nil || n == 0 {
				return
			}
		}
	}()
	return gone
}

// desk is the queue of clients: one has the ring at a time, and those who wait are bounded, in all
// and of each user, so that nobody who may dial keeps the server busy or the others away from it.
type desk struct {
	turn chan *client // has the one whose turn it is

	lock  sync.Mutex
	here  int
	users map[uint32]int
}

// Bounds of clients that have the ring or wait for it.
const (
	mostClients = 64
	mostOfUser  = 8
)

func newDesk() *desk { return &desk{turn: make(chan *client, 1), users: map[uint32]int{}} }

func (d *desk) enter(user uint32) error {
	d.lock.Lock()
	defer d.lock.Unlock()
	if d.here >= mostClients || d.users[user] >= mostOfUser {
		return fmt.Errorf("%d processes ask for the ring, %d of them of user %d: that is enough",
			d.here, d.users[user], user)
	}
	d.here++
	d.users[user]++
	return nil
}

func (d *desk) leave(user uint32) {
	d.lock.Lock()
	defer d.lock.Unlock()
	d.here--
	if d.users[user]--; d.users[user] == 0 {
		delete(d.users, user)
	}
}

// going is the time that a client waits for the one before to have gone.
const going = 2 * time.Second

// wait waits for the turn of a client, until done.
func (d *desk) wait(ctx context.Context, c *client) (done func(), err error) {
	late := time.NewTimer(going)
	defer late.Stop()
	select {
	case d.turn <- c:
		return func() { <-d.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-late.C:
		return nil, errors.New("another process reads it, and a ring has one reader at a time")
	}
}

// serve hands the ring to a client, and waits until he or the ring has gone.
func (s *serving) serve(ctx context.Context, c *client) error {
	done, err := s.desk.wait(ctx, c)
	if err != nil {
		return err
	}
	defer done()
	of := &tap.Ring{Dev: s.dev, Name: s.name}
	defer of.Close()
	got, err := newTally()
	if err != nil {
		return err
	}
	defer got.close()
	if err := s.give(ctx, c, of, got); err != nil {
		return s.kept(err)
	}
	s.last = c.String() // it is this one's turn: nobody else looks
	s.Sayf("%s reads ring %q", c, s.name)
	defer func() { of.Received(got.more()) }()
	gone := c.gone()
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			c.part(gone)
			return nil
		case <-gone:
			s.Sayf("%s reads ring %q no more", c, s.name)
			return nil
		case <-tick.C:
		}
		of.Received(got.more())
		if still, err := of.Still(ctx); err != nil && ctx.Err() == nil || !still {
			s.Sayf("ring %q of %s has gone: %s gets nothing more", s.name, s.dev, c)
			return nil
		}
	}
}

// kept says who may have kept the sockets of a ring, if its queues are busy. A reader may end the
// connection without them, and goes on to get the packets.
func (s *serving) kept(err error) error {
	if s.last == "" || !errors.Is(err, unix.EBUSY) {
		return err
	}
	return fmt.Errorf("%w; %s had the ring last, and may have kept them: end it", err, s.last)
}

// parting is the longest time that a client may take to read what is left, and to count it.
const parting = time.Second

// part tells a client that the ring ends, and waits until he has gone.
func (c *client) part(gone <-chan struct{}) {
	if c.CloseWrite() != nil {
		return
	}
	select {
	case <-gone:
	case <-time.After(parting):
	}
}

// give opens the queues, and hands them over.
func (s *serving) give(ctx context.Context, c *client, of *tap.Ring, got *tally) error {
	queues, err := open(of, nil, s.options)
	if err != nil {
		return err
	}
	r := ring.NewReader(s.dev, queues)
	if err := c.SetWriteDeadline(time.Now().Add(handing)); err != nil {
		return errors.Join(err, r.Close())
	}
	_, err = of.Serve(ctx, queues, func() error {
		r.L3 = of.Link == packet.L3
		return ring.Give(c.UnixConn, r, got.file)
	})
	return errors.Join(err, r.Close())
}
