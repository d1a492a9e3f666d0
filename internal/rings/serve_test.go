package rings

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"unsafe"

	"golang.org/x/sys/unix"

	"levee/internal/cli"
	"levee/ring"
)

// TestServingTakesNoFileAway: a file that is no socket refuses who connects just as the socket of a
// killed server does, and was removed as one.
func TestServingTakesNoFileAway(t *testing.T) {
	path := filepath.Join(t.TempDir(), "capture.pcapng")
	if err := os.WriteFile(path, []byte("packets"), 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := listen(path, 0); err == nil {
		l.Close()
		t.Error("it serves in the place of a file")
	}
	if text, err := os.ReadFile(path); string(text) != "packets" {
		t.Errorf("the file has %q: %v", text, err)
	}
}

// TestAServerThatWasKilledIsReplaced: its socket is still there.
func TestAServerThatWasKilledIsReplaced(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root gives the socket to root")
	}
	path := filepath.Join(t.TempDir(), "dns.sock")
	killed, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	killed.SetUnlinkOnClose(false)
	killed.Close()
	l, err := listen(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

// serveTo begins a server whose clients have serve, and returns where to dial and what ends it.
func serveTo(t *testing.T, serve func(context.Context, *client) error) (dial func() *net.UnixConn,
	end func()) {
	t.Helper()
	at := &net.UnixAddr{Name: filepath.Join(t.TempDir(), "dns.sock"), Net: "unixpacket"}
	l, err := net.ListenUnix(at.Net, at)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	context.AfterFunc(ctx, func() { l.Close() })
	s := &serving{Env: &cli.Env{Stderr: &cli.Output{W: io.Discard}}, name: "dns", desk: newDesk()}
	ended := make(chan error, 1)
	go func() { ended <- s.accept(ctx, l, serve) }()
	end = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	return func() *net.UnixConn {
		c, err := net.DialUnix(at.Net, nil, at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}, end
}

// TestManyWhoAskDoNotKeepTheServerBusy: a member of the group that dials often and says nothing
// has so many connections, is told so beyond, and holds up neither others nor the end.
func TestManyWhoAskDoNotKeepTheServerBusy(t *testing.T) {
	here := make(chan *client)
	dial, end := serveTo(t, func(ctx context.Context, c *client) error {
		here <- c
		select {
		case <-ctx.Done():
		case <-c.gone():
		}
		here <- nil
		return nil
	})
	var first *net.UnixConn
	for i := range mostOfUser {
		c := dial()
		if got := <-here; got.user != uint32(os.Getuid()) || got.process != int32(os.Getpid()) {
			t.Errorf("client %d is %v", i, got)
		}
		if first == nil {
			first = c
		}
	}
	answer := make([]byte, 4096)
	n, err := dial().Read(answer)
	if err != nil || !strings.Contains(string(answer[:n]), "that is enough") {
		t.Errorf("it says %q, %v", answer[:n], err)
	}
	if _, err := first.Write([]byte("still here")); err != nil { // and that is no end
		t.Fatal(err)
	}
	first.Close()
	<-here
	for served := false; !served; { // the place is free once the server has seen the end
		c, refused := dial(), make(chan struct{})
		go func() {
			if n, _ := c.Read(make([]byte, 4096)); n > 0 {
				close(refused)
			}
		}()
		select {
		case <-here:
			served = true
		case <-refused:
		}
	}
	go func() {
		for range here { // what they say of the end
		}
	}()
	end()
	close(here)
}

func TestUsersHaveTheirOwnPlaces(t *testing.T) {
	d := newDesk()
	for user := range uint32(mostClients / mostOfUser) {
		for range mostOfUser {
			if err := d.enter(user); err != nil {
				t.Fatal(err)
			}
		}
		if d.enter(user) == nil {
			t.Errorf("user %d has %d places", user, mostOfUser+1)
		}
	}
	if d.enter(1000) == nil {
		t.Errorf("%d places", mostClients+1)
	}
	d.leave(3)
	if err := d.enter(1000); err != nil {
		t.Error(err)
	}
}

func TestOneReadsAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk()
		done, err := d.wait(t.Context(), &client{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.wait(t.Context(), &client{}); err == nil ||
			!strings.Contains(err.Error(), "another process reads it") {
			t.Errorf("a second reader: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := d.wait(ctx, &client{}); !errors.Is(err, context.Canceled) {
			t.Errorf("at the end: %v", err)
		}
		next := make(chan error)
		go func() {
			_, err := d.wait(t.Context(), &client{})
			next <- err
		}()
		synctest.Wait()
		done()
		if err := <-next; err != nil {
			t.Errorf("when the first has gone: %v", err)
		}
	})
}

// TestACountOfAReaderGoesOn: what a reader writes can neither go back nor take the file away.
func TestACountOfAReaderGoesOn(t *testing.T) {
	got, err := newTally()
	if err != nil {
		t.Fatal(err)
	}
	defer got.close()
	fd := int(got.file.Fd())
	theirs, err := unix.Mmap(fd, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(theirs) }()
	count := &(*ring.Tally)(unsafe.Pointer(&theirs[0])).Received
	for _, step := range [][2]uint64{{7, 7}, {7, 0}, {3, 0}, {9, 2}} {
		atomic.StoreUint64(count, step[0])
		if n := got.more(); n != step[1] {
			t.Errorf("at %d there are %d more, not %d", step[0], n, step[1])
		}
	}
	if err := unix.Ftruncate(fd, 0); err == nil {
		t.Error("a reader can take the memory away in which the server looks")
	}
}

// TestWhoKeepsTheSocketsIsNamed: a reader that had ended the connection, and kept the sockets, kept
// everybody else away, and nobody said who it was.
func TestWhoKeepsTheSocketsIsNamed(t *testing.T) {
	s := &serving{}
	busy := fmt.Errorf("read queue 0: %w", unix.EBUSY)
	if err := s.kept(busy); err != busy {
		t.Errorf("before anybody had it: %v", err)
	}
	s.last = (&client{process: 7, user: 1000}).String()
	if err := s.kept(busy); !errors.Is(err, unix.EBUSY) ||
		!strings.Contains(err.Error(), "process 7 of user 1000 had the ring last") {
		t.Error(err)
	}
	if err := s.kept(unix.EPIPE); err != unix.EPIPE {
		t.Errorf("of another error: %v", err)
	}
}
