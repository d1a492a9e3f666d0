package api

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"levee/internal/host/socketfile"
)

// ErrRunning is that another agent has the directory of the socket.
var ErrRunning = errors.New("another agent runs")

// Local listens on a unix socket, whose callers are known by their user. It takes the place of a
// socket that a killed agent has left. The directory is locked before: of agents that start at
// once, one listens. release takes away what was made.
func Local(path string) (l *Listener, release func(), err error) {
	dir, err := lockDirectory(filepath.Dir(path))
	if err != nil {
		return nil, nil, err
	}
	unlock := func() {
		_ = os.Remove(dir.Name()) // fails where systemd has made it
		dir.Close()               // lets the lock go
	}
	socket, err := listenAnew(path)
	if err != nil {
		unlock()
		return nil, nil, err
	}
	return &Listener{Listener: socket}, func() { socket.Close(); unlock() }, nil
}

func listenAnew(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove the socket of a killed agent: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen for commands: %w", err)
	}
	if err := socketfile.Share(l, path, -1, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("keep the socket to its user: %w", err), l.Close())
	}
	return l, nil
}

// lockDirectory makes a directory and locks it until it is closed, or the process is gone. Nobody
// else may read it: who may open a file to read may lock it, and no agent would start.
func lockDirectory(path string) (*os.File, error) {
	for {
		if err := os.MkdirAll(path, 0o700); err != nil {
			return nil, fmt.Errorf("make the directory of the socket: %w", err)
		}
		dir, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // an agent that ends has removed it
		}
		if err != nil {
			return nil, fmt.Errorf("open the directory of the socket: %w", err)
		}
		if err = keepUnread(dir); err == nil {
			err = unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		}
		if err == nil && stillAt(dir, path) {
			return dir, nil
		}
		dir.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: it has %s locked", ErrRunning, path)
		}
		if err != nil {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
	}
}

// keepUnread takes from a directory the right of others to read it. They may go through it, to the
// sockets of sources.
func keepUnread(dir *os.File) error {
	info, err := dir.Stat()
	const others = 0o044
	if err != nil || info.Mode().Perm()&others == 0 {
		return err
	}
	return dir.Chmod(info.Mode() &^ others)
}

// stillAt tells whether a path names the file that was opened there.
func stillAt(f *os.File, path string) bool {
	opened, err := f.Stat()
	named, also := os.Stat(path)
	return err == nil && also == nil && os.SameFile(opened, named)
}
