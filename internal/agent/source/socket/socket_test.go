package socket

import (
	"fmt"
	"net"
	"os"
	"os/user"
	"slices"
	"strings"
	"testing"
	"time"

	"levee/internal/agent/follow"
	"levee/internal/agent/source/inlet"
	"levee/internal/agent/source/inlet/inlettest"
)

func dial(t testing.TB, network, path string) net.Conn {
	t.Helper()
	c, err := net.Dial(network, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestReadersOfTheStateWriteNoEvents: the sockets of sources belonged to the group that reads what
// is in force, whose members could have anybody shut out.
func TestReadersOfTheStateWriteNoEvents(t *testing.T) {
	path := t.TempDir() + "/eve.sock"
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	own, err := user.LookupGroupId(fmt.Sprint(os.Getgid()))
	if err != nil {
		t.Skipf("no name of this group: %v", err)
	}
	for group, want := range map[string]os.FileMode{own.Name: 0o660, "there-is-no-such": 0o600} {
		if err := letWrite(l, path, group); err != nil {
			t.Fatal(err)
		}
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", group, st.Mode(), err)
		}
	}
}

func TestStreams(t *testing.T) {
	dir := t.TempDir()
	path := dir + "/eve.sock"
	in := inlettest.Open(t, &Stream, &inlet.Place{At: path}, inlet.Opening{})
	if in.Position() != nil {
		t.Error("a socket has a position")
	}
	var got []string
	a, b := dial(t, "unix", path), dial(t, "unix", path)
	fmt.Fprint(a, "one\r\ntw")
	fmt.Fprint(b, "\n\nthree\n")
	inlettest.Poll(t, in, &got, func() bool { return len(got) == 2 })
	if in.State().Peers != 2 {
		t.Errorf("%+v", in.State())
	}
	// one that never ends a line takes a bounded memory, and hinders nobody
	long := strings.Repeat("y", 1<<16)
	for range 3 * follow.MaxLine >> 16 {
		fmt.Fprint(b, long)
	}
	fmt.Fprint(a, "o\n")
	fmt.Fprint(b, "\nfour\nfive")
	b.Close()
	inlettest.Poll(t, in, &got, func() bool { return len(got) == 5 && in.State().Peers == 1 })
	slices.Sort(got)
	if fmt.Sprint(got) != "[five four one three two]" || in.State().TooLong != 1 {
		t.Errorf("%q, %+v", got, in.State())
	}
	// more connections than there may be
	for range maxPeers + 3 {
		dial(t, "unix", path)
	}
	inlettest.Poll(t, in, &got, func() bool { return in.State().Peers == maxPeers })
	// nobody reads: whoever writes waits, and memory is bounded
	done := make(chan int)
	go func() {
		n := 0
		a.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
		for {
			m, err := fmt.Fprint(a, long, "\n")
			if n += m; err != nil {
				done <- n
				return
			}
		}
	}()
	if n := <-done; n > 3*inlet.QueueBytes || in.State().LagBytes > inlet.QueueBytes+1<<16 {
		t.Errorf("%d bytes were taken, %+v", n, in.State())
	}
	in.Close()
	if _, err := os.Lstat(path); err == nil {
		t.Error("the socket is left behind")
	}
}

func TestDatagrams(t *testing.T) {
	dir := t.TempDir()
	in := inlettest.Open(t, &Datagram, &inlet.Place{At: dir + "/eve.sock"},
		inlet.Opening{})
	defer in.Close()
	c := dial(t, "unixgram", dir+"/eve.sock")
	for _, text := range []string{"one", "two\n", "three\nfour\n", "\n", "five\x00"} {
		if _, err := c.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	inlettest.Poll(t, in, &got, func() bool { return len(got) == 5 })
	if fmt.Sprint(got) != "[one two three four five]" {
		t.Errorf("%q", got)
	}
}

// TestThePlaceOfASocket: a socket that a killed agent left is replaced, and nothing else is.
func TestThePlaceOfASocket(t *testing.T) {
	dir := t.TempDir()
	path := dir + "/eve.sock"
	for _, network := range []string{"unix", "unixgram"} {
		row := map[string]*inlet.Row{"unix": &Stream, "unixgram": &Datagram}[network]
		at := &inlet.Place{At: path}
		in := inlettest.Open(t, row, at, inlet.Opening{})
		_, err := row.Open(at, inlet.Opening{})
		if err == nil || !strings.Contains(err.Error(), "another program") {
			t.Errorf("%s: two listen: %v", network, err)
		}
		in.Close()
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		l.Close() // as whoever is killed
		inlettest.Open(t, row, at, inlet.Opening{}).Close()
		if err := os.WriteFile(path, []byte("data"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err = row.Open(at, inlet.Opening{})
		if err == nil || !strings.Contains(err.Error(), "no socket") {
			t.Errorf("%s: a file is replaced: %v", network, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		in = inlettest.Open(t, row, at, inlet.Opening{})
		if err := os.Rename(path, path+".old"); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("data"), 0o600); err != nil {
			t.Fatal(err)
		}
		in.Close()
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%s: what took the place of the socket is removed", network)
		}
		os.Remove(path)
	}
	if _, err := Stream.Open(&inlet.Place{At: dir + "/no/eve.sock"}, inlet.Opening{}); err == nil {
		t.Error("a socket is made in a directory that there is not")
	}
}
