package exporter

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"levee/internal/await"
	"levee/internal/openmetrics"
)

func TestListenAddresses(t *testing.T) {
	for v, want := range map[string]string{
		"9469": "tcp 127.0.0.1:9469", ":9469": "tcp 127.0.0.1:9469",
		"[::1]:9469": "tcp [::1]:9469", "0.0.0.0:80": "tcp 0.0.0.0:80",
		"unix:/run/l": "unix /run/l",
	} {
		network, address, err := Address(v)
		if got := network + " " + address; err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", v, got, err, want)
		}
	}
	for _, v := range []string{"", ":", "0", "70000", "localhost:80", "1.2.3.4", "unix:", "::1"} {
		if _, _, err := Address(v); err == nil {
			t.Errorf("%q is taken", v)
		}
	}
}

// TestListeningTakesNoFileAway: a file that is no socket refuses who connects just as the socket of
// a killed process does, and was removed as one.
func TestListeningTakesNoFileAway(t *testing.T) {
	path := filepath.Join(t.TempDir(), "metrics.txt")
	if err := os.WriteFile(path, []byte("metrics"), 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := Listen("unix", path); err == nil {
		l.Close()
		t.Error("it listens in the place of a file")
	}
	if text, err := os.ReadFile(path); string(text) != "metrics" {
		t.Errorf("the file has %q: %v", text, err)
	}
}

// TestASocketThatIsLeftIsTakenOver: whoever made it was killed.
func TestASocketThatIsLeftIsTakenOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "l")
	killed, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	killed.SetUnlinkOnClose(false)
	killed.Close()
	l, err := Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := Listen("unix", path); err == nil {
		t.Error("one that answers is taken over")
	}
}

// TestConnectionsAreBounded: whoever may connect had as many as he liked, each with a text that is
// written for half a minute.
func TestConnectionsAreBounded(t *testing.T) {
	l, err := Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- Serve(ctx, l, func(openmetrics.Format) ([]byte, error) {
			return []byte("up 1\n"), nil
		})
	}()
	var all []net.Conn
	for range mostConnections + 3 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	for i, c := range all[:3] {
		if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("connection %d is not let go", i)
		}
	}
	await.True(t, "one more is answered", func() bool {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		head := make([]byte, len("HTTP/1.1 200"))
		_, _ = io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
		_, err = io.ReadFull(c, head)
		return err == nil && string(head) == "HTTP/1.1 200"
	})
	for _, c := range all {
		c.Close()
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
