package socketfile

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// moved is a socket, its path, and a file of somebody's, to which a link in the socket's place
// leads. Whoever may write the directory can put it there before the socket has its rights.
func moved(t *testing.T) (l *net.UnixListener, path, theirs string) {
	t.Helper()
	dir := t.TempDir()
	path, theirs = filepath.Join(dir, "s.sock"), filepath.Join(dir, "theirs")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	for _, err := range []error{os.WriteFile(theirs, nil, 0o400),
		os.Rename(path, path+".moved"), os.Symlink(theirs, path)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return l, path, theirs
}

func has(t *testing.T, path string, want fs.FileMode) {
	t.Helper()
	if st, err := os.Lstat(path); err != nil || st.Mode().Perm() != want {
		t.Errorf("%s: %v, %v; want %v", path, st.Mode(), err, want)
	}
}

// TestRightsAreOfTheSocket: a link in its place led root to a file of anybody's, which it gave to
// the group of the socket.
func TestRightsAreOfTheSocket(t *testing.T) {
	l, path, theirs := moved(t)
	err := Share(l, path, os.Getgid(), 0o660)
	if os.Getuid() == 0 && err != nil {
		t.Error(err)
	}
	if err == nil {
		has(t, path+".moved", 0o660)
	}
	has(t, theirs, 0o400)
}

// TestWithoutRightsOverNetworksTheNameIsLookedAt, as an agent of its own user has to.
func TestWithoutRightsOverNetworksTheNameIsLookedAt(t *testing.T) {
	_, path, _ := moved(t)
	if f, err := named(path); err == nil {
		f.Close()
		t.Error("a link is taken for the socket")
	}
	f, err := named(path + ".moved")
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}

func TestASocketHasTheModeAskedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d.sock")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := Share(c, path, -1, 0o600); err != nil {
		t.Fatal(err)
	}
	has(t, path, 0o600)
}
