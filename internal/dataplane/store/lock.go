package store

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Pauses between two attempts to take a lock. Single additions to a set hold theirs for
// microseconds, the replace of a large one for half a second.
const (
	flockPause    = 50 * time.Microsecond
	flockMaxPause = 5 * time.Millisecond
)

// FlockQuiet is the time that a lock is waited for without a word.
const FlockQuiet = time.Second

// OnWait, if it is set, is told once of each lock that is waited for longer: which, and who holds
// it. A program sets it before it uses the package.
var OnWait func(what string)

// Flock waits for an exclusive lock until ctx ends; then the error says who holds it. A lock that
// is free is taken even if ctx has ended.
func Flock(ctx context.Context, f *os.File) error {
	begun, told := time.Now(), false
	for pause := flockPause; ; pause = min(2*pause, flockMaxPause) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return err
		}
		if !told && OnWait != nil && time.Since(begun) > FlockQuiet {
			told = true
			OnWait(fmt.Sprintf("waiting for %s, which holds %s", holder(f), f.Name()))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is held by %s: %w", f.Name(), holder(f), ctx.Err())
		case <-time.After(pause):
		}
	}
}

// holder names the process that has locked a file, by /proc/locks (proc_locks(5)). There it is
// missing if it belongs to another PID namespace, or the file to a file system whose device number
// differs from that of its files.
func holder(f *os.File) string {
	const unknown = "another process"
	var st unix.Stat_t
	locks, err := os.ReadFile("/proc/locks")
	if err != nil || unix.Fstat(int(f.Fd()), &st) != nil {
		return unknown
	}
	file := fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	for lines := bufio.NewScanner(bytes.NewReader(locks)); lines.Scan(); {
		// "1: FLOCK ADVISORY WRITE 4711 00:1a:1234 0 EOF"; those who wait have "->" behind the
		// number.
		w := strings.Fields(lines.Text())
		if len(w) < 6 || w[1] != "FLOCK" || w[5] != file {
			continue
		}
		pid, err := strconv.Atoi(w[4])
		if err != nil || pid <= 0 {
			return unknown
		}
		if pid == os.Getpid() {
			return "this process"
		}
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if err != nil {
			return fmt.Sprintf("process %d", pid)
		}
		return fmt.Sprintf("process %d (%s)", pid, bytes.TrimSpace(name))
	}
	return unknown
}
