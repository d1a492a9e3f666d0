package knock

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"levee/internal/agent/source/inlet"
	"levee/internal/await"
	"levee/internal/knock"
)

// opened listens on a port of loopback, with a key in a file.
func opened(t *testing.T, now func() time.Time) (inlet.Inlet, knock.Key, *net.UDPAddr) {
	t.Helper()
	k := knock.NewKey()
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(k.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	free, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	at := free.LocalAddr().(*net.UDPAddr)
	free.Close()
	in, err := listen(at.String(), file, nil, now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(in.Close)
	return in, k, at
}

// TestWhoKnocksIsHandedOn: the address of who has the key, once; nobody is answered.
func TestWhoKnocksIsHandedOn(t *testing.T) {
	in, k, at := opened(t, time.Now)
	c, err := net.DialUDP("udp4", nil, at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	right := k.Datagram(time.Now())
	other := knock.NewKey()
	for _, b := range [][]byte{other.Datagram(time.Now()), []byte("hello"), make([]byte, 2000),
		right, right, k.Datagram(time.Now().Add(-time.Minute))} {
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	var notes, lines []string
	await.True(t, "a note", func() bool {
		_, err := in.Poll(1<<20, func(line []byte) { lines = append(lines, string(line)) })
		if err != nil {
			t.Fatal(err)
		}
		notes = append(notes, in.State().Notes...)
		return len(notes) > 0 && len(lines) > 0
	})
	want := `{"src_ip":"127.0.0.1","src_port":`
	if len(lines) != 1 || !strings.HasPrefix(lines[0], want) {
		t.Errorf("records: %q", lines)
	}
	if left := in.Position(); left == nil || knock.NewGate(k, time.Time{}, left).Take(right,
		time.Now()) == nil {
		t.Errorf("what was taken can be had again behind %x", left)
	}
	const says = "a knock from 127.0.0.1 is not taken: it has been here before"
	if len(notes) != 1 || !strings.Contains(notes[0], says) {
		t.Errorf("notes: %q", notes)
	}
}

// TestAClockOffByAMinuteIsTold to whoever looks at the agent, since nothing answers.
func TestAClockOffByAMinuteIsTold(t *testing.T) {
	in, k, at := opened(t, time.Now)
	c, err := net.DialUDP("udp4", nil, at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(k.Datagram(time.Now().Add(time.Minute))); err != nil {
		t.Fatal(err)
	}
	var notes []string
	await.True(t, "a note", func() bool {
		notes = append(notes, in.State().Notes...)
		return len(notes) > 0
	})
	if !strings.Contains(notes[0], "ahead of this machine's: set one of the two") {
		t.Errorf("notes: %q", notes)
	}
}

func TestAddressesToListenAt(t *testing.T) {
	for at, ok := range map[string]bool{
		":7000": true, "127.0.0.1:7000": true, "[::1]:7000": true,
		"7000": false, ":0": false, ":70000": false, "name:7000": false, "": false,
	} {
		if _, err := address(at); (err == nil) != ok {
			t.Errorf("%q: %v", at, err)
		}
	}
}

// TestAKeyThatOthersReadIsNone.
func TestAKeyThatOthersReadIsNone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	for text, mode := range map[string]os.FileMode{knock.NewKey().String(): 0o644, "x": 0o600} {
		if err := os.WriteFile(file, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		if in, err := listen("127.0.0.1:7000", file, nil, time.Now); err == nil {
			in.Close()
			t.Errorf("%q with mode %v is a key", text, mode)
		}
	}
}
