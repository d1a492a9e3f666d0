package ring

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
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
