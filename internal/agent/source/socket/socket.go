// Package socket listens at a unix socket, to which others write records. In goes a path, out come
// lines. It must never take a path that is somebody's, nor let a peer use up its memory.
package socket

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/agent/follow"
	"levee/internal/agent/source/inlet"
	"levee/internal/host/access"
	"levee/internal/host/socketfile"
)

// Stream and Datagram are the rows.
var (
	Stream   = row("unix_stream", false, "socket", "unix")
	Datagram = row("unix_dgram", true)
)

func row(name string, dgram bool, others ...string) inlet.Row {
	return inlet.Row{
		Name: name, Others: others,
		At: inlet.Value{What: "a path", Form: name + ` "/run/levee-agent/eve.sock"`, Path: true},
		Check: func(p *inlet.Place, wrong func(of, hint, text string)) {
			if len(p.At) > maxPath {
				wrong("", "", fmt.Sprintf("the path of a socket has at most %d bytes", maxPath))
			}
		},
		Advise: func(p *inlet.Place, err error) string { return access.Write(p.At, err) },
		Open: func(p *inlet.Place, _ inlet.Opening) (inlet.Inlet, error) {
			return listen(p.At, dgram)
		},
	}
}

// maxPath is the length of sun_path, in bytes (unix(7)).
const maxPath = 107

// maxPeers is the largest number of connections that a socket has.
const maxPeers = 64

// writers is the group whose members may write to sockets of sources. It is not the one that reads
// what is in force: whoever writes an alert has addresses shut out.
const writers = "levee-events"

// letWrite lets the owner write, and the writers where the machine has that group and this process
// is in it.
func letWrite(socket syscall.Conn, path, group string) error {
	const alone, together = 0o600, 0o660
	if g, err := user.LookupGroup(group); err == nil {
		gid, err := strconv.Atoi(g.Gid)
		if err == nil && socketfile.Share(socket, path, gid, together) == nil {
			return nil
		}
	}
	return socketfile.Share(socket, path, -1, alone)
}

// socket listens at a path, where other programs write records: each ends with a newline, or is a
// datagram.
type socket struct {
	*inlet.Queue
	path  string
	made  os.FileInfo // what stands at the path
	close func() error
	done  sync.WaitGroup

	peersMu sync.Mutex
	peers   map[net.Conn]bool // nil once it is closed
}

// listen makes the socket, in the place of one that nobody listens at any more.
func listen(path string, dgram bool) (inlet.Inlet, error) {
	s := &socket{Queue: inlet.NewQueue(), path: path, peers: map[net.Conn]bool{}}
	network := "unix"
	if dgram {
		network = "unixgram"
	}
	if err := clearPlace(network, path); err != nil {
		return nil, err
	}
	socket, err := s.bind(network)
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", path, err)
	}
	if err := letWrite(socket, path, writers); err != nil {
		s.Close()
		return nil, fmt.Errorf("listen at %s: %w", path, err)
	}
	if s.made, err = os.Lstat(path); err != nil {
		s.Close()
		return nil, fmt.Errorf("listen at %s: %w", path, err)
	}
	return s, nil
}

func (s *socket) bind(network string) (syscall.Conn, error) {
	if network == "unixgram" {
		c, err := net.ListenUnixgram(network, &net.UnixAddr{Name: s.path, Net: network})
		if err != nil {
			return nil, err
		}
		s.close = c.Close
		s.done.Go(func() { s.datagrams(c) })
		return c, nil
	}
	l, err := net.ListenUnix(network, &net.UnixAddr{Name: s.path, Net: network})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // by name, whoever has it now
	s.close = l.Close
	s.done.Go(func() { s.accept(l) })
	return l, nil
}

// clearPlace removes a socket at which nobody listens. What is no socket, or somebody's, stays.
func clearPlace(network, path string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if st.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s is there already, and is no socket: remove it, or name another "+
			"path", path)
	}
	c, err := net.DialTimeout(network, path, time.Second)
	if err == nil {
		c.Close()
		return fmt.Errorf("another program listens at %s: end it, or name another path", path)
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("another program seems to listen at %s: %w", path, err)
	}
	return os.Remove(path)
}

// accept takes connections.
func (s *socket) accept(l *net.UnixListener) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // too many files: whoever is connected goes on
			s.Fail(fmt.Errorf("accept a connection at %s: %w", s.path, err))
			time.Sleep(time.Second)
			continue
		}
		if !s.enter(c) {
			s.Note(fmt.Sprintf("%s: a connection is refused: there are %d already", s.path,
				maxPeers))
			c.Close()
			continue
		}
		s.Fail(nil)
		s.done.Go(func() {
			s.records(c)
			s.leave(c)
		})
	}
}

func (s *socket) enter(c net.Conn) bool {
	s.peersMu.Lock()
	defer s.peersMu.Unlock()
	if s.peers == nil || len(s.peers) >= maxPeers {
		return false
	}
	s.peers[c] = true
	n := len(s.peers)
	s.Change(func(st *inlet.State) { st.Peers = n })
	return true
}

func (s *socket) leave(c net.Conn) {
	c.Close()
	s.peersMu.Lock()
	defer s.peersMu.Unlock()
	delete(s.peers, c)
	n := len(s.peers)
	s.Change(func(st *inlet.State) { st.Peers = n })
}

// records reads the lines of one peer.
func (s *socket) records(c net.Conn) {
	err := inlet.ReadLines(c, func() { s.Change(func(st *inlet.State) { st.TooLong++ }) },
		func(line []byte) bool { return s.Put(line, nil) })
	if err != nil && !errors.Is(err, net.ErrClosed) {
		s.Note(fmt.Sprintf("%s: a connection ended: %v", s.path, err))
	}
}

// datagrams reads datagrams, each a record, or several with newlines between.
func (s *socket) datagrams(c *net.UnixConn) {
	_ = c.SetReadBuffer(inlet.QueueBytes) // what the kernel allows
	b := make([]byte, follow.MaxLine+1)
	for {
		n, _, err := c.ReadFromUnix(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			s.Fail(fmt.Errorf("read at %s: %w", s.path, err))
			time.Sleep(time.Second)
			continue
		}
		s.Fail(nil)
		if n > follow.MaxLine {
			s.Change(func(st *inlet.State) { st.TooLong++ })
			continue
		}
		for line := range bytes.SplitSeq(bytes.TrimRight(b[:n], "\r\n\x00"), []byte("\n")) {
			if len(line) > 0 && !s.Put(line, nil) {
				return
			}
		}
	}
}

// Close ends all connections, and removes the socket if it is still this one.
func (s *socket) Close() {
	s.End()
	s.close()
	s.peersMu.Lock()
	for c := range s.peers {
		c.Close()
	}
	s.peers = nil
	s.peersMu.Unlock()
	s.done.Wait()
	if now, err := os.Lstat(s.path); err == nil && s.made != nil && os.SameFile(now, s.made) {
		_ = os.Remove(s.path)
	}
}
