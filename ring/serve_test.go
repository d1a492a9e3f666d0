package ring

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDialEndsWithItsContext: who serves has taken the connection, and says nothing.
func TestDialEndsWithItsContext(t *testing.T) {
	at := &net.UnixAddr{Name: filepath.Join(t.TempDir(), "dns.sock"), Net: "unixpacket"}
	l, err := net.ListenUnix(at.Net, at)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		if c, err := l.AcceptUnix(); err == nil {
			defer c.Close()
		}
		cancel()
		<-t.Context().Done()
	}()
	if r, err := DialContext(ctx, at.Name); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", r, err)
	}
}

// TestMemoryThatGoesAwayIsRefused: a process that serves a ring of its own making had the reader
// killed, by taking away the memory that the reader has mapped.
func TestMemoryThatGoesAwayIsRefused(t *testing.T) {
	const bytes = 1 << 20
	for _, c := range []struct {
		name  string
		size  int64
		seals int
		is    bool
	}{
		{"sealed", bytes, unix.F_SEAL_SHRINK, true},
		{"not sealed", bytes, 0, false},
		{"against growing alone", bytes, unix.F_SEAL_GROW, false},
		{"too short", bytes - 1, unix.F_SEAL_SHRINK, false},
	} {
		fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		if err := unix.Ftruncate(fd, c.size); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, c.seals); err != nil {
			t.Fatal(err)
		}
		if err := stays(fd, bytes); (err == nil) != c.is {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if stays(int(os.Stdin.Fd()), 0) == nil {
		t.Error("what is no memory is taken for some")
	}
}
