package rings

import (
	"net"
	"os"
	"path/filepath"
	"testing"
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
