package setfile

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"levee/internal/lang/mmdb"
)

// TestWhatIsOpened: a pipe with a name waited for somebody who writes, for ever, and a file that
// the kernel makes as it is read showed the environment of this process; a pipe that a shell gives
// is read.
func TestWhatIsOpened(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(fifo, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, link, t.TempDir(), "/dev/zero", "/proc/self/environ",
		"/proc/self/fd/../environ", "/sys/kernel/uevent_seqnum"} {
		for _, name := range []string{path, (&Selection{Path: path, Query: mmdb.Query{Country: true,
			Values: []string{"AQ"}}}).String()} {
			if f, err := In("/")(name); err == nil || !strings.Contains(err.Error(), "file") {
				t.Errorf("%s: %v, %v", name, f, err)
			}
		}
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f, err := In("/")(fmt.Sprintf("/proc/self/fd/%d", r.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	go func() { // the reader waits for it
		_, _ = w.WriteString("192.0.2.1\n")
		_ = w.Close()
	}()
	if text, err := io.ReadAll(f); err != nil || string(text) != "192.0.2.1\n" {
		t.Errorf("of a pipe: %q, %v", text, err)
	}
}
